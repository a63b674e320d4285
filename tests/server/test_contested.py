"""A server that learned of another holder remembers that holder until it is joined or abandoned.

The rule is docs/explanation/sole-ownership.md, W4.
"""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.protocol import Get, Operate, Outcome, Status, Subscribe, Unsubscribe
from pubsub.protocol.bodies import join_topics
from pubsub.protocol.stores import Known, format_stores
from tests.server.moving import Pair, hear_who_has_it
from tests.server.stage import Stage, put

OTHER = "b" * 16


def tell(stage: Stage, topic: str, value: str) -> None:
    stage.say(Status("p1", Outcome.SUCCESS, body=join_topics({topic: value})), origin=b"", callback=0)
    stage.loop()


def is_whole(stage: Stage, topic: str = "t", counter: int = 1000) -> bool:
    return stage.put(topic, counter, sole_owner=1, sender="w").outcome is not Outcome.BUSY


def test_a_topic_with_another_holder_is_not_whole_though_no_proxy_remembers_the_holder(stage: Stage) -> None:
    stage.put("t", 1)
    tell(stage, "t", f"s2.{OTHER}")
    for _ in range(2):
        assert not is_whole(stage)
        assert stage.core.state.topics["t"].contested == {OTHER: "s2"}
        stage.restart()


def test_another_topic_stays_whole(stage: Stage) -> None:
    stage.put("t", 1)
    stage.put("u", 1)
    tell(stage, "t", f"s2.{OTHER}")
    assert is_whole(stage, "u")


@pytest.mark.parametrize("value", ["s2", "s2.xyz", f"..{OTHER}"])
def test_an_invalid_holder_is_counted_and_ignored(stage: Stage, value: str) -> None:
    stage.put("t", 1)
    stage.core.contested.told("t", value)
    assert stage.core.state.topics["t"].contested == {}
    assert stage.core.state.counters["answers_not_understood"] == 1


def test_the_servers_own_log_is_not_another_holder(stage: Stage) -> None:
    log = stage.put("t", 1).log
    tell(stage, "t", f"s1.{log}")
    assert is_whole(stage)


def test_an_abandoned_holder_does_not_count_any_more(stage: Stage) -> None:
    stage.put("t", 1)
    tell(stage, "t", f"s2.{OTHER}")
    stage.say(Operate("p1", "s1", "abandoned", topic="t", server="s2", log=OTHER), origin=b"", callback=0)
    stage.loop()
    assert is_whole(stage)
    tell(stage, "t", f"s2.{OTHER}")
    stage.restart()
    assert stage.core.state.topics["t"].contested == {}


def test_a_holder_forgotten_by_a_full_disk_is_recorded_at_the_next_report(stage: Stage) -> None:
    stage.put("t", 1)
    stage.fail_commit = True
    tell(stage, "t", f"s2.{OTHER}")
    stage.fail_commit = False
    assert stage.core.state.topics["t"].contested == {}
    tell(stage, "t", f"s2.{OTHER}")
    assert stage.core.state.topics["t"].contested == {OTHER: "s2"}


@pytest.fixture
def pair(tmp_path: Any) -> Any:
    made = Pair(tmp_path, "s1", "s2", "s3")
    yield made
    made.close()


def test_a_joined_holder_does_not_count_any_more(pair: Pair) -> None:
    log = pair["s2"].put("t", 1).log
    pair["s1"].put("t", 2, sender="bob")
    tell(pair["s1"], "t", f"s2.{log}")
    assert not is_whole(pair["s1"])
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert is_whole(pair["s1"])
    pair["s1"].restart()
    assert pair["s1"].core.state.topics["t"].contested == {}


def test_a_holder_that_came_through_a_third_server_is_joined_too(pair: Pair) -> None:
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


def test_the_givers_knowledge_of_other_holders_moves_with_the_topic(pair: Pair) -> None:
    pair["s2"].put("t", 1)
    tell(pair["s2"], "t", f"s9.{OTHER}")
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1"]
    assert not is_whole(pair["s1"])
    pair["s1"].restart()
    assert pair["s1"].core.state.topics["t"].contested == {OTHER: "s9"}


def test_a_holder_whose_topic_is_arriving_counts_until_the_topic_is_joined(pair: Pair) -> None:
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
    assert pair["s1"].core.state.topics["t"].contested == {}


# A holder that nobody knows any more


def know(stage: Stage, server: str) -> None:
    """The server's store is in the roster of this one."""
    stage.say(Status("p1", Outcome.SUCCESS, stores=format_stores({"e" * 16: Known(server, 1)})), origin=b"", callback=0)
    stage.loop()


def test_another_holder_that_nobody_knows_is_found_gone_by_a_question(stage: Stage) -> None:
    stage.put("t", 1)
    know(stage, "s2")
    tell(stage, "t", f"s2.{OTHER}")
    stage.since = stage.stamp() + 4_000_000  # Within the bound on skew.
    assert not is_whole(stage)
    stage.since = stage.stamp() + 6_000_000
    assert is_whole(stage)
    stage.restart()
    assert stage.core.state.topics["t"].contested == {}


def test_stores_must_report_again_after_a_restart(stage: Stage) -> None:
    stage.put("t", 1)
    know(stage, "s2")
    tell(stage, "t", f"s2.{OTHER}")
    stage.since = stage.stamp() + 6_000_000
    stage.now += 60
    stage.restart()
    assert not is_whole(stage)


def test_a_holder_whose_server_is_in_no_directory_stays(stage: Stage) -> None:
    stage.put("t", 1)
    tell(stage, "t", f"s2.{OTHER}")
    stage.since = stage.stamp() + 60_000_000
    assert not is_whole(stage)
    know(stage, "s2")
    assert is_whole(stage)


