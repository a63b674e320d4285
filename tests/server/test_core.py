"""What a server answers to each message in each state, and what survives a crash or a full disk."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pubsub.base.limits import NUMBER_MAX, OFFSET_MAX
from pubsub.protocol import Get, Heartbeat, Message, Outcome, Put, Report, Status, Subscribe, Whole, encode_batch
from pubsub.protocol.messages import Merge, Periodic, Transfer, Unsubscribe
from pubsub.server.ownership import sole_owner as wholeness_module
from pubsub.server.requests import gets as gets_module
from pubsub.server.topic import delivery
from tests.server.stage import STORE, Stage, bodies, put

LOG = "00000000000000aa"
"""A log that is nobody's."""


# Puts


def test_a_put_is_handed_to_who_subscribed_before(stage: Stage) -> None:
    subscribed = stage.subscribe("bob", "t", 5)
    assert subscribed.outcome is Outcome.SUCCESS
    assert subscribed.position == (subscribed.log, 0)
    assert (subscribed.number, subscribed.opening) == (5, 5)
    answer = stage.put("t", 100, [b"a", b"b"])
    assert (answer.outcome, answer.last, answer.log) == (Outcome.SUCCESS, 101, subscribed.log)
    got = stage.get("bob", "t", None, 5)
    assert bodies(got) == [b"a", b"b"]
    assert got.message == (subscribed.log, 2)


def test_a_repeated_put_is_a_duplicate_for_ever(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    first = stage.put("t", 100, [b"a", b"b"])
    for _ in range(2):
        again = stage.put("t", 100, [b"a", b"b"])
        assert (again.outcome, again.last, again.log) == (Outcome.DUPLICATE, 101, first.log)
        stage.restart()
    assert bodies(stage.get("bob", "t", None, 5)) == [b"a", b"b"]


def test_a_repeat_that_came_in_the_same_loop_is_a_duplicate(stage: Stage) -> None:
    one, two = stage.say(put("t", 7)), stage.say(put("t", 7))
    stage.loop()
    first, second = stage.answered(one), stage.answered(two)
    assert first.outcome is Outcome.SUCCESS
    assert second.outcome is Outcome.DUPLICATE


def test_cumulative_puts_of_one_loop_have_one_answer_that_speaks_of_all(stage: Stage) -> None:
    stage.put("t", 1)
    stage.put("u", 2)
    puts = [put("t", counter, previous=counter - 1, cumulative=1) for counter in (2, 3, 4)]
    first, second, third = [stage.say(one) for one in puts]
    elsewhere = stage.say(put("u", 5, previous=2, cumulative=1))
    another = stage.say(put("t", 9, sender="carol", cumulative=1))
    alone = stage.say(put("t", 5, previous=4))
    stage.loop()
    assert stage.answer(first) is None
    assert stage.answer(second) is None
    assert [stage.answered(one).last for one in (third, elsewhere, another, alone)] == [4, 5, 9, 5]
    last = stage.say(put("t", 6, previous=5, cumulative=1))
    stage.loop()
    assert stage.answered(last).last == 6


def test_cumulative_puts_on_a_full_disk_are_all_told_so_by_one_answer(stage: Stage) -> None:
    stage.put("t", 1)
    callbacks = [stage.say(put("t", n, previous=n - 1, cumulative=1)) for n in (2, 3)]
    stage.fail_commit = True
    stage.loop()
    assert stage.answer(callbacks[0]) is None
    assert stage.answered(callbacks[1]).outcome is Outcome.FULL


def test_a_put_whose_previous_is_missing_changes_nothing(stage: Stage) -> None:
    answer = stage.put("t", 100, previous=50)
    assert (answer.outcome, answer.last, answer.log) == (Outcome.GAP, 0, "")
    assert stage.core.state.topics == {}
    stage.put("t", 50)
    assert stage.put("t", 200, previous=100).outcome is Outcome.GAP
    assert stage.put("t", 100, previous=50).outcome is Outcome.SUCCESS


def test_a_batch_that_last_lies_inside_of_is_not_taken_in_part(stage: Stage) -> None:
    stage.put("t", 100, [b"a", b"b"])
    answer = stage.put("t", 101, [b"b", b"c"])
    assert (answer.outcome, answer.last) == (Outcome.GAP, 101)


def test_two_stores_under_one_client_id_are_two_publishers(stage: Stage) -> None:
    assert stage.put("t", 100).outcome is Outcome.SUCCESS
    other = put("t", 100)
    other.publisher = "f" * 16
    assert stage.ask(other).outcome is Outcome.SUCCESS


@pytest.mark.parametrize(
    ("counter", "count", "checksum", "body"),
    [
        (0, 1, None, None),
        (NUMBER_MAX, 1, None, None),
        (5, 0, None, None),
        (5, 2, None, None),
        (5, NUMBER_MAX, None, None),
        (5, 1, 1, None),
        (5, 1, NUMBER_MAX, None),
        (5, 1, None, b""),
        (5, 1, None, b"\xff" * 40),
    ],
)
def test_a_put_that_cannot_be_right_is_refused(
    stage: Stage, counter: int, count: int, checksum: int | None, body: bytes | None
) -> None:
    request = put("t", 5)
    request.counter, request.count = counter, count
    request.checksum = request.checksum if checksum is None else checksum
    request.body = request.body if body is None else body
    for whole in (0, 1):
        request.whole = whole
        assert stage.ask(request).outcome is Outcome.REFUSED
    assert stage.core.state.topics == {}
    assert stage.core.state.counters["refused"] == 2


def test_the_highest_counters_there_are_come_through(stage: Stage) -> None:
    stage.subscribe("bob", "t", NUMBER_MAX)
    assert stage.put("t", NUMBER_MAX - 2, [b"a", b"b"]).last == NUMBER_MAX - 1
    stage.restart()
    assert stage.put("t", NUMBER_MAX - 2, [b"a", b"b"]).outcome is Outcome.DUPLICATE
    assert bodies(stage.get("bob", "t", None, NUMBER_MAX)) == [b"a", b"b"]


def test_at_the_last_offset_of_a_log_puts_are_answered_full(stage: Stage) -> None:
    stage.put("t", 1)
    stage.core.state.topics["t"].open.end = OFFSET_MAX - 1
    answer = stage.put("t", 2, [b"a", b"b"])
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "OFFSET_BITS")
    assert stage.put("t", 2, [b"a"]).outcome is Outcome.SUCCESS


