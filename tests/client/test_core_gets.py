"""The client's core for gets and acknowledgements: every answer in every state, with time as an argument."""

from __future__ import annotations

import pytest
from rig import LOG, OTHER, Rig, batch, records, settled, status

from pubsub.base.limits import NUMBER_MAX
from pubsub.client.core.changes import DeadLettered, Intended, Told
from pubsub.client.core.core import SYNC_SECONDS
from pubsub.client.core.long_poll import ACKNOWLEDGE_SECONDS
from pubsub.errors import DataLoss, StateCopied, StorageError, Superseded
from pubsub.protocol import RETRY, Get, Outcome, Put, Status, Subscribe, Unsubscribe

RETRIES = sorted(RETRY - {Outcome.GAP})

# Getting


def test_a_get_names_its_number_its_position_and_the_last_received_record() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (out,) = rig.wants(sub)
    assert isinstance(out.message, Get)
    assert (out.message.last, out.message.after, out.message.number) == ((LOG, 5), None, sub.intent.number)
    (ahead,) = rig.answer(out, records(6, [1, 2]))
    assert isinstance(ahead.message, Get)
    assert (ahead.message.last, ahead.message.after) == ((LOG, 5), (LOG, 7))


def test_a_topic_without_a_waiting_call_sends_no_get() -> None:
    rig = Rig()
    rig.subscribed()
    assert rig.turn() == []
    assert rig.core.deadline() is None


def test_a_longer_waiting_call_is_served_after_a_shorter_one_ended() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (out,) = rig.wants(sub, 30.0)
    rig.wants(sub, 1.0)
    rig.later(1.0)
    sub.waiting -= 1  # The shorter one has returned.
    (out,) = rig.answer(out, status(Outcome.EMPTY, log=LOG))
    rig.answer(out, batch(1, 1, 1))
    assert sub.available


def test_a_longer_waiting_put_or_intent_is_retried_after_a_shorter_call_gave_up() -> None:
    rig = Rig()
    rig.put(1, seconds=30.0)
    rig.put(1, seconds=1.0)
    rig.turn()
    assert [type(out.message) for out in (*rig.later(1.0), *rig.later(5.0))].count(Put) > 1
    rig = Rig()
    sub, _ = rig.intend(seconds=30.0)
    rig.core.settle(sub, rig.now + 1.0)
    rig.later(1.0)
    assert [type(out.message) for out in rig.later(5.0)] == [Subscribe]


def test_the_prefetch_continues_while_records_come_and_room_is_left() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (out,) = rig.wants(sub)
    (out,) = rig.answer(out, batch(1, 1, 60))
    assert rig.answer(out, batch(61, 61, 60)) == []
    rig.take(sub, 60)
    (out,) = rig.turn()
    sub.waiting = 0
    assert rig.answer(out, status(Outcome.EMPTY, log=LOG)) == []


def test_one_further_get_is_sent_while_a_full_answer_is_taken() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (out,) = rig.wants(sub)
    (out,) = rig.answer(out, batch(1, 1, 100))
    assert rig.answer(out, batch(101, 101, 100)) == []
    rig.take(sub, 100)
    assert len(rig.turn()) == 1


def test_an_answer_to_a_get_before_the_latest_is_not_used() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (first,) = rig.wants(sub)
    (second,) = rig.later(1.11)
    rig.answer(first, records(1, [1]))
    assert not sub.available
    rig.answer(second, records(1, [1]))
    assert sub.prefetch.records == 1


def test_an_answer_from_before_an_unsubscription_is_not_used() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    _, out = rig.intend(False)
    rig.answer(get, records(1, [1]))
    assert not sub.available
    rig.answer(out, settled(out.message, None))
    assert not sub.available


def test_an_answer_to_a_get_does_not_confirm_an_unsubscription_that_was_not_sent_yet() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.committed.clear()
    sub.intended(False)
    rig.core.settle(sub, rig.now + 30.0)
    (out,) = rig.answer(get, records(1, [1]))  # The answer came before: a turn takes answers first, then it sends.
    assert isinstance(out.message, Unsubscribe)
    assert (sub.intent.settled, rig.committed) == (False, [])
    rig.answer(out, settled(out.message, None))
    assert sub.intent.settled


def test_unsubscribing_clears_the_prefetch() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, records(1, [1, 2]))
    assert sub.available
    rig.intend(False)
    assert not sub.available


def test_a_damaged_answer_is_ignored() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    damaged = records(1, [1])
    damaged.checksum ^= 1
    assert rig.answer(get, damaged) == []
    assert not sub.available
    assert len(rig.later(0.11)) == 1


@pytest.mark.parametrize("outcome", RETRIES)
def test_a_get_that_is_to_be_retried_goes_out_again(outcome: Outcome) -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    assert rig.answer(get, status(outcome, log=OTHER)) == []
    (again,) = rig.later(0.11)
    assert isinstance(again.message, Get)
    assert again.message.avoid == (OTHER if outcome is Outcome.UNKNOWN else "")


