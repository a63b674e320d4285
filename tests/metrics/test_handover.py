"""The hand-over between a loop and a request for a snapshot."""

from __future__ import annotations

from pubsub.metrics.handover import Handover
from pubsub.metrics.snapshot import Snapshot

SNAPSHOT = Snapshot("proxy", "p1", "", {})


def test_a_request_wakes_the_loop_and_gets_the_snapshot() -> None:
    woken: list[bool] = []
    handover = Handover(lambda: woken.append(handover.wanted))
    assert not handover.wanted
    taken: list[Snapshot] = []
    handover.ask(taken.append)
    assert woken == [True]
    handover.give(SNAPSHOT)
    assert taken == [SNAPSHOT]
    assert not handover.wanted


def test_an_earlier_request_is_forgotten() -> None:
    handover = Handover(lambda: None)
    first: list[Snapshot] = []
    second: list[Snapshot] = []
    handover.ask(first.append)
    handover.ask(second.append)
    handover.give(SNAPSHOT)
    assert (first, second) == ([], [SNAPSHOT])


def test_a_snapshot_without_a_request_is_dropped() -> None:
    handover = Handover(lambda: None)
    handover.give(SNAPSHOT)
    taken: list[Snapshot] = []
    handover.ask(taken.append)
    assert (handover.wanted, taken) == (True, [])
    later = Snapshot("proxy", "p1", "later", {})
    handover.give(later)
    assert (handover.wanted, taken) == (False, [later])
