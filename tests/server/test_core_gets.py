"""The answers of a server to a GET in each state."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol import Get, Outcome, Subscribe
from pubsub.protocol.messages import Unsubscribe
from pubsub.server.requests import gets as gets_module
from pubsub.server.topic import delivery
from tests.server.stage import Stage, bodies

LOG = "00000000000000aa"
"""A log that is nobody's."""


# GET: who may


def test_a_get_without_a_subscription_is_a_retry_and_creates_nothing(stage: Stage) -> None:
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
    answer = stage.get("bob", "t", None, number, epoch=10)
    assert (answer.outcome, answer.number) == (Outcome.SUPERSEDED, 10)


def test_get_with_a_lower_opening_is_superseded_also_after_a_crash(stage: Stage) -> None:
    stage.subscribe("bob", "t", 10, epoch=10)
    stage.put("t", 1)
    assert bodies(stage.get("bob", "t", None, 10, epoch=12)) == [b"x"]
    stage.restart()
    answer = stage.get("bob", "t", None, 10, epoch=11)
    assert (answer.outcome, answer.epoch) == (Outcome.SUPERSEDED, 12)


def test_a_waiting_get_is_superseded_by_a_later_opening(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 10).log
    waiting = stage.say(Get("bob", "t", None, 10, 10, wait_ms=60_000))
    stage.loop()
    assert stage.get("bob", "t", (log, 0), 10, epoch=11, records_max=0).outcome is Outcome.EMPTY
    stage.put("t", 1)
    answer = stage.answered(waiting)
    assert (answer.outcome, answer.epoch, answer.records) == (Outcome.SUPERSEDED, 11, 0)


@pytest.mark.parametrize("kind", [Subscribe, Unsubscribe])
def test_a_waiting_get_is_answered_when_its_number_is_superseded(
    stage: Stage, kind: type[Subscribe | Unsubscribe]
) -> None:
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


def test_unacknowledged_messages_are_delivered_again(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"a"])
    for _ in range(3):
        assert bodies(stage.get("bob", "t", None, 5)) == [b"a"]
        stage.restart()


def test_an_acknowledgement_lost_in_a_crash_is_repeated(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a", b"b"])
    assert stage.get("bob", "t", (log, 1), 5, records_max=0).outcome is Outcome.EMPTY
    stage.restart()
    assert bodies(stage.get("bob", "t", (log, 1), 5)) == [b"b"]


def test_a_get_with_after_reads_on_without_acknowledging(stage: Stage) -> None:
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


def test_a_received_position_in_a_foreign_log_is_behind(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    other = stage.put("u", 2).log
    for log in (LOG, other):
        request = Get("bob", "t", None, 5, 5)
        request.after = (log, 1)
        assert stage.ask(request).outcome is Outcome.BEHIND
    assert bodies(stage.get("bob", "t", None, 5)) == [b"x"]


def test_a_position_before_the_acknowledged_one_is_behind(stage: Stage) -> None:
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


def test_a_long_poll_is_answered_when_a_message_comes(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    callback = stage.say(Get("bob", "t", None, 5, 5, wait_ms=10_000))
    stage.sleep(5)
    assert stage.answer(callback) is None
    stage.put("t", 1, [b"a"])
    answer = stage.answered(callback)
    assert bodies(answer) == [b"a"]


@pytest.mark.parametrize(("wait_ms", "seconds"), [(500, 0.5), (NUMBER_MAX, 60.0)])
def test_a_long_poll_ends_after_its_wait_or_the_longest_allowed_one(stage: Stage, wait_ms: int, seconds: float) -> None:
    stage.subscribe("bob", "t", 5)
    callback = stage.say(Get("bob", "t", None, 5, 5, wait_ms=wait_ms))
    stage.sleep(seconds - 0.01)
    assert stage.answer(callback) is None
    stage.sleep(0.02)
    answer = stage.answered(callback)
    assert answer.outcome is Outcome.EMPTY


def test_a_later_get_replaces_a_waiting_one(stage: Stage) -> None:
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


# What is left out


def test_a_range_longer_than_one_loop_checks_is_passed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "BATCHES_MAX", 4)
    log = stage.subscribe("bob", "t", 5).log
    for counter in range(1, 31):
        stage.put("t", counter, [b"%d" % counter])
    topic = stage.core.state.topics["t"]
    topic.watermarks[1] = {1: 28}
    topic.subscriptions["bob"].cursor.backlog = (replace(topic.subscriptions["bob"].cursor.backlog[0], watermark=1),)
    waiting = stage.say(Get("bob", "t", None, 5, 5, after=None, records_max=10))
    for _ in range(10):
        stage.loop()
    answer = stage.answered(waiting)
    assert bodies(answer) == [b"29", b"30"]
    assert topic.subscriptions["bob"].cursor.acknowledged == (log, 0)
    assert bodies(stage.get("bob", "t", None, 5)) == [b"29", b"30"]


def test_skipped_messages_behind_the_received_position_are_passed_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delivery, "BATCHES_MAX", 4)
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a"], sender="carol")
    for counter in range(1, 31):
        stage.put("t", counter, [b"%d" % counter])
    topic = stage.core.state.topics["t"]
    topic.watermarks[1] = {2: 29}
    topic.subscriptions["bob"].cursor.backlog = (replace(topic.subscriptions["bob"].cursor.backlog[0], watermark=1),)
    waiting = stage.say(Get("bob", "t", None, 5, 5, after=(log, 1), records_max=10))
    for _ in range(10):
        stage.loop()
    answer = stage.answered(waiting)
    assert bodies(answer) == [b"30"]
    assert topic.subscriptions["bob"].cursor.backlog[0].low == 1  # "a" is not acknowledged
    assert bodies(stage.get("bob", "t", (log, 1), 5)) == [b"30"]
