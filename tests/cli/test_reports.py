from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from pubsub import console
from pubsub.cli.reports import gather, picture
from pubsub.cli.status import _held_back, _kept, _proxies, _servers, _subscribers, _topics
from pubsub.client.requests import NoAnswer
from pubsub.config.settings import ClientSettings
from pubsub.errors import Unavailable
from pubsub.messenger import Messenger, Request
from pubsub.monitoring import held_back as module
from pubsub.protocol import Outcome, Report, Status, decode, encode


def proxy_report(name: str, **servers: bool) -> dict[str, Any]:
    return {
        "proxy": name,
        "starting": False,
        "startup_seconds_left": 0.0,
        "topics_total": 1,
        "servers": [{"id": server, "alive": alive} for server, alive in servers.items()],
        "topics": [
            {"topic": "a", "contested": False, "holders": [{"server": server, "alive": True} for server in servers]}
        ],
        "warnings": [],
    }


def server_report(waiting: dict[str, int], others: tuple[str, ...] = (), full: bool = False) -> dict[str, Any]:
    return {
        "role": "server",
        "address": "tcp://127.0.0.1:1",
        "full": full,
        "disk": {"database": 2048},
        "topics": {
            "a": {
                "records": 10,
                "bytes": 100,
                "others": list(others),
                "subscribers": {name: {"waiting": count, "polling": False} for name, count in waiting.items()},
            }
        },
    }


def test_a_topic_of_one_server_is_complete_and_names_its_slowest_subscriber() -> None:
    found = picture({"tcp://h:1": proxy_report("p1", s1=True)}, {"s1": server_report({"fast": 0, "slow": 7})})
    (topic,) = found["topics"]
    assert (topic["owners"], topic["sole_owner"], topic["backlog"], topic["held_by"]) == (["s1"], True, 7, "slow")
    assert found["warnings"] == []


KEPT = {
    "keep": "7d", "drop": "never", "settings_conflict": False, "keep_seconds": 604_800.0, "kept_bytes": 2048,
    "oldest_stored_seconds": 90.0, "not_let_go": "", "superseded_seconds": 90_000.0,
}  # fmt: skip


def with_settings(**changed: Any) -> dict[str, Any]:
    found = server_report({"bob": 1})
    found["topics"]["a"] |= KEPT | changed
    return found


def test_settings_of_a_topic_are_those_of_its_server_and_null_from_an_earlier_release() -> None:
    proxies: dict[str, Any] = {"x": proxy_report("p1", s1=True)}
    (topic,) = picture(proxies, {"s1": with_settings()})["topics"]
    assert {name: topic[name] for name in KEPT} == KEPT
    (topic,) = picture(proxies, {"s1": server_report({"bob": 1})})["topics"]
    assert {topic[name] for name in KEPT} == {None}


def test_settings_of_two_holders_are_both_shown_and_their_figures_added() -> None:
    other = {"keep": "1d", "settings_conflict": True, "oldest_stored_seconds": None, "not_let_go": "not sole owner"}
    servers: dict[str, Any] = {"s1": with_settings(), "s2": with_settings(**other), "s3": server_report({})}
    (topic,) = picture({"x": proxy_report("p1", s1=True, s2=True, s3=True)}, servers)["topics"]
    assert {name: topic[name] for name in KEPT} == KEPT | {
        "keep": "7d or 1d", "settings_conflict": True, "kept_bytes": 4096, "not_let_go": "not sole owner",
    }  # fmt: skip


def test_settings_of_a_topic_of_a_silent_server_are_unknown() -> None:
    proxies: dict[str, Any] = {"x": proxy_report("p1", s1=True, s2=True)}
    (topic,) = picture(proxies, {"s1": with_settings(), "s2": NoAnswer("silent")})["topics"]
    assert {topic[name] for name in KEPT} == {None}


def test_the_status_lists_topics_with_settings(capsys: pytest.CaptureFixture[str]) -> None:
    found = picture({"x": proxy_report("p1", s1=True)}, {"s1": with_settings(not_let_go="subscriber bob")})
    console.print_table(_kept(found["topics"]))
    shown = capsys.readouterr().out
    for text in ("7d", "never", "2.0 KiB", "1 min 30 s", "subscriber bob"):
        assert text in shown


