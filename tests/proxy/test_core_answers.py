"""The proxy's reports, answers and refusals, also without a disk, as its peers see them."""

from __future__ import annotations

import pytest

from pubsub.messenger.framing import pack
from pubsub.protocol import (
    Get,
    Heartbeat,
    Outcome,
    Owners,
    Periodic,
    Report,
    Status,
    Subscribe,
    encode,
)
from pubsub.proxy.replies import Send
from tests.proxy.stage import PROXIES, Stage, contested, log_id, report

# Reports


def test_the_report_shows_servers_topics_and_problems() -> None:
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
    assert [(one["announced"], one["heard"]) for one in servers.values()] == [(True, True)] * 3
    topics = {topic["topic"]: topic for topic in shown["topics"]}  # type: ignore[attr-defined]
    assert topics["t"]["contested"]
    assert [holder["server"] for holder in topics["t"]["holders"]] == ["s1", "s2"]
    assert topics["v"]["holders"] == [{"server": "s3", "store": log_id("s3"), "log": log_id("x"), "alive": False}]
    assert topics["new"] == {"topic": "new", "holders": [], "contested": False, "assigned": "s1"}
    assert shown["warnings"] == [
        f"no heartbeat from server s3 (store {log_id('s3')}); topics unavailable: 1",
        "topic t has more than one holder: s1, s2",
    ]
    assert shown["counters"]["announcements"] == 3  # type: ignore[index]


def test_many_requests_for_a_report_get_the_same_one() -> None:
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
    assert stage.outcome(Report("ann", "s1")) == "unavailable server_s1_sends_no_heartbeats"


# Answers on their way back


def test_an_answer_goes_to_the_client_of_its_origin() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.core.server_message(b"s1", (b"cC", b"head", b"body"), stage.now)
    assert stage.core.replies.take() == [Send(False, b"C", (b"head", b"body"))]


def test_answers_of_strangers_are_dropped() -> None:
    stage = Stage()
    stage.announce("s1")
    stage.core.server_message(b"client", (b"cC", b"head"), stage.now)
    stage.heartbeat("s1", leaving=1)
    stage.core.server_message(b"s1", (b"cC", b"head"), stage.now)
    assert stage.said() == []
    assert stage.core.counters["answers_of_strangers_dropped"] == 2


def test_an_answer_to_a_gone_client_is_counted() -> None:
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
        Owners("s1", {"t": ""}),
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
    assert not stage.core.table.assignments.tentative


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


def test_a_suspended_proxy_routes_nothing_but_keeps_sending_heartbeats() -> None:
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
    assert any("no request is forwarded" in str(line) for line in report(stage)["warnings"])  # type: ignore[attr-defined]
    assert stage.core.table.changes.holders["u", log_id("s1")] == log_id("y"), "it is written later"
    stage.core.resume(stage.now)
    assert stage.put("u") == "-> s1"


def test_an_answer_that_depends_on_an_unwritten_change_is_not_sent() -> None:
    stage = Stage()
    header, body = encode(Periodic("s1", log_id("s1"), 1, 1, "tcp://s1", PROXIES, 0, 0, {"t": log_id("x")}))
    stage.core.server_message(b"s1", (b"", pack(0, 0, 0) + header, body), stage.now)
    stage.core.suspend("the_disk_of_the_proxy_is_full", stage.now)
    assert stage.said() == [], "it would take itself for one that this proxy has heard"


def test_an_unwritten_announcement_is_not_confirmed_to_a_server_without_a_callback() -> None:
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


def test_a_full_table_is_not_reported_before_that_fact_is_written() -> None:
    """A server takes it for a promise: that the proxy calls nothing whole, after a start too."""
    stage = Stage(topics_max=1)
    stage.core.suspend("the_disk_of_the_proxy_is_full", stage.now)
    answer = stage.announce("s1", {"t": "x", "u": "y"})
    assert answer is not None
    assert answer.outcome is Outcome.UNAVAILABLE
    stage.core.resume(stage.now)
    again = stage.announce("s1", {"t": "x", "u": "y"}, change=2)
    assert again is not None
    assert again.outcome is Outcome.FULL
