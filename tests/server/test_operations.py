"""The requests of operators to a server, and their effects after a crash or on a full disk."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pubsub.protocol import Get, Operate, Outcome, Report, Status, Transfer
from pubsub.protocol.bodies import join_topics
from tests.server.stage import Stage, bodies

ADDRESS = "tcp://127.0.0.1:12"
MS = 1 << 22


def operate(stage: Stage, action: str, **facts: Any) -> Status:
    return stage.ask(Operate("op", "s1", action, **facts))


def offers(stage: Stage) -> list[object]:
    return [out.link for out in stage.sent if isinstance(out.message, Transfer) and out.message.step == "offer"]


def shown(stage: Stage) -> dict[str, Any]:
    return dict(json.loads(bytes(stage.ask(Report("op", "s1")).body)))


# Moving


def test_a_topic_is_offered_to_the_server_that_the_operator_names(stage: Stage) -> None:
    stage.put("t", 1)
    for _ in range(2):
        assert operate(stage, "move", topic="t", server="s2", address=ADDRESS).outcome is Outcome.SUCCESS
    assert set(offers(stage)) == {ADDRESS}


@pytest.mark.parametrize(
    ("facts", "outcome", "reason"),
    [
        ({"topic": "nowhere", "address": ADDRESS}, Outcome.UNKNOWN, "topic_is_not_held"),
        (
            {"topic": "t", "address": "not an address".replace(" ", "_")},
            Outcome.REFUSED,
            "the_address_for_move_is_missing_or_invalid",
        ),
        ({"topic": "t"}, Outcome.REFUSED, "the_address_for_move_is_missing_or_invalid"),
    ],
)
def test_an_impossible_move_is_refused_with_the_reason(
    stage: Stage, facts: dict[str, str], outcome: Outcome, reason: str
) -> None:
    stage.put("t", 1)
    answer = operate(stage, "move", **facts)
    assert (answer.outcome, answer.reason) == (outcome, reason)
    assert offers(stage) == []


def test_a_contested_topic_is_not_moved(stage: Stage) -> None:
    stage.put("t", 1)
    others = join_topics({"t": f"s1.{'a' * 16},s2.{'b' * 16}"})
    stage.say(Status("p1", Outcome.SUCCESS, body=others), origin=b"", callback=0)
    answer = operate(stage, "move", topic="t", server="s2", address=ADDRESS)
    assert (answer.outcome, answer.reason) == (Outcome.REFUSED, "contested_with_s1,s2")


def test_an_unknown_action_is_refused(stage: Stage) -> None:
    assert operate(stage, "explode").outcome is Outcome.REFUSED


# Draining


def test_a_draining_server_announces_so_until_it_is_stopped_and_after_a_restart(stage: Stage) -> None:
    stage.loop()
    assert [said.draining for said in stage.periodics()] == [0, 0]
    assert operate(stage, "drain").outcome is Outcome.SUCCESS
    stage.loop()
    assert [said.draining for said in stage.periodics()] == [1, 1]
    assert shown(stage)["draining"]
    stage.restart()
    stage.loop()
    assert {said.draining for said in stage.periodics()} == {1}
    operate(stage, "drain", stop=1)
    stage.restart()
    stage.loop()
    assert stage.periodics()[-1].draining == 0


def test_a_drain_without_disk_space_did_not_happen(stage: Stage) -> None:
    stage.fail_commit = True
    assert operate(stage, "drain").outcome is Outcome.FULL
    stage.fail_commit = False
    assert not shown(stage)["draining"]


# Ending a subscription


def test_a_removed_dead_subscriber_frees_its_backlog_and_learns_so_on_its_return(stage: Stage) -> None:
    number = 7 * MS + 5
    stage.subscribe("bob", "t", number)
    stage.put("t", 1, [b"a"])
    for _ in range(2):
        assert operate(stage, "unsubscribe", topic="t", subscriber="bob").outcome is Outcome.SUCCESS
    assert shown(stage)["topics"]["t"]["subscribers"] == {}
    stage.restart()
    told = stage.get("bob", "t", None, number)
    assert (told.outcome, told.reason) == (Outcome.SUPERSEDED, "the_subscription_was_ended_elsewhere")
    assert number < told.number < 8 * MS


def test_a_waiting_get_is_answered_at_once_when_its_subscriber_is_removed(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    waiting = stage.say(Get("bob", "t", None, 5, 5, records_max=10, wait_ms=10_000))
    stage.loop()
    operate(stage, "unsubscribe", topic="t", subscriber="bob")
    assert stage.answered(waiting).outcome is Outcome.SUPERSEDED


def test_a_late_transmission_of_the_ended_subscription_does_not_restore_it(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    operate(stage, "unsubscribe", topic="t", subscriber="bob")
    assert stage.subscribe("bob", "t", 6).outcome is Outcome.SUPERSEDED
    assert stage.subscribe("bob", "t", MS + 1).outcome is Outcome.SUCCESS


def test_a_new_subscription_receives_later_messages(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1, [b"before"])
    operate(stage, "unsubscribe", topic="t", subscriber="bob")
    stage.subscribe("bob", "t", MS)
    stage.put("t", 2, [b"after"], previous=1)
    assert bodies(stage.get("bob", "t", None, MS)) == [b"after"]


@pytest.mark.parametrize(("topic", "reason"), [("t", "subscriber"), ("nowhere", "topic_is_not_held")])
def test_an_unknown_subscriber_cannot_be_unsubscribed(stage: Stage, topic: str, reason: str) -> None:
    stage.put("t", 1)
    answer = operate(stage, "unsubscribe", topic=topic, subscriber="bob")
    assert (answer.outcome, answer.reason) == (Outcome.UNKNOWN, reason)