def test_an_empty_backlog_is_held_by_no_subscriber() -> None:
    (topic,) = picture({"x": proxy_report("p1", s1=True)}, {"s1": server_report({"fast": 0})})["topics"]
    assert (topic["backlog"], topic["held_by"]) == (0, None)


def test_a_topic_of_two_servers_is_incomplete_and_counts_both() -> None:
    reports = {"s1": server_report({"c": 1}, ("s2",)), "s2": server_report({"c": 2}, ("s1",))}
    (topic,) = picture({"x": proxy_report("p1", s1=True, s2=True)}, reports)["topics"]
    assert (topic["owners"], topic["sole_owner"], topic["records"], topic["backlog"]) == (["s1", "s2"], False, 20, 3)


def test_a_renamed_field_keeps_its_old_name_beside_the_new_one() -> None:
    proxy = proxy_report("p1", s1=True, s2=False)
    proxy["servers"][1] |= {"gone_seconds": 4.0}
    found = picture({"x": proxy}, {"s1": server_report({"c": 1})})
    assert [(topic["sole_owner"], topic["whole"]) for topic in found["topics"]] == [(False, False)]
    silent = {server["id"]: (server["silent_seconds"], server["unheard_seconds"]) for server in found["servers"]}
    assert silent == {"s1": (None, None), "s2": (4.0, 4.0)}
    alone = picture({"x": proxy_report("p1", s1=True)}, {"s1": server_report({"c": 1})})
    assert [(topic["sole_owner"], topic["whole"]) for topic in alone["topics"]] == [(True, True)]


def test_a_silent_process_is_shown_with_a_warning() -> None:
    found = picture({"x": proxy_report("p1", s1=False), "y": NoAnswer("no answer within 2 s")}, {})
    assert [proxy["answered"] for proxy in found["proxies"]] == [True, False]
    (server,) = found["servers"]
    assert (server["id"], server["alive"], server["answered"]) == ("s1", False, False)
    assert "proxy y: no answer within 2 s" in found["warnings"]


def test_a_full_disk_is_warned_of() -> None:
    found = picture({"x": proxy_report("p1", s1=True)}, {"s1": server_report({}, full=True)})
    assert found["warnings"] == ["server s1: its disk is full"]


def keyed(report: dict[str, Any], digest: str, **counters: int) -> dict[str, Any]:
    return report | {"authorized_digest": digest, "authorized_lines": 4, "counters": counters}


