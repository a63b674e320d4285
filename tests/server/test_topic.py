"""The decisions about one topic: batches, subscriptions, positions.

The rules are those of docs/explanation/get.md, G3 and G6; docs/explanation/put.md, P1 and P2.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol import Outcome
from pubsub.server.topic.merge import merge
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Log, Topic, Verdict, judge
from tests.server.topics import at_the_end

A, B = "a" * 16, "b" * 16


@pytest.fixture
def topic() -> Topic:
    log = Log(1, A)
    return Topic(1, "t", log, {A: log}, history=(Span(A, 1),))


def subscribe(
    topic: Topic, who: str, number: int, epoch: int, *, on: bool, since: int = 0
) -> tuple[Outcome, Subscription, bool]:
    return topic.subscribe(who, number, epoch, on, at_the_end(topic, since))


@pytest.mark.parametrize(
    ("last", "counter", "count", "previous", "verdict"),
    [
        (0, 1, 1, 0, Verdict.TAKE),
        (5, 6, 3, 5, Verdict.TAKE),
        (5, 90, 3, 2, Verdict.TAKE),  # what was between was discarded
        (5, 5, 1, 4, Verdict.DUPLICATE),
        (5, 3, 3, 9, Verdict.DUPLICATE),  # a repeat is one, whatever it says came before
        (5, 8, 1, 6, Verdict.GAP),
        (5, 4, 3, 3, Verdict.GAP),
        (NUMBER_MAX, NUMBER_MAX, 1, 0, Verdict.DUPLICATE),
    ],
)
def test_a_batch_is_new_or_a_repeat_or_too_early(
    last: int, counter: int, count: int, previous: int, verdict: Verdict
) -> None:
    assert judge(last, counter, count, previous) is verdict


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), max_size=12), st.randoms())
def test_a_log_holds_each_batch_once_in_order_for_any_arrivals(steps: list[tuple[int, int]], random: Random) -> None:
    batches, counter, previous = [], 1, 0
    for gap, count in steps:
        counter += gap
        batches.append((counter, count, previous))
        previous = counter + count - 1
        counter += count
    came = [batch for batch in batches for _ in range(3)]
    random.shuffle(came)
    last, taken = 0, []
    for counter, count, before in came * (len(batches) + 1):
        if judge(last, counter, count, before) is Verdict.TAKE:
            taken.append((counter, count, before))
            last = counter + count - 1
    assert taken == batches


def test_appending_moves_end_bytes_and_last(topic: Topic) -> None:
    assert topic.append(3, 10, 2, 100) == (1, 0)
    assert topic.append(3, 12, 1, 50) == (3, 100)
    assert (topic.open.end, topic.open.total, topic.last) == (4, 150, {3: 12})


def test_subscribing_begins_at_the_end_and_a_higher_number_wins(topic: Topic) -> None:
    topic.append(1, 1, 4, 10)
    outcome, subscription, changed = subscribe(topic, "bob", 5, 3, on=True, since=77)
    assert (outcome, changed) == (Outcome.SUCCESS, True)
    cursor = subscription.cursor
    assert (cursor.backlog, cursor.acknowledged, cursor.since) == ((Span(A, 5),), (A, 4), 77)
    assert subscribe(topic, "bob", 5, 9, on=False) == (Outcome.SUCCESS, subscription, False)
    assert subscribe(topic, "bob", 4, 9, on=False) == (Outcome.SUPERSEDED, subscription, False)
    assert subscribe(topic, "bob", 6, 1, on=False) == (Outcome.SUPERSEDED, subscription, False), "of an earlier opening"
    _, left, _ = subscribe(topic, "bob", 6, 3, on=False)
    assert (left.on, left.cursor.backlog, left.epoch) == (False, (), 3)


def test_only_current_subscribers_continue_in_a_new_open_log(topic: Topic) -> None:
    for who in ("bob", "eve"):
        subscribe(topic, who, 5, 5, on=True)
    topic.append(1, 1, 4, 10)
    subscribe(topic, "eve", 6, 5, on=False)
    subscribe(topic, "dan", 5, 5, on=True)
    topic.go_on_in(Log(2, B))
    backlogs = {who: subscription.cursor.backlog for who, subscription in topic.subscriptions.items()}
    assert backlogs == {"bob": (Span(A, 1, 5), Span(B, 1)), "eve": (), "dan": (Span(B, 1),)}
    assert topic.history == (Span(A, 1, 5), Span(B, 1))
    assert topic.floors() == {A: 1, B: 1}
    subscribe(topic, "bob", 6, 5, on=False)
    subscribe(topic, "dan", 6, 5, on=False)
    topic.append(1, 5, 2, 10)
    assert topic.floors() == {A: 5, B: 3}, "nobody is to receive any of it"


def test_acknowledging_trims_and_detects_an_older_memory(topic: Topic) -> None:
    _, subscription, _ = subscribe(topic, "bob", 5, 5, on=True)
    topic.append(1, 1, 4, 10)
    assert topic.acknowledge("bob", None)
    assert topic.acknowledge("bob", (A, 0))
    assert topic.acknowledge("bob", (A, 2))
    assert (subscription.cursor.backlog, subscription.cursor.acknowledged) == ((Span(A, 3),), (A, 2))
    assert topic.acknowledge("bob", (A, 2))
    for position in ((A, 1), (A, 5), (A, NUMBER_MAX), (B, 3)):
        assert not topic.acknowledge("bob", position)


def test_reading_begins_behind_a_position_that_can_be(topic: Topic) -> None:
    _, subscription, _ = subscribe(topic, "bob", 5, 5, on=True)
    topic.append(1, 1, 4, 10)
    assert topic.reading(subscription.cursor, None) == (Span(A, 1),)
    assert topic.reading(subscription.cursor, (A, 0)) == (Span(A, 1),)
    assert topic.reading(subscription.cursor, (A, 4)) == (Span(A, 5),)
    for position in ((A, 5), (A, NUMBER_MAX), (B, 1)):
        assert topic.reading(subscription.cursor, position) is None


def test_trimming_a_closed_log_to_its_end_uses_it_up(topic: Topic) -> None:
    closed = Log(2, B, 1, 5, 40)
    topic.logs[B] = closed
    topic.history = (Span(B, 1, 5), Span(A, 1))
    assert not topic.trim(closed, 3)
    assert topic.history == (Span(B, 3, 5), Span(A, 1))
    assert topic.trim(closed, 5)
    assert (topic.history, set(topic.logs), topic.merged) == ((Span(A, 1),), {A}, {B})


def test_the_open_log_is_never_used_up(topic: Topic) -> None:
    topic.append(1, 1, 4, 10)
    assert not topic.trim(topic.open, 5)
    assert (topic.history, topic.open.low) == ((Span(A, 5),), 5)


def test_waiting_counts_the_messages_of_spans(topic: Topic) -> None:
    topic.append(1, 1, 4, 10)
    assert topic.waiting((Span(A, 3), Span(B, 1, 9))) == 2
    assert topic.waiting((Span(A, 9),)) == 0


def test_a_joined_log_is_held_and_counts_as_merged_when_it_is_used_up() -> None:
    topic = Topic(1, "t", Log(1, A), {}, history=(Span(A, 1),))
    topic.logs[A] = topic.open
    other = Topic(2, "t", Log(2, B, 1, 3), {}, history=(Span(B, 1),))
    other.logs[B] = other.open
    merge(topic, other, 1)
    assert (set(topic.logs), topic.merged) == ({A, B}, set())
    assert topic.trim(other.open, 3)
    assert (set(topic.logs), topic.merged) == ({A}, {B})


def _written(topic: Topic, publisher: int, *counters: int) -> Topic:
    for counter in counters:
        topic.append(publisher, counter, 1, 10)
    return topic


def _new(number: int, log: str) -> Topic:
    own = Log(number, log)
    return Topic(number, "t", own, {log: own}, history=(Span(log, 1),))


@pytest.mark.parametrize("receives", ["old", "new"])
def test_the_side_that_has_let_go_comes_first_whichever_side_receives(receives: str) -> None:
    old = _written(_new(1, A), 1, 1, 2, 3)
    old.trim(old.open, 3)  # A value, and the deletion of its key.
    new = _written(_new(2, B), 1, 1)  # The put of the value arrives late at another server.
    assert (old.removal.let_go, new.removal.let_go) == (True, False)
    mine, its = (old, new) if receives == "old" else (new, old)
    merge(mine, its, 1)
    first, second, *_ = mine.history
    assert (first.log, second.log) == (A, B)
    assert mine.watermarks[second.watermark] == {1: 3}  # So a new reader does not receive the old value.
    assert mine.removal.let_go


def test_the_receiver_comes_first_if_neither_side_has_let_go() -> None:
    mine, its = _written(_new(1, A), 1, 1), _written(_new(2, B), 2, 1)
    merge(mine, its, 1)
    assert [span.log for span in mine.history] == [A, B, A]
    assert not mine.removal.let_go
