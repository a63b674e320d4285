"""Denials in the core alone: the requests they end, the state they keep, and the state they must not undo.

The rule is docs/explanation/protocol.md, V7.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rig import LOG, Rig, records, settled, status

from pubsub.client.core.chain import DONE, LIGHT_BYTES, UNFINISHED
from pubsub.client.core.rights import refusal
from pubsub.errors import DataLoss, NotAllowed, Refused
from pubsub.protocol import Outcome, Put, Status, Subscribe, Unsubscribe
from pubsub.protocol.denials import SENTENCE_CHARACTERS_MAX

NO = status(Outcome.DENIED, reason="right", body=b"client c may not put to t")


def sent(rig: Rig) -> list[int]:
    """Return the counters of the sent puts, in order."""
    return [one.message.counter for one in rig.sent if isinstance(one.message, Put)]


def test_a_denied_put_is_kept_and_not_sent_again_by_itself() -> None:
    rig = Rig()
    rows = rig.put(1, 1, size=LIGHT_BYTES)
    first, second = rig.turn()
    rig.answer(first, NO)
    chain = rig.core.outbox.chains["t"]
    assert isinstance(chain.failure, NotAllowed)
    assert [row.state for row in rows] == [UNFINISHED, UNFINISHED]
    rig.answer(second, NO)
    assert rig.later(100.0) == []
    assert rig.core.deadline() is None


def test_the_next_put_sends_the_denied_puts_in_order() -> None:
    rig = Rig()
    (first,) = rig.put(1)
    rig.answer(rig.turn()[0], NO)
    (second,) = rig.put(1)
    assert [row for out in rig.turn() for row in out.rows] == [first, second]
    assert rig.core.outbox.chains["t"].failure is None


def test_a_denial_of_an_earlier_call_does_not_end_the_next_one() -> None:
    rig = Rig()
    rig.put(1, 1, size=LIGHT_BYTES)
    first, late = rig.turn()
    rig.answer(first, NO)
    rig.put(1, size=LIGHT_BYTES)
    out = rig.turn()
    assert len(out) == 3
    rig.answer(late, NO)
    chain = rig.core.outbox.chains["t"]
    assert chain.failure is None
    rig.answer(out[-1], status(Outcome.SUCCESS, last=out[-1].message.counter, log=LOG))  # type: ignore[union-attr]
    assert not chain.rows


def test_a_put_stored_by_an_earlier_try_is_neither_forgotten_nor_doubled() -> None:
    """The first try is stored and its answer dropped, because the rights changed; the second try is denied."""
    rig = Rig()
    (row,) = rig.put(1)
    (taken,) = rig.turn()
    (again,) = rig.later(0.1)
    rig.answer(again, NO)
    assert row.state == UNFINISHED
    rig.core.finish("t", rig.now + 30.0)
    (flushed,) = rig.turn()
    assert (flushed.message.counter, flushed.message.previous) == (taken.message.counter, taken.message.previous)  # type: ignore[union-attr]
    rig.answer(flushed, status(Outcome.DUPLICATE, last=row.last, log=LOG))
    assert row.state == DONE
    assert not rig.core.outbox.chains["t"].rows


def test_an_answer_that_comes_behind_a_denial_counts() -> None:
    rig = Rig()
    (row,) = rig.put(1)
    (taken,) = rig.turn()
    (again,) = rig.later(0.1)
    rig.answer(again, NO)
    rig.answer(taken, status(Outcome.SUCCESS, last=row.last, log=LOG))
    assert row.state == DONE
    rig.put(1)
    assert len(rig.turn()) == 1


def test_a_put_discarded_after_a_denial_leaves_the_chain_at_its_predecessor() -> None:
    rig = Rig()
    (done,) = rig.put(1)
    rig.answer(rig.turn()[0], status(Outcome.SUCCESS, last=done.last, log=LOG))
    rig.put(1)
    rig.answer(rig.turn()[0], NO)
    rig.core.outbox.discarded("t")
    rig.put(1)
    (out,) = rig.turn()
    assert out.message.previous == done.last  # type: ignore[union-attr]


@given(st.lists(st.sampled_from(["deny", "take", "lose", "put", "flush", "wait"]), max_size=30))
def test_each_put_is_taken_once_in_order_despite_denials_at_any_time(steps: list[str]) -> None:
    """The server accepts puts missing in its log; a proxy denies, or loses the answer, at any time."""
    rig = Rig()
    log: list[int] = []
    answered: set[int] = set()

    def serve(step: str) -> None:
        for out in [one for one in rig.sent if one.token not in answered]:
            answered.add(out.token)
            if step == "deny":
                rig.answer(out, NO)
                continue
            put = out.message
            assert isinstance(put, Put)
            last = log[-1] if log else 0
            outcome = (
                Outcome.DUPLICATE if put.counter <= last else Outcome.SUCCESS if put.previous == last else Outcome.GAP
            )
            if outcome is Outcome.SUCCESS:
                log.append(put.counter)
            if step == "take":
                rig.answer(out, status(outcome, last=log[-1] if log else 0, log=LOG))

    rows = []
    # At the end nothing is denied or lost; each round handles one answer, or retries a lost request. A call's time-out
    # ends the retries, so the flush has time for all rounds of 6 s.
    for step in [*steps, "flush", *["take", "wait"] * (len(steps) + 3)]:
        if step == "put":
            rows += rig.put(1)
        elif step == "flush":
            rig.core.finish("t", rig.now + 30.0 + 6.0 * (len(steps) + 3))
        elif step == "wait":
            rig.later(6.0)
        else:
            serve(step)
        rig.turn()
    assert log == [row.counter for row in rows]
    assert all(row.state == DONE for row in rows)


def test_a_denied_subscription_is_asked_for_by_the_next_call_alone() -> None:
    rig = Rig()
    sub, out = rig.intend()
    rig.answer(out, status(Outcome.DENIED, body=b"client c may not get from t"))
    assert isinstance(sub.failure, NotAllowed)
    assert sub.intent.on
    assert not sub.intent.settled
    assert rig.later(100.0) == []
    assert rig.core.deadline() is None
    rig.core.settle(sub, rig.now + 30.0)
    (again,) = rig.turn()
    assert isinstance(again.message, Subscribe)
    rig.answer(again, settled(again.message, (LOG, 0)))
    assert sub.intent.settled
    assert sub.failure is None


def test_a_denied_unsubscription_stays_wanted() -> None:
    rig = Rig()
    rig.subscribed()
    sub, out = rig.intend(on=False)
    assert isinstance(out.message, Unsubscribe)
    rig.answer(out, status(Outcome.DENIED))
    assert str(sub.failure) == "client c may not unsubscribe from t"
    assert not sub.intent.on
    assert not sub.intent.settled


def test_a_denied_get_keeps_the_prefetched_messages_and_the_position() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.answer(rig.wants(sub)[0], records(1, [1, 2, 3]))
    rig.take(sub, 1)
    sub.waiting = 0
    (ahead,) = [out for out in rig.sent if not out.rows][-1:]
    rig.answer(ahead, status(Outcome.DENIED))
    assert isinstance(sub.failure, NotAllowed)
    assert sub.prefetch.records == 2
    assert (sub.intent.on, sub.intent.settled, sub.cursor.position) == (True, True, (LOG, 1))
    rig.take(sub, 2)
    assert rig.later(100.0) == []  # It acknowledges nothing either: that would be denied too.
    (again,) = rig.wants(sub)
    assert (again.message.last, again.message.after) == ((LOG, 3), None)  # type: ignore[union-attr]
    assert sub.failure is None


def test_a_check_that_is_denied_ends_the_call() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.core.check(sub, rig.now + 30.0)
    rig.answer(rig.turn()[0], status(Outcome.DENIED))
    assert not sub.intent.unchecked
    assert isinstance(sub.failure, NotAllowed)
    assert rig.later(100.0) == []


def test_a_loss_is_reported_only_after_the_subscription_is_made_anew() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.answer(rig.wants(sub)[0], status(Outcome.GONE))
    (anew,) = rig.turn() or [rig.sent[-1]]
    assert isinstance(anew.message, Subscribe)
    rig.answer(anew, status(Outcome.DENIED))
    assert not sub.has_news
    rig.core.settle(sub, rig.now + 30.0)
    (again,) = rig.turn()
    rig.answer(again, settled(again.message, (LOG, 0)))
    assert sub.has_news
    assert isinstance(sub.losses.tell(), DataLoss)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"client c may not put to t", "client c may not put to t"),
        (b"", "client c may not put to a b"),
        (b"two\nlines\x1b[31m", "two?lines?[31m"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"x" * 5_000, "x" * SENTENCE_CHARACTERS_MAX),
    ],
)
def test_the_text_of_a_proxy_is_shown_in_one_line(body: bytes, shown: str) -> None:
    error = refusal("c", "put", "a b", status(Outcome.DENIED, body=memoryview(body)))
    remedy = "the put is kept: ask for the right, then pubsub client c flush, or discard 'a b'"
    assert str(error) == f"{shown}; {remedy}"


def test_a_permanent_refusal_is_another_error() -> None:
    error = refusal("c", "put", "t", Status("s1", Outcome.REFUSED, reason="too_large"))
    assert isinstance(error, Refused)
    assert str(error) == "put on t was refused: too large"
