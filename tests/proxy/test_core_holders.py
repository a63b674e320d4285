"""Several holders of a topic, and which topics are known to be whole, as the proxy's peers see it."""

from __future__ import annotations

import pytest

from pubsub.protocol import (
    Operate,
    Outcome,
    Periodic,
    split_topics,
)
from pubsub.proxy.announcements import CONTESTED_SECONDS
from pubsub.proxy.notices import Routine
from tests.proxy.stage import PROXIES, REMEMBERED, Stage, contested, log_id, report

# Two holders


def test_two_holders_learn_of_each_other_and_the_log_names_them_once() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "one"}, change=1)
    first = stage.announce("s2", {"t": "two", "u": "x"})
    second = stage.announce("s1", {"t": "one"}, change=2)
    assert first is not None
    assert second is not None
    assert split_topics(first.body) == split_topics(second.body) == {"t": f"s1.{log_id('one')},s2.{log_id('two')}"}
    assert stage.log().count("topic t has more than one holder") == 1


def test_two_holders_are_routine_until_they_stay_two() -> None:
    stage = contested()

    def said() -> list[str]:
        return [line for line in stage.core.notices.take() if line.startswith("topic t has more than one holder")]

    (line,) = said()
    assert isinstance(line, Routine)
    for _ in range(int(CONTESTED_SECONDS) - 1):
        stage.sleep(1.0, "s1", "s2")
        assert said() == []
    stage.sleep(1.5, "s1", "s2")
    (line,) = said()
    assert not isinstance(line, Routine)
    assert line.startswith("topic t has more than one holder, for 60 s now: s1 (log ")
    stage.sleep(1.5, "s1", "s2")
    assert said() == []
    stage.announce("s2", {"t": ""}, change=2, partial=1)
    stage.sleep(1.5, "s1", "s2")
    stage.announce("s2", {"t": "two"}, change=3)
    (line,) = said()
    assert isinstance(line, Routine)


def test_requests_on_a_contested_topic_follow_log_and_avoid() -> None:
    stage = contested()
    assert stage.put("t") == "-> s1"
    assert stage.put("t", log=log_id("two")) == "-> s2"
    assert stage.get("t", avoid=log_id("one")) == "-> s2"
    assert stage.subscribe("t", log=log_id("gone"), avoid=log_id("two")) == "-> s1"


def test_a_contested_topic_goes_to_the_holder_that_is_alive() -> None:
    stage = contested()
    stage.sleep(4.0, "s2")
    assert stage.put("t", log=log_id("one")) == "-> s2"
    stage.sleep(4.0)
    assert stage.put("t") == "unavailable server_s1_sends_no_heartbeats"


def test_a_contest_ends_when_one_holder_gives_the_topic_up() -> None:
    stage = contested()
    answer = stage.announce("s2", {"t": ""}, change=2, partial=1)
    assert answer is not None
    assert answer.body == b""
    assert stage.put("t", log=log_id("two")) == "-> s1"


# Whole


def test_the_answer_to_whole_names_all_other_holders_including_dead_ones() -> None:
    stage = contested()
    answer = stage.whole("s1", "t", "u", "nobody's")
    assert answer.outcome is Outcome.SUCCESS
    two = f"s2.{log_id('two')}"
    assert split_topics(answer.body) == {"t": two, "u": f"s2.{log_id('x')}", "nobody's": ""}
    stage.sleep(4.0, "s1")
    assert split_topics(stage.whole("s1", "t").body) == {"t": two}


def test_whole_is_not_answered_before_the_startup_wait_is_over() -> None:
    stage = Stage(starting=True)
    stage.announce("s1", {"t": "x"})
    assert (stage.whole("s1", "t").outcome, stage.whole("s1", "t").reason) == (Outcome.UNAVAILABLE, "proxy_starting")
    stage.sleep(3.0, "s1")
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS


def test_whole_is_not_answered_while_live_servers_name_different_proxies() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.announce("s2", proxies="tcp://p1")
    assert stage.whole("s1", "t").reason == "servers_name_different_proxies"
    assert "servers name different sets of proxies" in stage.log()
    assert report(stage)["proxies_agree"] is False
    stage.sleep(4.0, "s1")
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS, "the one that disagreed is dead"


def test_the_order_in_which_proxies_are_named_does_not_matter() -> None:
    stage = Stage()
    stage.announce("s1", proxies="a,b")
    stage.announce("s2", proxies="b,a")
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS


def test_the_lower_of_two_servers_with_the_same_assignment_gets_the_topic() -> None:
    stage = Stage()
    stage.announce("s1", {"x": "x"})
    stage.announce("s2")
    assert stage.put("t") == "-> s2"
    assert stage.whole("s1", "t").reason == "topic_was_just_assigned"
    assert stage.put("t") == "-> s1"
    stage.announce("s2", change=2)  # It did not make it.
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS
    assert stage.whole("s2", "t").reason == "topic_was_just_assigned"
    assert stage.put("t") == "-> s1"


def test_whole_is_not_answered_while_another_server_may_be_making_the_topic() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.announce("s2", {"x": "x"})
    assert stage.put("t") == "-> s1"
    stage.announce("s2", {"x": "x", "t": "two"}, change=2)
    assert stage.whole("s2", "t").reason == "topic_was_just_assigned"
    assert stage.whole("s1", "t").outcome is Outcome.SUCCESS
    stage.announce("s1", {"t": "one"}, change=2)
    assert split_topics(stage.whole("s2", "t").body) == {"t": f"s1.{log_id('one')}"}


