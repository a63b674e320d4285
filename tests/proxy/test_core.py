"""The proxy's behaviour as its peers see it, with time as an argument."""

from __future__ import annotations

import json

import pytest

from pubsub.messenger.framing import pack
from pubsub.protocol import (
    Get,
    Heartbeat,
    Outcome,
    Periodic,
    Put,
    Report,
    Status,
    Subscribe,
    Unsubscribe,
    Whole,
    encode,
    split_topics,
)
from pubsub.proxy.notices import Routine
from pubsub.proxy.outbox import Send
from pubsub.proxy.routing import TENTATIVE_SECONDS, Remembered, StoreRow
from pubsub.proxy.servers import CONTESTED_SECONDS
from tests.proxy.stage import PROXIES, Stage, log_id

REMEMBERED = Remembered([StoreRow(log_id("s1"), "s1", 1, 1, "tcp://s1")], [("t", log_id("s1"), log_id("x"))])


def report(stage: Stage) -> dict[str, object]:
    (said,) = stage.request(Report("ann", "-"))
    assert isinstance(said.message, Status)
    loaded: dict[str, object] = json.loads(bytes(said.message.body))
    return loaded


# Routing and assignment


def test_a_known_topic_goes_to_its_holder_untouched() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    header, _ = encode(Put("ann", "t", 1, "0" * 16, 1, 0, 0, body=b"!"))
    frames = (b"7-40-0-" + header, b"body")
    stage.core.client_message(b"C", frames, stage.now)
    assert stage.core.outbox.take() == [Send(True, b"s1", (b"cC", *frames))]


@pytest.mark.parametrize("ask", [Stage.subscribe, Stage.put])
def test_a_new_topic_is_given_to_the_server_with_the_fewest_topics(ask: object) -> None:
    stage = Stage()
    stage.announce("s1", {"a": "x", "b": "x"})
    stage.announce("s2", {"c": "x"})
    assert [ask(stage, f"new{k}") for k in range(4)] == ["-> s2", "-> s1", "-> s2", "-> s1"]  # type: ignore[operator]


def test_unsubscribe_gives_a_topic_away_too_but_get_does_not() -> None:
    stage = Stage()
    stage.announce("s1")
    assert stage.get("t") == "unknown no_server_holds_this_topic"
    assert stage.outcome(Unsubscribe("ann", "t", 1, 1)) == "-> s1"
    assert stage.get("t") == "-> s1", "the server may have made it by now"


def test_an_assignment_is_replaced_when_the_server_dies_before_it_announces() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.announce("s2")
    assert stage.put("t") == "-> s1"
    stage.sleep(4.0, "s2")
    assert stage.put("t") == "-> s2"


def test_an_assignment_that_nobody_uses_is_forgotten() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.put("t")
    stage.sleep(TENTATIVE_SECONDS + 2, "s1")
    assert stage.core.table.tentative == {}


def test_nobody_to_give_a_topic_to_is_said_at_once() -> None:
    assert Stage().put("t") == "unavailable no_server_is_heard"


def test_a_topic_beyond_the_limit_is_answered_full() -> None:
    stage = Stage(topics_max=1)
    stage.announce("s1", {"t": "x"})
    assert stage.put("u") == "full topics_max_is_reached"
    assert stage.put("t") == "-> s1"
    assert "topics_max = 1" in stage.log()


# The start-up wait


def test_after_its_start_a_proxy_gives_nothing_away_for_one_liveness() -> None:
    stage = Stage(starting=True)
    stage.announce("s1", {"t": "x"})
    assert stage.put("t") == "-> s1", "what has a live holder is served at once"
    for ask in (stage.put, stage.subscribe, stage.get):
        assert ask("new") == "unavailable proxy_starting"
    stage.sleep(2.9, "s1")
    assert stage.put("new") == "unavailable proxy_starting"
    stage.sleep(0.1, "s1")
    assert stage.put("new") == "-> s1"


def test_the_start_up_wait_is_a_setting() -> None:
    stage = Stage(startup_wait_seconds=10.0)
    stage.announce("s1")
    stage.sleep(9.5, "s1")
    assert stage.put("new") == "unavailable proxy_starting"
    stage.sleep(0.5, "s1")
    assert stage.put("new") == "-> s1"


# Dead and returned holders


def test_a_topic_of_a_dead_server_is_unavailable_at_once_and_never_given_to_another() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.announce("s2")
    stage.sleep(3.5, "s2")
    for ask in (stage.put, stage.subscribe, stage.get):
        assert ask("t") == "unavailable server_s1_is_not_heard"
    assert "server s1 is not heard; topics that it alone holds are unavailable: 1" in stage.log()


