"""The chain of puts: order, window, gaps, duplicates, discards, power cuts."""

from __future__ import annotations

import random
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.client.changes import ChainMoved, RowAdded, RowsRemoved, RowUnchained
from pubsub.client.numbers import EPOCH_SECONDS, Numbers
from pubsub.client.outbox import DISCARDED, DONE, UNSURE, WINDOW_BYTES, Chain, Draft, Outbox, Row
from pubsub.client.tries import Tries
from pubsub.errors import TooLarge
from pubsub.protocol import Outcome, Status, decode_batch

LOG, OTHER = "00000000000000aa", "00000000000000bb"


def make(cuts: int = 0, window: int = 4, proxies: int = 2, bytes_max: int = 1 << 30, stored: int = 0) -> Outbox:
    numbers = Numbers(stored, lambda: EPOCH_SECONDS + 1.0, Random(1), lambda milliseconds: None)
    return Outbox(numbers, cuts, lambda: Tries(proxies, 3, 0.1), window, bytes_max)


def put(outbox: Outbox, *counts: int, topic: str = "t") -> list[Row]:
    draft = Draft(outbox)
    for count in counts:
        draft.add(topic, [b"x"] * count)
    outbox.accept(draft)
    return draft.rows


def status(outcome: Outcome, last: int = -1, log: str = LOG) -> Status:
    return Status("s1", outcome, last=last, log=log)


def flying(outbox: Outbox, *counts: int, until: float = 30.0) -> tuple[Chain, list[Row]]:
    rows = put(outbox, *counts)
    chain = outbox.wake("t", until, 0)
    assert chain.sendable(0.0) == rows[: len(rows)][:4]
    return chain, rows


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


def test_topics_have_chains_of_their_own() -> None:
    outbox = make()
    (first,) = put(outbox, 1)
    (other,) = put(outbox, 1, topic="u")
    (second,) = put(outbox, 1)
    assert other.previous == 0
    assert second.previous == first.last


def test_the_commit_holds_the_batch_as_it_is_sent() -> None:
    draft = Draft(make())
    row = draft.add("t", [b"a", b"bc"])
    (change,) = draft.changes()
    assert isinstance(change, RowAdded)
    assert decode_batch(change.body) == [b"a", b"bc"]
    assert (change.counter, change.previous, change.count) == (row.counter, 0, 2)


def test_an_outbox_at_its_limit_refuses_one_more() -> None:
    outbox = make(bytes_max=150)
    put(outbox, 20)
    with pytest.raises(TooLarge, match="outbox_bytes_max"):
        put(outbox, 20)
    assert len(outbox.chain("t").rows) == 1


# Sending


def test_batches_are_sent_in_order_a_window_at_a_time() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1, 1, 1, 1)
    assert chain.sendable(0.0) == []
    outbox.answered(chain, status(Outcome.SUCCESS, rows[1].last), chain.generation, 0, 0.01)
    assert chain.sendable(0.01) == rows[4:6]


def test_the_window_is_one_of_bytes_too() -> None:
    outbox = make()
    draft = Draft(outbox)
    for _ in range(3):
        draft.add("t", [bytes(WINDOW_BYTES // 2)])
    outbox.accept(draft)
    assert outbox.wake("t", 30.0, 0).sendable(0.0) == draft.rows[:1]


def test_a_row_that_must_be_fsynced_first_is_held_back() -> None:
    outbox = make()
    draft = Draft(outbox)
    draft.add("t", [b"x"])
    outbox.accept(draft, held=True)
    chain = outbox.wake("t", 30.0, 0)
    assert chain.sendable(0.0) == []
    outbox.release()
    assert chain.sendable(0.0) == draft.rows


def test_an_answer_finishes_every_row_up_to_last() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 2, 3)
    assert outbox.answered(chain, status(Outcome.SUCCESS, rows[1].last), chain.generation, 0, 0.0) == rows[:2]
    assert [row.state for row in rows] == [DONE, DONE, 0]
    assert outbox.bytes == rows[2].size


def test_a_duplicate_is_a_success() -> None:
    outbox = make()
    chain, rows = flying(outbox, 2)
    assert outbox.answered(chain, status(Outcome.DUPLICATE, rows[0].last), chain.generation, 0, 0.0) == rows


def test_a_late_success_of_an_earlier_transmission_counts() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1)
    generation = chain.generation
    chain.tick(0.1)
    assert chain.sendable(0.1) == rows
    assert outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), generation, 0, 0.15) == rows


