"""Broker and workers are killed and stopped at seeded moments under traffic, and judged as queues are."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from pubsub.services.client import ServiceClient
from tests.faults.cluster import until
from tests.services.running import Town, address
from tests.services.test_faults_under_traffic import CALLERS, STRIKES, TRIES, TRY_SECONDS, WORKERS, Caller, strike

pytestmark = pytest.mark.faults


@dataclass
class MajordomoCaller(Caller):
    """Calls in a version of the protocol."""

    kind: str = "mdp"

    def start(self) -> MajordomoCaller:
        self.client = ServiceClient(self.address, kind=self.kind, timeout=TRY_SECONDS, tries=TRIES)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self


@pytest.mark.parametrize("seed", [1, *[pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3)]])
def test_random_faults_under_traffic_of_both_versions_lose_no_call(seed: int, tmp_path: Path) -> None:
    chance, at = random.Random(seed), address()
    with Town(tmp_path) as town:
        broker = town.service("broker", "broker", "--bind", at, "--expiry", "2")
        workers = [
            town.service(f"worker{n}", "work", "echo", "--kind", "mdp2" if n else "mdp", "--broker", at)
            for n in range(WORKERS)
        ]
        for process in (broker, *workers):
            process.wait_line("broker" if process is broker else "worker")
        kinds = ["mdp", "mdp2"] * CALLERS
        callers = [MajordomoCaller(at, n, kind=kinds[n]).start() for n in range(CALLERS)]
        until(lambda: all(caller.answered > 5 for caller in callers), "calls are answered")
        for _ in range(STRIKES):
            strike(chance, chance.choice([broker, *workers]), callers)  # type: ignore[arg-type]
        settled = [caller.answered for caller in callers]
        until(
            lambda: all(caller.answered > before + 20 for caller, before in zip(callers, settled, strict=True)),
            "calls are answered once all are back",
        )
        for caller in callers:
            caller.end()
        assert [caller.flaws for caller in callers] == [[]] * CALLERS
        assert not any("Traceback" in process.errors.read_text() for process in (broker, *workers))