def test_a_dead_holder_is_remembered_over_a_restart_of_the_proxy() -> None:
    stage = Stage(remembered=REMEMBERED)
    stage.announce("s2")
    assert stage.put("t") == "unavailable server_s1_is_not_heard"
    assert stage.put("u") == "-> s2"


def test_a_server_that_is_heard_again_is_served_again() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.sleep(4.0)
    stage.heartbeat("s1")
    assert stage.put("t") == "-> s1"
    stage.sleep(0.5)
    assert "server s1 is heard again" in stage.log()


def test_an_answer_that_passes_is_a_sign_of_life() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    for _ in range(4):
        stage.sleep(2.0)
        stage.from_server(b"s1", b"cC", Status("s1", Outcome.SUCCESS), 40)
        stage.said()
    assert stage.put("t") == "-> s1"


def test_a_server_that_leaves_is_dead_at_once() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    assert stage.heartbeat("s1", leaving=1) is None
    assert stage.put("t") == "unavailable server_s1_is_not_heard"


def test_a_closed_link_is_a_dead_server() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    send = Send(True, b"s1", (b"cC", b"7-40-0-" + encode(Get("a", "t", None, 1, 1))[0]))
    stage.core.undelivered(send, stage.now, gone=True)
    (said,) = stage.said()
    assert isinstance(said.message, Status)
    assert (said.link, said.destination, said.message.outcome) == (b"C", 40, Outcome.UNAVAILABLE)
    assert stage.put("t") == "unavailable server_s1_is_not_heard"


def test_a_full_queue_is_busy_and_the_server_stays_alive() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    send = Send(True, b"s1", (b"cC", b"7-40-0-" + encode(Get("a", "t", None, 1, 1))[0]))
    stage.core.undelivered(send, stage.now, gone=False)
    (said,) = stage.said()
    assert isinstance(said.message, Status)
    assert said.message.outcome is Outcome.BUSY
    assert stage.put("t") == "-> s1"


def test_a_pause_of_the_proxy_itself_does_not_look_like_the_death_of_its_servers() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.sleep(1.0, "s1")
    stage.now += 60.0
    stage.core.tick(stage.now)
    stage.said()
    assert stage.put("t") == "-> s1"
    answer = stage.announce("s1", {}, store="other", link=b"new")
    assert answer is not None
    assert answer.outcome is Outcome.TAKEN


# Heartbeats


def test_an_idle_server_is_sent_a_heartbeat_each_interval_and_a_busy_one_none() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.announce("s2", {"u": "x"})
    beats = {b"s1": 0, b"s2": 0}
    for _ in range(10):
        for said in stage.sleep(0.5, "s1", "s2"):
            assert isinstance(said.message, Heartbeat)
            assert said.origin == b""
            beats[said.link] += 1
        stage.put("t")
    assert (beats[b"s1"], beats[b"s2"]) == (1, 5)


def test_the_deadline_is_kept_within_a_heartbeat() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.core.tick(stage.now)
    assert stage.now < stage.core.deadline <= stage.now + 1.0


def test_a_heartbeat_of_a_stranger_is_asked_who_it_is() -> None:
    stage = Stage()
    answer = stage.heartbeat("s1")
    assert answer is not None
    assert answer.outcome is Outcome.ANNOUNCE
    assert stage.heartbeat("s1", leaving=1) is None


def test_a_heartbeat_under_another_name_is_refused() -> None:
    stage = Stage()
    stage.announce("s1")
    answer = stage.heartbeat("s2", link=b"s1")
    assert answer is not None
    assert answer.outcome is Outcome.REFUSED


def test_stamps_are_passed_on_unless_they_are_far_ahead() -> None:
    stage = Stage()
    near, far = 1_700_000_100_000_000, 1_800_000_000_000_000
    answer = stage.announce("s1", stamp=near)
    assert answer is not None
    assert answer.stamp == near
    answer = stage.announce("s2", stamp=far)
    assert answer is not None
    assert answer.stamp == near
    assert "server s2 has a clock more than an hour ahead" in stage.log()


def test_a_proxy_that_stops_says_so() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.core.leave(stage.now)
    (said,) = stage.said()
    assert said.message == Heartbeat("p1", 0, 1)


# Two holders


def contested() -> Stage:
    stage = Stage()
    stage.announce("s1", {"t": "one"})
    stage.announce("s2", {"t": "two", "u": "x"})
    return stage


def test_two_holders_are_told_of_each_other_and_the_log_says_it_once() -> None:
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
    assert stage.put("t") == "unavailable server_s1_is_not_heard"


def test_a_contest_ends_when_one_holder_gives_the_topic_up() -> None:
    stage = contested()
    answer = stage.announce("s2", {"t": ""}, change=2, partial=1)
    assert answer is not None
    assert answer.body == b""
    assert stage.put("t", log=log_id("two")) == "-> s1"


# Whole


