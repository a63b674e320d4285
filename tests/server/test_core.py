"""The answers of a server to each message in each state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pubsub.base.limits import NUMBER_MAX, OFFSET_MAX
from pubsub.protocol import Heartbeat, Message, Outcome, Owners, Report, Status, Subscribe
from pubsub.protocol.messages import Periodic, Unsubscribe
from pubsub.protocol.transfers import Merge, Transfer
from pubsub.server.ownership import sole_owner as wholeness_module
from tests.server.stage import STORE, Stage, bodies, put

LOG = "00000000000000aa"
"""A log that is nobody's."""


# Puts


def test_a_put_is_delivered_to_an_earlier_subscriber(stage: Stage) -> None:
    subscribed = stage.subscribe("bob", "t", 5)
    assert subscribed.outcome is Outcome.SUCCESS
    assert subscribed.position == (subscribed.log, 0)
    assert (subscribed.number, subscribed.epoch) == (5, 5)
    answer = stage.put("t", 100, [b"a", b"b"])
    assert (answer.outcome, answer.last, answer.log) == (Outcome.SUCCESS, 101, subscribed.log)
    got = stage.get("bob", "t", None, 5)
    assert bodies(got) == [b"a", b"b"]
    assert got.message == (subscribed.log, 2)


def test_a_repeated_put_is_a_duplicate_permanently(stage: Stage) -> None:
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


def test_cumulative_puts_on_a_full_disk_are_refused_by_one_answer(stage: Stage) -> None:
    stage.put("t", 1)
    callbacks = [stage.say(put("t", n, previous=n - 1, cumulative=1)) for n in (2, 3)]
    stage.fail_commit = True
    stage.loop()
    assert stage.answer(callbacks[0]) is None
    assert stage.answered(callbacks[1]).outcome is Outcome.FULL


def test_a_put_whose_predecessor_is_missing_changes_nothing(stage: Stage) -> None:
    answer = stage.put("t", 100, previous=50)
    assert (answer.outcome, answer.last, answer.log) == (Outcome.GAP, 0, "")
    assert stage.core.state.topics == {}
    stage.put("t", 50)
    assert stage.put("t", 200, previous=100).outcome is Outcome.GAP
    assert stage.put("t", 100, previous=50).outcome is Outcome.SUCCESS


def test_a_batch_that_contains_last_is_not_taken_in_part(stage: Stage) -> None:
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
def test_an_impossible_put_is_refused(
    stage: Stage, counter: int, count: int, checksum: int | None, body: bytes | None
) -> None:
    request = put("t", 5)
    request.counter, request.count = counter, count
    request.checksum = request.checksum if checksum is None else checksum
    request.body = request.body if body is None else body
    for sole_owner in (0, 1):
        request.sole_owner = sole_owner
        assert stage.ask(request).outcome is Outcome.REFUSED
    assert stage.core.state.topics == {}
    assert stage.core.state.counters["refused"] == 2


def test_the_highest_counters_are_accepted(stage: Stage) -> None:
    stage.subscribe("bob", "t", NUMBER_MAX)
    assert stage.put("t", NUMBER_MAX - 2, [b"a", b"b"]).last == NUMBER_MAX - 1
    stage.restart()
    assert stage.put("t", NUMBER_MAX - 2, [b"a", b"b"]).outcome is Outcome.DUPLICATE
    assert bodies(stage.get("bob", "t", None, NUMBER_MAX)) == [b"a", b"b"]


def test_puts_at_the_last_offset_of_a_log_are_answered_full(stage: Stage) -> None:
    stage.put("t", 1)
    stage.core.state.topics["t"].open.end = OFFSET_MAX - 1
    answer = stage.put("t", 2, [b"a", b"b"])
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "OFFSET_BITS")
    assert stage.put("t", 2, [b"a"]).outcome is Outcome.SUCCESS


# Marked puts


def test_a_marked_put_is_taken_when_every_proxy_answers_whole(stage: Stage) -> None:
    assert stage.put("t", 5, sole_owner=1).outcome is Outcome.SUCCESS
    assert sum(isinstance(out.message, Owners) for out in stage.sent) == 2


def test_a_marked_put_waits_for_the_last_proxy(stage: Stage) -> None:
    stage.sole_owner = None
    callback = stage.say(put("t", 5, sole_owner=1))
    asked = [out for out in stage.loop() if isinstance(out.message, Owners)]
    success = Status("p", Outcome.SUCCESS, body=b"t=")
    stage.say(success, proxy=0, origin=b"", callback=asked[0].source)
    stage.say(success, proxy=0, origin=b"", callback=asked[0].source)
    stage.loop()
    assert stage.answer(callback) is None
    stage.say(success, proxy=1, origin=b"", callback=asked[0].source)
    stage.loop()
    answer = stage.answered(callback)
    assert answer.outcome is Outcome.SUCCESS


