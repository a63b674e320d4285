"""The client's core for puts and subscriptions: every answer in every state, with time as an argument."""

from __future__ import annotations

import pytest
from rig import LOG, OTHER, Rig, settled, status

from pubsub.base.limits import NUMBER_MAX
from pubsub.client.core.chain import DONE, LIGHT_BYTES, Row
from pubsub.client.core.changes import Confirmed, RowUnchained
from pubsub.client.core.effects import Outgoing
from pubsub.errors import Refused, StateCopied, Superseded
from pubsub.protocol import RETRY, Get, Outcome, Put, Subscribe, Unsubscribe

RETRIES = sorted(RETRY - {Outcome.GAP})

# Puts


def test_a_put_names_its_chain_and_its_log() -> None:
    rig = Rig()
    rows = rig.put(2, 1, size=LIGHT_BYTES)
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
    rows = rig.put(1, 2, size=LIGHT_BYTES)
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


def test_a_put_whose_call_gave_up_is_not_sent_again() -> None:
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


def test_a_put_after_power_cuts_asks_for_a_sole_owner_whatever_their_number() -> None:
    rig = Rig(cuts=2)
    rig.put(1)
    (put,) = rig.turn()
    assert isinstance(put.message, Put)
    assert put.message.sole_owner == 1


def test_a_subscription_above_the_originals_numbers_does_not_hide_that_the_state_is_copied() -> None:
    rig = Rig()
    (row,) = rig.put(3)  # Its clock is behind: the original has put and subscribed under higher numbers.
    (put,) = rig.turn()
    _, subscribe = rig.intend()
    original = row.last + 500
    rig.answer(subscribe, status(Outcome.SUPERSEDED, number=original, epoch=original - 1))
    assert rig.core.numbers.highest > original
    rig.answer(put, status(Outcome.DUPLICATE, last=original, log=LOG))
    assert row.state != DONE
    assert isinstance(rig.core.copied, StateCopied)


def second_put() -> tuple[Rig, Row, Row, Outgoing]:
    """A put that LOG has acknowledged, and a later one in flight."""
    rig = Rig()
    (done,) = rig.put(1)
    (out,) = rig.turn()
    rig.answer(out, status(Outcome.SUCCESS, last=done.last, log=LOG))
    (row,) = rig.put(1)
    (out,) = rig.turn()
    return rig, done, row, out


def test_a_put_to_an_abandoned_log_begins_the_chain_anew_durably() -> None:
    rig, _, row, out = second_put()
    (again,) = rig.answer(out, status(Outcome.GONE, log=OTHER))
    assert rig.committed == [RowUnchained(row.counter)]
    assert isinstance(again.message, Put)
    assert (again.message.previous, again.message.log) == (0, "")


def test_a_put_names_the_abandoned_log_until_its_new_chain_is_committed() -> None:
    """Without the name no server could report again that the log is gone, and the put would be a gap permanently."""
    rig, done, row, out = second_put()
    rig.core.receive(out.token, status(Outcome.GONE, log=OTHER), rig.now)
    rig.core.due.clear()  # The disk is full.
    (out,) = rig.turn()
    assert isinstance(out.message, Put)
    assert (out.message.previous, out.message.log) == (done.last, LOG)
    (again,) = rig.answer(out, status(Outcome.GONE, log=OTHER))
    assert rig.committed == [RowUnchained(row.counter)]
    assert isinstance(again.message, Put)
    assert (again.message.previous, again.message.log) == (0, "")


def test_a_put_acknowledged_before_its_new_chain_begins_keeps_the_name_of_the_log() -> None:
    rig, _, row, out = second_put()
    (late,) = rig.later(0.2)  # Sent again: both are on their way.
    rig.core.receive(late.token, status(Outcome.GONE, log=OTHER), rig.now)
    rig.core.receive(out.token, status(Outcome.SUCCESS, last=row.last, log=OTHER), rig.now)
    rig.turn()
    assert (row.state, rig.core.outbox.chain("t").log) == (DONE, OTHER)


def test_a_late_report_of_an_abandoned_log_keeps_the_new_chain() -> None:
    rig = Rig()
    first, second = rig.put(1, 1, size=LIGHT_BYTES)
    to_first, to_second = rig.turn()
    again, _ = rig.answer(to_first, status(Outcome.GONE, log=OTHER))
    rig.answer(again, status(Outcome.SUCCESS, last=first.last, log=OTHER))
    rig.committed.clear()
    rig.answer(to_second, status(Outcome.GONE, log=OTHER))
    assert (second.previous, rig.committed) == (first.last, []), "it would be taken where the first one is not"
    assert rig.core.outbox.chain("t").log == OTHER