# Marked puts


def test_a_marked_put_is_taken_when_every_proxy_says_whole(stage: Stage) -> None:
    assert stage.put("t", 5, whole=1).outcome is Outcome.SUCCESS
    assert sum(isinstance(out.message, Whole) for out in stage.sent) == 2


def test_a_marked_put_waits_for_the_last_proxy(stage: Stage) -> None:
    stage.whole = None
    callback = stage.say(put("t", 5, whole=1))
    asked = [out for out in stage.loop() if isinstance(out.message, Whole)]
    success = Status("p", Outcome.SUCCESS, body=b"t=")
    stage.say(success, proxy=0, origin=b"", callback=asked[0].source)
    stage.say(success, proxy=0, origin=b"", callback=asked[0].source)
    stage.loop()
    assert stage.answer(callback) is None
    stage.say(success, proxy=1, origin=b"", callback=asked[0].source)
    stage.loop()
    answer = stage.answered(callback)
    assert answer.outcome is Outcome.SUCCESS


@pytest.mark.parametrize("whole", [False, None])
def test_a_marked_put_is_a_retry_while_the_topic_is_not_known_to_be_whole(stage: Stage, whole: bool | None) -> None:
    stage.whole = whole
    callback = stage.say(put("t", 5, whole=1))
    stage.sleep(1.1)
    answer = stage.answered(callback)
    assert answer.outcome is Outcome.BUSY
    assert stage.core.state.topics == {}


def test_other_holders_that_a_proxy_names_are_remembered(stage: Stage) -> None:
    stage.put("t", 1)
    stage.others = f"s9.{LOG}"
    assert stage.put("t", 5, previous=1, whole=1).outcome is Outcome.BUSY
    assert stage.core.state.topics["t"].contested_by == {"s9"}


def test_marked_puts_that_wait_hold_a_bounded_number_of_bytes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wholeness_module, "WAITING_BYTES_MAX", 250)
    stage.whole = None
    waiting = [stage.say(put("t", 5, [b"x" * 88], whole=1)) for _ in range(3)]
    stage.loop()
    refused = [answer for callback in waiting if (answer := stage.answer(callback))]
    assert [(answer.outcome, answer.reason) for answer in refused] == [
        (Outcome.BUSY, "too_many_operations_wait_for_a_whole_topic")
    ]
    stage.sleep(1.1)
    stage.whole = True
    assert stage.put("t", 5, [b"x" * 88], whole=1).outcome is Outcome.SUCCESS


