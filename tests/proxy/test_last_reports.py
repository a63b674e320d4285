"""A proxy keeps each server's last report for the time when that server is gone."""

from __future__ import annotations

import json
from typing import Any

from pubsub.protocol import Outcome, Report, Status
from pubsub.proxy import last_reports
from pubsub.proxy.last_reports import CALLBACK
from tests.proxy.stage import Said, Stage


def asked(said: list[Said]) -> list[bytes]:
    return [one.link for one in said if one.to_server and isinstance(one.message, Report)]


def told(records: int, **more: Any) -> bytes:
    held = {
        "records": records,
        "bytes": 9,
        "backlog": 2,
        "oldest_unacknowledged_seconds": 4.5,
        "subscribers": {"a": {}},
    }
    return json.dumps({"topics": {"orders": held}, **more}).encode()


def answer(stage: Stage, server: str, body: bytes, callback: int = CALLBACK) -> None:
    stage.from_server(server.encode(), b"", Status(server, Outcome.SUCCESS, body=body), callback)
    stage.said()


def stage() -> Stage:
    made = Stage()
    made.core.servers.last_reports.asks = True
    made.announce("s1", {"orders": "x"})
    made.said()
    return made


def row(stage: Stage) -> dict[str, Any]:
    """What the proxy's report says of s1; reports are made at most four times a second."""
    stage.now += 0.3
    (said,) = [one for one in stage.request(Report("ann", "-")) if not one.to_server]
    assert isinstance(said.message, Status)
    (found,) = json.loads(bytes(said.message.body))["servers"]
    return dict(found)


def test_a_proxy_asks_its_servers_rarely_and_at_once_for_a_report() -> None:
    one = stage()
    assert len(asked(one.sleep(35.0, "s1"))) == 3
    one.now += last_reports.FRESH_SECONDS
    assert asked(one.request(Report("ann", "-"))) == [b"s1"]
    assert asked(one.request(Report("ann", "-"))) == [], "the report is fresh"


def test_a_server_with_many_topics_is_asked_less_often() -> None:
    one = stage()
    one.announce("s1", {f"t{number}": "x" for number in range(2_000)}, change=2)
    assert len(asked(one.sleep(35.0, "s1"))) == 1


def test_a_gone_server_is_shown_with_its_last_figures_and_since_when() -> None:
    one = stage()
    answer(one, "s1", told(3))
    assert (row(one)["alive"], row(one)["gone_seconds"], row(one)["last_report"]) == (True, None, None)
    one.sleep(10.0)
    found = row(one)
    assert found["alive"] is False
    assert 9.0 < found["gone_seconds"] < 12.0
    assert found["last_report"]["topics"] == {
        "orders": {"records": 3, "bytes": 9, "backlog": 2, "oldest_unacknowledged_seconds": 4.5, "subscribers": 1}
    }
    assert 10.0 < found["last_report"]["seconds_ago"] < 12.0
    one.heartbeat("s1")
    assert row(one)["last_report"] is None


def test_a_closed_connection_is_a_server_that_is_gone_at_once_also_in_a_report_just_made() -> None:
    one = stage()
    assert row(one)["alive"]
    (sent,) = [send for send in _forwarded(one) if send.to_server]
    one.core.undelivered(sent, one.now, gone=True)
    one.said()
    (said,) = [other for other in one.request(Report("ann", "-")) if not other.to_server]
    assert isinstance(said.message, Status)
    (found,) = json.loads(bytes(said.message.body))["servers"]
    assert (found["alive"], found["gone_seconds"]) == (False, 0.0)


def _forwarded(stage: Stage) -> list[Any]:
    from pubsub.messenger.framing import pack
    from pubsub.protocol import encode

    stage.core.client_message(b"C", (pack(7, 40, 0) + encode(Report("ann", "s1"))[0],), stage.now)
    return stage.core.replies.take()


def test_a_server_not_heard_since_the_start_is_gone_since_the_start() -> None:
    from tests.proxy.stage import REMEMBERED

    one = Stage(remembered=REMEMBERED)
    one.sleep(5.0)
    assert 5.0 <= row(one)["gone_seconds"] < 6.0


def test_a_too_long_or_invalid_report_gives_no_figures() -> None:
    one = stage()
    answer(one, "s1", b"x" * (last_reports.BYTES_MAX + 1))
    one.sleep(10.0)
    assert row(one)["last_report"] is None
    two = stage()
    answer(two, "s1", b"[]")
    two.sleep(10.0)
    assert row(two)["last_report"]["topics"] == {}


def test_reports_together_have_a_bound_too(monkeypatch: Any) -> None:
    monkeypatch.setattr(last_reports, "TOTAL_BYTES_MAX", len(told(3)) + 10)
    one = stage()
    one.announce("s2", {})
    answer(one, "s1", told(3))
    answer(one, "s2", told(4))
    one.sleep(10.0)
    one.now += 0.3
    (said,) = [other for other in one.request(Report("ann", "-")) if not other.to_server]
    assert isinstance(said.message, Status)
    assert [bool(other["last_report"]) for other in json.loads(bytes(said.message.body))["servers"]] == [True, False]


def test_an_answer_to_a_report_is_not_mistaken_for_a_mark() -> None:
    one = stage()
    (server,) = one.core.table.servers.values()
    server.in_flight.add(b"C", 5 * 1024 * 1024)
    server.in_flight.mark()
    answer(one, "s1", told(3))
    assert server.in_flight.taken == 0