def test_only_the_oldest_put_names_the_log_to_avoid() -> None:
    """For the oldest put a gap proves that the log lacks acknowledged puts; later puts may overtake a lost one."""
    rig = Rig()
    (done,) = rig.put(1)
    (out,) = rig.turn()
    rig.answer(out, status(Outcome.SUCCESS, last=done.last, log=LOG))
    rig.put(1, 1, seconds=0.05, size=LIGHT_BYTES)
    (first, _) = rig.turn()
    rig.answer(first, status(Outcome.GAP, last=0, log=OTHER))
    assert rig.core.outbox.chain("t").avoid == OTHER
    rig.later(0.1)
    rig.core.finish("t", rig.now + 30.0)
    oldest, other = rig.turn()
    assert isinstance(oldest.message, Put)
    assert isinstance(other.message, Put)
    assert (oldest.message.avoid, other.message.avoid) == (OTHER, "")


def test_a_refused_put_is_reported_and_kept() -> None:
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
def test_a_put_to_be_retried_is_sent_again_and_shows_the_reason_meanwhile(outcome: Outcome) -> None:
    rig = Rig()
    rig.put(1)
    (out,) = rig.turn()
    assert rig.answer(out, status(outcome, reason="no_live_holder")) == []
    assert rig.core.outbox.chain("t").trouble == "no live holder"
    assert len(rig.later(0.1)) == 1


# Subscribing


def test_every_transmission_has_its_own_number() -> None:
    rig = Rig()
    _, first = rig.intend()
    (second,) = rig.later(0.1)
    assert isinstance(first.message, Subscribe)
    assert isinstance(second.message, Subscribe)
    assert second.message.number > first.message.number
    assert second.message.epoch == first.message.epoch == rig.core.numbers.epoch


def test_only_the_answer_to_the_last_transmission_counts() -> None:
    rig = Rig()
    sub, first = rig.intend()
    (second,) = rig.later(0.1)
    rig.answer(first, settled(first.message, (LOG, 5)))
    assert not sub.intent.settled
    rig.answer(second, settled(second.message, (LOG, 7)))
    assert sub.intent.settled
    assert isinstance(second.message, Subscribe)
    assert rig.committed == [Confirmed("t", second.message.number, (LOG, 7), LOG)]
    assert (sub.intent.number, sub.cursor.position) == (second.message.number, (LOG, 7))


def test_an_intent_is_settled_only_once_that_is_committed() -> None:
    rig = Rig()
    sub, out = rig.intend()
    rig.core.receive(out.token, settled(out.message, (LOG, 5)), rig.now)
    assert not sub.intent.settled
    rig.core.due.clear()  # The commit failed.
    (again,) = rig.later(0.1)
    assert isinstance(again.message, Subscribe)


def test_a_late_answer_to_subscribe_after_unsubscribe_changes_nothing() -> None:
    rig = Rig()
    _, first = rig.intend(True)
    sub, second = rig.intend(False)
    assert isinstance(second.message, Unsubscribe)
    rig.answer(first, settled(first.message, (LOG, 5)))
    assert not sub.intent.settled
    rig.answer(second, settled(second.message, (LOG, 5)))
    assert (sub.intent.settled, sub.intent.on, sub.cursor.position) == (True, False, None)


@pytest.mark.parametrize("outcome", [*RETRIES, Outcome.GAP])
def test_subscribing_is_tried_again_where_the_service_cannot_yet(outcome: Outcome) -> None:
    rig = Rig()
    sub, out = rig.intend()
    assert rig.answer(out, status(outcome, reason="starting")) == []
    assert (sub.trouble, sub.intent.settled) == ("starting", False)
    assert len(rig.later(0.11)) == 1


def test_a_late_answer_gives_the_last_try_the_response_time_of_the_service() -> None:
    rig = Rig()
    sub, first = rig.intend()
    (second,) = rig.later(0.1)
    assert rig.later(0.05) == []
    assert rig.answer(first, settled(first.message, (LOG, 5))) == []
    assert not sub.intent.settled, "only the last number counts"
    assert sub.tokens == [second.token], "a late answer makes room"
    assert rig.core.deadline() == pytest.approx(rig.now + 0.3)
    assert rig.later(0.25) == []
    rig.answer(second, settled(second.message, (LOG, 6)))
    assert (sub.intent.settled, sub.cursor.position) == (True, (LOG, 6))