def test_a_try_that_is_over_sends_the_oldest_row_alone_until_something_works() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1)
    assert not chain.tick(0.05)
    assert chain.tick(0.1)
    assert chain.sendable(0.1) == rows[:1]
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 1, 0.12)
    assert chain.sendable(0.12) == rows[1:]


def test_after_three_tries_the_next_proxy_is_asked_and_it_stays_with_what_works() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    now = 0.0
    for _ in range(3):
        now = chain.deadline or 0.0
        chain.tick(now)
        chain.sendable(now)
    assert chain.tries.proxy == 1
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 1, now)
    assert chain.tries.proxy == 1


@pytest.mark.parametrize("outcome", [Outcome.UNAVAILABLE, Outcome.BUSY, Outcome.FULL, Outcome.MOVED, Outcome.UNKNOWN])
def test_a_retry_is_tried_again_when_the_try_is_over_and_not_before(outcome: Outcome) -> None:
    outbox = make()
    chain, rows = flying(outbox, 1)
    outbox.answered(chain, status(outcome), chain.generation, 0, 0.01)
    assert chain.sendable(0.02) == []
    chain.tick(0.1)
    assert chain.sendable(0.1) == rows
    assert chain.tries.failed == 1


def test_moved_names_the_new_log() -> None:
    outbox = make()
    chain, _ = flying(outbox, 1)
    outbox.answered(chain, status(Outcome.MOVED, log=OTHER), chain.generation, 0, 0.01)
    assert chain.log != OTHER, "only a log that has acknowledged what is done is named as ours"


def test_nothing_is_sent_after_the_calls_own_time_out_and_the_rows_are_kept() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, until=0.25)
    chain.tick(0.1)
    chain.sendable(0.1)
    chain.tick(0.25)
    assert chain.sendable(0.25) == []
    assert chain.next_deadline() is None
    assert list(chain.rows) == rows


def test_an_unfinished_put_goes_first_with_the_next_put_on_its_topic() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, until=0.25)
    chain.tick(0.25)
    rows += put(outbox, 1)
    outbox.wake("t", 60.0, 0)
    assert chain.sendable(30.0) == rows


# Gaps


def test_a_gap_goes_back_to_the_row_after_last() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1)
    outbox.answered(chain, status(Outcome.GAP, rows[0].last), chain.generation, 0, 0.01)
    assert chain.sendable(0.01) == rows[1:]
    assert chain.avoid == ""


def test_the_gaps_of_the_same_window_go_back_once() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1, 1)
    generation = chain.generation
    for _ in range(3):
        outbox.answered(chain, status(Outcome.GAP, 0), generation, 0, 0.01)
    assert chain.sendable(0.01) == rows
    assert chain.avoid == ""


def test_a_second_gap_at_the_same_last_asks_another_holder() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    outbox.answered(chain, status(Outcome.GAP, 0), chain.generation, 0, 0.01)
    chain.sendable(0.01)
    outbox.answered(chain, status(Outcome.GAP, 0), chain.generation, 0, 0.02)
    assert chain.avoid == LOG
    assert chain.sendable(0.02) == []
    chain.tick(0.11)
    chain.tick(0.2)
    assert chain.sendable(0.2) == rows[:1]


def test_a_gap_that_no_row_can_fill_asks_another_holder() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 0, 0.01)
    outbox.answered(chain, status(Outcome.GAP, 0, OTHER), chain.generation, 0, 0.02)
    assert chain.avoid == OTHER


