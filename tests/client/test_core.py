"""The client's core: every answer in every state, with time as an argument."""

from __future__ import annotations

import pytest
from rig import LOG, OTHER, Rig, batch, records, settled, status

from pubsub.base.limits import NUMBER_MAX
from pubsub.client.core.chain import DONE
from pubsub.client.core.changes import Buried, Confirmed, Intended, RowUnchained, Told
from pubsub.client.core.core import SYNC_SECONDS
from pubsub.client.core.subscription import ACKNOWLEDGE_SECONDS
from pubsub.errors import DataLoss, Refused, StateCopied, Superseded
from pubsub.protocol import RETRY, Get, Outcome, Put, Subscribe, Unsubscribe

RETRIES = sorted(RETRY - {Outcome.GAP})


# Puts


def test_a_put_names_its_chain_and_its_log() -> None:
    rig = Rig()
    rows = rig.put(2, 1)
    first, second = rig.turn()
    assert isinstance(first.message, Put)
    assert isinstance(second.message, Put)
    assert (first.message.counter, first.message.previous, first.message.count) == (rows[0].counter, 0, 2)
    assert second.message.previous == rows[0].last
    assert first.message.publisher == "00000000000000dd"
    assert first.message.log == ""
    rig.answer(first, status(Outcome.SUCCESS, last=rows[0].last, log=LOG))
    (third_row,) = rig.put(1)
    (third,) = rig.turn()
    assert isinstance(third.message, Put)
    assert (third.message.log, third.message.previous) == (LOG, rows[1].last)
    assert third_row.previous == rows[1].last


def test_puts_in_flight_together_ask_for_one_answer_and_are_done_by_it() -> None:
    rig = Rig()
    rig.put(1)
    (alone,) = rig.turn()
    assert isinstance(alone.message, Put)
    assert not alone.message.cumulative
    rows = rig.put(1, 2)
    sent = rig.turn()
    assert [isinstance(out.message, Put) and out.message.cumulative for out in sent] == [1, 1]
    rig.answer(sent[-1], status(Outcome.SUCCESS, last=rows[-1].last, log=LOG))
    assert [row.state for row in rows] == [DONE, DONE]
    assert not rig.core.outbox.chain("t").rows


def test_a_put_is_done_by_its_answer_and_its_other_tokens_are_forgotten() -> None:
    rig = Rig()
    (row,) = rig.put(1)
    (first,) = rig.turn()
    (second,) = rig.later(0.1)
    rig.answer(second, status(Outcome.SUCCESS, last=row.last, log=LOG))
    assert row.state == DONE
    assert rig.core.flights.forgotten == [first.token]


def test_a_late_answer_to_a_put_that_is_done_changes_nothing() -> None:
    rig = Rig()
    (row,) = rig.put(1)
    (out,) = rig.turn()
    rig.answer(out, status(Outcome.SUCCESS, last=row.last, log=LOG))
    assert rig.answer(out, status(Outcome.GAP, last=0, log=OTHER)) == []
    assert rig.core.outbox.chain("t").avoid == ""


def test_a_silent_proxy_is_left_after_three_tries_of_100_ms() -> None:
    rig = Rig()
    rig.put(1)
    proxies = [out.proxy for out in rig.turn()]
    for _ in range(6):
        proxies += [out.proxy for out in rig.later(0.1001)]
    assert proxies == [0, 0, 0, 1, 1, 1, 0]


def test_all_of_the_client_stays_with_the_proxy_that_works() -> None:
    rig = Rig()
    (row,) = rig.put(1)
    out = rig.turn()[0]
    while out.proxy == 0:
        (out,) = rig.later(0.1001)
    rig.answer(out, status(Outcome.SUCCESS, last=row.last, log=LOG))
    rig.put(1, topic="u")
    assert [out.proxy for out in rig.turn()] == [1]


def test_nothing_is_sent_for_a_put_whose_call_has_given_up() -> None:
    rig = Rig()
    rig.put(1, seconds=0.25)
    rig.turn()
    for _ in range(10):
        rig.later(0.1)
    assert len(rig.sent) <= 3
    assert rig.core.deadline() is None


def test_last_above_every_number_taken_means_that_the_state_was_copied() -> None:
    rig = Rig()
    rig.put(1)
    (out,) = rig.turn()
    rig.answer(out, status(Outcome.DUPLICATE, last=rig.core.numbers.highest + 1, log=LOG))
    assert isinstance(rig.core.copied, StateCopied)
    rig.put(1)
    assert rig.turn() == []