@pytest.mark.parametrize("seconds", [0.15, 1.0, 4.0])
def test_a_slow_service_confirms_a_subscription_in_a_few_times_its_response_time(seconds: float) -> None:
    rig, begun = Rig(proxies=1), 100.0
    sub, first = rig.intend()
    answers = [(rig.now + seconds, first)]
    while not sub.intent.settled:
        assert rig.now < begun + 3 * seconds + 0.5
        due = [out for at, out in answers if at <= rig.now]
        answers = [one for one in answers if one[1] not in due]
        for out in due:
            answers += [(rig.now + seconds, more) for more in rig.answer(out, settled(out.message, (LOG, 5)))]
        answers += [(rig.now + seconds, more) for more in rig.later(0.05)]


def test_a_late_answer_of_another_proxy_does_not_count_for_the_present_one() -> None:
    rig = Rig(proxies=2)
    sub, first = rig.intend()
    sent = [first]
    while sent[-1].proxy == first.proxy:
        sent += rig.later(0.1)
    deadline = sub.deadline
    rig.answer(first, settled(first.message, (LOG, 5)))
    assert sub.deadline == deadline


def test_a_users_call_supersedes_a_higher_number_and_opens_anew() -> None:
    rig = Rig()
    sub, out = rig.intend()
    higher = rig.core.numbers.highest + (1 << 40)
    (again,) = rig.answer(out, status(Outcome.SUPERSEDED, number=higher, epoch=7))
    assert isinstance(again.message, Subscribe)
    assert again.message.number > again.message.epoch > higher
    rig.answer(again, settled(again.message, (LOG, 1)))
    assert sub.intent.settled


def test_a_repeated_subscribe_is_checked_by_a_get_that_takes_nothing() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.core.check(sub, rig.now + 30.0)
    (get,) = rig.turn()
    assert isinstance(get.message, Get)
    assert (get.message.number, get.message.records_max, get.message.wait_ms) == (sub.intent.number, 0, 0)
    assert sub.intent.unchecked
    rig.answer(get, status(Outcome.EMPTY, log=LOG))
    assert not sub.intent.unchecked
    assert rig.later(5.0) == []


def test_an_answer_from_before_the_call_does_not_confirm_a_subscription() -> None:
    rig = Rig()
    sub = rig.subscribed()
    (before,) = rig.wants(sub)
    rig.core.check(sub, rig.now + 30.0)
    (asked,) = rig.turn()
    rig.answer(before, status(Outcome.EMPTY, log=LOG))
    assert sub.intent.unchecked
    (waiting,) = rig.answer(asked, status(Outcome.EMPTY, log=LOG))
    assert not sub.intent.unchecked
    assert isinstance(waiting.message, Get)
    assert waiting.message.records_max  # The waiting call still waits.


def test_the_check_of_a_subscription_is_repeated_until_its_call_gives_up() -> None:
    rig = Rig()
    sub = rig.subscribed()
    rig.core.check(sub, rig.now + 1.0)
    (asked,) = rig.turn()
    rig.answer(asked, status(Outcome.UNKNOWN, reason="topic"))
    sent = [out for _ in range(40) for out in rig.later(0.1)]
    assert 2 <= len(sent) <= 10
    assert {out.proxy for out in sent} == {0, 1}
    assert sub.intent.unchecked


def test_an_automatic_retry_does_not_supersede_a_higher_number() -> None:
    rig = Rig()
    sub, out = rig.intend(insists=False)
    assert rig.answer(out, status(Outcome.SUPERSEDED, number=NUMBER_MAX // 2, epoch=7)) == []
    assert isinstance(sub.failure, Superseded)


def test_a_forged_highest_number_is_an_error_and_no_crash() -> None:
    rig = Rig()
    sub, out = rig.intend()
    rig.answer(out, status(Outcome.SUPERSEDED, number=NUMBER_MAX, epoch=NUMBER_MAX))
    assert sub.failure is not None


def test_no_request_is_sent_after_the_calls_timeout() -> None:
    rig = Rig()
    rig.intend(seconds=0.25)
    for _ in range(10):
        rig.later(0.1)
    assert len(rig.sent) == 3


def test_a_put_that_is_tried_for_days_waits_for_a_bounded_number_of_answers() -> None:
    rig = Rig()
    (row,) = rig.put(1, seconds=float("inf"))
    (first,) = rig.turn()
    for _ in range(500):
        rig.later(5.1)
    assert len(rig.core.flights) <= 100
    # The Messenger drops its state for an answer too: its room for answers is limited over all requests.
    assert len(rig.core.flights) + len(rig.core.flights.forgotten) == len(rig.sent)
    rig.answer(rig.sent[-1], status(Outcome.SUCCESS, last=row.last, log=LOG))
    assert (row.state, len(rig.core.flights)) == (DONE, 0)
    rig.answer(first, status(Outcome.SUCCESS, last=row.last, log=LOG))
