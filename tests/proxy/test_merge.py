"""MERGE: the giver and the receiver of a contested topic, the rate of requests, and their end."""

from __future__ import annotations

from pubsub.protocol import Merge
from pubsub.proxy.servers import MERGES_MAX
from tests.proxy.stage import Said, Stage, log_id


def merges(said: list[Said]) -> list[tuple[str, str, str, str]]:
    """(giver, topic, receiver's address, receiver's log) of each MERGE."""
    return [
        (s.link.decode(), s.message.topic, s.message.address, s.message.log)
        for s in said
        if isinstance(s.message, Merge)
    ]


def contested(stage: Stage, *servers: str, topic: str = "t") -> None:
    for server in servers:
        stage.announce(server, {topic: f"{server}{topic}"})


def test_the_higher_server_id_is_asked_to_give_the_topic_to_the_lower() -> None:
    stage = Stage()
    contested(stage, "s2", "s1")
    assert merges(stage.sleep(1.0, "s1", "s2")) == [("s2", "t", "tcp://s1", log_id("s1t"))]


def test_a_merge_is_requested_each_second_until_one_holder_is_left() -> None:
    stage = Stage()
    contested(stage, "s1", "s2")
    assert len(merges(stage.sleep(5.0, "s1", "s2"))) == 5
    stage.announce("s2", {"t": ""}, change=2, partial=1, previous=1)
    assert merges(stage.sleep(5.0, "s1", "s2")) == []


def test_two_of_three_holders_are_asked_to_give_to_the_lowest() -> None:
    stage = Stage()
    contested(stage, "s3", "s1", "s2")
    found = merges(stage.sleep(1.0, "s1", "s2", "s3"))
    assert sorted(giver for giver, *_ in found) == ["s2", "s3"]
    assert {address for _, _, address, _ in found} == {"tcp://s1"}


def test_a_silent_holder_neither_gives_nor_receives() -> None:
    stage = Stage()
    contested(stage, "s1", "s2", "s3")
    stage.sleep(4.0, "s2", "s3")
    assert {(giver, to) for giver, _, to, _ in merges(stage.sleep(2.0, "s2", "s3"))} == {("s3", "tcp://s2")}
    stage.sleep(4.0, "s3")
    assert merges(stage.sleep(2.0, "s3")) == []


def test_unmergeable_topics_do_not_delay_others() -> None:
    stage = Stage()
    dead = {f"dead{number}": "old" for number in range(300)}
    stage.announce("s1", dead)
    stage.announce("s2", {**dead, "t": "two"})
    stage.announce("s3", {"t": "three"})
    stage.sleep(4.0, "s2", "s3")
    assert ("s3", "t", "tcp://s2", log_id("two")) in merges(stage.sleep(1.0, "s2", "s3"))


def test_a_store_that_comes_under_another_id_is_asked_by_that_one() -> None:
    stage = Stage()
    contested(stage, "s1", "s2")
    stage.heartbeat("s1", leaving=1)
    stage.announce("s3", {"t": "s1t"}, store="s1", incarnation=2)
    assert {giver for giver, *_ in merges(stage.sleep(1.0, "s2", "s3"))} == {"s3"}


def test_unmergeable_topics_do_not_block_others() -> None:
    stage = Stage()
    count = MERGES_MAX + 50
    for server in ("s1", "s2"):
        stage.announce(server, {f"t{k}": f"{server}{k}" for k in range(count)})
    asked = {topic for _, topic, _, _ in merges(stage.sleep(2.0, "s1", "s2"))}
    assert len(asked) == count