def test_a_holder_named_by_a_proxy_stays(stage: Stage) -> None:
    stage.put("t", 1)
    know(stage, "s2")
    stage.since, stage.others = stage.stamp() + 60_000_000, f"s2.{OTHER}"
    assert not is_whole(stage)
    assert stage.core.state.topics["t"].contested == {OTHER: "s2"}


def test_an_abandoned_receiver_does_not_contest_a_topic_made_anew(pair: Pair) -> None:
    """`create` makes a rival of the note to whom the topic went; giving that server up ends the note."""
    log = pair["s1"].put("t", 1).log
    pair["s1"].confirms = False
    pair.merge("s1", "s2")
    pair.turns()
    assert pair["s1"].core.state.given
    store = pair["s2"].core.state.store_id
    lost = pair["s2"].core.state.topics["t"].open.id
    facts = {"topic": "t", "server": "s2", "store": store, "log": lost}
    pair["s1"].say(Operate("p1", "s1", "abandoned", **facts), origin=b"", callback=0)
    pair["s1"].loop()
    assert not pair["s1"].core.state.given
    hear_who_has_it(pair["s1"])
    pair["s1"].put("t", 2, sender="bob")
    assert pair["s1"].core.state.topics["t"].contested == {}
    assert log != lost
    pair["s1"].restart()
    assert not pair["s1"].core.state.given


@pytest.mark.parametrize(
    "message", [Subscribe("bob", "t", 9, 9), Get("bob", "t", None, 9, 9), Unsubscribe("bob", "t", 9, 9)]
)
def test_a_request_through_a_proxy_that_does_not_know_the_receiver_makes_no_topic(
    pair: Pair, message: Subscribe | Get | Unsubscribe
) -> None:
    """The announcement of what it began might be lost, and then who has the topic is told that nobody else has."""
    given_to_s2(pair)
    assert pair["s1"].ask(message, proxy=1).outcome is Outcome.MOVED
    assert pair["s1"].ask(put("t", 2, sender="bob"), proxy=1).outcome is Outcome.MOVED
    assert pair.holders() == ["s2"]
    pair["s1"].confirms = True
    pair["s1"].core.proxies.announce_all(pair["s1"].now)
    pair.turns(3)
    assert pair["s1"].ask(put("t", 2, sender="bob"), proxy=1).outcome is Outcome.SUCCESS


@pytest.mark.parametrize("fails", [False, True])
def test_a_request_in_the_loop_in_which_the_topic_leaves_makes_no_topic(pair: Pair, fails: bool) -> None:
    pair["s1"].put("t", 1)
    pair["s1"].confirms = False
    pair.merge("s1", "s2")
    for number in range(30):
        pair.turn()
        pair["s1"].say(Subscribe("bob", "t", 9 + number, 9))
        pair["s1"].fail_commit = fails and "t" not in pair["s1"].core.state.topics
    pair["s1"].fail_commit = False
    pair.turns()
    assert pair.holders() == ["s2"]
    pair["s1"].now += 1
    pair["s1"].group_commit.check_full(pair["s1"].now)
    hear_who_has_it(pair["s1"])
    assert pair["s1"].put("u", 1).outcome is Outcome.SUCCESS


def test_a_topic_abandoned_here_is_made_anew_only_through_an_informed_proxy(pair: Pair) -> None:
    stage = pair["s1"]
    log = stage.put("t", 1).log
    stage.confirms = False
    stage.say(Operate("p1", "s1", "abandoned", topic="t", server="s1", log=log), origin=b"", callback=0)
    stage.ask(Subscribe("bob", "t", 9, 9))
    assert "t" not in stage.core.state.topics
    assert stage.ask(Subscribe("bob", "t", 9, 9), proxy=1).outcome is Outcome.MOVED
    stage.confirms = True
    stage.core.proxies.announce_all(stage.now)
    pair.turns(3)
    assert stage.ask(Subscribe("bob", "t", 9, 9), proxy=1).outcome is Outcome.SUCCESS


def test_a_topic_whose_departure_a_full_disk_reverted_has_not_left(stage: Stage) -> None:
    log = stage.put("t", 1).log
    stage.fail_commit = True
    stage.say(Operate("p1", "s1", "abandoned", topic="t", server="s1", log=log), origin=b"", callback=0)
    stage.loop()
    assert "t" in stage.core.state.topics
    assert stage.core.state.left == -1


def given_to_s2(pair: Pair) -> None:
    """s1 has given its topic to s2, and one of two proxies has heard so."""
    pair["s1"].put("t", 1)
    pair["s1"].confirms = False
    pair.merge("s1", "s2")
    pair.turns()
    hear_who_has_it(pair["s1"])


def test_a_holder_made_of_the_note_is_settled_when_its_server_is_abandoned(pair: Pair) -> None:
    given_to_s2(pair)
    pair["s1"].put("t", 2, sender="bob")
    pair["s1"].confirms = True  # Every proxy has heard of it by now: the note goes, the rival stays.
    pair["s1"].core.proxies.announce_all(pair["s1"].now)
    pair.turns(3)
    assert not pair["s1"].core.state.given
    assert list(pair["s1"].core.state.topics["t"].contested.values()) == ["s2"]
    facts = {"topic": "t", "server": "s2", "store": pair["s2"].core.state.store_id}
    pair["s1"].say(Operate("p1", "s1", "abandoned", log=OTHER, **facts), origin=b"", callback=0)
    pair["s1"].loop()
    assert pair["s1"].core.state.topics["t"].contested == {}
    assert is_whole(pair["s1"])