@pytest.mark.parametrize("sole_owner", [False, None])
def test_a_marked_put_is_a_retry_while_the_topic_is_not_known_to_be_whole(
    stage: Stage, sole_owner: bool | None
) -> None:
    stage.sole_owner = sole_owner
    callback = stage.say(put("t", 5, sole_owner=1))
    stage.sleep(1.1)
    answer = stage.answered(callback)
    assert answer.outcome is Outcome.BUSY
    assert stage.core.state.topics == {}


def test_a_former_sole_owner_asks_anew_and_remembers_other_holders(stage: Stage) -> None:
    """No run of the simulation shows the first half any more: nobody begins a topic that a proxy has heard of."""
    assert stage.put("t", 1, sole_owner=1).outcome is Outcome.SUCCESS
    stage.others = f"s9.{LOG}"
    assert stage.put("t", 5, previous=1, sole_owner=1).outcome is Outcome.BUSY
    assert stage.core.state.topics["t"].contested_by == {"s9"}


def test_marked_puts_that_wait_hold_a_bounded_number_of_bytes(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wholeness_module, "WAITING_BYTES_MAX", 250)
    stage.sole_owner = None
    waiting = [stage.say(put("t", 5, [b"x" * 88], sole_owner=1)) for _ in range(3)]
    stage.loop()
    refused = [answer for callback in waiting if (answer := stage.answer(callback))]
    assert [(answer.outcome, answer.reason) for answer in refused] == [
        (Outcome.BUSY, "too_many_operations_wait_for_sole_ownership")
    ]
    stage.sleep(1.1)
    stage.sole_owner = True
    assert stage.put("t", 5, [b"x" * 88], sole_owner=1).outcome is Outcome.SUCCESS


# Subscriptions


def test_the_higher_number_wins_however_the_requests_come(stage: Stage) -> None:
    stage.subscribe("bob", "t", 10)
    late = stage.unsubscribe("bob", "t", 9)
    assert (late.outcome, late.number, late.epoch) == (Outcome.SUPERSEDED, 10, 10)
    stage.put("t", 1)
    assert bodies(stage.get("bob", "t", None, 10)) == [b"x"]
    assert stage.unsubscribe("bob", "t", 20).outcome is Outcome.SUCCESS
    stage.restart()
    late = stage.subscribe("bob", "t", 15)
    assert (late.outcome, late.number) == (Outcome.SUPERSEDED, 20)
    assert stage.get("bob", "t", None, 20).outcome is Outcome.UNKNOWN


def test_a_repeated_subscribe_keeps_the_backlog_and_returns_the_position(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 10).log
    stage.put("t", 1, [b"a", b"b"])
    stage.get("bob", "t", (log, 1), 10)
    again = stage.subscribe("bob", "t", 10)
    assert (again.outcome, again.position) == (Outcome.SUCCESS, (log, 1))
    assert bodies(stage.get("bob", "t", None, 10)) == [b"b"]


def test_subscribing_anew_clears_the_backlog(stage: Stage) -> None:
    stage.subscribe("bob", "t", 10)
    stage.put("t", 1, [b"old"])
    assert stage.subscribe("bob", "t", 11).position == (stage.core.state.topics["t"].open.id, 1)
    stage.put("t", 2, [b"new"])
    assert bodies(stage.get("bob", "t", None, 11)) == [b"new"]


def test_unsubscribing_from_an_unknown_topic_leaves_a_number(stage: Stage) -> None:
    assert stage.unsubscribe("bob", "t", 10).outcome is Outcome.SUCCESS
    assert stage.subscribe("bob", "t", 9).outcome is Outcome.SUPERSEDED


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_number_0_is_refused(stage: Stage, kind: type[Subscribe | Unsubscribe]) -> None:
    assert stage.ask(kind("bob", "t", 0, 0)).outcome is Outcome.REFUSED
    assert stage.core.state.topics == {}


def test_the_highest_number_can_be_stored(stage: Stage) -> None:
    assert stage.subscribe("bob", "t", NUMBER_MAX).outcome is Outcome.SUCCESS
    stage.restart()
    assert stage.subscribe("bob", "t", NUMBER_MAX - 1).number == NUMBER_MAX


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
        Owners("s2", {"t": ""}),
        Transfer("s2", "t"),
    ],
)
def test_a_message_for_proxies_is_refused(stage: Stage, origin: bytes, message: Message) -> None:
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


def test_a_message_without_a_callback_gets_no_refusal(stage: Stage) -> None:
    stage.say(Transfer("s2", "t"), callback=0)
    assert [out for out in stage.loop() if isinstance(out.message, Status)] == []


def test_a_stamp_from_the_far_future_is_counted_and_not_followed(stage: Stage) -> None:
    stage.say(Heartbeat("p1", NUMBER_MAX), origin=b"", callback=0)
    assert stage.core.state.counters["stamps_too_far_ahead"] == 1
    assert stage.core.state.stamps.last < 10**16
    stage.say(Heartbeat("p1", int(1_700_000_100 * 1e6)), origin=b"", callback=0)
    assert stage.core.state.stamps.last == int(1_700_000_100 * 1e6)


def test_the_other_holders_of_a_topic_come_from_every_proxys_answer(stage: Stage) -> None:
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
