"""Trains of a client: the choice of rows, and the meaning of their one answer for each."""

from __future__ import annotations

from zlib import crc32

import pytest
from puts import make, put, sent, status
from rig import LOG, OTHER, Rig
from rig import status as answer

from pubsub.base.limits import TRAIN_BYTES_MAX, TRAIN_ROWS_MAX
from pubsub.client.core.chain import DONE, LIGHT_BYTES, MESSAGES_MAX, SINGLY_SECONDS, Chain, Row
from pubsub.client.core.effects import Outgoing
from pubsub.client.core.outbox import Draft
from pubsub.errors import Refused
from pubsub.protocol import Outcome, Put
from pubsub.protocol.train import ROW_BYTES, split_train


def message(outgoing: Outgoing) -> Put:
    """Return the PUT as it goes over the wire."""
    made = outgoing.complete(lambda counter: pytest.fail("every batch is in memory"))
    assert isinstance(made, Put)
    return made


def waiting(*counts: int, window: int = 256) -> tuple[Chain, list[Row]]:
    """A chain with rows that wait, because the limit of messages is in flight."""
    outbox = make(window=window)
    flying = []
    for _ in range(MESSAGES_MAX):
        flying += put(outbox, 1)
        chain = outbox.wake("t", 30.0, 0)
        assert [len(rows) for rows in chain.sendable(0.0)] == [1]
    rows = put(outbox, *counts)
    assert chain.sendable(0.0) == []
    return chain, [*flying, *rows]


def test_rows_that_wait_go_together_when_a_message_is_answered() -> None:
    chain, rows = waiting(1, 2, 1)
    assert chain.answered(status(Outcome.SUCCESS, rows[0].last), chain.generation, 0, 0.01) == rows[:1]
    assert chain.sendable(0.01) == [rows[2:]]
    assert list(chain.messages) == [rows[1].last, rows[-1].last]


def test_the_first_rows_do_not_wait() -> None:
    chain, rows = waiting()
    assert chain.sent == len(rows) == MESSAGES_MAX


