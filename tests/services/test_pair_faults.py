"""The two servers of a pair are killed and stopped at seeded moments under traffic.

A term of a server lasts from the first request that it answered to the last. Terms of two servers never overlap: else
both would have been active at once. Each call ends in bounded time with its own reply, and all are answered once both
servers are there.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from tests.faults.cluster import Process, until
from tests.services.callers import Caller, all_answered, ended, strike
from tests.services.naming_server import Answer
from tests.services.running import Town, address

pytestmark = pytest.mark.faults

CALLERS, STRIKES = 4, 6
HEARTBEAT, TIMEOUT, SETTLE, TRIES = 1.0, 1.0, 2.0, 5
BOUND = TIMEOUT * TRIES + SETTLE * (TRIES - 1)


class Duo:
    """A primary and a backup, as processes."""

    def __init__(self, town: Town) -> None:
        states = {"primary": address(), "backup": address()}
        self.addresses = [address(), address()]
        self.servers = []
        for role, other, bind in zip(("primary", "backup"), ("backup", "primary"), self.addresses, strict=True):
            pair = {"role": role, "state": states[role], "peer": states[other], "heartbeat": HEARTBEAT}
            facts = {"name": role, "bind": bind, "kind": "lazy", "pair": pair}
            process = Process(role, town.directory, ["-m", "tests.services.naming_server", json.dumps(facts)])
            town.processes.append(process)
            self.servers.append(process.start())
        for process in self.servers:
            process.wait_line("server")

    def callers(self) -> list[Caller]:
        """Callers of which half begin at the backup."""
        turned = [self.addresses, self.addresses[::-1]]
        return [Caller(turned[number % 2], "star", number, TIMEOUT, TRIES, BOUND).start() for number in range(CALLERS)]


def overlaps(answers: Sequence[Answer]) -> list[str]:
    """Terms of two servers that were at one time."""
    terms: dict[tuple[str, int, int], list[float]] = {}
    for answer in answers:
        terms.setdefault((answer.name, answer.process, answer.term), []).append(answer.seconds)
    lasted = sorted((min(times), max(times), *term) for term, times in terms.items())
    found, latest = [], lasted[0]
    for one in lasted[1:]:
        if one[0] < latest[1] and one[2:] != latest[2:]:
            found.append(f"{latest} and {one}")
        latest = max(one, latest, key=lambda term: term[1])
    return found


def judge(callers: Sequence[Caller]) -> None:
    """End the callers, and see that nothing was that must not be."""
    for caller in callers:
        caller.end()
    assert [caller.flaws for caller in callers] == [[]] * len(callers)
    assert overlaps([answer for caller in callers for answer in caller.answers]) == []


def test_two_terms_at_one_time_are_found() -> None:
    def answer(name: str, term: int, seconds: float) -> Answer:
        return Answer(name, 1, term, seconds, b"")

    one_after_the_other = [answer("a", 1, 1.0), answer("a", 1, 2.0), answer("b", 1, 2.1), answer("a", 2, 3.0)]
    assert overlaps(one_after_the_other) == []
    assert len(overlaps([*one_after_the_other, answer("a", 1, 2.2)])) == 1
    assert len(overlaps([answer("a", 1, 1.0), answer("a", 1, 9.0), answer("b", 1, 2.0), answer("b", 2, 3.0)])) == 2


@pytest.mark.parametrize("seed", [1, *[pytest.param(seed, marks=pytest.mark.nightly) for seed in (2, 3)]])
def test_random_faults_under_traffic_lose_no_call(seed: int, tmp_path: Path) -> None:
    chance = Random(seed)
    with Town(tmp_path) as town:
        duo = Duo(town)
        callers = duo.callers()
        all_answered(callers, 3)
        for _ in range(STRIKES):
            struck = chance.choice(duo.servers)
            strike(chance, struck, callers, [0, 1, 4, 30])
            if chance.random() < 0.5:
                all_answered(callers, 1)
        all_answered(callers, 20)
        judge(callers)


def test_an_active_server_that_stood_still_leaves_waiting_requests_to_the_other(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        duo = Duo(town)
        primary = duo.servers[0]
        callers = duo.callers()
        all_answered(callers, 3)
        assert {answer.name for caller in callers for answer in caller.answers} == {"primary"}
        primary.pause()
        until(lambda: callers[0].answers[-1].name == "backup", "the backup has taken over")
        all_answered(callers, 5)
        primary.resume()
        all_answered(callers, 20)
        assert {caller.answers[-1].name for caller in callers} == {"backup"}
        judge(callers)
        assert "was paused" in primary.errors.read_text()
        answers = [answer for caller in callers for answer in caller.answers]
        assert {(answer.name, answer.term) for answer in answers} == {("primary", 1), ("backup", 1)}


def test_a_quick_restart_of_the_primary_makes_no_two_masters(tmp_path: Path) -> None:
    with Town(tmp_path) as town:
        duo = Duo(town)
        primary, _ = duo.servers
        callers = duo.callers()
        all_answered(callers, 3)
        for _ in range(3):
            primary.kill()
            primary.start()
            all_answered(callers, 2)
        assert ended(callers) > 0
        judge(callers)
