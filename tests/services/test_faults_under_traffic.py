"""Queues and workers are killed and stopped at seeded moments under traffic, and judged.

What must hold: a reply is the caller's own; nothing comes that nobody waits for; each call is answered or given up in
bounded time; and once all are back, every call is answered.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

import pytest

from pubsub.services.client import ServiceClient
from pubsub.services.errors import CallTimeout, NoWorker
from tests.faults.cluster import Process, until
from tests.services.running import Town, address

pytestmark = pytest.mark.faults

TRY_SECONDS, TRIES = 0.5, 4
CALLERS, WORKERS, STRIKES = 4, 3, 6
SLACK_SECONDS = 20.0
"""This machine may be busy with something else."""


@dataclass
class Caller:
    """Calls again and again on a thread, and notes what must not be."""

    address: str
    name: int
    answered: int = 0
    given_up: int = 0
    flaws: list[str] = field(default_factory=list)
    stopping: bool = False

    def start(self) -> Caller:
        self.client = ServiceClient(self.address, kind="lazy", timeout=TRY_SECONDS, tries=TRIES)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def run(self) -> None:
        number = 0
        while not self.stopping:
            number += 1
            body = b"request %d of caller %d" % (number, self.name)
            began = time.monotonic()
            try:
                reply = self.client.call("echo", body)
            except (CallTimeout, NoWorker):  # A broker that has just started has no workers yet.
                self.given_up += 1
            else:
                self.answered += 1
                if reply.body != body:
                    self.flaws.append(f"{body!r} was answered {reply.body!r}")
            took = time.monotonic() - began
            if took > TRY_SECONDS * TRIES + SLACK_SECONDS:
                self.flaws.append(f"{body!r} took {took:.1f} s")

    def end(self) -> None:
        self.stopping = True
        self.thread.join()
        if self.client._calling._core.counters["unasked"]:
            self.flaws.append("a reply came for which nobody waited")
        self.client.close()


def strike(chance: random.Random, process: Process, callers: list[Caller]) -> None:
    """Kill or stop a process under traffic; some calls later it is back."""
    before = sum(caller.answered + caller.given_up for caller in callers)

    def later() -> bool:
        return sum(caller.answered + caller.given_up for caller in callers) >= before + chance_calls

    chance_calls = chance.choice([1, 5, 20])
    if chance.random() < 0.5:
        process.kill()
        until(later, "calls end while it is dead")
        process.start()
    else:
        process.pause()
        until(later, "calls end while it is stopped")
        process.resume()


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    ("kind", "seed"),
    [
        ("simple", 1),
        ("paranoid", 2),
        pytest.param("simple", 2, marks=NIGHTLY),
        pytest.param("paranoid", 1, marks=NIGHTLY),
    ],
)
def test_random_faults_under_traffic_lose_no_call(kind, seed, tmp_path):
    chance = random.Random(seed)
    front, back = address(), address()
    with Town(tmp_path) as town:
        queue = town.service(
            "queue",
            *("queue", "--kind", kind, "--frontend", front, "--backend", back, "--heartbeat", "0.2"),
        )
        workers = [
            town.service(f"worker{number}", "work", "echo", "--kind", kind, "--broker", back)
            for number in range(WORKERS)
        ]
        for process in (queue, *workers):
            process.wait_line("queue" if process is queue else "worker")
        callers = [Caller(front, number).start() for number in range(CALLERS)]
        until(lambda: all(caller.answered > 5 for caller in callers), "calls are answered")
        for _ in range(STRIKES):
            strike(chance, chance.choice([queue, *workers]), callers)
        settled = [caller.answered for caller in callers]
        until(
            lambda: all(caller.answered > before + 20 for caller, before in zip(callers, settled, strict=True)),
            "calls are answered once all are back",
        )
        for caller in callers:
            caller.end()
        assert [caller.flaws for caller in callers] == [[]] * CALLERS
