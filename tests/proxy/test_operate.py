"""OPERATE at a proxy: forwarded to a server, or done; and the topics that a draining server does not get."""

from __future__ import annotations

import json
from pathlib import Path

import apsw
import pytest

from pubsub.protocol import Operate, Outcome, Periodic, Report, Status, join_topics, split_topics
from pubsub.protocol.stores import Known, format_stores
from pubsub.proxy.operations import ACTIONS
from pubsub.proxy.remembered import AbandonedLog
from pubsub.proxy.report import ABANDONED_MAX
from pubsub.proxy.routes_file import FILE_NAME, RoutesStore
from tests.proxy.stage import PROXIES, Stage, log_id


def report(stage: Stage, topic: str = "") -> dict[str, object]:
    stage.now += 0.3
    (said,) = stage.request(Report("op", "-", topic))
    assert isinstance(said.message, Status)
    return dict(json.loads(bytes(said.message.body)))


def test_an_operation_is_forwarded_to_its_server() -> None:
    stage = Stage()
    stage.announce("s1")
    assert stage.outcome(Operate("op", "s1", "drain")) == "-> s1"
    assert stage.outcome(Operate("op", "s2", "drain")) == "unknown server_s2_is_not_known"
    stage.sleep(4.0)
    assert stage.outcome(Operate("op", "s1", "drain")) == "unavailable server_s1_sends_no_heartbeats"


def test_an_action_that_no_proxy_knows_is_refused() -> None:
    assert Stage().outcome(Operate("op", "-", "explode")) == "refused explode_is_no_action_of_a_proxy"


def test_a_draining_server_is_given_no_topic() -> None:
    stage = Stage()
    stage.announce("s1", draining=1)
    stage.announce("s2", {"a": "a", "b": "b"})
    assert stage.put("new") == "-> s2"
    stage.announce("s1", change=2)
    assert stage.put("another") == "-> s1"


def test_topics_of_a_draining_server_are_still_served_there() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, draining=1)
    assert stage.put("t") == "-> s1"


def test_a_topic_assigned_to_a_server_that_then_drains_goes_elsewhere() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.announce("s2", {"a": "a"})
    assert stage.put("new") == "-> s1"
    stage.announce("s1", change=2, draining=1)
    assert stage.put("new") == "-> s2"


def test_a_new_topic_waits_while_all_servers_drain() -> None:
    stage = Stage()
    stage.announce("s1", draining=1)
    assert stage.put("new") == "unavailable every_server_is_draining"


def test_a_report_of_one_topic_lists_no_other() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x", "u": "y"}, draining=1)
    shown = report(stage, "t")
    assert [topic["topic"] for topic in shown["topics"]] == ["t"]  # type: ignore[attr-defined]
    assert [server["draining"] for server in shown["servers"]] == [True]  # type: ignore[attr-defined]
    assert report(stage, "nowhere")["topics"] == []


# Giving up


def abandon(stage: Stage, topic: str = "t", server: str = "s2", log: str = "two", store: str = "") -> str:
    asked = Operate("op", "-", "abandon", topic, server, log=log_id(log), store=log_id(store or server))
    return stage.outcome(asked)


def split(**changed: object) -> Stage:
    """s1 and s2 hold t; s2 is not heard any more."""
    stage = Stage(**changed)  # type: ignore[arg-type]
    stage.announce("s1", {"t": "one"})
    stage.announce("s2", {"t": "two", "u": "x"})
    stage.sleep(4.0, "s1")
    return stage


def test_the_log_of_a_live_holder_is_not_abandoned() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "one"})
    assert abandon(stage, server="s1", log="one") == "busy server_s1_sends_heartbeats"
    assert abandon(stage, server="s2", log="one") == "busy server_s2_sends_heartbeats", (
        "its log is announced by another"
    )
    assert abandon(stage, server="s2", store="s1") == "busy server_s2_sends_heartbeats"


def test_a_log_that_a_live_server_has_lost_can_be_abandoned() -> None:
    stage = Stage()
    stage.announce("s1", {"u": "u"})
    assert abandon(stage, server="s1", log="one") == "success "
    assert stage.put("new") == "-> s1"
    assert abandon(stage, "new", server="s1", log="one") == "busy server_s1_sends_heartbeats", "it may be making it"


def test_a_proxy_that_just_started_abandons_nothing() -> None:
    assert abandon(Stage(starting=True)) == "unavailable proxy_starting"