def test_topics_that_are_held_back_are_listed_with_server_and_reason(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, held = server_report({}), server_report({})
    topic = held["topics"].pop("a")
    held["topics"] = {name: topic | {"quarantined": f"page_{name}_is_damaged"} for name in ("c", "b", "d")}
    found = picture({"x": proxy_report("p1", s1=True, s2=True)}, {"s2": held, "s1": served, "s3": NoAnswer("none")})
    assert found["held_back"] == [
        {"topic": name, "server": "s2", "reason": f"page_{name}_is_damaged"} for name in ("b", "c", "d")
    ]
    assert found["held_back_left_out"] == 0
    monkeypatch.setattr(module, "HELD_BACK_MAX", 1)
    few = picture({"x": proxy_report("p1", s2=True)}, {"s2": held})
    assert ([row["topic"] for row in few["held_back"]], few["held_back_left_out"]) == (["b"], 2)
    console.print_table(_held_back(few))
    shown = capsys.readouterr().out
    assert "page b is damaged" in shown
    assert "2 more" in shown
    old = picture({"x": proxy_report("p1", s1=True)}, {"s1": served | {"stale": "an older copy"}})
    assert old["held_back"] == [{"topic": "a", "server": "s1", "reason": "an older copy"}]


def test_a_disk_that_is_nearly_full_is_an_alarm_and_no_warning() -> None:
    report = server_report({}) | {"process": {"disk_size_bytes": 1 << 40, "disk_free_bytes": 1 << 30}}
    found = picture({"tcp://h:1": proxy_report("p1", s1=True)}, {"s1": report})
    assert found["warnings"] == []
    assert found["alarms"] == ["server s1: 0.1% of its disk is free, 1,024 MiB; free space or enlarge the disk"]


def test_the_picture_counts_connections_and_denials_by_key() -> None:
    counters = {"handshakes_entered": 9, "handshakes_refused_key": 2, "handshakes_failed": 1, "denied": 5}
    found = picture({"x": keyed(proxy_report("p1", s1=True), "aa", **counters)}, {"s1": keyed(server_report({}), "aa")})
    assert found["keys"] == [
        {"role": "proxy", "id": "p1", "authorized": "aa", "lines": 4, "entered": 9, "refused": 3, "denied": 5},
        {"role": "server", "id": "s1", "authorized": "aa", "lines": 4, "entered": 0, "refused": 0, "denied": 0},
    ]
    assert found["warnings"] == []


def test_a_warning_names_the_processes_with_differing_access_lists() -> None:
    proxies: dict[str, Any] = {
        name: keyed(proxy_report(name, s1=True), digest) for name, digest in (("p1", "aa"), ("p2", "bb"))
    }
    found = picture(proxies, {"s1": keyed(server_report({}), "aa")})
    (warning,) = found["warnings"]
    assert warning.endswith("copy the same file to all processes: aa: proxy p1, server s1; bb: proxy p2")


def test_an_open_proxy_and_unusable_files_cause_warnings() -> None:
    open_to_all = proxy_report("p1", s1=True) | {"insecure": "tcp://0.0.0.0:5601"}
    broken = server_report({}) | {"problems": ["authorized file /a, line 3: it is not UTF-8"]}
    found = picture({"x": open_to_all}, {"s1": broken})
    assert found["keys"] == []
    assert found["warnings"] == [
        "proxy p1 accepts connections without a key at tcp://0.0.0.0:5601 (--insecure)",
        "server s1: authorized file /a, line 3: it is not UTF-8",
    ]


def test_the_tables_show_the_picture_to_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    proxy = proxy_report("p1", s1=True, s2=False)
    proxy["topics"][0]["holders"].pop()
    found = picture({"tcp://h:1": proxy, "tcp://h:2": NoAnswer("no answer")}, {"s1": server_report({"slow": 1234})})
    console.print_table(_proxies(found), _servers(found), _topics(found), _subscribers(found))
    shown = capsys.readouterr().out
    for text in ("tcp://h:1", "1 of 2", "no answer", "no heartbeat", "2.0 KiB", "1,234", "slow", "not asking"):
        assert text in shown


@pytest.fixture
def answering() -> Iterator[str]:
    """A stand-in for a proxy: it answers for itself and for s1, and says that it cannot for others."""

    def serve(request: Request) -> None:
        question = decode(request.contents, request.frames[0] if request.frames else None)
        assert isinstance(question, Report)
        reports = {"-": proxy_report("p1", s1=True, s3=True), "s1": server_report({})}
        if question.target in reports:
            body = json.dumps(reports[question.target]).encode()
            header, body = encode(Status("p1", Outcome.SUCCESS, body=body))
            request.reply((header, body))
        else:
            request.reply(encode(Status("p1", Outcome.UNAVAILABLE, reason="server_s3_sends_no_heartbeats"))[0])

    with Messenger() as messenger:
        yield messenger.listen("tcp://127.0.0.1:0", serve, idempotent=True)


def test_proxies_are_asked_and_servers_through_them(answering: str) -> None:
    found = gather(ClientSettings(proxies=(answering, "tcp://127.0.0.1:9")), 1.0)
    assert [proxy["answered"] for proxy in found["proxies"]] == [True, False]
    assert {server["id"]: server["answered"] for server in found["servers"]} == {"s1": True, "s3": False}
    assert "server s3: server s3 sends no heartbeats" in found["warnings"]


def test_the_picture_needs_a_proxy() -> None:
    started = time.monotonic()
    with pytest.raises(Unavailable, match=r"tcp://127\.0\.0\.1:9: Connection refused"):
        gather(ClientSettings(proxies=("tcp://127.0.0.1:9",)), 0.2)
    assert time.monotonic() - started < 10