def test_last_inside_a_batch_means_that_the_state_was_copied() -> None:
    rig = Rig()
    (row,) = rig.put(3)
    (out,) = rig.turn()
    rig.answer(out, status(Outcome.GAP, last=row.counter + 1, log=LOG))
    assert isinstance(rig.core.copied, StateCopied)


def test_a_put_after_power_cuts_asks_for_a_sole_owner_in_the_protocols_form_however_many_there_were() -> None:
    rig = Rig(cuts=2)
    rig.put(1)
    (put,) = rig.turn()
    assert isinstance(put.message, Put)
    assert put.message.whole == 1


def test_a_subscription_that_goes_above_the_originals_numbers_does_not_hide_that_the_state_is_a_copy() -> None:
    rig = Rig()
    (row,) = rig.put(3)  # Its clock is behind: the original has put and subscribed under higher numbers.
    (put,) = rig.turn()
    _, subscribe = rig.intend()
    original = row.last + 500
    rig.answer(subscribe, status(Outcome.SUPERSEDED, number=original, opening=original - 1))
    assert rig.core.numbers.highest > original
    rig.answer(put, status(Outcome.DUPLICATE, last=original, log=LOG))
    assert row.state != DONE
    assert isinstance(rig.core.copied, StateCopied)


def test_a_put_to_a_log_that_was_given_up_begins_the_chain_anew_durably() -> None:
    rig = Rig()
    (done,) = rig.put(1)
    (out,) = rig.turn()
    rig.answer(out, status(Outcome.SUCCESS, last=done.last, log=LOG))
    (row,) = rig.put(1)
    (out,) = rig.turn()
    (again,) = rig.answer(out, status(Outcome.GONE, log=OTHER))
    assert rig.committed == [RowUnchained(row.counter)]
    assert isinstance(again.message, Put)
    assert (again.message.previous, again.message.log) == (0, "")


def test_a_late_word_that_the_log_is_gone_leaves_the_chain_that_was_begun_anew() -> None:
    rig = Rig()
    first, second = rig.put(1, 1)
    to_first, to_second = rig.turn()
    again, _ = rig.answer(to_first, status(Outcome.GONE, log=OTHER))
    rig.answer(again, status(Outcome.SUCCESS, last=first.last, log=OTHER))
    rig.committed.clear()
    rig.answer(to_second, status(Outcome.GONE, log=OTHER))
    assert (second.previous, rig.committed) == (first.last, []), "it would be taken where the first one is not"
    assert rig.core.outbox.chain("t").log == OTHER


def test_only_the_oldest_put_names_the_log_to_avoid() -> None:
    """There a gap proves that the log lacks what it acknowledged; the others may have overtaken one that was lost."""
    rig = Rig()
    (done,) = rig.put(1)
    (out,) = rig.turn()
    rig.answer(out, status(Outcome.SUCCESS, last=done.last, log=LOG))
    rig.put(1, 1, seconds=0.05)
    (first, _) = rig.turn()
    rig.answer(first, status(Outcome.GAP, last=0, log=OTHER))
    assert rig.core.outbox.chain("t").avoid == OTHER
    rig.later(0.1)
    rig.core.finish("t", rig.now + 30.0)
    oldest, other = rig.turn()
    assert isinstance(oldest.message, Put)
    assert isinstance(other.message, Put)
    assert (oldest.message.avoid, other.message.avoid) == (OTHER, "")


def test_a_refused_put_is_said_and_kept() -> None:
    rig = Rig()
    (row,) = rig.put(1)
    (out,) = rig.turn()
    rig.answer(out, status(Outcome.REFUSED, reason="too_large"))
    chain = rig.core.outbox.chain("t")
    assert isinstance(chain.failure, Refused)
    assert list(chain.rows) == [row]
    rig.core.finish("t", rig.now + 30.0)
    assert chain.failure is None


@pytest.mark.parametrize("outcome", RETRIES)
def test_a_put_that_is_to_be_retried_goes_out_again_and_says_why_meanwhile(outcome: Outcome) -> None:
    rig = Rig()
    rig.put(1)
    (out,) = rig.turn()
    assert rig.answer(out, status(outcome, reason="no_live_holder")) == []
    assert rig.core.outbox.chain("t").trouble == "no live holder"
    assert len(rig.later(0.1)) == 1


# Subscribing