@pytest.mark.parametrize("action", sorted(ACTIONS))
def test_an_action_without_a_required_argument_is_refused(action: str) -> None:
    values = {"topic": "t", "server": "s1", "store": log_id("s1"), "subscriber": "ann", "number": 7}
    for missing in ACTIONS[action].needs:
        named = {name: values[name] for name in ACTIONS[action].needs if name != missing}
        assert Stage().outcome(Operate("op", "-", action, **named)) == f"refused {ACTIONS[action].refusal}"


def test_an_action_for_servers_is_refused() -> None:
    assert Stage().outcome(Operate("op", "-", "drain")) == "refused drain_is_no_action_of_a_proxy"


def test_a_dead_server_that_may_have_made_a_topic_blocks_it_until_it_returns_or_is_abandoned() -> None:
    for settled in ("back", "given up"):
        stage = Stage()
        stage.announce("s1")
        stage.announce("s2", {"a": "a"})
        assert stage.put("t") == "-> s1"
        stage.sleep(4.0, "s2")
        assert stage.put("t") == "-> s2", "s1 may have made it, and its announcement been lost"
        stage.announce("s2", {"a": "a", "t": "two"}, change=2)
        assert stage.whole("s2", "t").reason == "topic_was_just_assigned"
        assert stage.whole("s2", "a").outcome is Outcome.SUCCESS
        assert report(stage)["doubts"] == [{"topic": "t", "servers": ["s1"]}]
        if settled == "back":
            stage.announce("s1", change=1, incarnation=2, link=b"new")
        else:
            assert stage.outcome(Operate("op", "-", "abandon", "t", "s1")) == "success "
        assert stage.whole("s2", "t").outcome is Outcome.SUCCESS
        assert report(stage)["doubts"] == []


def test_an_abandoned_holder_is_forgotten_and_its_other_topics_are_not() -> None:
    stage = split()
    for _ in range(2):
        assert abandon(stage) == "success "
    assert stage.put("t") == "-> s1"
    assert stage.whole("s1", "t").body == b"t="
    assert stage.put("u") == "unavailable server_s2_sends_no_heartbeats"
    assert report(stage)["abandoned"] == [{"topic": "t", "log": log_id("two"), "server": "s2", "store": log_id("s2")}]


def test_a_proxy_that_never_heard_the_holder_remembers_its_abandoned_log() -> None:
    stage = Stage()
    assert abandon(stage) == "success "
    assert stage.announce("s2", {"t": "two"}) == told(stage, {"t": log_id("two")})
    assert stage.core.table.holders("t") == ()


def told(stage: Stage, topics: dict[str, str], change: int = 1) -> Status:
    stamps = stage.core.replies._stamps
    clock, body = stamps.clock(stage.now), join_topics(topics)
    return Status("p1", Outcome.SUCCESS, change=change, stamp=stamps.last, clock=clock, body=body)


def test_every_live_server_learns_of_an_abandoned_topic_at_once() -> None:
    """Servers believe it of proxies only. Without a log it is what a topic that is on its way there waits for."""
    for log in ("two", ""):
        stage = split()
        stage.announce("s3", {"x": "other"}, change=1)
        stage.said()
        told = Operate("op", "-", "abandon", "t", "s2", "tcp://s2", log=log and log_id(log), store=log_id("s2"))
        said = [out.message for out in stage.request(told) if isinstance(out.message, Operate)]
        assert [one.target for one in said] == ["s1", "s3"]
        assert {(one.action, one.topic, one.server, one.address, one.log) for one in said} == {
            ("abandoned", "t", "s2", "tcp://s2", log and log_id(log))
        }


def test_a_returned_copy_learns_that_it_is_abandoned_and_is_no_holder() -> None:
    stage = split()
    abandon(stage)
    assert stage.announce("s2", {"t": "two", "u": "x"}) == told(stage, {"t": log_id("two")})
    assert stage.whole("s1", "t").body == b"t="
    assert [server.id for server in stage.core.table.holders("t")] == ["s1"]
    assert stage.put("u") == "-> s2"
    assert any("came back with topic t" in warning for warning in report(stage)["warnings"])  # type: ignore[attr-defined]
    assert stage.announce("s2", {"u": "x"}, change=2) == told(stage, {}, change=2)
    assert report(stage)["warnings"] == []