def test_whole_names_all_other_holders_dead_ones_too() -> None:
    stage = contested()
    answer = stage.whole("s1", "t", "u", "nobody's")
    assert answer.outcome is Outcome.SUCCESS
    two = f"s2.{log_id('two')}"
    assert split_topics(answer.body) == {"t": two, "u": f"s2.{log_id('x')}", "nobody's": ""}
    stage.sleep(4.0, "s1")
    assert split_topics(stage.whole("s1", "t").body) == {"t": two}


def test_whole_is_not_answered_before_the_start_up_wait_is_over() -> None:
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


def test_of_two_servers_that_were_given_a_topic_by_two_proxies_the_lower_one_gets_it() -> None:
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


def test_a_server_that_says_the_same_again_is_no_holder_any_more_of_what_was_only_said_to_be_given_to_it() -> None:
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


def test_whole_is_not_answered_while_the_table_has_no_room_for_all_topics() -> None:
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


def test_whole_is_not_answered_while_a_server_that_has_left_may_hold_what_the_table_has_no_room_for() -> None:
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


def test_a_stranger_is_not_told_what_is_whole() -> None:
    assert Stage().whole("s1", "t").outcome is Outcome.ANNOUNCE


def test_a_store_left_behind_under_the_same_id_is_another_holder() -> None:
    stage = Stage(remembered=REMEMBERED)
    stage.announce("s1", {"t": "y"}, store="other")
    assert split_topics(stage.whole("s1", "t").body) == {"t": f"s1.{log_id('x')}"}


# Reports


def test_the_report_shows_servers_topics_and_what_is_wrong() -> None:
    stage = contested()
    stage.announce("s3", {"v": "x"}, proxies="tcp://p1")
    stage.put("new")
    stage.sleep(4.0, "s1", "s2")
    shown = report(stage)
    assert (shown["proxy"], shown["starting"], shown["topics_total"]) == ("p1", False, 3)
    servers = {server["id"]: server for server in shown["servers"]}  # type: ignore[attr-defined]
    assert {name: server["alive"] for name, server in servers.items()} == {"s1": True, "s2": True, "s3": False}
    assert (servers["s1"]["topics"], servers["s1"]["store"]) == (1, log_id("s1"))
    assert (servers["s1"]["assigned"], servers["s3"]["silence_seconds"]) == (1, 4.0)
    topics = {topic["topic"]: topic for topic in shown["topics"]}  # type: ignore[attr-defined]
    assert topics["t"]["contested"]
    assert [holder["server"] for holder in topics["t"]["holders"]] == ["s1", "s2"]
    assert topics["v"]["holders"] == [{"server": "s3", "store": log_id("s3"), "log": log_id("x"), "alive": False}]
    assert topics["new"] == {"topic": "new", "holders": [], "contested": False, "assigned": "s1"}
    assert shown["warnings"] == [
        f"server s3 (store {log_id('s3')}) is not heard; topics unavailable: 1",
        "topic t has more than one holder: s1, s2",
    ]
    assert shown["counters"]["announcements"] == 3  # type: ignore[index]


def test_many_who_ask_for_reports_get_the_same_one() -> None:
    stage = Stage()
    assert report(stage)["topics_total"] == 0
    stage.announce("s1", {"t": "x"})
    assert report(stage)["topics_total"] == 0
    stage.sleep(0.5)
    assert report(stage)["topics_total"] == 1


def test_a_report_of_a_server_is_asked_of_that_server() -> None:
    stage = Stage()
    stage.announce("s1")
    assert stage.outcome(Report("ann", "s1")) == "-> s1"
    assert stage.outcome(Report("ann", "s2")) == "unknown server_s2_is_not_known"
    stage.sleep(4.0)
    assert stage.outcome(Report("ann", "s1")) == "unavailable server_s1_is_not_heard"


# Answers on their way back


def test_an_answer_goes_to_the_client_that_its_origin_names() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.core.server_message(b"s1", (b"cC", b"head", b"body"), stage.now)
    assert stage.core.outbox.take() == [Send(False, b"C", (b"head", b"body"))]


def test_answers_of_strangers_are_dropped() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.core.server_message(b"client", (b"cC", b"head"), stage.now)
    stage.heartbeat("s1", leaving=1)
    stage.core.server_message(b"s1", (b"cC", b"head"), stage.now)
    assert stage.said() == []
    assert stage.core.counters["answers_of_strangers_dropped"] == 2


def test_an_answer_whose_client_is_gone_is_counted() -> None:
    stage = Stage()
    stage.core.undelivered(Send(False, b"C", (b"head",)), stage.now, gone=True)
    assert stage.core.counters["answers_dropped"] == 1
    assert stage.said() == []


# Refused


