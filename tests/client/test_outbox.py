"""The outbox: numbers, drafts, discards, power cuts, and all that a network may do to its messages.

The rules are those of docs/explanation/put.md, P4, P10 and P11.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from puts import LOG, OTHER, flying, make, put, sent, status

from pubsub.client.core.chain import DISCARDED, DONE, UNSURE, Row
from pubsub.client.core.changes import ChainMoved, RowAdded, RowsRemoved, RowUnchained
from pubsub.client.core.outbox import Draft
from pubsub.errors import TooLarge
from pubsub.protocol import Outcome, Status, decode_batch

# Numbers and the chain


def test_number_and_previous_are_given_in_the_order_of_the_outbox() -> None:
    outbox = make()
    first, second = put(outbox, 3, 2)
    (third,) = put(outbox, 1)
    assert (first.previous, second.previous, third.previous) == (0, first.last, second.last)
    assert first.last < second.counter <= second.last < third.counter


def test_a_draft_that_is_not_accepted_leaves_no_gap_in_the_chain() -> None:
    outbox = make()
    (first,) = put(outbox, 1)
    Draft(outbox).add("t", [b"lost with its commit"])
    (second,) = put(outbox, 1)
    assert second.previous == first.last
    assert outbox.bytes == first.size + second.size


def test_a_put_after_removed_batches_follows_the_remaining_ones() -> None:
    """A transaction continues after one of its puts was too large."""
    outbox = make(bytes_max=1000)
    (before,) = put(outbox, 1)
    draft = Draft(outbox)
    first = draft.add("t", [b"a"])
    for topic in ("t", "t", "u"):
        draft.add(topic, [b"x" * 200])
    draft.cut(1)
    second, other = draft.add("t", [b"b" * 800]), draft.add("u", [b"c"])
    assert (first.previous, second.previous, other.previous) == (before.last, first.last, 0)
    draft.cut(0)
    assert draft.add("t", [b"d"]).previous == before.last
    outbox.accept(draft)
    assert put(outbox, 1)[0].previous == draft.rows[0].last


def test_each_topic_has_its_own_chain() -> None:
    outbox = make()
    (first,) = put(outbox, 1)
    (other,) = put(outbox, 1, topic="u")
    (second,) = put(outbox, 1)
    assert other.previous == 0
    assert second.previous == first.last


def test_the_commit_has_the_batch_as_it_is_sent() -> None:
    draft = Draft(make())
    row = draft.add("t", [b"a", b"bc"])
    (change,) = draft.changes()
    assert isinstance(change, RowAdded)
    assert decode_batch(change.body) == [b"a", b"bc"]
    assert (change.counter, change.previous, change.count) == (row.counter, 0, 2)


def test_an_outbox_at_its_limit_refuses_a_further_put() -> None:
    outbox = make(bytes_max=150)
    put(outbox, 20)
    with pytest.raises(TooLarge, match="outbox_bytes_max"):
        put(outbox, 20)
    assert len(outbox.chain("t").rows) == 1


# Copies


def test_last_above_every_number_ever_taken_is_evidence_of_a_copy() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1)
    assert "never made here" in outbox.evidence(chain, outbox.numbers.highest + 1)
    assert outbox.evidence(chain, rows[0].last) == ""


def test_last_inside_a_batch_is_evidence_of_a_copy() -> None:
    outbox = make()
    chain, rows = flying(outbox, 3)
    assert "inside a batch" in outbox.evidence(chain, rows[0].counter + 1)
    assert outbox.evidence(chain, rows[0].counter - 1) == ""


def test_an_unknown_last_counter_is_evidence_of_a_copy_even_below_other_numbers() -> None:
    outbox = make()
    (first,) = put(outbox, 2)
    elsewhere = first.last + 100
    outbox.numbers.reopen(above=elsewhere)
    chain = outbox.wake("t", 30.0, 0)
    assert elsewhere < outbox.numbers.highest
    assert "never made here" in outbox.evidence(chain, elsewhere), "behind them all"
    (second,) = put(outbox, 1)
    assert elsewhere < second.counter
    assert "never made here" in outbox.evidence(chain, elsewhere), "between two"
    assert [outbox.evidence(chain, last) for last in (0, first.last, second.last)] == ["", "", ""]


def test_a_put_that_a_discard_dropped_is_no_evidence_of_a_copy() -> None:
    outbox = make()
    chain, (dropped,) = flying(outbox, 1)
    outbox.discarded("t")
    assert outbox.evidence(chain, dropped.last) == ""
    put(outbox, 1)
    assert outbox.evidence(chain, dropped.last) == ""


@pytest.mark.parametrize(
    ("cuts", "cleared", "sole_owner", "lost"),
    [
        (0, 0, 0, False),  # There never was one.
        (1, 0, 0, True),
        (1, 0, 2, False),  # Marked: it was made after that cut.
        (2, 0, 2, True),
        (2, 1, 2, True),  # Another one that was marked has succeeded before the second cut.
        (2, 0, 3, False),
        (2, 1, 3, False),
        (1, 1, 0, False),  # A marked put has succeeded since.
        (2, 1, 0, True),
        (0, UNSURE, 1, False),
    ],
)
def test_a_power_cut_may_have_lost_puts_behind_one_from_before_the_start(
    cuts: int, cleared: int, sole_owner: int, lost: bool
) -> None:
    outbox = make(cuts=cuts)
    outbox.load([("t", 5, cleared, LOG)], [(10, "t", 5, 1, sole_owner, 0, 20)])
    chain = outbox.wake("t", 30.0, 0)
    assert (outbox.evidence(chain, 14) == "") == lost
    (row,) = put(outbox, 1)
    assert (outbox.evidence(chain, 14) == "") == lost
    outbox.numbers.reopen()
    assert outbox.evidence(chain, row.last + 1), "after a row made since, nothing is lost"


# Discarding


def test_a_discard_drops_all_unfinished_puts_and_the_chain_continues_before_them() -> None:
    outbox = make()
    (done,) = put(outbox, 1)
    chain = outbox.wake("t", 30.0, 0)
    sent(chain, 0.0)
    outbox.answered(chain, status(Outcome.SUCCESS, done.last), chain.generation, 0, 0.0)
    dropped = put(outbox, 1, 1)
    changes, rows = outbox.discard("t")
    assert rows == dropped
    assert RowsRemoved([done.counter]) in changes
    assert changes[-2:] == [RowsRemoved([row.counter for row in dropped]), ChainMoved("t", done.last, 0, LOG)]
    outbox.removed()
    outbox.discarded("t")
    assert [row.state for row in dropped] == [DISCARDED, DISCARDED]
    (next_row,) = put(outbox, 1)
    assert next_row.previous == done.last
    assert next_row.counter > dropped[-1].last


def test_the_answer_to_a_discarded_put_changes_nothing() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1)
    generation = chain.generation
    outbox.discarded("t")
    (row,) = put(outbox, 1)
    outbox.wake("t", 30.0, 0)
    assert outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), generation, 0, 0.0) == []
    assert rows[0].state == DISCARDED
    assert sent(chain, 0.0) == [row]


def test_discarding_nothing_changes_nothing() -> None:
    assert make().discard("t") == ([], [])


# Power cuts


def test_puts_after_a_power_cut_are_marked_until_a_marked_one_succeeds() -> None:
    outbox = make(cuts=1)
    outbox.load([("t", 5, 0, LOG)], [(10, "t", 5, 1, 0, 0, 20)])
    chain = outbox.wake("t", 30.0, 0)
    first, second = put(outbox, 1, 1)
    stored = chain.rows[0]
    assert (stored.sole_owner, first.sole_owner, second.sole_owner) == (0, 2, 2)
    sent(chain, 0.0)
    outbox.answered(chain, status(Outcome.SUCCESS, stored.last), chain.generation, 0, 0.0)
    assert put(outbox, 1)[0].sole_owner == 2
    outbox.answered(chain, status(Outcome.SUCCESS, first.last), chain.generation, 0, 0.0)
    assert put(outbox, 1)[0].sole_owner == 0
    assert any(isinstance(change, ChainMoved) and change.cleared == 1 for change in outbox.removals())


def test_a_marked_put_of_before_another_power_cut_does_not_clear_that_one() -> None:
    outbox = make(cuts=2)
    outbox.load([("t", 5, 0, LOG)], [(10, "t", 5, 1, 2, 0, 20)])
    chain = outbox.wake("t", 30.0, 0)
    stored = chain.rows[0]
    sent(chain, 0.0)
    assert outbox.answered(chain, status(Outcome.DUPLICATE, 12), chain.generation, 0, 0.0) == [stored]
    assert put(outbox, 1)[0].sole_owner == 3, "later puts may be lost here, and known elsewhere"


def test_a_topic_that_the_power_cut_may_have_forgotten_is_marked_too() -> None:
    assert put(make(cuts=1), 1)[0].sole_owner == 2
    assert put(make(cuts=0), 1)[0].sole_owner == 0


def test_a_discard_brings_the_mark_back() -> None:
    outbox = make(cuts=1)
    put(outbox, 1)
    outbox.discarded("t")
    assert put(outbox, 1)[0].sole_owner == 2


# Reopening


def test_the_chain_after_a_kill_is_that_of_the_store() -> None:
    outbox = make()
    outbox.load([("t", 4, 0, LOG), ("u", 9, 0, OTHER)], [(5, "t", 4, 2, 0, 77, 30), (8, "t", 6, 1, 0, 78, 20)])
    chain = outbox.wake("t", 30.0, 0)
    assert [(row.counter, row.previous, row.body) for row in sent(chain, 0.0)] == [(5, 4, None), (8, 6, None)]
    assert put(outbox, 1)[0].previous == 8
    assert put(outbox, 1, topic="u")[0].previous == 9
    assert outbox.bytes > 50


def test_finished_rows_leave_the_store_with_their_chain() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 0, 0.0)
    assert outbox.removals() == [RowsRemoved([rows[0].counter]), ChainMoved("t", rows[0].last, 0, LOG)]
    outbox.removed()
    assert outbox.removals() == []


def test_renewal_begins_every_chain_anew() -> None:
    outbox = make(cuts=2)
    _, rows = flying(outbox, 1, 1)
    put(outbox, 1, topic="u")
    changes = outbox.renewal()
    assert RowUnchained(rows[0].counter) in changes
    outbox.renewed()
    assert (rows[0].previous, rows[1].previous) == (0, rows[0].last)
    assert [row.sole_owner for row in rows] == [0, 0]
    assert put(outbox, 1, topic="v")[0].sole_owner == 0


# Against a log that keeps the server's rules, over a network that loses, repeats and delays


class Holder:
    """The server's side of the chain, as the design states it."""

    def __init__(self) -> None:
        self.last, self.taken = 0, []  # type: ignore[var-annotated]

    def put(self, row: Row) -> Status:
        if row.last <= self.last:
            return status(Outcome.DUPLICATE, self.last)
        if row.previous > self.last:
            return status(Outcome.GAP, self.last)
        self.taken.append((row.counter, row.last))
        self.last = row.last
        return status(Outcome.SUCCESS, self.last)