def test_a_restored_copy_learns_of_the_abandon_by_its_ended_log() -> None:
    stage = split()
    abandon(stage)
    ended = f"{log_id('new')},{log_id('two')}"
    known = format_stores({log_id("s1"): Known("s1", 1)})
    said = Periodic("s2", log_id("s2"), 2, 9, "tcp://s2", PROXIES, 0, 0, {"t": ended}, stores=known)
    stage.from_server(b"s2", b"", said)
    answers = [said.message for said in stage.said() if isinstance(said.message, Status)]
    assert answers == [told(stage, {"t": log_id("two")}, change=9)]
    assert [server.id for server in stage.core.table.holders("t")] == ["s1"]


def test_the_same_store_may_hold_the_topic_again_under_a_new_log() -> None:
    stage = split()
    abandon(stage)
    stage.announce("s2", {"u": "x"}, change=2)
    stage.announce("s2", {"u": "x", "t": "three"}, change=3)
    assert [server.id for server in stage.core.table.holders("t")] == ["s1", "s2"]


def test_holders_learn_of_abandoned_logs_with_each_full_announcement() -> None:
    stage = split()
    abandon(stage)
    for change in (2, 3):
        stage.from_server(
            b"s1", b"", Periodic("s1", log_id("s1"), 1, change, "tcp://s1", PROXIES, 0, 0, {"t": log_id("one")})
        )
        operations = [said.message for said in stage.said() if isinstance(said.message, Operate)]
        assert operations == [
            Operate("p1", "s1", "abandoned", "t", "s2", "tcp://s2", log=log_id("two"), store=log_id("s2"))
        ]


def test_the_remembered_log_is_abandoned_too_if_another_one_is_named() -> None:
    stage = split()
    assert abandon(stage, log="newer") == "success "
    logs = {row["log"] for row in report(stage)["abandoned"]}  # type: ignore[attr-defined]
    assert logs == {log_id("two"), log_id("newer")}


def test_a_proxy_that_forgot_an_abandoned_log_learns_of_it_from_a_server() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "one"})
    stage.announce("s2", {"t": "two", "u": "x"})
    stage.from_server(b"s1", b"", Operate("s1", "-", "abandoned", "t", "s2", log=log_id("two")))
    asked = [(said.link, said.message.outcome) for said in stage.said() if isinstance(said.message, Status)]
    assert asked == [(b"s2", Outcome.ANNOUNCE)], "what it says next is answered with the log that was given up"
    assert [server.id for server in stage.core.table.holders("t")] == ["s1"]
    assert [server.id for server in stage.core.table.holders("u")] == ["s2"]
    assert stage.announce("s2", {"t": "two", "u": "x"}) == told(stage, {"t": log_id("two")})
    assert report(stage)["abandoned"] == [{"topic": "t", "log": log_id("two"), "server": "s2", "store": log_id("s2")}]
    (row,) = stage.core.table.changes.abandoned.values()
    assert row == AbandonedLog("t", log_id("two"), "s2", log_id("s2"), "tcp://s2"), "and is written"


def test_a_servers_report_abandons_only_a_holder_with_that_log() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "one"})
    stage.announce("s2", {"t": "two"})
    word = Operate("s1", "-", "abandoned", "t", "s2", log=log_id("older"), store=log_id("s2"))
    stage.from_server(b"s1", b"", word)
    stage.from_server(b"s9", b"", Operate("s9", "-", "abandoned", "t", "s2", log=log_id("two")))
    stage.from_server(b"s1", b"", Operate("s9", "-", "abandoned", "t", "s2", log=log_id("two")))
    stage.from_server(b"s1", b"", Operate("s1", "-", "abandoned"))
    assert stage.said() == []
    assert [server.id for server in stage.core.table.holders("t")] == ["s1", "s2"]
    assert report(stage)["abandoned"] == []


def test_a_reader_of_a_topic_without_a_holder_is_sent_to_a_server_that_explains() -> None:
    stage = Stage()
    stage.announce("s1")
    assert stage.get("t") == "unknown no_server_holds_this_topic"
    assert not stage.core.table.assignments.tentative, "who has not makes no topic by asking"
    assert stage.get("t", log=log_id("two")) == "-> s1"


def test_an_abandoned_log_is_remembered_over_a_restart(tmp_path: Path) -> None:
    stage = split()
    abandon(stage)
    store = RoutesStore(tmp_path)
    store.write(stage.core.table.changes)
    store.close()
    store = RoutesStore(tmp_path)
    again = Stage(remembered=store.load())
    store.close()
    assert again.announce("s2", {"t": "two"}, incarnation=2, change=2) == told(again, {"t": log_id("two")}, change=2)
    assert [server.id for server in again.core.table.holders("t")] == ["s1"]


