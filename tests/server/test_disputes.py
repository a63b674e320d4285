"""A server that was once told of another holder remembers it until that one is joined or given up."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.protocol import Operate, Outcome, Status
from pubsub.protocol.codec import join_topics
from tests.server.stage import Stage
from tests.server.test_moves import Pair

OTHER = "b" * 16


def tell(stage: Stage, topic: str, value: str) -> None:
    stage.say(Status("p1", Outcome.SUCCESS, body=join_topics({topic: value})), origin=b"", callback=0)
    stage.loop()


def is_whole(stage: Stage, topic: str = "t", counter: int = 1000) -> bool:
    return stage.put(topic, counter, whole=1, sender="w").outcome is not Outcome.BUSY


def test_a_topic_with_another_holder_is_not_whole_even_when_no_proxy_remembers_it(stage: Stage) -> None:
    stage.put("t", 1)
    tell(stage, "t", f"s2.{OTHER}")
    for _ in range(2):
        assert not is_whole(stage)
        assert stage.core.topics["t"].rivals == {OTHER: "s2"}
        stage.restart()


def test_another_topic_stays_whole(stage: Stage) -> None:
    stage.put("t", 1)
    stage.put("u", 1)
    tell(stage, "t", f"s2.{OTHER}")
    assert is_whole(stage, "u")


@pytest.mark.parametrize("value", ["s2", "s2.xyz", f"..{OTHER}"])
def test_what_names_no_holder_is_counted_and_ignored(stage: Stage, value: str) -> None:
    stage.put("t", 1)
    stage.core.disputes.told("t", value, stage.now)
    assert stage.core.topics["t"].rivals == {}
    assert stage.core.counters["answers not understood"] == 1


def test_our_own_log_is_nobody_elses(stage: Stage) -> None:
    log = stage.put("t", 1).log
    tell(stage, "t", f"s1.{log}")
    assert is_whole(stage)


def test_a_holder_that_is_given_up_is_in_the_way_no_more(stage: Stage) -> None:
    stage.put("t", 1)
    tell(stage, "t", f"s2.{OTHER}")
    stage.say(Operate("p1", "s1", "abandoned", topic="t", server="s2", log=OTHER), origin=b"", callback=0)
    stage.loop()
    assert is_whole(stage)
    tell(stage, "t", f"s2.{OTHER}")
    stage.restart()
    assert stage.core.topics["t"].rivals == {}


def test_a_full_disk_forgets_what_was_told_and_it_is_told_again(stage: Stage) -> None:
    stage.put("t", 1)
    stage.fail_commit = True
    tell(stage, "t", f"s2.{OTHER}")
    stage.fail_commit = False
    assert stage.core.topics["t"].rivals == {}
    tell(stage, "t", f"s2.{OTHER}")
    assert stage.core.topics["t"].rivals == {OTHER: "s2"}


@pytest.fixture
def pair(tmp_path: Any) -> Any:
    made = Pair(tmp_path, "s1", "s2", "s3")
    yield made
    made.close()


def test_a_holder_that_was_joined_is_in_the_way_no_more(pair: Pair) -> None:
    log = pair["s2"].put("t", 1).log
    pair["s1"].put("t", 2, sender="bob")
    tell(pair["s1"], "t", f"s2.{log}")
    assert not is_whole(pair["s1"])
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert is_whole(pair["s1"])
    pair["s1"].restart()
    assert pair["s1"].core.topics["t"].rivals == {}


def test_a_holder_that_came_by_way_of_a_third_server_is_joined_too(pair: Pair) -> None:
    log = pair["s3"].put("t", 1).log
    pair["s2"].put("t", 2, sender="bob")
    pair["s1"].put("t", 3, sender="cat")
    tell(pair["s1"], "t", f"s3.{log}")
    pair.merge("s3", "s2")
    pair.turns()
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert is_whole(pair["s1"])


def test_what_a_giver_knew_of_others_travels_with_the_topic(pair: Pair) -> None:
    pair["s2"].put("t", 1)
    tell(pair["s2"], "t", f"s9.{OTHER}")
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert not is_whole(pair["s1"])
    pair["s1"].restart()
    assert pair["s1"].core.topics["t"].rivals == {OTHER: "s9"}


def test_a_holder_whose_topic_is_just_arriving_is_in_the_way_until_it_is_joined(pair: Pair) -> None:
    log = pair["s2"].put("t", 1).log
    pair["s1"].put("t", 2, sender="bob")
    pair.lose = {"commit"}
    pair.merge("s2", "s1")
    pair.turns(6)
    tell(pair["s1"], "t", f"s2.{log}")
    pair["s1"].restart()  # What arrived is forgotten, and s2 is away.
    away = pair.stages.pop("s2")
    assert not is_whole(pair["s1"])
    pair.stages["s2"] = away
    pair.lose = set()
    pair.turns(60)
    assert pair.holders() == ["s1"]
    assert pair["s1"].core.topics["t"].rivals == {}