# Subscriptions


def test_the_higher_number_wins_however_the_requests_come(stage: Stage) -> None:
    stage.subscribe("bob", "t", 10)
    late = stage.unsubscribe("bob", "t", 9)
    assert (late.outcome, late.number, late.opening) == (Outcome.SUPERSEDED, 10, 10)
    stage.put("t", 1)
    assert bodies(stage.get("bob", "t", None, 10)) == [b"x"]
    assert stage.unsubscribe("bob", "t", 20).outcome is Outcome.SUCCESS
    stage.restart()
    late = stage.subscribe("bob", "t", 15)
    assert (late.outcome, late.number) == (Outcome.SUPERSEDED, 20)
    assert stage.get("bob", "t", None, 20).outcome is Outcome.UNKNOWN


def test_a_repeated_subscribe_keeps_what_waits_and_tells_where_it_stands(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 10).log
    stage.put("t", 1, [b"a", b"b"])
    stage.get("bob", "t", (log, 1), 10)
    again = stage.subscribe("bob", "t", 10)
    assert (again.outcome, again.position) == (Outcome.SUCCESS, (log, 1))
    assert bodies(stage.get("bob", "t", None, 10)) == [b"b"]


def test_subscribing_anew_forgets_what_waited(stage: Stage) -> None:
    stage.subscribe("bob", "t", 10)
    stage.put("t", 1, [b"old"])
    assert stage.subscribe("bob", "t", 11).position == (stage.core.state.topics["t"].open.id, 1)
    stage.put("t", 2, [b"new"])
    assert bodies(stage.get("bob", "t", None, 11)) == [b"new"]


def test_unsubscribing_from_what_nobody_knows_leaves_a_number(stage: Stage) -> None:
    assert stage.unsubscribe("bob", "t", 10).outcome is Outcome.SUCCESS
    assert stage.subscribe("bob", "t", 9).outcome is Outcome.SUPERSEDED


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_number_0_is_refused(stage: Stage, kind: type[Subscribe | Unsubscribe]) -> None:
    assert stage.ask(kind("bob", "t", 0, 0)).outcome is Outcome.REFUSED
    assert stage.core.state.topics == {}


def test_the_highest_number_there_is_can_be_stored(stage: Stage) -> None:
    assert stage.subscribe("bob", "t", NUMBER_MAX).outcome is Outcome.SUCCESS
    stage.restart()
    assert stage.subscribe("bob", "t", NUMBER_MAX - 1).number == NUMBER_MAX


# GET: who may


def test_get_from_where_nobody_subscribed_is_a_retry_and_creates_nothing(stage: Stage) -> None:
    assert stage.get("bob", "t", None, 5).reason == "topic"
    assert stage.core.state.topics == {}
    stage.put("t", 1)
    assert stage.get("bob", "t", None, 5).reason == "subscription"
    stage.subscribe("bob", "t", 4)
    assert stage.get("bob", "t", None, 5).outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("number", [0, 1, 9])
def test_get_with_a_lower_number_is_superseded(stage: Stage, number: int) -> None:
    stage.subscribe("bob", "t", 10)
    stage.put("t", 1)
    answer = stage.get("bob", "t", None, number, opening=10)
    assert (answer.outcome, answer.number) == (Outcome.SUPERSEDED, 10)


def test_get_with_a_lower_opening_is_superseded_also_after_a_crash(stage: Stage) -> None:
    stage.subscribe("bob", "t", 10, opening=10)
    stage.put("t", 1)
    assert bodies(stage.get("bob", "t", None, 10, opening=12)) == [b"x"]
    stage.restart()
    answer = stage.get("bob", "t", None, 10, opening=11)
    assert (answer.outcome, answer.opening) == (Outcome.SUPERSEDED, 12)


def test_a_waiting_get_is_fenced_by_a_later_opening(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 10).log
    waiting = stage.say(Get("bob", "t", None, 10, 10, wait_ms=60_000))
    stage.loop()
    assert stage.get("bob", "t", (log, 0), 10, opening=11, records_max=0).outcome is Outcome.EMPTY
    stage.put("t", 1)
    answer = stage.answered(waiting)
    assert (answer.outcome, answer.opening, answer.records) == (Outcome.SUPERSEDED, 11, 0)


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_a_waiting_get_is_told_when_its_number_is_passed(stage: Stage, kind: type[Subscribe | Unsubscribe]) -> None:
    stage.subscribe("bob", "t", 10)
    waiting = stage.say(Get("bob", "t", None, 10, 10, wait_ms=60_000))
    stage.loop()
    stage.ask(kind("bob", "t", 11, 11))
    answer = stage.answered(waiting)
    assert (answer.outcome, answer.number) == (Outcome.SUPERSEDED, 11)