def test_a_routes_file_of_the_first_format_is_taken_over(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    store.write(split().core.table.changes)
    before = store.load()
    store.close()
    db = apsw.Connection(str(tmp_path / FILE_NAME))
    db.execute("drop table dead")
    db.execute("drop table gone")
    db.execute("drop table registers")
    db.execute("drop table identity")
    db.execute("alter table stores drop column heard")
    db.execute("alter table holders drop column given")
    db.pragma("user_version", 1)
    db.close()
    store = RoutesStore(tmp_path)
    assert store.load() == before
    store.close()


def test_a_server_that_held_too_many_topics_can_be_forgotten() -> None:
    stage = Stage(topics_max=1)
    stage.announce("s1", {"a": "one"})
    stage.announce("s2", {"b": "two", "c": "three"})
    stage.heartbeat("s2", leaving=1)
    assert stage.whole("s1", "a").reason == "topics_max_is_reached"
    assert stage.outcome(Operate("op", "-", "forget", server="s2", store=log_id("s2"))) == "success "
    assert stage.whole("s1", "a").outcome is Outcome.SUCCESS


def test_a_report_of_one_topic_shows_its_doubt_among_any_number_of_doubts() -> None:
    stage = Stage()
    stage.announce("s1")
    topics = [f"t{k}" for k in range(ABANDONED_MAX + 1)]
    for _ in range(2):
        for topic in topics:
            stage.put(topic)
        stage.heartbeat("s1", leaving=1)
        stage.announce("s2")
    assert report(stage, topics[-1])["doubts"] == [{"topic": topics[-1], "servers": ["s1"]}]
    assert len(report(stage)["doubts"]) == ABANDONED_MAX  # type: ignore[arg-type]


def test_a_server_that_may_hold_any_topic_causes_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.proxy.assignments.TENTATIVE_MAX", 1)
    stage = Stage()
    stage.announce("s1")
    for _ in range(2):
        for topic in ("t", "u"):
            stage.put(topic)
        stage.heartbeat("s1", leaving=1)
        stage.announce("s2")
    warning = f"server s1 (store {log_id('s1')}) may hold topics that it has not announced"
    assert any(line.startswith(warning) for line in report(stage)["warnings"])  # type: ignore[attr-defined]


# Stale stores


def test_a_server_on_an_older_copy_causes_a_warning_until_it_is_accepted() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, change=9)
    stage.heartbeat("s1", leaving=1)
    stage.announce("s1", {"t": "x"}, incarnation=2, change=3, link=b"new")
    warning = f"server s1 runs on an older copy of its store {log_id('s1')}"
    assert warning in report(stage)["warnings"]  # type: ignore[operator]
    stage.sleep(1.0)
    stage.announce("s1", {"t": "x"}, incarnation=3, change=10, link=b"newer")
    stage.sleep(1.0)
    assert warning not in report(stage)["warnings"]  # type: ignore[operator]


def test_a_forgotten_server_on_an_older_copy_causes_no_warning() -> None:
    stage = Stage()
    stage.announce("s1", change=9)
    stage.heartbeat("s1", leaving=1)
    stage.announce("s1", incarnation=2, change=3, link=b"new")
    assert report(stage)["warnings"] == [f"server s1 runs on an older copy of its store {log_id('s1')}"]
    assert stage.outcome(Operate("op", "-", "forget", server="s1", store=log_id("s1"))) == "success "
    assert report(stage)["warnings"] == []


def test_a_request_avoids_the_named_log_even_if_it_names_that_log_itself() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "one"})
    stage.announce("s2", {"t": "two"})
    assert stage.put("t", log=log_id("one"), avoid=log_id("one")) == "-> s2"


def test_a_topic_given_to_a_returned_server_is_known_by_the_givers_report() -> None:
    stage = split()
    assert abandon(stage) == "success "
    word = {"t": f"s2.{log_id('one')},{log_id('s2')},9"}
    stage.announce("s2", {"u": "two"}, change=8)  # It has set the topic aside.
    stage.from_server(b"s1", b"", Periodic("s1", log_id("s1"), 1, 5, "tcp://s1", PROXIES, 0, topics=word))
    stage.said()
    assert split_topics(stage.whole("s1", "t").body) == {"t": f"s2.{log_id('one')}"}
    stage.announce("s2", {"u": "two", "t": "new"}, change=9)
    assert split_topics(stage.whole("s1", "t").body) == {"t": f"s2.{log_id('new')}"}
