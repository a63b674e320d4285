"""The chain of puts on one topic: order, window, gaps, duplicates, retries."""

from __future__ import annotations

import pytest
from puts import LOG, OTHER, flying, make, put, sent, status

from pubsub.client.core.chain import DONE, WINDOW_BYTES
from pubsub.client.core.outbox import Draft
from pubsub.protocol import Outcome


def test_batches_are_sent_in_order_a_window_at_a_time() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1, 1, 1, 1)
    assert sent(chain, 0.0) == []
    outbox.answered(chain, status(Outcome.SUCCESS, rows[1].last), chain.generation, 0, 0.01)
    assert sent(chain, 0.01) == rows[4:6]


def test_the_window_is_limited_in_bytes_too() -> None:
    outbox = make()
    draft = Draft(outbox)
    for _ in range(3):
        draft.add("t", [bytes(WINDOW_BYTES // 2)])
    outbox.accept(draft)
    assert sent(outbox.wake("t", 30.0, 0), 0.0) == draft.rows[:1]


def test_a_row_that_must_be_fsynced_first_is_held_back() -> None:
    outbox = make()
    draft = Draft(outbox)
    draft.add("t", [b"x"])
    outbox.accept(draft, held=True)
    chain = outbox.wake("t", 30.0, 0)
    assert sent(chain, 0.0) == []
    outbox.release()
    assert sent(chain, 0.0) == draft.rows


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
    assert sent(chain, 0.1) == rows
    assert outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), generation, 0, 0.15) == rows


def test_a_try_that_is_over_sends_the_oldest_row_alone_until_an_answer_comes() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1)
    assert not chain.tick(0.05)
    assert chain.tick(0.1)
    assert sent(chain, 0.1) == rows[:1]
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 1, 0.12)
    assert sent(chain, 0.12) == rows[1:]


def test_the_next_proxy_is_asked_after_three_tries_and_kept_if_it_answers() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    now = 0.0
    for _ in range(3):
        now = chain.deadline or 0.0
        chain.tick(now)
        sent(chain, now)
    assert chain.retries.proxy == 1
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 1, now)
    assert chain.retries.proxy == 1


@pytest.mark.parametrize("outcome", [Outcome.UNAVAILABLE, Outcome.BUSY, Outcome.FULL, Outcome.MOVED, Outcome.UNKNOWN])
def test_a_retry_is_tried_again_when_the_try_is_over_and_not_before(outcome: Outcome) -> None:
    outbox = make()
    chain, rows = flying(outbox, 1)
    outbox.answered(chain, status(outcome), chain.generation, 0, 0.01)
    assert sent(chain, 0.02) == []
    chain.tick(0.1)
    assert sent(chain, 0.1) == rows
    assert chain.retries.failed == 1


def test_moved_names_the_new_log() -> None:
    outbox = make()
    chain, _ = flying(outbox, 1)
    outbox.answered(chain, status(Outcome.MOVED, log=OTHER), chain.generation, 0, 0.01)
    assert chain.log != OTHER, "only a log with all finished rows is named as ours"


def test_no_row_is_sent_after_the_calls_own_timeout_and_the_rows_are_kept() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, until=0.25)
    chain.tick(0.1)
    sent(chain, 0.1)
    chain.tick(0.25)
    assert sent(chain, 0.25) == []
    assert chain.next_deadline() is None
    assert list(chain.rows) == rows


def test_an_unfinished_put_is_sent_first_with_the_next_put_on_its_topic() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, until=0.25)
    chain.tick(0.25)
    rows += put(outbox, 1)
    outbox.wake("t", 60.0, 0)
    assert sent(chain, 30.0) == rows


def test_a_gap_goes_back_to_the_row_after_last() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1)
    outbox.answered(chain, status(Outcome.GAP, rows[0].last), chain.generation, 0, 0.01)
    assert sent(chain, 0.01) == rows[1:]
    assert chain.avoid == ""


def test_the_gaps_of_the_same_window_go_back_once() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1, 1)
    generation = chain.generation
    for _ in range(3):
        outbox.answered(chain, status(Outcome.GAP, 0), generation, 0, 0.01)
    assert sent(chain, 0.01) == rows
    assert chain.avoid == ""


def test_a_second_gap_at_the_same_last_asks_another_holder() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    outbox.answered(chain, status(Outcome.GAP, 0), chain.generation, 0, 0.01)
    sent(chain, 0.01)
    outbox.answered(chain, status(Outcome.GAP, 0), chain.generation, 0, 0.02)
    assert chain.avoid == LOG
    assert sent(chain, 0.02) == []
    chain.tick(0.11)
    chain.tick(0.2)
    assert sent(chain, 0.2) == rows[:1]


def test_a_gap_that_no_row_can_fill_asks_another_holder() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 0, 0.01)
    outbox.answered(chain, status(Outcome.GAP, 0, OTHER), chain.generation, 0, 0.02)
    assert chain.avoid == OTHER


def test_the_avoided_log_is_forgotten_after_a_success() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1)
    chain.avoid = OTHER
    outbox.answered(chain, status(Outcome.SUCCESS, rows[0].last), chain.generation, 0, 0.01)
    assert (chain.avoid, chain.log) == ("", LOG)


def test_an_abandoned_log_makes_the_oldest_row_begin_anew_and_the_rest_keep_their_chain() -> None:
    outbox = make()
    (done,) = put(outbox, 1)
    chain = outbox.wake("t", 30.0, 0)
    sent(chain, 0.0)
    outbox.answered(chain, status(Outcome.SUCCESS, done.last), chain.generation, 0, 0.0)
    rows = put(outbox, 1, 1)
    outbox.wake("t", 30.0, 0)
    assert rows[0].previous == done.last
    assert chain.unchain() is rows[0]
    assert (rows[0].previous, chain.log) == (done.last, LOG), "not before its commit has succeeded"
    chain.unchained(rows[0])
    assert (rows[0].previous, rows[1].previous, chain.log) == (0, rows[0].last, "")
    assert sent(chain, 0.0) == rows
    assert chain.unchain() is None


def test_a_late_answer_of_a_log_without_the_finished_puts_does_not_become_the_log() -> None:
    outbox = make()
    chain, (first, second, third) = flying(outbox, 1, 1, 1)
    assert outbox.answered(chain, status(Outcome.SUCCESS, second.last), chain.generation, 0, 0.01) == [first, second]
    outbox.answered(chain, status(Outcome.DUPLICATE, first.last, log=OTHER), chain.generation, 1, 0.02)
    assert chain.log == LOG
    outbox.answered(chain, status(Outcome.SUCCESS, third.last, log=OTHER), chain.generation, 1, 0.03)
    assert chain.log == OTHER