def test_every_transmission_has_a_number_of_its_own() -> None:
    rig = Rig()
    _, first = rig.intend()
    (second,) = rig.later(0.1)
    assert isinstance(first.message, Subscribe)
    assert isinstance(second.message, Subscribe)
    assert second.message.number > first.message.number
    assert second.message.opening == first.message.opening == rig.core.numbers.epoch


def test_only_the_answer_to_the_last_transmission_settles() -> None:
    rig = Rig()
    sub, first = rig.intend()
    (second,) = rig.later(0.1)
    rig.answer(first, settled(first.message, (LOG, 5)))
    assert not sub.settled
    rig.answer(second, settled(second.message, (LOG, 7)))
    assert sub.settled
    assert isinstance(second.message, Subscribe)
    assert rig.committed == [Confirmed("t", second.message.number, (LOG, 7), LOG)]
    assert (sub.number, sub.position) == (second.message.number, (LOG, 7))


def test_an_intent_is_settled_only_once_that_is_committed() -> None:
    rig = Rig()
    sub, out = rig.intend()
    rig.core.receive(out.token, settled(out.message, (LOG, 5)), rig.now)
    assert not sub.settled
    rig.core.due.clear()  # The commit failed.
    (again,) = rig.later(0.1)
    assert isinstance(again.message, Subscribe)


def test_a_late_answer_to_subscribe_after_unsubscribe_changes_nothing() -> None:
    rig = Rig()
    _, first = rig.intend(True)
    sub, second = rig.intend(False)
    assert isinstance(second.message, Unsubscribe)
    rig.answer(first, settled(first.message, (LOG, 5)))
    assert not sub.settled
    rig.answer(second, settled(second.message, (LOG, 5)))
    assert (sub.settled, sub.on, sub.position) == (True, False, None)


@pytest.mark.parametrize("outcome", [*RETRIES, Outcome.GAP])
def test_subscribing_is_tried_again_where_the_service_cannot_yet(outcome: Outcome) -> None:
    rig = Rig()
    sub, out = rig.intend()
    assert rig.answer(out, status(outcome, reason="starting")) == []
    assert (sub.trouble, sub.settled) == ("starting", False)
    assert len(rig.later(0.11)) == 1


def test_a_users_call_goes_above_a_higher_number_and_opens_anew() -> None:
    rig = Rig()
    sub, out = rig.intend()
    higher = rig.core.numbers.highest + (1 << 40)
    (again,) = rig.answer(out, status(Outcome.SUPERSEDED, number=higher, opening=7))
    assert isinstance(again.message, Subscribe)
    assert again.message.number > again.message.opening > higher
    rig.answer(again, settled(again.message, (LOG, 1)))
    assert sub.settled


def test_who_subscribes_again_is_asked_for_by_a_get_that_takes_nothing() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.core.check(sub, rig.now + 30.0)
    (get,) = rig.turn()
    assert isinstance(get.message, Get)
    assert (get.message.number, get.message.records_max, get.message.wait_ms) == (sub.number, 0, 0)
    assert sub.unchecked
    rig.answer(get, status(Outcome.EMPTY, log=LOG))
    assert not sub.unchecked
    assert rig.later(5.0) == []


def test_an_answer_from_before_the_call_does_not_say_that_a_subscription_is_still_known() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (before,) = rig.wants(sub)
    rig.core.check(sub, rig.now + 30.0)
    (asked,) = rig.turn()
    rig.answer(before, status(Outcome.EMPTY, log=LOG))
    assert sub.unchecked
    (waiting,) = rig.answer(asked, status(Outcome.EMPTY, log=LOG))
    assert not sub.unchecked
    assert isinstance(waiting.message, Get)
    assert waiting.message.records_max  # Who waited goes on waiting.


def test_a_question_whether_a_subscription_is_known_is_asked_again_until_its_call_gives_up() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.core.check(sub, rig.now + 1.0)
    (asked,) = rig.turn()
    rig.answer(asked, status(Outcome.UNKNOWN, reason="topic"))
    sent = [out for _ in range(40) for out in rig.later(0.1)]
    assert 2 <= len(sent) <= 10
    assert {out.proxy for out in sent} == {0, 1}
    assert sub.unchecked