def test_a_repeated_announcement_ends_a_hold_known_only_by_the_givers_report() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "t"})
    stage.announce("s2", {"x": "x"})
    word = f"s2.{log_id('t')},{log_id('s2')},3"
    stage.from_server(b"s1", b"", Periodic("s1", log_id("s1"), 1, 2, "tcp://s1", PROXIES, 0, topics={"t": word}))
    stage.said()
    stage.announce("s2", {"x": "x"}, change=2)
    assert split_topics(stage.whole("s1", "t").body) == {"t": f"s2.{log_id('t')}"}, "that was said before the join"
    stage.announce("s2", {"x": "x"}, change=4)  # It has given it on since.
    assert split_topics(stage.whole("s1", "t").body) == {"t": ""}


def test_whole_is_not_answered_while_the_table_is_full() -> None:
    stage = Stage(topics_max=2)
    stage.announce("s1", {"a": "x"})
    answer = stage.announce("s2", {"b": "x", "c": "x"}, change=1)
    assert answer is not None
    assert answer.outcome is Outcome.FULL
    assert stage.whole("s1", "a").reason == "topics_max_is_reached"
    answer = stage.announce("s2", {"b": "x"}, change=2)
    assert answer is not None
    assert answer.outcome is Outcome.SUCCESS
    assert stage.whole("s1", "a").outcome is Outcome.SUCCESS


def test_whole_is_not_answered_while_a_departed_server_may_hold_omitted_topics() -> None:
    stage = Stage(topics_max=2)
    stage.announce("s1", {"a": "x"})
    stage.announce("s2", {"b": "x", "c": "x"})
    stage.heartbeat("s2", leaving=1)
    assert stage.whole("s1", "c").reason == "topics_max_is_reached"


def test_a_list_longer_than_the_table_is_not_even_read() -> None:
    stage = Stage(topics_max=5)
    answer = stage.announce("s1", {f"t{k}": "x" for k in range(10)})
    assert answer is not None
    assert answer.outcome is Outcome.FULL
    assert len(stage.core.table) == 0


def test_an_unknown_server_gets_no_answer_to_whole() -> None:
    assert Stage().whole("s1", "t").outcome is Outcome.ANNOUNCE


def test_a_store_left_behind_under_the_same_id_is_another_holder() -> None:
    stage = Stage(remembered=REMEMBERED)
    stage.announce("s1", {"t": "y"}, store="other")
    assert split_topics(stage.whole("s1", "t").body) == {"t": f"s1.{log_id('x')}"}


@pytest.mark.parametrize("how", ["forgotten", "evicted"])
def test_a_doubt_ends_with_the_return_of_a_server_whose_store_was_forgotten(how: str) -> None:
    stage = Stage(servers_max=2)
    stage.announce("s1")
    stage.announce("s2", draining=1)
    assert stage.put("t") == "-> s1"
    stage.announce("s2", change=2)
    stage.sleep(4.0, "s2")
    assert stage.put("t") == "-> s2"
    stage.announce("s2", {"t": "x"}, change=3)
    stage.heartbeat("s1", leaving=1)
    if how == "evicted":
        stage.announce("s3")
        stage.heartbeat("s3", leaving=1)
    else:
        stage.request(Operate("ann", "-", "forget", store=log_id("s1")))
    assert log_id("s1") not in stage.core.table.servers
    assert stage.whole("s2", "t").reason == "topic_was_just_assigned"
    stage.announce("s1", incarnation=2, change=2, link=b"new")
    assert stage.whole("s2", "t").outcome is Outcome.SUCCESS


def test_a_store_that_may_be_making_a_topic_is_not_forgotten_for_want_of_room() -> None:
    stage = Stage(servers_max=1)
    stage.announce("s1")
    assert stage.put("t") == "-> s1"
    stage.heartbeat("s1", leaving=1)
    answer = stage.announce("s2")
    assert answer is not None
    assert answer.outcome is Outcome.FULL


def test_whole_is_answered_again_after_a_server_announces_only_its_earlier_topics() -> None:
    stage = Stage(topics_max=2)
    stage.announce("s1", {"a": "x", "b": "x"})
    answer = stage.announce("s1", {"a": "x", "b": "x", "c": "x"}, change=2)
    assert answer is not None
    assert answer.outcome is Outcome.FULL
    stage.announce("s1", {"a": "x", "b": "x"}, change=3)
    assert stage.whole("s1", "a").outcome is Outcome.SUCCESS


def test_a_dead_receiver_is_a_holder_by_the_givers_report_if_its_own_was_lost() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "one"}, change=5)
    stage.announce("s2", change=3)
    # What it said of t, with change 9, did not come.
    stage.announce("s2", {"u": "two"}, change=10, partial=1, previous=9)
    stage.heartbeat("s2", leaving=1)
    word = {"t": f"s2.{log_id('one')},{log_id('s2')},9"}
    stage.from_server(b"s1", b"", Periodic("s1", log_id("s1"), 1, 6, "tcp://s1", PROXIES, 0, 1, word, 5))
    stage.said()
    assert stage.put("t") == "unavailable server_s2_sends_no_heartbeats"
