"""Received records that are not taken yet: in order, divided if a call asks for fewer, and given back unchanged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rig import LOG, OTHER, PUBLISHER, batch, records

from pubsub.client.core.message import Batch
from pubsub.client.core.prefetch import Loss, Prefetch, Taking
from pubsub.protocol import Records


def filled(*counts: int) -> Prefetch:
    """Build batches with so many records each, one after the other."""
    prefetch, offset = Prefetch(), 1
    for count in counts:
        prefetch.add(Records(bytes(batch(offset, offset, count).body)))
        offset += count
    return prefetch


def taken(prefetch: Prefetch, most: int, before: dict[str, int] | None = None) -> Taking:
    taking = prefetch.take(most, before or {})
    assert isinstance(taking, Taking)
    return taking


def test_messages_stay_in_the_prefetch_until_they_are_taken() -> None:
    prefetch = filled(2, 3)
    assert [message.counter for message in Batch("t", taken(prefetch, 4).pieces)] == [1, 2, 3, 4]
    assert (prefetch.records, prefetch.last) == (5, (LOG, 5))
    prefetch.took(taken(prefetch, 4))
    assert (prefetch.records, [message.counter for message in Batch("t", taken(prefetch, 9).pieces)]) == (1, [5])


def test_messages_taken_before_are_skipped_and_passed() -> None:
    taking = taken(filled(2, 3), 9, {PUBLISHER: 3})
    assert [message.counter for message in Batch("t", taking.pieces)] == [4, 5]
    assert (taking.records, taking.position, taking.counters) == (5, (LOG, 5), {PUBLISHER: 5})


@given(st.integers(1, 9), st.integers(0, 2))
def test_messages_in_two_logs_are_taken_once_over_any_number_of_calls(most: int, before: int) -> None:
    prefetch, other = Prefetch(), "p/00000000000000ee"
    for log, counters, publisher in ((LOG, [1, 2], PUBLISHER), (LOG, [7], other), (OTHER, [1, 2, 3], PUBLISHER)):
        prefetch.add(Records(bytes(records(1, counters, publisher, log).body)))
    seen = {PUBLISHER: before} if before else {}
    found: list[tuple[str, int]] = []
    while prefetch:
        taking = taken(prefetch, most, seen)
        found += [(message.publisher, message.counter) for message in Batch("t", taking.pieces)]
        seen |= taking.counters
        prefetch.took(taking)
    assert sorted(found) == sorted([(other, 7), *[(PUBLISHER, counter) for counter in range(before + 1, 4)]])
    assert prefetch.records == prefetch.size == 0


def test_a_loss_stops_a_taking_and_is_found_by_the_next_one() -> None:
    prefetch, loss = filled(2), Loss((LOG, 3), (LOG, 4))
    prefetch.lose(loss)
    prefetch.took(taken(prefetch, 9))
    assert prefetch.take(9, {}) == loss
    prefetch.pass_loss()
    assert not prefetch


@given(st.lists(st.integers(1, 5), min_size=1, max_size=5), st.integers(1, 25))
def test_returned_messages_come_again_unchanged(counts: list[int], most: int) -> None:
    prefetch = filled(*counts)
    before = prefetch.records, Batch("t", taken(prefetch, 100).pieces).bodies()
    taking = taken(prefetch, most)
    prefetch.took(taking)
    prefetch.return_taken(taking.pieces)
    assert (prefetch.records, Batch("t", taken(prefetch, 100).pieces).bodies()) == before