def test_asking_again_by_itself_does_not_go_above_a_higher_number() -> None:
    rig = Rig()
    sub, out = rig.intend(insists=False)
    assert rig.answer(out, status(Outcome.SUPERSEDED, number=NUMBER_MAX // 2, opening=7)) == []
    assert isinstance(sub.failure, Superseded)


def test_a_forged_number_at_the_end_of_all_numbers_is_an_error_and_no_crash() -> None:
    rig = Rig()
    sub, out = rig.intend()
    rig.answer(out, status(Outcome.SUPERSEDED, number=NUMBER_MAX, opening=NUMBER_MAX))
    assert sub.failure is not None


def test_nothing_is_asked_after_the_calls_time_out() -> None:
    rig = Rig()
    rig.intend(seconds=0.25)
    for _ in range(10):
        rig.later(0.1)
    assert len(rig.sent) == 3


# Getting


def test_a_get_names_the_number_the_position_and_what_was_received() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (out,) = rig.wants(sub)
    assert isinstance(out.message, Get)
    assert (out.message.last, out.message.after, out.message.number) == ((LOG, 5), None, sub.number)
    (ahead,) = rig.answer(out, records(6, [1, 2]))
    assert isinstance(ahead.message, Get)
    assert (ahead.message.last, ahead.message.after) == ((LOG, 5), (LOG, 7))


def test_nothing_is_asked_for_where_nobody_waits() -> None:
    rig = Rig()
    rig.subscribed()
    assert rig.turn() == []
    assert rig.core.deadline() is None


def test_a_call_that_waits_longer_is_served_after_a_shorter_one_beside_it_has_ended() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (out,) = rig.wants(sub, 30.0)
    rig.wants(sub, 1.0)
    rig.later(1.0)
    sub.waiting -= 1  # The shorter one has returned.
    (out,) = rig.answer(out, status(Outcome.EMPTY, log=LOG))
    rig.answer(out, batch(1, 1, 1))
    assert sub.available


def test_a_put_or_an_intent_that_waits_longer_is_tried_on_after_a_shorter_call_beside_it_has_given_up() -> None:
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


def test_the_prefetch_goes_on_while_records_come_and_there_is_room_and_stops_when_nothing_comes() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (out,) = rig.wants(sub)
    (out,) = rig.answer(out, batch(1, 1, 60))
    assert rig.answer(out, batch(61, 61, 60)) == []
    rig.take(sub, 60)
    (out,) = rig.turn()
    sub.waiting = 0
    assert rig.answer(out, status(Outcome.EMPTY, log=LOG)) == []


def test_while_a_full_answer_is_handed_out_the_next_one_is_on_its_way_and_no_third() -> None:
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
    (out,) = rig.answer(get, records(1, [1]))  # It had come before: a turn takes what is here, then it sends.
    assert isinstance(out.message, Unsubscribe)
    assert (sub.settled, rig.committed) == (False, [])
    rig.answer(out, settled(out.message, None))
    assert sub.settled


def test_unsubscribing_forgets_what_was_prefetched() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, records(1, [1, 2]))
    assert sub.available
    rig.intend(False)
    assert not sub.available


def test_a_damaged_answer_counts_as_none() -> None:
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


def test_a_get_that_is_not_answered_is_repeated_after_its_wait_and_100_ms() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (out,) = rig.wants(sub)
    assert isinstance(out.message, Get)
    assert out.message.wait_ms == 1000
    assert rig.later(1.05) == []
    (again,) = rig.later(0.06)
    assert isinstance(again.message, Get)
    assert again.message.last == out.message.last


def test_a_service_that_was_not_heard_for_long_is_not_asked_to_hold_the_get() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.later(60.0)
    (out,) = rig.wants(sub)
    assert isinstance(out.message, Get)
    assert out.message.wait_ms == 0


def test_superseded_is_said_and_what_was_prefetched_is_not_handed_out() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    (ahead,) = rig.answer(get, records(1, [1]))
    rig.answer(ahead, status(Outcome.SUPERSEDED, number=1, opening=NUMBER_MAX // 2))
    assert isinstance(sub.failure, Superseded)
    assert not sub.available
    assert rig.later(5.0) == []


def test_behind_means_that_the_state_is_an_older_copy() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    rig.answer(get, status(Outcome.BEHIND, position=(LOG, 9)))
    assert isinstance(sub.failure, StateCopied)
    assert f"{LOG}.9" in str(sub.failure.evidence)


def test_a_place_that_is_gone_is_buried_and_the_subscription_is_made_anew() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    (again,) = rig.answer(get, status(Outcome.GONE))
    intended, buried = rig.committed[-2:]
    assert intended == Intended("t", True)
    assert isinstance(buried, Buried)
    assert buried.first == f"{LOG}.5"
    assert isinstance(again.message, Subscribe)
    assert not sub.has_news  # Who is told goes on and puts: that has to arrive, so the subscription is there first.
    rig.answer(again, settled(again.message, (OTHER, 0)))
    assert sub.position == (OTHER, 0)
    assert isinstance(sub.tell(), DataLoss)


def test_a_loss_is_told_at_once_where_the_subscription_cannot_be_made_anew() -> None:
    rig = Rig()
    sub = rig.subscribed(5)
    (get,) = rig.wants(sub)
    (again,) = rig.answer(get, status(Outcome.GONE))
    rig.answer(again, status(Outcome.REFUSED, reason="not_here"))
    assert sub.failure is not None
    assert sub.has_news


def test_a_place_that_is_gone_is_buried_and_goes_on_where_the_subscription_is_known() -> None:
    rig = Rig()
    sub = rig.subscribed()
    number = sub.number
    (get,) = rig.wants(sub)
    (again,) = rig.answer(get, status(Outcome.GONE, position=(OTHER, 3), log=OTHER))
    assert isinstance(again.message, Get)
    assert (again.message.last, again.message.number, again.message.log) == ((OTHER, 3), number, OTHER)
    assert isinstance(sub.tell(), DataLoss)


def test_losses_that_nobody_was_told_of_are_told_one_after_the_other() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    for offset in (3, 7):
        (get,) = rig.answer(get, status(Outcome.GONE, position=(OTHER, offset), log=OTHER))
    assert sub.has_news
    assert [sub.tell().first for _ in range(2)] == [f"{LOG}.0", f"{OTHER}.3"]
    assert not sub.has_news
    assert sub.forget_told() == [Told("t", 2)]
    sub.forgot_told()
    assert (sub.forget_told(), sub.has_news) == ([], False)


def test_an_operator_that_ended_the_subscription_is_named_as_the_reason() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, status(Outcome.SUPERSEDED, number=NUMBER_MAX // 2, reason="the_subscription_was_ended_elsewhere"))
    assert "the subscription was ended elsewhere" in str(sub.failure)


def test_a_loss_stands_in_the_stream_between_what_was_before_and_what_comes_after() -> None:
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
    changes, error = sub.bury(loss, 1.0)  # type: ignore[arg-type]
    assert (error.first, error.last) == (f"{LOG}.2", f"{LOG}.4")
    assert len(changes) == 2
    sub.buried(loss, error)  # type: ignore[arg-type]
    assert sub.tell() is error
    assert sub.position == (LOG, 4)
    assert [piece.last for piece in getattr(rig.take(sub, 10), "pieces")] == [(LOG, 5)]  # noqa: B009


# Acknowledging


def test_an_acknowledgement_covers_only_what_an_fsync_has_covered() -> None:
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


def test_a_fsynced_commit_may_be_acknowledged_at_once() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    (get,) = rig.answer(get, records(1, [1]))
    rig.take(sub, 1, fsynced=True)
    (get,) = rig.answer(get, records(2, [2]))
    assert isinstance(get.message, Get)
    assert get.message.last == (LOG, 1)


def test_a_held_get_is_sent_anew_where_there_is_more_to_acknowledge() -> None:
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


def test_what_was_taken_is_acknowledged_where_nobody_asks_for_more() -> None:
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


def test_an_open_chunk_is_not_acknowledged_until_it_is_handed_out() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, records(1, [1, 2]))
    taking = sub.take(2)
    sub.begin_chunk(taking)  # type: ignore[arg-type]
    sub.took(taking)  # type: ignore[arg-type]
    rig.core.moved(sub, rig.now, fsynced=True)
    assert (sub.position, sub.safe) == ((LOG, 2), (LOG, 0))
    sub.chunk = None
    rig.core.moved(sub, rig.now, fsynced=True)
    assert sub.safe == (LOG, 2)


def test_at_the_end_what_is_safe_is_acknowledged_at_once() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (get,) = rig.wants(sub)
    rig.answer(get, records(1, [1]))
    rig.take(sub, 1, fsynced=True)
    assert rig.core.acknowledge(rig.now) == [sub]
    (out,) = rig.core.outgoing(rig.now)
    assert isinstance(out.message, Get)
    assert (out.message.last, out.message.records_max) == ((LOG, 1), 0)