def test_another_holder_is_not_avoided_once_it_worked() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1)
    chain.avoid = OTHER
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 0, 0.01)
    assert (chain.avoid, chain.log) == ("", LOG)


def test_a_log_that_was_given_up_lets_the_oldest_row_begin_anew_and_the_rest_keep_their_chain() -> None:
    outbox = make()
    (done,) = put(outbox, 1)
    chain = outbox.wake("t", 30.0, 0)
    chain.sendable(0.0)
    outbox.answered(chain, status(Outcome.SUCCESS, done.last), chain.generation, 0, 0.0)
    rows = put(outbox, 1, 1)
    outbox.wake("t", 30.0, 0)
    assert rows[0].previous == done.last
    assert chain.unchain() is rows[0]
    assert rows[0].previous == done.last, "not before its commit has succeeded"
    chain.unchained(rows[0])
    assert (rows[0].previous, rows[1].previous, chain.log) == (0, rows[0].last, "")
    assert chain.sendable(0.0) == rows
    assert chain.unchain() is None


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


def test_last_that_is_no_puts_here_is_evidence_of_a_copy_though_it_is_below_other_numbers() -> None:
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
    ("cuts", "cleared", "whole", "lost"),
    [
        (0, 0, 0, False),  # There never was one.
        (1, 0, 0, True),
        (1, 0, 1, False),  # Marked: it was made after that cut.
        (2, 0, 1, True),
        (1, 1, 0, False),  # A marked put has succeeded since.
        (2, 1, 0, True),
        (0, UNSURE, 1, False),
    ],
)
def test_behind_a_put_of_before_the_start_a_power_cut_may_have_taken_others(
    cuts: int, cleared: int, whole: int, lost: bool
) -> None:
    outbox = make(cuts=cuts)
    outbox.load([("t", 5, cleared, LOG)], [(10, "t", 5, 1, whole, 0, 20)])
    chain = outbox.wake("t", 30.0, 0)
    assert (outbox.evidence(chain, 14) == "") == lost
    (row,) = put(outbox, 1)
    assert (outbox.evidence(chain, 14) == "") == lost
    outbox.numbers.reopen()
    assert outbox.evidence(chain, row.last + 1), "behind what was made since nothing is lost"


# Discarding


def test_a_discard_drops_all_that_is_unfinished_and_the_chain_goes_on_before_it() -> None:
    outbox = make()
    (done,) = put(outbox, 1)
    chain = outbox.wake("t", 30.0, 0)
    chain.sendable(0.0)
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
    assert chain.sendable(0.0) == [row]


def test_discarding_nothing_changes_nothing() -> None:
    assert make().discard("t") == ([], [])


# Power cuts


def test_after_a_power_cut_new_puts_are_marked_until_a_marked_one_succeeds() -> None:
    outbox = make(cuts=1)
    outbox.load([("t", 5, 0, LOG)], [(10, "t", 5, 1, 0, 0, 20)])
    chain = outbox.wake("t", 30.0, 0)
    first, second = put(outbox, 1, 1)
    stored = chain.rows[0]
    assert (stored.whole, first.whole, second.whole) == (0, 1, 1)
    chain.sendable(0.0)
    outbox.answered(chain, status(Outcome.SUCCESS, stored.last), chain.generation, 0, 0.0)
    assert put(outbox, 1)[0].whole == 1
    outbox.answered(chain, status(Outcome.SUCCESS, first.last), chain.generation, 0, 0.0)
    assert put(outbox, 1)[0].whole == 0
    assert any(isinstance(change, ChainMoved) and change.cleared == 1 for change in outbox.removals())


def test_a_marked_put_of_before_another_power_cut_does_not_clear_that_one() -> None:
    outbox = make(cuts=2)
    outbox.load([("t", 5, 0, LOG)], [(10, "t", 5, 1, 1, 0, 20)])
    chain = outbox.wake("t", 30.0, 0)
    stored = chain.rows[0]
    chain.sendable(0.0)
    assert outbox.answered(chain, status(Outcome.DUPLICATE, 12), chain.generation, 0, 0.0) == [stored]
    assert put(outbox, 1)[0].whole == 1, "what was put behind it may be lost, and known elsewhere"


