"""Subscriptions: a named one is made once, while the topic is whole, and moved by acknowledging alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from pubsub.protocol import Get, Outcome, Subscribe
from pubsub.protocol.transfers import Owners
from tests.server.named import acknowledge, everything, leave, make, read
from tests.server.stage import Stage


def test_a_subscription_has_all_stored_messages_from_earliest_and_later_ones_from_latest(stage: Stage) -> None:
    stage.put("t", 1, [b"a", b"b"])
    assert make(stage, "earliest").outcome is Outcome.SUCCESS
    assert make(stage, "latest", name="tail").outcome is Outcome.SUCCESS
    stage.put("t", 3, [b"c"])
    assert everything(stage) == [b"a", b"b", b"c"]
    assert everything(stage, name="tail") == [b"c"]


def test_a_repeated_request_finds_the_subscription_unchanged(stage: Stage) -> None:
    stage.put("t", 1, [b"a"])
    first = make(stage, "latest")
    stage.put("t", 2, [b"b"])
    stage.restart()
    for number, start in ((7, "latest"), (6, "earliest"), (900, "latest")):
        again = make(stage, start, number)
        assert (again.outcome, again.position, again.number) == (Outcome.SUCCESS, first.position, 7)
    assert everything(stage) == [b"b"]


@pytest.mark.parametrize("sole_owner", [False, None])
def test_a_named_subscription_is_not_made_while_another_server_may_hold_the_topic(
    stage: Stage, sole_owner: bool | None
) -> None:
    stage.put("t", 1)
    stage.sole_owner = sole_owner
    callback = stage.say(Subscribe("spark", "t", 7, 7, name="archive"))
    stage.sleep(3)
    answer = stage.answered(callback)
    assert (answer.outcome, answer.reason) == (Outcome.BUSY, "topic_is_not_known_to_be_whole")
    assert "@archive" not in stage.core.state.topics["t"].subscriptions


def test_a_named_subscription_is_not_remade_while_another_server_may_hold_the_topic(stage: Stage) -> None:
    make(stage)
    leave(stage, 8)
    stage.sole_owner = False
    assert make(stage, number=9).outcome is Outcome.BUSY
    assert not stage.core.state.topics["t"].subscriptions["@archive"].on


def test_an_existing_subscription_is_answered_without_asking_any_proxy(stage: Stage) -> None:
    make(stage)
    stage.sole_owner = None
    stage.sent.clear()
    assert make(stage).outcome is Outcome.SUCCESS
    assert not any(isinstance(out.message, Owners) for out in stage.sent)


def test_a_named_subscription_makes_its_topic(stage: Stage) -> None:
    answer = make(stage, "latest")
    assert answer.position == (stage.core.state.topics["t"].open.id, 0)
    stage.put("t", 1, [b"a"])
    assert everything(stage) == [b"a"]


def test_no_client_can_have_the_key_of_a_named_subscription(stage: Stage) -> None:
    make(stage, name="bob")
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"a"])
    stage.unsubscribe("bob", "t", 6)
    assert everything(stage, name="bob") == [b"a"]


def test_an_ended_subscription_returns_only_by_a_higher_number(stage: Stage) -> None:
    make(stage, number=7)
    stage.put("t", 1, [b"a"])
    assert leave(stage, 6).outcome is Outcome.SUPERSEDED
    assert leave(stage, 8).outcome is Outcome.SUCCESS
    assert leave(stage, 8).outcome is Outcome.SUCCESS
    late = make(stage, number=7)
    assert (late.outcome, late.number) == (Outcome.SUPERSEDED, 8)
    assert read(stage, None).outcome is Outcome.UNKNOWN
    stage.restart()
    assert make(stage, "latest", number=9).outcome is Outcome.SUCCESS
    assert everything(stage) == []


def test_a_number_of_zero_is_refused(stage: Stage) -> None:
    assert make(stage, number=0).outcome is Outcome.REFUSED


def test_limits_are_refused_with_their_names(tmp_path: Path) -> None:
    stage = Stage(tmp_path, subscribers_max=1, topics_max=1)
    make(stage)
    answer = make(stage, name="other")
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "subscribers_max")
    answer = stage.ask(Subscribe("spark", "u", 7, 7, name="archive"))
    assert (answer.outcome, answer.reason) == (Outcome.FULL, "topics_max")
    stage.core.state.full = True
    assert make(stage, number=7).outcome is Outcome.SUCCESS, "it is there already"
    assert leave(stage, 9).outcome is Outcome.SUCCESS, "that frees space"
    assert make(stage, number=10).reason == "disk"
    stage.close()


def test_only_acknowledging_moves_a_named_subscription_and_the_position_survives_a_restart(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1, [b"a", b"b"]).log
    assert acknowledge(stage, None).outcome is Outcome.EMPTY
    answer = acknowledge(stage, (log, 1))
    assert (answer.outcome, answer.position) == (Outcome.EMPTY, (log, 1))
    stage.sleep(1)
    stage.restart()
    assert make(stage).position == (log, 1)
    assert everything(stage) == [b"b"]
    assert acknowledge(stage, (log, 1)).outcome is Outcome.EMPTY
    assert read(stage, (log, 0)).outcome is Outcome.BEHIND


def test_a_position_that_never_existed_is_not_acknowledged(stage: Stage) -> None:
    make(stage)
    log = stage.put("t", 1).log
    for last in ((log, 2), ("f" * 16, 1)):
        assert acknowledge(stage, last).outcome is Outcome.BEHIND
    acknowledge(stage, (log, 1))
    assert acknowledge(stage, (log, 0)).outcome is Outcome.BEHIND


def test_a_get_that_wants_records_by_name_is_refused(stage: Stage) -> None:
    make(stage)
    assert stage.ask(Get("spark", "t", None, 0, 0, records_max=1, name="archive")).outcome is Outcome.REFUSED


def test_a_subscription_that_finds_the_disk_full_is_not_made(stage: Stage) -> None:
    stage.put("t", 1)
    stage.fail_commit = True
    assert make(stage).outcome is Outcome.FULL
    stage.fail_commit = False
    assert "@archive" not in stage.core.state.topics["t"].subscriptions


@pytest.mark.parametrize("by", ["reading", "acknowledging"])
def test_a_named_subscription_counts_as_used_after_its_first_known_position(stage: Stage, by: str) -> None:
    stage.put("t", 1, [b"a"])
    start = make(stage).position
    subscription = stage.core.state.topics["t"].subscriptions["@archive"]
    assert not subscription.epoch
    (read if by == "reading" else acknowledge)(stage, ("f" * 16, 3))
    assert not subscription.epoch, "that position is not of this holder's logs"
    (read if by == "reading" else acknowledge)(stage, start)
    assert subscription.epoch == subscription.number == 7
