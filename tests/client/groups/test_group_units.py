"""The parts of a member's core, each alone: every state with every event, places, the queue, the pace and requests."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.client.core import group_in_hand, group_life
from pubsub.client.core.group_holdings import Holdings
from pubsub.client.core.group_in_hand import ABSENT, ASKING, ASKS, CLAIMED, HELD, LOST, OFFERED, REFUSED, RecordInHand
from pubsub.client.core.group_life import ENDED, LEAVING, LEFT, LIFE, NEW, WORKING
from pubsub.client.core.group_pace import AHEAD_SECONDS, Pace
from pubsub.client.core.group_places import Places, left_of
from pubsub.client.core.group_queue import Entry, GroupQueue
from pubsub.client.core.group_request import Wish, attempt_error, dead_reason
from pubsub.client.core.message import RunSlice
from pubsub.protocol import Run, group_bodies
from pubsub.protocol.group_bodies import Holding, Range, Say, Tried, join_say, split_say

LOG = "00000000000000aa"


def piece(first: int, count: int) -> RunSlice:
    return RunSlice(
        Run(LOG, first, "p/00000000000000cc", first, 1, 0, list(range(1, count + 1))), bytes(count), 0, count
    )


def entry(first: int, count: int = 1, part: int | None = None, *, claimed: bool = True) -> Entry:
    return Entry(piece(first, count), first, first + count, part, 0, claimed=claimed)


# States


@pytest.mark.parametrize(
    ("state", "event"), list(product((OFFERED, ASKING, CLAIMED, LOST), (ASKS, HELD, REFUSED, ABSENT))), ids=str
)
def test_a_record_in_hand_has_a_next_state_for_each_event_that_can_happen(state: str, event: str) -> None:
    hand = RecordInHand(LOG, 1, 1, 2, None, piece(1, 1), 1, state)
    if event == REFUSED and state in {OFFERED, CLAIMED}:  # Nobody asked.
        with pytest.raises(KeyError):
            hand.event(event)
        return
    hand.event(event)
    expected = {
        ASKS: {OFFERED: ASKING}.get(state, state),
        HELD: LOST if state == LOST else CLAIMED,
        REFUSED: LOST,
        ABSENT: LOST if state == CLAIMED else state,
    }
    assert hand.state == expected[event]


def test_only_a_claimed_record_may_commit_and_a_lost_one_stays_lost() -> None:
    to_claimed = {(state, event) for (state, event), after in group_in_hand.NEXT.items() if after == CLAIMED}
    assert {event for state, event in to_claimed if state != CLAIMED} == {HELD}
    assert {after for (state, _), after in group_in_hand.NEXT.items() if state == LOST} == {LOST}


def test_each_state_of_a_process_has_a_next_state_for_each_event() -> None:
    events = {group_life.CALLED, group_life.ANSWERED, group_life.LEAVES, group_life.ENDS, group_life.JOINED}
    assert LIFE.keys() == set(product({NEW, WORKING, LEAVING, LEFT, ENDED}, events))
    assert {LIFE[state, group_life.ENDS] for state in (NEW, WORKING, LEAVING, LEFT, ENDED)} == {ENDED}
    assert LIFE[LEFT, group_life.CALLED] == NEW  # A new call settles first.
    assert LIFE[ENDED, group_life.JOINED] == NEW


# Places

offsets = st.integers(1, 12)
spans = st.lists(st.tuples(offsets, st.integers(1, 4), st.sampled_from([0, 1])), max_size=6)


@given(spans, spans)
def test_places_are_sets_of_records_by_part(added: Any, removed: Any) -> None:
    places, model = Places(), set[tuple[int, int]]()
    for low, length, part in added:
        places.add((LOG, part), low, low + length)
        model |= {(offset, part) for offset in range(low, low + length)}
    for low, length, part in removed:
        places.discard((LOG, part), low, low + length)
        model -= {(offset, part) for offset in range(low, low + length)}
    assert {(offset, one.part) for one in places for offset in range(one.low, one.high)} == model
    assert bool(places) == bool(model)
    assert all(
        places.has((LOG, part), offset) == ((offset, part) in model) for offset in range(1, 17) for part in (0, 1)
    )
    assert Places(places) == places


@given(spans, offsets, st.integers(1, 4))
def test_joining_a_range_plans_what_adding_it_makes(added: Any, low: int, length: int) -> None:
    places = Places(Range(LOG, one, one + more, None) for one, more, _ in added)
    before, (first, last, replaced) = places.of((LOG, None)), places.joined((LOG, None), low, low + length)
    rows = {start: stop for start, stop in before if start not in replaced} | {first: last}
    places.add((LOG, None), low, low + length)
    assert sorted(rows.items()) == places.of((LOG, None))


def test_the_rest_of_a_range_is_left() -> None:
    known = Places([Range(LOG, 3, 5, None), Range(LOG, 8, 20, None), Range(LOG, 1, 2, 7)])
    assert left_of(Range(LOG, 1, 10), known) == [(1, 3), (5, 8)]
    assert left_of(Range(LOG, 3, 5), known) == []


# The queue


def test_a_shared_queue_hands_out_record_by_record_with_the_gaps() -> None:
    queue = GroupQueue()
    queue.add(Entry(piece(3, 2), 1, 9, None, 2, claimed=False))
    first = queue.front(claimed=False)
    assert first is not None
    assert queue.front(claimed=True) is None
    one = queue.take(first)
    assert (one.offset, one.low, one.high, one.attempts, one.claimed) == (3, 1, 4, 2, False)
    two = queue.take(first)
    assert (two.offset, two.low, two.high) == (4, 4, 9)
    assert not queue
    assert queue.offered == 0


def test_parts_take_turns_and_a_part_in_hand_hands_out_nothing() -> None:
    queue = GroupQueue()
    for offset, part in ((1, 0), (2, 0), (3, 1)):
        queue.add(entry(offset, part=part))
    seen = []
    for _ in range(2):
        found = queue.front(claimed=True)
        assert found is not None
        seen.append(queue.take(found).offset)
        queue.blocked.add(found.part)
    assert seen == [1, 3]
    assert queue.front(claimed=True) is None
    queue.blocked.discard(0)
    found = queue.front(claimed=True)
    assert found is not None
    assert found.offset == 2
    assert [one.offset for one in queue.remove(0)] == [2]
    assert queue.remove(0) == []


def test_a_plan_takes_nothing_until_it_is_dropped() -> None:
    queue = GroupQueue()
    queue.add(entry(1, 3))
    queue.add(entry(4, 2))
    plan = queue.plan(4)
    assert [(one.offset, number) for one, number in plan] == [(1, 3), (4, 1)]
    assert queue.records == 5
    for one, number in plan:
        queue.drop(one, number)
    assert [(one.offset, one.low) for one in queue.entries()] == [(5, 5)]
    assert [one.offset for one in queue.clear()] == [5]


def test_an_entry_splits_where_a_test_says() -> None:
    whole = Entry(piece(3, 4), 1, 9, None, 0, claimed=True)
    parts = list(whole.split(lambda offset: offset != 4))
    assert [(one.offset, one.records, one.low, one.high) for one in parts] == [(3, 1, 1, 4), (5, 2, 5, 9)]


# Pace and requests


@pytest.mark.parametrize("queued", [False, True])
def test_what_fast_handlers_have_in_hand_is_claimed_in_one_message(*, queued: bool) -> None:
    holdings = Holdings(0)
    for first in (1, 2, 3):
        holdings.queue.add(entry(first, claimed=False))
    hands = [holdings.take(found, 1, 0.0) for _ in range(2) if (found := holdings.queue.front(claimed=False))]
    assert [hand.state for hand in hands] == [OFFERED, OFFERED]
    assert not holdings.claims(queued=False)
    hands[0].event(ASKS)
    found = [(one.low, one.high) for one in holdings.claims(queued=queued)]
    assert found == ([(1, 4)] if queued else [(1, 2)])


def test_the_pace_decides_how_much_is_taken_ahead() -> None:
    pace = Pace()
    assert (pace.fast, pace.ahead(4)) == (False, 4)
    pace.took(0.001)
    assert pace.fast
    assert pace.ahead(2) == int(2 * AHEAD_SECONDS / 0.001)
    for _ in range(40):
        pace.took(0.5)
    assert (pace.fast, pace.ahead(4)) == (False, 4)
    pace = Pace()
    pace.took(0.0)
    assert pace.ahead(1) == 5_000


@given(st.text(max_size=400))
def test_a_reason_has_the_form_of_the_protocol(text: str) -> None:
    reason = dead_reason(text.encode("utf-8", "replace").decode())
    assert 0 < len(reason) <= 300
    assert all("!" <= letter <= "~" for letter in reason)
    assert "%" not in reason[-2:] or reason[-1:] != "%"


@given(st.text(max_size=400))
def test_an_error_of_an_attempt_has_the_form_of_the_protocol(text: str) -> None:
    said = Say(tried=(Tried(LOG, 1, 2, attempt_error("E: " + text.encode("utf-8", "replace").decode())),))
    assert said.tried[0].error
    assert split_say(join_say(said)) == said


def test_a_wish_round_trips_through_the_state_file() -> None:
    for wish in (Wish(), Wish("keyed", 4, (LOG, 3), "redeliver", 1000, 9), Wish(start=0), Wish(start="earliest")):
        assert Wish.of(wish.text()) == wish


def test_a_commit_without_an_fsync_stays_kept_when_another_claim_is_released() -> None:
    """The rules are docs/explanation/groups.md, GR6 and GR9."""
    holdings = Holdings(0)
    first = entry(1, 2)
    holdings.queue.add(first)
    holdings.kept.add((LOG, None), 1, 3)
    said = holdings.say(Places(), 9)
    hand = holdings.take(first, 1, 0.0)
    holdings.finish(hand)
    holdings.answered(said, (Holding(group_bodies.HELD, Range(LOG, 1, 2)),), None)
    assert holdings.say(Places(), 9) == Say(keep=(Range(LOG, 1, 2),))
    holdings.synced()
    assert holdings.say(Places(), 9) == Say(done=(Range(LOG, 1, 2),))