# GET: positions


def test_acknowledged_records_are_not_handed_out_again_even_after_a_crash(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a", b"b", b"c"])
    assert bodies(stage.get("bob", "t", (log, 0), 5, records_max=2)) == [b"a", b"b"]
    assert bodies(stage.get("bob", "t", (log, 2), 5)) == [b"c"]
    stage.sleep(0.3)
    stage.restart()
    assert bodies(stage.get("bob", "t", None, 5)) == [b"c"]


def test_what_is_handed_out_and_not_acknowledged_is_handed_out_again(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"a"])
    for _ in range(3):
        assert bodies(stage.get("bob", "t", None, 5)) == [b"a"]
        stage.restart()


def test_an_acknowledgement_that_a_crash_took_is_simply_repeated(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a", b"b"])
    assert stage.get("bob", "t", (log, 1), 5, records_max=0).outcome is Outcome.EMPTY
    stage.restart()
    assert bodies(stage.get("bob", "t", (log, 1), 5)) == [b"b"]


def test_after_reads_on_without_acknowledging(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a", b"b", b"c"])
    assert bodies(stage.get("bob", "t", (log, 0), 5, after=(log, 2))) == [b"c"]
    assert bodies(stage.get("bob", "t", (log, 0), 5)) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("field", ["last", "after"])
@pytest.mark.parametrize("offset", [2**40 - 1, 2**40, NUMBER_MAX])
def test_a_position_beyond_the_end_of_any_log_is_behind(stage: Stage, field: str, offset: int) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a", b"b"])
    request = Get("bob", "t", None, 5, 5, records_max=10, wait_ms=1000)
    setattr(request, field, (log, offset))
    answer = stage.ask(request)
    assert (answer.outcome, answer.position) == (Outcome.BEHIND, (log, 0))
    assert bodies(stage.get("bob", "t", None, 5)) == [b"a", b"b"]


def test_what_was_received_of_a_log_that_is_not_the_topics_is_behind(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    other = stage.put("u", 2).log
    for log in (LOG, other):
        request = Get("bob", "t", None, 5, 5)
        request.after = (log, 1)
        assert stage.ask(request).outcome is Outcome.BEHIND
    assert bodies(stage.get("bob", "t", None, 5)) == [b"x"]


def test_a_position_from_before_what_was_acknowledged_is_behind(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a", b"b", b"c"])
    stage.get("bob", "t", (log, 2), 5)
    answer = stage.get("bob", "t", (log, 1), 5)
    assert (answer.outcome, answer.position) == (Outcome.BEHIND, (log, 2))
    assert stage.core.state.counters["positions_behind"] == 1


# GET: waiting


def test_a_get_without_a_wait_is_answered_at_once(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    callback = stage.say(Get("bob", "t", None, 5, 5))
    stage.loop()
    answer = stage.answered(callback)
    assert answer.outcome is Outcome.EMPTY


def test_a_long_poll_is_answered_when_something_comes(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    callback = stage.say(Get("bob", "t", None, 5, 5, wait_ms=10_000))
    stage.sleep(5)
    assert stage.answer(callback) is None
    stage.put("t", 1, [b"a"])
    answer = stage.answered(callback)
    assert bodies(answer) == [b"a"]


@pytest.mark.parametrize(("wait_ms", "seconds"), [(500, 0.5), (NUMBER_MAX, 60.0)])
def test_a_long_poll_ends_after_its_wait_or_the_longest_one_allowed(stage: Stage, wait_ms: int, seconds: float) -> None:
    stage.subscribe("bob", "t", 5)
    callback = stage.say(Get("bob", "t", None, 5, 5, wait_ms=wait_ms))
    stage.sleep(seconds - 0.01)
    assert stage.answer(callback) is None
    stage.sleep(0.02)
    answer = stage.answered(callback)
    assert answer.outcome is Outcome.EMPTY


def test_a_later_get_takes_the_place_of_a_waiting_one(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    first = stage.say(Get("bob", "t", None, 5, 5, wait_ms=10_000))
    stage.loop()
    second = stage.say(Get("bob", "t", None, 5, 5, wait_ms=10_000))
    stage.put("t", 1)
    assert stage.answer(first) is None
    answer = stage.answered(second)
    assert bodies(answer) == [b"x"]


def test_one_loop_hands_out_a_bounded_number_of_bytes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gets_module, "DELIVERED_BYTES_MAX", 2_000)
    for index in range(4):  # each stands elsewhere, so no two answers are shared
        stage.subscribe(f"bob{index}", "t", 5)
        stage.put("t", index + 1, [b"x" * 1_500])
    waiting = [stage.say(Get(f"bob{index}", "t", None, 5, 5, records_max=10)) for index in range(4)]
    loops = 0
    while any(callback not in {out.destination for out in stage.sent} for callback in waiting):
        before = len(stage.sent)
        stage.loop()
        assert stage.core.deadline() == float("-inf") or len(stage.sent) > before
        loops += 1
    assert loops > 1
    answers = [stage.answer(callback) for callback in waiting]
    assert sorted(len(bodies(answer)) for answer in answers if answer) == [1, 2, 3, 4]


def test_answers_are_limited_by_records_and_by_bytes(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"x" * 1000] * 10)
    assert stage.get("bob", "t", None, 5, records_max=3).records == 3
    assert stage.get("bob", "t", None, 5, records_max=NUMBER_MAX).records == 10
    assert stage.get("bob", "t", None, 5, bytes_max=2500).records == 2
    assert stage.get("bob", "t", None, 5, bytes_max=1).records == 1
    assert stage.get("bob", "t", None, 5, bytes_max=NUMBER_MAX).records == 10


# Limits


def test_limits_answer_full_and_name_themselves(tmp_path: Path) -> None:
    stage = Stage(tmp_path, topics_max=1, publishers_max=1, subscribers_max=1, backlog_bytes_max=100)
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    full = {
        "topics_max": [stage.put("u", 1), stage.subscribe("bob", "u", 5)],
        "publishers_max": [stage.put("t", 1, sender="carol")],
        "subscribers_max": [stage.subscribe("dave", "t", 5)],
        "backlog_bytes_max": [stage.put("t", 2, [b"x" * 200])],
    }
    for reason, answers in full.items():
        assert [(answer.outcome, answer.reason) for answer in answers] == [(Outcome.FULL, reason)] * len(answers)
    assert stage.put("t", 2, previous=1).outcome is Outcome.SUCCESS
    assert stage.subscribe("bob", "t", 6).outcome is Outcome.SUCCESS
    stage.close()


def test_a_backlog_is_full_until_the_slowest_subscriber_acknowledges(tmp_path: Path) -> None:
    stage = Stage(tmp_path, backlog_bytes_max=1_000)
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 5)
    assert stage.put("t", 1, [b"x" * 600]).outcome is Outcome.SUCCESS
    assert stage.put("t", 2, [b"x" * 600]).reason == "backlog_bytes_max"
    stage.get("bob", "t", (log, 1), 5)
    assert stage.put("t", 2, [b"x" * 600]).reason == "backlog_bytes_max"
    stage.get("carol", "t", (log, 1), 5)
    assert stage.put("t", 2, [b"x" * 600]).outcome is Outcome.SUCCESS
    stage.close()


# Who may say what


@pytest.mark.parametrize("origin", [b"", b"cX"])
@pytest.mark.parametrize(
    "message",
    [
        Periodic("s2", STORE, 1, 1, "tcp://x", "tcp://p", 0),
        Whole("s2", {"t": ""}),
        Transfer("s2", "t"),
    ],
)
def test_what_servers_say_to_proxies_is_refused(stage: Stage, origin: bytes, message: Message) -> None:
    assert stage.ask(message, origin=origin).outcome is Outcome.REFUSED


@pytest.mark.parametrize(
    "message", [Status("x", Outcome.SUCCESS, body=b"t=s9"), Heartbeat("x", NUMBER_MAX), Merge("x", "t", "tcp://y")]
)
def test_a_client_cannot_speak_as_a_proxy(stage: Stage, message: Message) -> None:
    stage.put("t", 1)
    stamp = stage.core.state.stamps.last
    assert stage.ask(message, origin=b"cX").outcome is Outcome.REFUSED
    assert stage.core.state.stamps.last == stamp
    assert stage.core.state.topics["t"].contested_by == frozenset()


def test_what_names_no_callback_is_not_answered_with_a_refusal(stage: Stage) -> None:
    stage.say(Transfer("s2", "t"), callback=0)
    assert [out for out in stage.loop() if isinstance(out.message, Status)] == []


def test_a_stamp_from_the_far_future_is_counted_and_not_followed(stage: Stage) -> None:
    stage.say(Heartbeat("p1", NUMBER_MAX), origin=b"", callback=0)
    assert stage.core.state.counters["stamps_too_far_ahead"] == 1
    assert stage.core.state.stamps.last < 10**16
    stage.say(Heartbeat("p1", int(1_700_000_100 * 1e6)), origin=b"", callback=0)
    assert stage.core.state.stamps.last == int(1_700_000_100 * 1e6)


def test_who_else_holds_a_topic_is_taken_from_every_proxys_answer(stage: Stage) -> None:
    stage.put("t", 1)
    own = f"s1.{stage.core.state.topics['t'].open.id}"
    for proxy, other in enumerate((f"s2.{'2' * 16}", f"s3.{'3' * 16}")):
        body = f"t={own},{other}".encode()
        stage.say(Status("p", Outcome.SUCCESS, body=body), proxy=proxy, origin=b"", callback=0)
    assert stage.core.state.topics["t"].contested_by == {"s2", "s3"}
    stage.say(Status("p1", Outcome.SUCCESS, body=b"\xff"), proxy=0, origin=b"", callback=0)
    assert stage.core.state.counters["answers_not_understood"] == 1


def test_a_report_is_json_for_operators(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    facts = json.loads(bytes(stage.ask(Report("op", "s1")).body))
    assert facts["topics"]["t"]["subscribers"]["bob"]["waiting"] == 1


# Announcements and the change number


def test_a_new_topic_is_announced_before_the_request_that_made_it_is_answered(stage: Stage) -> None:
    stage.loop()
    stage.periodics()
    callback = stage.say(put("t", 1))
    sent = stage.loop()
    kinds = [type(out.message).__name__ for out in sent]
    assert kinds == ["Periodic", "Periodic", "Status"]
    assert sent[-1].destination == callback
    assert all(message.partial and set(message.topics or {}) == {"t"} for message in stage.periodics())


def test_everything_is_announced_every_few_seconds(stage: Stage) -> None:
    stage.put("t", 1)
    stage.put("u", 1)
    stage.periodics()
    stage.sleep(5.1)
    full = [message for message in stage.periodics() if not message.partial]
    assert [set(message.topics or {}) for message in full] == [{"t", "u"}] * 2


def test_the_change_number_moves_with_the_first_commit_after_an_announcement(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sleep(5.1)
    announced = stage.core.state.change
    stage.put("t", 2)
    stage.put("t", 3)
    assert stage.core.state.change == announced + 1
    stage.restart()
    assert stage.core.state.change == announced + 1


def test_stamps_rise_over_a_restart_with_the_clock_set_back(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sleep(1.0)
    for counter in range(2, 50):
        stage.put("t", counter)
    before = stage.core.state.stamps.last
    stage.wall -= 600
    stage.restart()
    stage.put("t", 50)
    assert stage.core.state.stamps.last > before


# A full disk


def test_a_full_disk_is_answered_with_a_retry_and_changes_nothing(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a"])
    change = stage.core.state.change
    stage.sleep(6)
    stage.periodics()
    stage.fail_commit = True
    requests: list[Message] = [
        put("t", 2, [b"b"], previous=1),
        put("t", 2, [b"b"], previous=1),  # would be a duplicate
        put("t", 9, previous=8),  # would be a gap
        put("u", 1, sender="carol"),
        put("v", 4, previous=3),
        Subscribe("carol", "u", 7, 7),
        Subscribe("bob", "t", 6, 6),
        Get("carol", "u", None, 7, 7),
        Get("carol", "u", None, 8, 8),  # would be unknown, naming a log that never was
        Get("bob", "t", None, 6, 6),
    ]
    callbacks = [stage.say(request) for request in requests]
    stage.loop()
    answers = [stage.answer(callback) for callback in callbacks]
    facts = {(a.outcome, a.reason, a.last, a.log, a.position) for a in answers if a}
    assert facts == {(Outcome.FULL, "disk", -1, "", None)}
    stage.fail_commit = stage.core.state.full = False
    assert set(stage.core.state.topics) == {"t"}
    assert stage.core.state.change >= change
    assert stage.put("t", 2, [b"b"], previous=1).outcome is Outcome.SUCCESS
    assert bodies(stage.get("bob", "t", (log, 0), 5)) == [b"a", b"b"]
    assert stage.put("u", 1, sender="carol").outcome is Outcome.SUCCESS


def test_a_reverted_loop_announces_nothing_that_did_not_come_to_be(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sleep(4.95)
    stage.periodics()
    stage.fail_commit = True
    stage.now += 0.1
    stage.say(put("u", 1, sender="carol"))
    stage.loop()  # the announcement of all was due in the very loop that made the topic
    assert stage.periodics() == []
    stage.fail_commit = False
    stage.loop()
    announced = stage.periodics()
    assert [(set(message.topics or {}), message.partial) for message in announced] == [({"t"}, 0)] * 2
    stage.core.state.full = False
    stage.put("t", 2, previous=1)
    stored = stage.core.state.change
    stage.restart()
    assert stage.core.state.change == stored
    assert all(message.change <= stored for message in announced)


def test_change_numbers_that_were_announced_survive_a_crash_after_a_full_disk(stage: Stage) -> None:
    stage.put("t", 1)
    stage.sleep(6)
    stage.fail_commit = True
    stage.say(put("t", 2))
    stage.loop()
    stage.fail_commit = stage.core.state.full = False
    stage.sleep(6)
    highest = max(message.change for message in stage.periodics())
    stage.restart()
    assert stage.core.state.change >= highest


def test_a_full_disk_lets_reading_acknowledging_and_leaving_through(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 5)
    stage.put("t", 1, [b"a", b"b"])
    stage.core.state.full = True
    assert (stage.put("t", 9).outcome, stage.put("t", 9).reason) == (Outcome.FULL, "disk")
    assert stage.put("t", 1, [b"a", b"b"]).outcome is Outcome.DUPLICATE
    assert stage.subscribe("dave", "t", 5).outcome is Outcome.FULL
    assert stage.unsubscribe("dave", "t", 5).outcome is Outcome.FULL
    assert bodies(stage.get("bob", "t", (log, 1), 5)) == [b"b"]
    assert stage.unsubscribe("carol", "t", 6).outcome is Outcome.SUCCESS
    stage.sleep(0.3)
    stage.restart()
    assert bodies(stage.get("bob", "t", None, 5)) == [b"b"]
    assert not stage.core.state.topics["t"].subscriptions["carol"].on


def test_publishers_of_a_reverted_loop_get_their_numbers_anew(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"a"], sender="p1")
    stage.fail_commit = True
    stage.say(put("t", 1, [b"never"], sender="p2"))
    stage.say(put("t", 1, [b"never"], sender="p3"))
    stage.loop()
    stage.fail_commit = stage.core.state.full = False
    stage.put("t", 1, [b"c"], sender="p3")
    stage.put("t", 1, [b"b"], sender="p2")
    stage.restart()
    assert bodies(stage.get("bob", "t", None, 5)) == [b"a", b"c", b"b"]
    for sender in ("p1", "p2", "p3"):
        assert stage.put("t", 1, sender=sender).outcome is Outcome.DUPLICATE


def test_a_get_that_waits_outlives_a_reverted_loop(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    waiting = stage.say(Get("bob", "t", None, 5, 5, wait_ms=60_000))
    stage.loop()
    stage.fail_commit = True
    stage.say(put("t", 1, [b"never"]))
    stage.loop()
    stage.fail_commit = stage.core.state.full = False
    answer = stage.answered(waiting)  # it was answered in that loop, so it is told to ask again
    assert answer.outcome is Outcome.FULL
    waiting = stage.say(Get("bob", "t", None, 5, 5, wait_ms=60_000))
    stage.put("t", 1, [b"a"])
    answer = stage.answered(waiting)
    assert bodies(answer) == [b"a"]


# A damaged store


def damage(stage: Stage, offset: int, assignment: str = "body = zeroblob(length(body))") -> None:
    log = stage.core.state.topics["t"].open.number
    stage.store.db.execute(f"update batch set {assignment} where key = ?", (log << 40 | offset,))
    stage.restart()  # so that it is not read from memory


@pytest.mark.parametrize(
    "assignment", ["body = zeroblob(length(body))", "body = x''", "checksum = 1", "publisher = 99", "count = 77"]
)
def test_a_damaged_batch_is_lost_and_the_others_keep_being_served(stage: Stage, assignment: str) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 5)
    for counter in (1, 2, 3):
        stage.put("t", counter, [b"%d" % counter])
    damage(stage, 2, assignment)
    assert bodies(stage.get("bob", "t", None, 5)) == [b"1"]
    for _ in range(2):
        answer = stage.get("bob", "t", (log, 1), 5)
        assert (answer.outcome, answer.first) == (Outcome.LOST, (log, 2))
        stage.restart()
    assert answer.message is not None
    if assignment != "count = 77":
        assert answer.message == (log, 2)
        assert bodies(stage.get("bob", "t", (log, 2), 5)) == [b"3"]
    assert bodies(stage.get("carol", "t", None, 5)) == [b"1"]
    assert stage.put("t", 4, [b"4"]).outcome is Outcome.SUCCESS
    assert bodies(stage.get("bob", "t", answer.message, 5))[-1] == b"4"
    assert stage.store.db.execute("select count(*) from quarantine").fetchone() == (1,)


def test_batches_that_are_not_there_are_lost_as_one(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    for counter in range(1, 6):
        stage.put("t", counter, [b"%d" % counter])
    number = stage.core.state.topics["t"].open.number
    stage.store.db.execute("delete from batch where key in (?, ?)", (number << 40 | 2, number << 40 | 3))
    stage.restart()
    assert bodies(stage.get("bob", "t", None, 5)) == [b"1"]
    answer = stage.get("bob", "t", (log, 1), 5)
    assert (answer.outcome, answer.first, answer.message) == (Outcome.LOST, (log, 2), (log, 3))
    assert bodies(stage.get("bob", "t", answer.message, 5)) == [b"4", b"5"]


def test_damage_is_answered_also_where_nothing_can_be_set_aside(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    damage(stage, 1)
    stage.fail_commit = True
    answer = stage.get("bob", "t", None, 5)
    assert answer.outcome is Outcome.FULL  # a retry: nothing untrue was said
    stage.fail_commit = False
    assert stage.get("bob", "t", None, 5).outcome is Outcome.LOST


@pytest.mark.parametrize("facts", [{}, {"last": NUMBER_MAX}, {"body": encode_batch([b"x"])}])
def test_any_status_from_a_proxy_leaves_the_server_alive(stage: Stage, facts: dict[str, Any]) -> None:
    for outcome in Outcome:
        if outcome in {Outcome.TAKEN, Outcome.STALE}:
            continue
        for callback in (0, 16, 17, NUMBER_MAX):
            stage.say(Status("p1", outcome, **facts), origin=b"", callback=callback)
    stage.loop()
    assert isinstance(put("t", 1), Put)
    assert stage.put("t", 1).outcome is Outcome.SUCCESS


# What is left out


def test_a_stretch_longer_than_one_loop_looks_at_is_passed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "BATCHES_MAX", 4)
    log = stage.subscribe("bob", "t", 5).log
    for counter in range(1, 31):
        stage.put("t", counter, [b"%d" % counter])
    topic = stage.core.state.topics["t"]
    topic.watermarks[1] = {1: 28}
    topic.subscriptions["bob"].backlog = (replace(topic.subscriptions["bob"].backlog[0], watermark=1),)
    waiting = stage.say(Get("bob", "t", None, 5, 5, after=None, records_max=10))
    for _ in range(10):
        stage.loop()
    answer = stage.answered(waiting)
    assert bodies(answer) == [b"29", b"30"]
    assert topic.subscriptions["bob"].acknowledged == (log, 0)
    assert bodies(stage.get("bob", "t", None, 5)) == [b"29", b"30"]


def test_what_is_left_out_behind_the_position_received_is_passed_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BATCHES_MAX", 4)
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a"], sender="carol")
    for counter in range(1, 31):
        stage.put("t", counter, [b"%d" % counter])
    topic = stage.core.state.topics["t"]
    topic.watermarks[1] = {2: 29}
    topic.subscriptions["bob"].backlog = (replace(topic.subscriptions["bob"].backlog[0], watermark=1),)
    waiting = stage.say(Get("bob", "t", None, 5, 5, after=(log, 1), records_max=10))
    for _ in range(10):
        stage.loop()
    answer = stage.answered(waiting)
    assert bodies(answer) == [b"30"]
    assert topic.subscriptions["bob"].backlog[0].low == 1  # "a" is not acknowledged
    assert bodies(stage.get("bob", "t", (log, 1), 5)) == [b"30"]
