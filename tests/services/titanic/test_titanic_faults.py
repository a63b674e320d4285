"""Titanic, broker and workers are killed and stopped at seeded moments; each accepted request has one stored reply."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from pubsub.services.client import ServiceClient
from pubsub.services.core.titanic.requests import State
from pubsub.services.errors import CallTimeout
from pubsub.services.titanic.store import Store
from tests.faults.cluster import Process, until
from tests.services.running import Town, address
from tests.services.test_faults_under_traffic import Caller

pytestmark = pytest.mark.faults

CALLERS, STRIKES = 3, 8


@dataclass
class TitanicCaller(Caller):
    """Calls by way of Titanic, and waits for as long as it takes."""

    def start(self) -> TitanicCaller:
        self.client = ServiceClient(self.address, kind="titanic", timeout=1.0, tries=300)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self


def strike(chance: random.Random, process: Process, at: str, service: str) -> None:
    """Kill a process and start it again, or stop it until a call of its service finds that out."""
    if process.name != "titanic" or chance.random() < 0.6:
        process.kill()
        process.start()
        return
    process.pause()
    with ServiceClient(at, timeout=0.3, tries=1) as client:
        until(lambda: is_silent(client, service), "nobody answers")
    process.resume()


def is_silent(client: ServiceClient, service: str) -> bool:
    try:
        client.call(service, b"0" * 32)
    except CallTimeout:
        return True
    return False


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_each_accepted_request_has_one_stored_reply_after_any_deaths(seed: int, tmp_path: Path) -> None:
    chance, at, data = random.Random(seed), address(), tmp_path / "data"
    with Town(tmp_path) as town:
        broker = town.service("broker", "broker", "--bind", at)
        workers = [town.service(f"worker{n}", "work", "echo", "--broker", at) for n in range(2)]
        titanic = town.service("titanic", "titanic", "--broker", at, "--dir", str(data), "--reply-timeout", "1")
        for process in (broker, titanic, *workers):
            process.wait_line(process.name[:6])
        callers = [TitanicCaller(at, n).start() for n in range(CALLERS)]
        until(lambda: all(caller.answered > 3 for caller in callers), "calls are answered")
        for n in range(STRIKES):
            goal = sum(caller.answered for caller in callers) + chance.choice([0, 1, 5])
            until(lambda goal=goal: sum(caller.answered for caller in callers) >= goal, "calls are answered")
            strike(chance, titanic if n % 2 else chance.choice([broker, *workers]), at, "titanic.reply")
        for caller in callers:
            caller.end()
        assert [(caller.flaws, caller.given_up) for caller in callers] == [([], 0)] * CALLERS
        titanic.kill()
    store = Store(data)
    try:
        entries = store.entries()
        assert {entry.state for entry in entries} <= {State.REPLIED, State.CLOSED}
        assert len(entries) == len({entry.key for entry in entries}) == sum(caller.answered for caller in callers)
    finally:
        store.close()
