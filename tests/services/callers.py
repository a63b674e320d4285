"""Callers under faults: each calls again and again on its own thread, and notes violations."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random

from pubsub.services.client import ServiceClient
from pubsub.services.errors import CallTimeout
from tests.faults.cluster import Process, until
from tests.services.naming_server import Answer, parse

SLACK_SECONDS = 20.0
"""This machine may be busy with something else."""


@dataclass
class Caller:
    """One caller of `naming_server`s.

    Attributes:
        bound: seconds in which a call ends, one way or the other.
        answers: what it was told.
        flaws: what must not have been.
    """

    addresses: Sequence[str]
    kind: str
    name: int
    timeout: float
    tries: int
    bound: float
    answers: list[Answer] = field(default_factory=list)
    given_up: int = 0
    flaws: list[str] = field(default_factory=list)
    stopping: bool = False

    def start(self) -> Caller:
        """Begin to call."""
        self.client = ServiceClient(self.addresses, kind=self.kind, timeout=self.timeout, tries=self.tries)
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()
        return self

    def _run(self) -> None:
        number = 0
        while not self.stopping:
            number += 1
            body = b"request %d of caller %d" % (number, self.name)
            began = time.monotonic()
            try:
                answer = parse(self.client.call("", body).body)
            except CallTimeout:
                self.given_up += 1
            else:
                self.answers.append(answer)
                if answer.body != body:
                    self.flaws.append(f"{body!r} was answered {answer!r}")
            took = time.monotonic() - began
            if took > self.bound + SLACK_SECONDS:
                self.flaws.append(f"{body!r} took {took:.1f} s")
            time.sleep(0.01)  # So that they leave the processors to the servers.

    def end(self) -> None:
        """Call no more."""
        self.stopping = True
        self.thread.join()
        if self.client._calling._core.counters["unasked"]:
            self.flaws.append("a reply came for which nobody waited")
        self.client.close()


def ended(callers: Sequence[Caller]) -> int:
    """How many calls have ended."""
    return sum(len(caller.answers) + caller.given_up for caller in callers)


def more_calls(callers: Sequence[Caller], count: int) -> Callable[[], bool]:
    """Whether so many more calls have ended than when this was asked."""
    wanted = ended(callers) + count
    return lambda: ended(callers) >= wanted


def all_answered(callers: Sequence[Caller], count: int) -> None:
    """Wait until each has so many answers more."""
    wanted = [len(caller.answers) + count for caller in callers]
    until(
        lambda: all(len(caller.answers) >= least for caller, least in zip(callers, wanted, strict=True)),
        f"each caller has {count} answers more",
    )


def strike(chance: Random, process: Process, callers: Sequence[Caller], calls: Sequence[int]) -> None:
    """Kill a process, or have it stand still, under traffic; some calls later it is back."""
    over = more_calls(callers, chance.choice(calls))
    if chance.random() < 0.5:
        process.kill()
        until(over, "calls end while it is dead")
        process.start()
    else:
        process.pause()
        until(over, "calls end while it stands still")
        process.resume()