@pytest.mark.parametrize(
    "message",
    [
        Periodic("s1", log_id("s"), 1, 1, "a", "p", 0, 0, {"t": log_id("x")}),
        Heartbeat("s1"),
        Whole("s1", {"t": ""}),
    ],
)
def test_a_client_cannot_speak_as_a_server(message: object) -> None:
    stage = Stage()
    (said,) = stage.request(message)  # type: ignore[arg-type]
    assert isinstance(said.message, Status)
    assert said.message.outcome is Outcome.REFUSED
    assert not stage.core.table.servers


def test_an_answer_from_a_client_is_not_answered() -> None:
    assert Stage().request(Status("ann", Outcome.SUCCESS)) == []


@pytest.mark.parametrize("topic", ["a b", "", "\u00e9", "x" * 81, "a\x00"])
def test_a_name_that_is_not_allowed_is_never_given_to_a_server(topic: str) -> None:
    stage = Stage()
    stage.announce("s1")
    head = f"7-40-0-SUBSCRIBE ann {topic} number=1 opening=1 !v=1\r\n\r\n".encode()
    stage.core.client_message(b"C", (head,), stage.now)
    (said,) = stage.said()
    assert isinstance(said.message, Status)
    assert said.message.outcome is Outcome.REFUSED
    assert not stage.core.table.tentative


def test_a_request_without_a_callback_gets_no_answer() -> None:
    stage = Stage()
    assert stage.request(Subscribe("ann", "t", 1, 1), source=0) == []
    assert stage.core.counters["answered_unavailable"] == 1


def test_frames_that_are_too_many_or_too_long_are_refused() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    header, _ = encode(Get("ann", "t", None, 1, 1))
    stage.core.client_message(b"C", (pack(1, 40, 0) + header, b"", b"third"), stage.now)
    long = pack(1, 40, 0) + header.replace(b" !v=1", b" x=" + b"y" * 20_000 + b" !v=1")
    assert stage.core.route(long, stage.now) is None
    stage.core.client_message(b"C", (long,), stage.now)
    outcomes = [getattr(said.message, "outcome", None) for said in stage.said()]
    assert outcomes == [Outcome.REFUSED, Outcome.REFUSED]
    stage.core.server_message(b"s1", (b"",), stage.now)
    stage.core.server_message(b"s1", (b"", b"a", b"b", b"c"), stage.now)
    assert stage.core.counters["malformed"] == 2


# The disk


def test_while_nothing_can_be_remembered_nothing_is_routed_but_heartbeats_go_on() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.put("t")
    stage.core.suspend("the_disk_of_the_proxy_is_full", stage.now)
    assert stage.put("t") == "unavailable the_disk_of_the_proxy_is_full"
    assert stage.get("new") == "unavailable the_disk_of_the_proxy_is_full"
    stage.core.server_message(b"s1", (b"cC", b"head"), stage.now)
    assert stage.said() == [], "an answer may rest on what could not be written"
    answer = stage.announce("s1", {"t": "x", "u": "y"}, change=2)
    assert answer is not None
    assert answer.outcome is Outcome.UNAVAILABLE
    assert stage.whole("s1", "t").outcome is Outcome.UNAVAILABLE
    assert stage.sleep(1.0)
    assert any("nothing is routed" in str(line) for line in report(stage)["warnings"])  # type: ignore[attr-defined]
    assert stage.core.table.changes.holders["u", log_id("s1")] == log_id("y"), "it is written later"
    stage.core.resume(stage.now)
    assert stage.put("u") == "-> s1"


def test_what_follows_from_what_could_not_be_written_is_not_sent() -> None:
    stage = Stage()
    header, body = encode(Periodic("s1", log_id("s1"), 1, 1, "tcp://s1", PROXIES, 0, 0, {"t": log_id("x")}))
    stage.core.server_message(b"s1", (b"", pack(0, 0, 0) + header, body), stage.now)
    stage.core.suspend("the_disk_of_the_proxy_is_full", stage.now)
    assert stage.said() == [], "it would take itself for one that this proxy has heard"


def test_an_announcement_that_cannot_be_written_down_is_not_confirmed_to_a_server_that_names_no_callback() -> None:
    """Servers name none; one forgets to whom it gave a topic when every proxy has confirmed to know."""
    stage = Stage()
    stage.announce("s1", {"t": "x"})
    stage.core.suspend("the_disk_of_the_proxy_is_full", stage.now)
    for name, link, outcome in (("s1", b"s1", Outcome.UNAVAILABLE), ("s2", b"s2", Outcome.UNAVAILABLE)):
        header, _ = encode(Periodic(name, log_id(name), 1, 2, f"tcp://{name}", PROXIES, 0))
        stage.core.server_message(link, (b"", pack(0, 0, 0) + header), stage.now)
        (said,) = stage.said()
        assert isinstance(said.message, Status)
        assert said.message.outcome is outcome
