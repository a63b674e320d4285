"""Members of a group through random loss, doubling, reordering, crashes and power cuts; and each rule left out."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.client.core import group_in_hand
from pubsub.client.core.group_core import GroupCore
from pubsub.client.core.group_holdings import Holdings
from pubsub.client.core.group_in_hand import ABSENT, CLAIMED, OFFERED
from pubsub.client.core.group_member import GroupMember
from pubsub.client.core.group_places import Places
from pubsub.protocol.groups import Work
from tests.client.groups.real_server import RealServer
from tests.client.groups.world import World

STEPS = 250
MODES = [(0, 1), (0, 3), (3, 1), (3, 3)]
"""Parts, and handlers side by side."""


def test_a_power_cut_counts_once_although_later_processes_are_killed() -> None:
    """A claim that no handler has begun gets no attempt from a kill."""
    world = World(0, parts=0, workers=1, before=True)
    world.healthy = True
    process = world.processes[0]
    for key in (b"a", b"b", b"c"):
        world.server.put(key)

    def work() -> dict[int, int]:
        process.open_call(workers=1, before=True)
        process.turn()
        process.turn()
        assert process.member.holdings.queue.records > 0
        return dict(world.server.rows.attempts)

    assert work() == {}
    process.fsync()
    process.lose_power()
    process.start()
    counted = work()
    assert counted
    assert set(counted.values()) == {1}
    for _ in range(3):
        process.crash()
        process.start()
        assert work() == counted


@pytest.mark.parametrize(("parts", "workers"), MODES)
@pytest.mark.parametrize("seed", range(4))
def test_no_effect_is_lost_doubled_untold_or_out_of_order(seed: int, parts: int, workers: int) -> None:
    world = World(seed, parts=parts, workers=workers).run(STEPS)
    assert world.violations == []


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "workers"), MODES)
def test_the_same_holds_at_the_core_of_a_server(parts: int, workers: int) -> None:
    world = World(parts + workers, server=RealServer, parts=parts, workers=workers)
    try:
        world.run(120)
    finally:
        world.server.close()
    assert world.violations == []


# Breakages: what each rule is for


def commits_without_a_claim(patch: pytest.MonkeyPatch) -> None:
    """GR1"""
    patch.setitem(group_in_hand.NEXT, (OFFERED, group_in_hand.ASKS), CLAIMED)
    patch.setitem(group_in_hand.NEXT, (CLAIMED, ABSENT), CLAIMED)


def acts_on_any_answer(patch: pytest.MonkeyPatch) -> None:
    """GR5"""

    def receive(self: GroupCore, token: int, status: Any, now: float) -> None:
        flight = self._group_flights.get(token)
        if flight is not None and flight.member.sent is not None and isinstance(flight.sent, Work):
            self._worked(flight.member, flight.sent, status, flight.proxy, now)

    patch.setattr(GroupCore, "receive", receive)
    patch.setattr(GroupCore, "_forget", lambda self, tokens: tokens.clear())


def names_no_committed_work(patch: pytest.MonkeyPatch) -> None:
    """GR6"""
    finish = Holdings.finish

    def forgets(self: Holdings, hand: Any) -> None:
        finish(self, hand)
        self.kept.discard((hand.log, hand.part), hand.low, hand.high)

    patch.setattr(Holdings, "finish", forgets)


def tells_nothing_after_a_start(patch: pytest.MonkeyPatch) -> None:
    """GR8"""
    patch.setattr(GroupMember, "load_work", lambda self, done, begun, cuts: None)


def tells_what_no_fsync_covers(patch: pytest.MonkeyPatch) -> None:
    """GR9"""
    finish = Holdings.finish

    def at_once(self: Holdings, hand: Any) -> None:
        finish(self, hand)
        self.synced()

    patch.setattr(Holdings, "finish", at_once)


def keeps_what_stands_behind(patch: pytest.MonkeyPatch) -> None:
    """GR16"""
    patch.setattr(Holdings, "_return_part", lambda self, part: None)


def counts_no_attempt_before_the_handler(patch: pytest.MonkeyPatch) -> None:
    """GR23"""
    patch.setattr(GroupMember, "begin_changes", lambda self, entry: [])


def knows_of_no_power_cut(patch: pytest.MonkeyPatch) -> None:
    """GR23"""
    load = GroupMember.load_work

    def uncut(self: GroupMember, done: Places, begun: Any, cuts: int) -> None:
        load(self, done, begun, self.cuts)

    patch.setattr(GroupMember, "load_work", uncut)


BREAKAGES = [
    (commits_without_a_claim, {}),
    (names_no_committed_work, {}),
    (tells_nothing_after_a_start, {}),
    (tells_what_no_fsync_covers, {}),
    (keeps_what_stands_behind, {"parts": 3}),
    (counts_no_attempt_before_the_handler, {"before": True, "operated": False}),
    (knows_of_no_power_cut, {"before": True, "operated": False}),
    (acts_on_any_answer, {}),
]


@pytest.mark.parametrize(("breakage", "chosen"), BREAKAGES, ids=[one.__name__ for one, _ in BREAKAGES])
def test_each_rule_left_out_is_noticed(breakage: Any, chosen: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    breakage(monkeypatch)
    for seed in range(200):
        try:
            if World(seed, **chosen).run(STEPS).violations:
                return
        except (AssertionError, KeyError, AttributeError):
            return
    pytest.fail("it was not noticed")