def test_a_train_has_an_end_in_rows_and_in_bytes() -> None:
    outbox = make(window=256)
    rows = put(outbox, *[1] * (TRAIN_ROWS_MAX + 1))
    chain = outbox.wake("t", 30.0, 0)
    assert [len(one) for one in chain.sendable(0.0)] == [TRAIN_ROWS_MAX, 1]
    outbox, draft = make(window=256), None
    draft = Draft(outbox)
    size = LIGHT_BYTES - 12
    for _ in range(TRAIN_ROWS_MAX + 10):
        draft.add("t", [bytes(size)])
    outbox.accept(draft)
    first, *_ = outbox.wake("t", 30.0, 0).sendable(0.0)
    assert len(first) == min(TRAIN_ROWS_MAX, TRAIN_BYTES_MAX // (LIGHT_BYTES + ROW_BYTES))
    assert rows


def test_a_large_row_goes_alone_and_waits_for_nothing() -> None:
    outbox = make(window=256)
    for size in (1, LIGHT_BYTES, LIGHT_BYTES, LIGHT_BYTES, 1):
        draft = Draft(outbox)
        draft.add("t", [bytes(size)])
        outbox.accept(draft)
    chain = outbox.wake("t", 30.0, 0)
    assert [len(rows) for rows in chain.sendable(0.0)] == [1] * 4
    assert chain.sent == 4, "the last one is light, and waits for company"


def test_messages_that_one_answer_covers_are_all_no_longer_in_flight() -> None:
    outbox = make(window=256)
    large = []
    for _ in range(2 * MESSAGES_MAX):
        draft = Draft(outbox)
        draft.add("t", [bytes(LIGHT_BYTES)])
        outbox.accept(draft)
        large += draft.rows
    light = put(outbox, 1, 1)
    chain = outbox.wake("t", 30.0, 0)
    assert sent(chain, 0.0) == large
    outbox.answered(chain, status(Outcome.SUCCESS, large[-1].last), chain.generation, 0, 0.01)
    assert chain.sendable(0.01) == [light]


def test_a_marked_row_and_one_that_is_to_be_fsynced_are_in_no_train() -> None:
    marked = make(cuts=1, window=256)
    put(marked, 1, 1, 1)
    assert [len(rows) for rows in marked.wake("t", 30.0, 0).sendable(0.0)] == [1, 1, 1]
    held = make(window=256)
    put(held, 1, 1)
    draft = Draft(held)
    draft.add("t", [b"x"])
    held.accept(draft, held=True)
    put(held, 1)
    assert [len(rows) for rows in held.wake("t", 30.0, 0).sendable(0.0)] == [2]


def test_going_back_after_a_gap_releases_the_held_rows() -> None:
    chain, rows = waiting(1, 1)
    chain.answered(status(Outcome.GAP, 0), chain.generation, 0, 0.01)
    assert chain.sendable(0.01) == [rows]


def test_a_try_that_is_over_releases_the_held_rows() -> None:
    chain, rows = waiting(1, 1)
    assert chain.tick(0.1)
    assert chain.sendable(0.1) == [rows[:1]]
    chain.answered(status(Outcome.SUCCESS, rows[0].last), chain.generation, 0, 0.12)
    assert chain.sendable(0.12) == [rows[1:]]


@pytest.mark.parametrize("outcome", [Outcome.FULL, Outcome.BUSY, Outcome.MOVED, Outcome.UNAVAILABLE])
def test_a_train_that_ends_early_finishes_its_first_rows_and_the_rest_is_tried_again(outcome: Outcome) -> None:
    outbox = make(window=256)
    rows = put(outbox, 1, 2, 1)
    chain = outbox.wake("t", 30.0, 0)
    assert chain.sendable(0.0) == [rows]
    assert outbox.answered(chain, status(outcome, rows[1].last), chain.generation, 0, 0.01) == rows[:2]
    assert [row.state for row in rows] == [DONE, DONE, 0]
    assert chain.log == LOG
    assert chain.sendable(0.01) == []
    chain.tick(0.2)
    assert sent(chain, 0.2) == rows[2:]


def test_a_gap_in_a_train_goes_back_to_the_row_after_last() -> None:
    outbox = make(window=256)
    rows = put(outbox, 1, 1, 1)
    chain = outbox.wake("t", 30.0, 0)
    chain.sendable(0.0)
    assert outbox.answered(chain, status(Outcome.GAP, rows[0].last), chain.generation, 0, 0.01) == rows[:1]
    assert chain.sendable(0.01) == [rows[1:]]


def test_a_train_contains_each_row_with_its_batch_unchanged() -> None:
    rig = Rig()
    rows = rig.put(2, 1, 3)
    batches = [row.body for row in rows]
    (out,) = rig.turn()
    train = message(out)
    assert (train.rows, train.counter, train.count, train.previous) == (3, rows[0].counter, 6, 0)
    assert train.checksum == crc32(train.body[: 3 * ROW_BYTES])
    found = split_train(train)
    assert [(one.counter, one.previous, one.count) for one in found] == [
        (row.counter, row.previous, row.count) for row in rows
    ]
    assert [bytes(one.body) for one in found] == batches


def test_rows_on_the_disk_only_are_loaded_from_there() -> None:
    rig = Rig()
    rows = rig.put(1, 1)
    stored = {row.counter: row.body or b"" for row in rows}
    for row in rows:
        row.body = None
    (out,) = rig.turn()
    train = out.complete(stored.__getitem__)
    assert [bytes(one.body) for one in split_train(train)] == list(stored.values())  # type: ignore[arg-type]


def test_a_train_is_waited_for_until_its_last_row_is_done() -> None:
    rig = Rig()
    rows = rig.put(1, 1, 1)
    (lone,) = rig.turn()
    rig.answer(lone, answer(Outcome.SUCCESS, last=rows[0].last, log=LOG))  # As a server says that ends in between.
    (again,) = rig.later(0.1)
    assert rig.core.flights.forgotten == []
    rig.answer(again, answer(Outcome.SUCCESS, last=rows[1].last, log=LOG))
    assert [row.state for row in rows] == [DONE, DONE, 0]


def test_a_refused_train_goes_row_by_row_at_once_and_trains_are_tried_again_later() -> None:
    rig = Rig()
    rows = rig.put(1, 1, 1)
    (train,) = rig.turn()
    singles = rig.answer(train, answer(Outcome.REFUSED, reason="PUT_insists_on_'!rows=3',_which_is_not_known_here"))
    assert [(message(out).rows, message(out).counter) for out in singles] == [(0, row.counter) for row in rows]
    rig.answer(singles[-1], answer(Outcome.SUCCESS, last=rows[-1].last, log=LOG))
    assert [row.state for row in rows] == [DONE] * 3
    rig.put(1, 1)
    assert [message(out).rows for out in rig.turn()] == [0, 0], "it is not asked with every put"
    rig.now += SINGLY_SECONDS
    rig.core.outbox.discarded("t")
    rig.put(1, 1)
    assert [message(out).rows for out in rig.turn()] == [2]


def test_another_topic_has_its_trains_meanwhile() -> None:
    rig = Rig()
    rig.put(1, 1)
    (train,) = rig.turn()
    rig.answer(train, answer(Outcome.REFUSED))
    rig.put(1, 1, topic="u")
    assert [message(out).rows for out in rig.turn()] == [2]


def test_a_row_that_is_refused_alone_is_reported_and_kept_after_the_earlier_rows() -> None:
    rig = Rig()
    rows = rig.put(1, 1, 1)
    (train,) = rig.turn()
    singles = rig.answer(train, answer(Outcome.REFUSED, last=rows[0].last, log=LOG, reason="damaged"))
    assert [message(out).counter for out in singles] == [row.counter for row in rows[1:]]
    rig.answer(singles[0], answer(Outcome.REFUSED, reason="damaged"))
    chain = rig.core.outbox.chain("t")
    assert isinstance(chain.failure, Refused)
    assert list(chain.rows) == rows[1:]


def test_a_gap_at_a_server_without_rows_of_the_chain_sets_no_log() -> None:
    rig = Rig()
    rig.put(1, 1)
    (train,) = rig.turn()
    rig.answer(train, answer(Outcome.GAP, last=0, log=OTHER))
    assert rig.core.outbox.chain("t").log == ""


def test_a_late_refusal_of_a_train_that_was_sent_anew_says_nothing() -> None:
    rig = Rig()
    rig.put(1, 1)
    (train,) = rig.turn()
    (single,) = rig.later(0.1)
    rig.answer(train, answer(Outcome.REFUSED))
    assert message(single).rows == 0
    assert rig.core.outbox.chain("t").failure is None