@settings(max_examples=3 * settings().max_examples // 2)
@given(st.integers(0, 2**32), st.integers(1, 8), st.floats(0, 0.6))
def test_every_batch_is_taken_once_in_order_on_any_network(seed: int, window: int, loss: float) -> None:
    chance = random.Random(seed)
    outbox, holder = make(window=window), Holder()
    rows: list[Row] = []
    late: list[tuple[Row, int]] = []
    answers: list[tuple[Status, int]] = []
    now = 0.0
    chain = outbox.chain("t")
    while len(rows) < 25 or chain.rows:
        now += chance.random() * 0.05
        if len(rows) < 25 and chance.random() < 0.5:
            rows += put(outbox, *[chance.randrange(1, 4) for _ in range(chance.randrange(1, 3))])
        outbox.wake("t", now + 1000.0, 0)
        late += [(row, chain.generation) for row in sent(chain, now)]
        chance.shuffle(late)
        while late and chance.random() < 0.7:
            row, generation = late.pop()
            if chance.random() < loss:
                continue
            for _ in range(chance.randrange(1, 3)):
                answers.append((holder.put(row), generation))
        while answers and chance.random() < 0.7:
            answer, generation = answers.pop(chance.randrange(len(answers)))
            if chance.random() < loss:
                continue
            assert outbox.evidence(chain, answer.last) == ""
            outbox.answered(chain, answer, generation, 0, now)
        chain.tick(now)
        assert now < 10_000, "it never ends"
    assert holder.taken == [(row.counter, row.last) for row in rows]
    assert all(row.state == DONE for row in rows)
    assert outbox.bytes == 0


def test_a_put_after_discarded_rows_of_an_earlier_life_avoids_other_logs() -> None:
    first = make()
    rows = put(first, 1, 1)
    again = make(stored=2_000)
    again.load(
        [], [(row.counter, "t", row.previous, row.count, row.sole_owner, row.checksum, row.size) for row in rows]
    )
    changes, _ = again.discard("t")
    assert changes[-1] == ChainMoved("t", 0, UNSURE, ""), "the first row may have been acknowledged"
    again.discarded("t")
    (third,) = put(again, 1)
    assert (third.previous, third.sole_owner) == (0, 1)
    chain = again.wake("t", 30.0, 0)
    sent(chain, 0.0)
    again.answered(chain, status(Outcome.SUCCESS, third.last), chain.generation, 0, 0.1)
    (fourth,) = put(again, 1)
    assert fourth.sole_owner == 0
    again.discard("t")
    again.discarded("t")
    (fifth,) = put(again, 1)
    assert (fifth.previous, fifth.sole_owner) == (third.last, 0), "a row without an answer since the start is not done"


def test_one_row_with_one_message_of_an_earlier_life_can_be_finished_normally() -> None:
    (row,) = put(make(), 1)
    again = make(stored=2_000)
    again.load([], [(row.counter, "t", row.previous, row.count, row.sole_owner, row.checksum, row.size)])
    changes, _ = again.discard("t")
    assert changes[-1] == ChainMoved("t", 0, UNSURE, "")
    again.discarded("t")
    (second,) = put(again, 1)
    assert (second.previous, second.sole_owner) == (0, 1)