def test_a_topic_that_the_power_cut_may_have_forgotten_is_marked_too() -> None:
    assert put(make(cuts=1), 1)[0].whole == 1
    assert put(make(cuts=0), 1)[0].whole == 0


def test_a_discard_brings_the_mark_back() -> None:
    outbox = make(cuts=1)
    put(outbox, 1)
    outbox.discarded("t")
    assert put(outbox, 1)[0].whole == 1


# Reopening


def test_what_the_store_holds_is_the_chain_after_a_kill() -> None:
    outbox = make()
    outbox.load([("t", 4, 0, LOG), ("u", 9, 0, OTHER)], [(5, "t", 4, 2, 0, 77, 30), (8, "t", 6, 1, 0, 78, 20)])
    chain = outbox.wake("t", 30.0, 0)
    assert [(row.counter, row.previous, row.body) for row in chain.sendable(0.0)] == [(5, 4, None), (8, 6, None)]
    assert put(outbox, 1)[0].previous == 8
    assert put(outbox, 1, topic="u")[0].previous == 9
    assert outbox.bytes > 50


def test_finished_rows_leave_the_store_with_the_chain_they_were() -> None:
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
    assert [row.whole for row in rows] == [0, 0]
    assert put(outbox, 1, topic="v")[0].whole == 0


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


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 8), st.floats(0, 0.6))
def test_every_batch_is_taken_once_and_in_order_whatever_the_network_does(seed: int, window: int, loss: float) -> None:
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
        late += [(row, chain.generation) for row in chain.sendable(now)]
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


def test_a_late_answer_of_a_log_that_lacks_what_is_done_does_not_make_it_ours() -> None:
    outbox = make()
    chain, (first, second, third) = flying(outbox, 1, 1, 1)
    assert outbox.answered(chain, status(Outcome.SUCCESS, second.last), chain.generation, 0, 0.01) == [first, second]
    outbox.answered(chain, status(Outcome.DUPLICATE, first.last, log=OTHER), chain.generation, 1, 0.02)
    assert chain.log == LOG
    outbox.answered(chain, status(Outcome.SUCCESS, third.last, log=OTHER), chain.generation, 1, 0.03)
    assert chain.log == OTHER


def test_what_is_put_after_rows_of_an_earlier_life_were_discarded_goes_only_where_these_may_be() -> None:
    first = make()
    rows = put(first, 1, 1)
    again = make(stored=2_000)
    again.load([], [(row.counter, "t", row.previous, row.count, row.whole, row.checksum, row.size) for row in rows])
    changes, _ = again.discard("t")
    assert changes[-1] == ChainMoved("t", 0, UNSURE, ""), "the first row may have been acknowledged"
    again.discarded("t")
    (third,) = put(again, 1)
    assert (third.previous, third.whole) == (0, 1)
    chain = again.wake("t", 30.0, 0)
    chain.sendable(0.0)
    again.answered(chain, status(Outcome.SUCCESS, third.last), chain.generation, 0, 0.1)
    (fourth,) = put(again, 1)
    assert fourth.whole == 0
    again.discard("t")
    again.discarded("t")
    (fifth,) = put(again, 1)
    assert (fifth.previous, fifth.whole) == (third.last, 0), "what this life has not heard of is not done"


def test_one_row_of_an_earlier_life_with_one_message_in_it_may_be_done_as_any_other() -> None:
    (row,) = put(make(), 1)
    again = make(stored=2_000)
    again.load([], [(row.counter, "t", row.previous, row.count, row.whole, row.checksum, row.size)])
    changes, _ = again.discard("t")
    assert changes[-1] == ChainMoved("t", 0, UNSURE, "")
    again.discarded("t")
    (second,) = put(again, 1)
    assert (second.previous, second.whole) == (0, 1)
