"""OPERATE at a proxy: passed on to a server, or done; and what a draining server is spared."""

from __future__ import annotations

import json

from pubsub.protocol import Operate, Report, Status
from tests.proxy.stage import Stage


def report(stage: Stage, topic: str = "") -> dict[str, object]:
    (said,) = stage.request(Report("op", "-", topic))
    assert isinstance(said.message, Status)
    return dict(json.loads(bytes(said.message.body)))


def test_an_operation_is_passed_on_to_its_server() -> None:
    stage = Stage()
    stage.announce("s1")
    assert stage.outcome(Operate("op", "s1", "drain")) == "-> s1"
    assert stage.outcome(Operate("op", "s2", "drain")) == "unknown server_s2_is_not_known"
    stage.sleep(4.0)
    assert stage.outcome(Operate("op", "s1", "drain")) == "unavailable server_s1_is_not_heard"


def test_an_action_that_no_proxy_knows_is_refused() -> None:
    assert Stage().outcome(Operate("op", "-", "explode")) == "refused explode_is_no_action_of_a_proxy"


def test_a_draining_server_is_given_no_topic() -> None:
    stage = Stage()
    stage.announce("s1", draining=1)
    stage.announce("s2", {"a": "a", "b": "b"})
    assert stage.put("new") == "-> s2"
    stage.announce("s1", change=2)
    assert stage.put("another") == "-> s1"


def test_what_a_draining_server_holds_is_still_served_there() -> None:
    stage = Stage()
    stage.announce("s1", {"t": "x"}, draining=1)
    assert stage.put("t") == "-> s1"


def test_a_topic_that_was_given_to_a_server_which_drains_before_it_made_it_goes_elsewhere() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.announce("s2", {"a": "a"})
    assert stage.put("new") == "-> s1"
    stage.announce("s1", change=2, draining=1)
    assert stage.put("new") == "-> s2"


def test_where_all_servers_drain_a_new_topic_waits() -> None:
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
