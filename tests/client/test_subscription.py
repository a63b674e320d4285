"""Taking from the prefetch: positions, duplicates, chunks, attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig import LOG, PUBLISHER, batch, records, settled

from pubsub.client.core.changes import Confirmed, Intended, Taken
from pubsub.client.core.message import Batch
from pubsub.client.core.prefetch import Loss, Taking
from pubsub.client.core.retries import Retries
from pubsub.client.core.subscription import Subscription
from pubsub.protocol import Subscribe
from pubsub.protocol.names import Start


def make(taken: dict[str, int] | None = None) -> Subscription:
    sub = Subscription("c", "t", Retries(1, 3, 0.1), lambda topic: dict(taken or {}))
    sub.intended(True)
    change = sub.confirm(settled(sub.ask(1, 1), (LOG, 0)))
    assert isinstance(change, Confirmed)
    sub.confirmed(change)
    return sub


def take(sub: Subscription, most: int) -> list[bytes]:
    taking = sub.take(most)
    assert isinstance(taking, Taking)
    sub.took(taking)
    return Batch("t", taking.pieces).bodies()


def test_taking_changes_nothing_until_its_commit_has_succeeded() -> None:
    sub = make()
    sub.received(batch(1, 10, 4), 0.0)
    first, second = sub.take(2), sub.take(2)
    assert first == second
    assert (sub.prefetch.records, sub.cursor.position) == (4, (LOG, 0))
    assert take(sub, 2) == [b"10", b"11"]
    assert (sub.prefetch.records, sub.cursor.position, sub.after) == (2, (LOG, 2), (LOG, 4))


def test_a_counter_taken_before_is_dropped_and_its_position_is_passed() -> None:
    sub = make({PUBLISHER: 12})
    sub.received(batch(1, 10, 5), 0.0)
    assert take(sub, 1) == [b"13"]
    assert sub.cursor.position == (LOG, 4)
    assert take(sub, 9) == [b"14"]


def test_only_the_position_moves_if_all_messages_were_taken_before() -> None:
    sub = make({PUBLISHER: 99})
    sub.received(batch(1, 10, 5), 0.0)
    assert take(sub, 1) == []
    assert sub.cursor.position == (LOG, 5)
    assert not sub.available


def test_the_counter_of_a_publisher_counts_across_subscriptions() -> None:
    sub = make()
    sub.received(records(1, [5]), 0.0)
    assert take(sub, 1) == [b"5"]
    sub.intended(False)
    sub.intended(True)
    sub.cursor.position = (LOG, 0)
    sub.received(records(1, [4, 5, 6]), 0.0)
    assert take(sub, 9) == [b"6"]


@pytest.mark.parametrize("start", ["earliest", 7, (LOG, 4)])
def test_a_start_before_the_end_is_sent_and_taken_messages_are_taken_again(start: Start) -> None:
    sub = make()
    sub.received(records(1, [5]), 0.0)
    assert take(sub, 1) == [b"5"]
    assert sub.intend(True, fresh=True, start=start) == Intended("t", True, True, start)
    sub.intended(True, fresh=True, start=start)
    asked = sub.ask(2, 1)
    assert isinstance(asked, Subscribe)
    assert (asked.start, asked.continues) == (start, 0)
    sub.confirmed(sub.confirm(settled(asked, (LOG, 0))))
    sub.received(records(1, [4, 5, 6]), 0.0)
    assert take(sub, 9) == [b"4", b"5", b"6"]
    sub.received(records(4, [5, 6, 7]), 0.0)
    assert take(sub, 9) == [b"7"], "within the subscription each comes once"


def test_publishers_are_counted_apart() -> None:
    sub = make({PUBLISHER: 50})
    sub.received(records(1, [7], "q/00000000000000cc"), 0.0)
    assert take(sub, 1) == [b"7"]


def test_a_taking_names_the_last_counter_of_each_publisher() -> None:
    sub = make()
    sub.received(records(1, [1, 2]), 0.0)
    sub.received(records(3, [9], "q/00000000000000cc"), 0.0)
    taking = sub.take(9)
    assert isinstance(taking, Taking)
    assert taking.change("t") == [Taken("t", (LOG, 3), {PUBLISHER: 2, "q/00000000000000cc": 9})]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.lists(st.integers(1, 9), min_size=1), st.integers(0, 40))
def test_taking_in_any_portions_gives_every_record_once_in_order(
    runs: list[int], portions: list[int], passed: int
) -> None:
    sub = make({PUBLISHER: passed})
    offset, total = 1, sum(runs)
    for run in runs:
        sub.received(batch(offset, offset, run), 0.0)
        offset += run
    found: list[bytes] = []
    index = 0
    while sub.available:
        found += take(sub, portions[index % len(portions)])
        index += 1
    assert found == [b"%d" % counter for counter in range(passed + 1, total + 1)]
    assert (sub.cursor.position, sub.prefetch.records, sub.prefetch.size) == ((LOG, total), 0, 0)


# Chunks


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 16))
def test_messages_left_in_a_chunk_come_again(runs: list[int], handed: int) -> None:
    sub = make()
    offset = 1
    for run in runs:
        sub.received(batch(offset, offset, run), 0.0)
        offset += run
    total, size = offset - 1, sub.prefetch.size
    handed = min(handed, total)
    taking = sub.take(total)
    assert isinstance(taking, Taking)
    chunk = sub.begin_chunk(taking)
    sub.took(taking)
    claims = chunk.claims()
    for _ in range(handed):
        next(claims)
    assert chunk.handed == handed
    chunk.stop()
    assert (chunk.handed, chunk.over, list(claims)) == (handed, True, [])
    change = chunk.return_taken(sub.topic)
    sub.taken_returned(chunk, change)
    assert change.position == (LOG, handed)
    assert change.counters == {PUBLISHER: handed}
    assert (chunk.over, sub.chunk, sub.prefetch.records) == (True, None, total - handed)
    assert sub.prefetch.size <= size
    assert take(sub, 99) == [b"%d" % counter for counter in range(handed + 1, total + 1)]


def test_unsubscribing_ends_a_chunk() -> None:
    sub = make()
    sub.received(batch(1, 1, 3), 0.0)
    taking = sub.take(3)
    assert isinstance(taking, Taking)
    chunk = sub.begin_chunk(taking)
    sub.took(taking)
    sub.intended(False)
    assert chunk.over


# Attempts


def test_attempts_count_for_one_message_and_end_when_it_is_taken() -> None:
    sub = make()
    sub.received(batch(1, 1, 2), 0.0)
    assert sub.cursor.attempt((LOG, 1)) == 1
    sub.cursor.attempted((LOG, 1), 1)
    assert sub.cursor.attempt((LOG, 1)) == 2
    take(sub, 1)
    assert sub.cursor.attempt((LOG, 2)) == 1


def test_an_attempt_that_was_counted_ahead_is_counted_once() -> None:
    sub = make()
    sub.cursor.attempted((LOG, 2), 1, ahead=True)
    assert sub.cursor.attempt((LOG, 2)) == 1
    sub.cursor.attempted((LOG, 2), 1)
    assert sub.cursor.attempt((LOG, 2)) == 2


def test_an_attempt_whose_commit_failed_does_not_count() -> None:
    sub = make()
    assert [sub.cursor.attempt((LOG, 1)) for _ in range(9)] == [1] * 9


def test_the_record_behind_a_taking_is_known_if_it_is_prefetched() -> None:
    sub = make()
    sub.received(batch(1, 1, 2), 0.0)
    sub.received(batch(3, 3, 1), 0.0)
    assert [sub.prefetch.following(sub.take(most)) for most in (1, 2, 3)] == [(LOG, 2), (LOG, 3), None]  # type: ignore[arg-type]


def test_a_loss_at_the_front_is_returned_by_take() -> None:
    sub = make()
    sub.prefetch.lose(Loss((LOG, 1), (LOG, 3)))
    assert sub.take(5) == Loss((LOG, 1), (LOG, 3))
    assert sub.after == (LOG, 3)