def test_a_get_is_held_for_longer_and_longer_while_nothing_comes() -> None:
    rig = Rig()
    sub = rig.subscribed()
    waits = []
    (out,) = rig.wants(sub, 100.0)
    for _ in range(7):
        assert isinstance(out.message, Get)
        waits.append(out.message.wait_ms)
        rig.now += out.message.wait_ms / 1000
        (out,) = rig.answer(out, status(Outcome.EMPTY, log=LOG))
    assert waits == [1000, 2000, 4000, 8000, 10000, 10000, 10000]


def test_an_unanswered_get_is_repeated_after_its_wait_and_100_ms() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (out,) = rig.wants(sub)
    assert isinstance(out.message, Get)
    assert out.message.wait_ms == 1000
    assert rig.later(1.05) == []
    (again,) = rig.later(0.06)
    assert isinstance(again.message, Get)
    assert again.message.last == out.message.last


def test_a_service_that_was_silent_for_long_is_not_asked_to_hold_the_get() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.later(60.0)
    (out,) = rig.wants(sub)
    assert isinstance(out.message, Get)
    assert out.message.wait_ms == 0


def test_a_superseded_subscription_fails_and_returns_no_prefetched_messages() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    (ahead,) = rig.answer(get, records(1, [1]))
    rig.answer(ahead, status(Outcome.SUPERSEDED, number=1, epoch=NUMBER_MAX // 2))
    assert isinstance(sub.failure, Superseded)
    assert not sub.available
    assert rig.later(5.0) == []


def test_the_outcome_behind_means_that_the_state_is_an_older_copy() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    rig.answer(get, status(Outcome.BEHIND, position=(LOG, 9)))
    assert isinstance(sub.failure, StateCopied)
    assert f"{LOG}.9" in str(sub.failure.evidence)


@pytest.mark.parametrize("sign", [
    status(Outcome.BEHIND, position=(LOG, 9)), status(Outcome.SUPERSEDED, number=1, epoch=NUMBER_MAX // 2),
])  # fmt: skip
def test_a_sign_of_a_copy_counts_as_lost_while_the_life_of_the_state_is_not_certain(sign: Status) -> None:
    """Another process may have continued the same state in a database (DB2)."""
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    asked: list[int] = []

    def over() -> None:
        asked.append(1)
        raise StorageError("state", "another process has it")

    rig.core.check_life = over
    with pytest.raises(StorageError):
        rig.answer(get, sign)
    assert asked
    assert sub.failure is None


def test_a_lost_position_is_recorded_and_the_subscription_is_made_anew() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    (again,) = rig.answer(get, status(Outcome.GONE))
    intended, buried = rig.committed[-2:]
    assert intended == Intended("t", True, fresh=True)
    assert isinstance(buried, DeadLettered)
    assert buried.first == f"{LOG}.5"
    assert isinstance(again.message, Subscribe)
    assert not again.message.continues
    assert not sub.has_news  # The application may put after the error and must receive that put, so subscribe first.
    rig.answer(again, settled(again.message, (OTHER, 0)))
    assert sub.cursor.position == (OTHER, 0)
    assert isinstance(sub.losses.tell(), DataLoss)


def test_a_loss_is_reported_at_once_if_the_subscription_cannot_be_made_anew() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    (again,) = rig.answer(get, status(Outcome.GONE))
    rig.answer(again, status(Outcome.REFUSED, reason="not_here"))
    assert sub.failure is not None
    assert sub.has_news


def test_a_lost_position_is_recorded_and_a_known_subscription_continues() -> None:
    rig = Rig()
    sub = rig.subscribed()
    number = sub.intent.number
    (get,) = rig.wants(sub)
    (again,) = rig.answer(get, status(Outcome.GONE, position=(OTHER, 3), log=OTHER))
    assert isinstance(again.message, Get)
    assert (again.message.last, again.message.number, again.message.log) == ((OTHER, 3), number, OTHER)
    told = sub.losses.tell()
    assert isinstance(told, DataLoss)
    assert "given up, or this state directory belongs to another cluster" in str(told)


def test_unreported_losses_are_reported_one_after_the_other() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    for offset in (3, 7):
        (get,) = rig.answer(get, status(Outcome.GONE, position=(OTHER, offset), log=OTHER))
    assert sub.has_news
    assert [sub.losses.tell().first for _ in range(2)] == [f"{LOG}.0", f"{OTHER}.3"]
    assert not sub.has_news
    assert sub.losses.forget("t") == [Told("t", 2)]
    sub.losses.forgot()
    assert (sub.losses.forget("t"), sub.has_news) == ([], False)


def test_an_operator_that_ended_the_subscription_is_named_as_the_reason() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, status(Outcome.SUPERSEDED, number=NUMBER_MAX // 2, reason="the_subscription_was_ended_elsewhere"))
    assert "the subscription was ended elsewhere" in str(sub.failure)


def test_a_loss_is_placed_between_earlier_and_later_messages() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    (get,) = rig.answer(get, records(1, [1]))
    (get,) = rig.answer(get, status(Outcome.LOST, first=(LOG, 2), message=(LOG, 4), log=LOG))
    assert isinstance(get.message, Get)
    assert get.message.after == (LOG, 4)
    rig.answer(get, records(5, [5]))
    assert [piece.last for piece in getattr(rig.take(sub, 10), "pieces")] == [(LOG, 1)]  # noqa: B009
    loss = rig.take(sub, 10)
    changes, error = sub.dead_letter(loss, 1.0)  # type: ignore[arg-type]
    assert (error.first, error.last) == (f"{LOG}.2", f"{LOG}.4")
    assert len(changes) == 2
    sub.dead_lettered(loss, error)  # type: ignore[arg-type]
    assert sub.losses.tell() is error
    assert sub.cursor.position == (LOG, 4)
    assert [piece.last for piece in getattr(rig.take(sub, 10), "pieces")] == [(LOG, 5)]  # noqa: B009


# Acknowledging


def test_an_acknowledgement_covers_only_fsynced_messages() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    (get,) = rig.answer(get, records(1, [1, 2]))
    rig.take(sub, 2)
    (get,) = rig.answer(get, records(3, [3]))
    assert isinstance(get.message, Get)
    assert (get.message.last, get.message.after) == ((LOG, 0), (LOG, 3))
    rig.now += SYNC_SECONDS
    rig.core.tick(rig.now)
    assert rig.core.wants_sync
    rig.turn()
    (get,) = rig.answer(get, records(4, [4]))
    assert isinstance(get.message, Get)
    assert (get.message.last, get.message.after) == ((LOG, 2), (LOG, 4))


def test_taken_messages_are_fsynced_in_time_while_taking_continues() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, batch(1, 1, 4))
    for _ in range(4):
        rig.take(sub, 1)
        rig.later(0.4 * SYNC_SECONDS)
    assert sub.cursor.safe == (LOG, 3)


def test_a_fsynced_commit_may_be_acknowledged_at_once() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    (get,) = rig.answer(get, records(1, [1]))
    rig.take(sub, 1, fsynced=True)
    (get,) = rig.answer(get, records(2, [2]))
    assert isinstance(get.message, Get)
    assert get.message.last == (LOG, 1)


def test_a_held_get_is_replaced_when_more_can_be_acknowledged() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    (held,) = rig.answer(get, records(1, [1]))
    rig.take(sub, 1)
    assert rig.later(SYNC_SECONDS) == []
    (anew,) = rig.later(ACKNOWLEDGE_SECONDS)
    assert isinstance(anew.message, Get)
    assert (anew.message.last, anew.message.after) == ((LOG, 1), None)
    assert held.token in rig.core.flights.forgotten
    assert rig.later(ACKNOWLEDGE_SECONDS) == []


def test_taken_messages_are_acknowledged_without_a_further_call() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    (get,) = rig.answer(get, records(1, [1]))
    sub.waiting = 0
    rig.answer(get, status(Outcome.EMPTY, log=LOG))
    rig.take(sub, 1)
    rig.later(SYNC_SECONDS)
    (only,) = rig.later(ACKNOWLEDGE_SECONDS)
    assert isinstance(only.message, Get)
    assert (only.message.last, only.message.records_max) == ((LOG, 1), 0)
    rig.answer(only, status(Outcome.EMPTY, log=LOG))
    assert rig.core.deadline() is None


def test_a_service_that_is_silent_is_not_asked_in_a_busy_loop() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, records(1, [1]))
    rig.take(sub, 1, fsynced=True)
    before = len(rig.sent)
    for _ in range(2000):
        due = rig.core.deadline()
        if due is None or due > 130.0:
            break
        rig.now = max(rig.now, due)
        rig.turn()
    assert len(rig.sent) - before < 60


def test_an_open_chunk_is_acknowledged_only_after_it_is_returned() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, records(1, [1, 2]))
    taking = sub.take(2)
    sub.begin_chunk(taking)  # type: ignore[arg-type]
    sub.took(taking)  # type: ignore[arg-type]
    rig.core.moved(sub, rig.now, fsynced=True)
    assert (sub.cursor.position, sub.cursor.safe) == ((LOG, 2), (LOG, 0))
    sub.chunk = None
    rig.core.moved(sub, rig.now, fsynced=True)
    assert sub.cursor.safe == (LOG, 2)


def test_safe_messages_are_acknowledged_at_once_at_the_close() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, records(1, [1]))
    rig.take(sub, 1, fsynced=True)
    assert rig.core.acknowledge(rig.now) == [sub]
    (out,) = rig.core.outgoing(rig.now)
    assert isinstance(out.message, Get)
    assert (out.message.last, out.message.records_max) == ((LOG, 1), 0)
