"""Repeats are recognised per Messenger, in memory that grows with the gaps, with any forged IDs."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.messenger import seen as seen_module
from pubsub.messenger.limits import SEEN_INSTANCES_MAX, SEEN_JUMP_MAX, SEEN_RANGES_MAX, SEEN_SHARE
from pubsub.messenger.seen import COUNT_BITS, Ranges, Seen, Sighting

FIRST, REPEAT, REFUSED = Sighting


@given(st.lists(st.integers(0, 30), max_size=60))
def test_each_id_is_new_once_in_any_order(ids):
    seen, model = Seen(), set()
    for message_id in ids:
        assert seen.see(message_id) is (REPEAT if message_id in model else FIRST)
        model.add(message_id)


def test_the_first_id_may_be_any_since_the_peer_may_have_been_forgotten():
    seen = Seen()
    assert seen.see((1 << 63) - 1) is FIRST
    assert seen.see((1 << 63) - 2) is FIRST


def test_an_id_that_jumps_too_far_is_refused_and_changes_nothing():
    seen = Seen()
    seen.see(1)
    assert seen.see(2 + SEEN_JUMP_MAX) is REFUSED
    assert seen.see(2) is FIRST
    assert seen.see(2) is REPEAT


def test_the_largest_allowed_jump_is_accepted_and_skipped_ids_are_not_lost():
    seen = Seen()
    seen.see(1)
    assert seen.see(1 + SEEN_JUMP_MAX) is FIRST
    assert seen.see(1000) is FIRST


def test_a_restarted_messenger_is_no_repeat_of_its_predecessor():
    seen = Seen()
    for count in range(10):
        assert seen.see((5 << COUNT_BITS) + count) is FIRST
    for count in range(10):
        assert seen.see((9 << COUNT_BITS) + count) is FIRST


def test_late_repeats_of_the_messenger_before_are_still_known():
    seen = Seen()
    for instance in range(SEEN_INSTANCES_MAX + 1):
        seen.see((instance << COUNT_BITS) + 1)
    for instance in range(SEEN_INSTANCES_MAX, 0, -1):
        assert seen.see((instance << COUNT_BITS) + 1) is REPEAT


def test_a_peer_with_ever_new_instances_costs_bounded_memory():
    seen = Seen()
    for instance in range(10_000):
        seen.see(instance << COUNT_BITS)
    assert len(seen._others) <= SEEN_INSTANCES_MAX


@pytest.mark.parametrize("step", [2, 3, 1000])
def test_a_peer_that_leaves_gaps_everywhere_costs_bounded_memory_and_nothing_is_called_twice(step):
    seen = Seen()
    ids = list(range(0, 3 * SEEN_RANGES_MAX * step, step))
    assert all(seen.see(message_id) is FIRST for message_id in ids)
    assert len(seen._counts) <= SEEN_RANGES_MAX
    assert all(seen.see(message_id) is not FIRST for message_id in ids)


def test_an_id_below_the_remembered_gaps_is_refused_and_does_not_count_as_a_repeat():
    seen = Seen()
    for message_id in range(0, 4 * SEEN_RANGES_MAX, 2):
        seen.see(message_id)
    assert seen.see(1) is REFUSED


def test_a_restarted_messenger_is_heard_from_its_first_message_despite_old_gaps():
    seen = Seen()
    for count in range(0, 2 * SEEN_RANGES_MAX + 10, 2):
        seen.see((1 << COUNT_BITS) + count)
    assert seen.see((1 << COUNT_BITS) + 1) is REFUSED
    assert seen.see((2 << COUNT_BITS) + 1) is FIRST
    assert seen.see((1 << COUNT_BITS) + 1) is REFUSED


def test_a_million_ids_nearly_in_order_cost_a_few_ranges():
    seen, chance = Seen(), random.Random(1)
    window = list(range(100))
    for following in range(100, 20_000):
        place = chance.randrange(len(window))
        assert seen.see(window[place]) is FIRST
        window[place] = following
    assert len(seen._counts) < 100


def test_gaps_of_all_peers_together_are_limited_and_each_keeps_its_share(monkeypatch):
    monkeypatch.setattr(seen_module, "SEEN_TOTAL_MAX", 100)
    ranges = Ranges()
    peers = [Seen(ranges) for _ in range(20)]
    for count in range(0, 400, 2):
        for peer in peers:
            assert peer.see(count) is Sighting.FIRST
            assert ranges.count <= 100 + len(peers) * SEEN_SHARE
    for peer in peers:
        assert peer.see(398) is Sighting.REPEAT
        assert peer.see(398 - 2 * (SEEN_SHARE - 2)) is Sighting.REPEAT
        assert peer.see(1) is Sighting.REFUSED
    for peer in peers:
        peer.forget()
    assert ranges.count == 0


def test_ranges_of_messengers_that_were_before_are_counted_and_forgotten():
    ranges = Ranges()
    peer = Seen(ranges)
    for instance in range(3 * SEEN_INSTANCES_MAX):
        for count in (1, 3, 5):
            peer.see(instance << 32 | count)
        assert ranges.count <= 3 * (SEEN_INSTANCES_MAX + 1)
    peer.forget()
    assert ranges.count == 0
