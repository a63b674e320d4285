"""Rows of a report."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.monitoring.rates import Rate, Rates
from pubsub.monitoring.rows import on_the_way, proxy_row, server_row, topic_rows


def server(name: str, **changed: Any) -> dict[str, Any]:
    report = {
        "address": f"tcp://127.0.0.1:{name[1:]}",
        "full": False,
        "stale": "",
        "draining": False,
        "topics": {},
        "left_out": {"topics": 0},
        "disk": {"store": 3, "log": 4},
        "uptime_seconds": 9.0,
    }
    return {"id": name, "answered": True, "reason": "", "report": report | changed}


def test_the_row_of_a_server_has_its_figures() -> None:
    row = server_row(server("s1", topics={"t": {"records": 3}}, left_out={"topics": 2}), Rate(1.25, 2.0))
    assert (row["topics"], row["records"], row["puts"], row["disk"]) == (3, 3, 1.2, {"store": 3, "log": 4})


@pytest.mark.parametrize(
    ("changed", "state"),
    [({}, "up"), ({"draining": True}, "draining"), ({"full": True}, "disk full"), ({"stale": "x"}, "stale copy")],
)
def test_a_server_s_state_is_in_words(changed: dict[str, Any], state: str) -> None:
    assert server_row(server("s1", **changed), None)["state"] == state


def test_the_row_of_a_silent_process_has_the_reason() -> None:
    silent = {"answered": False, "reason": "no answer within 2 s", "report": None}
    assert server_row({"id": "s1", **silent}, None)["state"] == "no answer within 2 s"
    assert proxy_row({"address": "tcp://a:1", **silent})["up"] is False


def test_the_row_of_a_proxy_counts_its_connections() -> None:
    report = {
        "proxy": "p1", "starting": False, "topics_total": 4, "uptime_seconds": 1.0,
        "servers": [{"id": "s1", "alive": True}, {"id": "s2", "alive": False}],
        "counters": {"connections_established": 5, "connections_ended": 2},
    }  # fmt: skip
    row = proxy_row({"address": "tcp://a:1", "answered": True, "reason": "", "report": report})
    assert (row["id"], row["state"], row["servers"], row["connections"]) == ("p1", "up", ["s1"], 3)


def test_topics_are_sorted_by_name_or_the_largest_first() -> None:
    rates = Rates()
    rates.topics = {"b": Rate(5.0, 0.0)}
    topics = [{"topic": name, "backlog": backlog} for name, backlog in (("a", 1), ("b", 0), ("c", 7))]
    names = {sort: [row["topic"] for row in topic_rows(topics, rates, sort)] for sort in ("topic", "backlog", "puts")}
    assert names == {"topic": ["a", "b", "c"], "backlog": ["c", "a", "b"], "puts": ["b", "a", "c"]}


def move(server: str, topic: str, direction: str, other: str, **more: Any) -> dict[str, Any]:
    facts = {"state": "sending" if direction == "giving" else "receiving", "chunks": 0, "tries": 0}
    return {"server": server, "topic": topic, "direction": direction, "other": other} | facts | more


def test_a_row_shows_memory_and_disk_or_null() -> None:
    process = {"memory_bytes": 5, "disk_size_bytes": 9, "disk_free_bytes": 7, "disk_used_bytes": 2}
    row = server_row(server("s1", process=process), None)
    assert (row["memory_bytes"], row["disk_size_bytes"], row["disk_free_bytes"]) == (5, 9, 7)
    assert server_row(server("s1"), None)["memory_bytes"] is None
    silent = {"answered": False, "reason": "no answer within 2 s", "report": None}
    assert proxy_row({"address": "tcp://a:1", **silent})["disk_free_bytes"] is None


def test_a_move_names_giver_and_receiver_and_its_progress() -> None:
    moves = [
        move("s1", "m", "giving", "tcp://127.0.0.1:2", chunks=3, tries=1),
        move("s1", "n", "giving", "s3", state="offered"),
        move("s2", "m", "receiving", "s1", chunks=2),
        move("s2", "o", "receiving", "s9"),
    ]
    found = on_the_way({"moves": moves, "servers": [server("s1"), server("s2")], "proxies": []})
    names = ("topic", "kind", "servers", "state", "chunks", "tries", "frozen")
    assert [tuple(row[name] for name in names) for row in found] == [
        ("m", "move", ["s1", "s2"], "in transfer", 3, 1, True),
        ("n", "move", ["s1", "s3"], "offered", 0, 0, False),
        ("o", "move", ["s9", "s2"], "in transfer", 0, 0, True),
    ]


def test_a_merge_names_all_holders_before_and_after_its_transfer_begins() -> None:
    contested = [
        {"topic": name, "contested": True, "holders": [{"server": "s2"}, {"server": "s1"}]} for name in ("m", "x")
    ]
    proxies = [
        {"report": {"topics": [*contested, {"topic": "y", "contested": False, "holders": []}]}},
        {"report": None},
    ]
    found = on_the_way({"moves": [move("s1", "m", "giving", "s2", chunks=4)], "servers": [], "proxies": proxies})
    assert [(row["topic"], row["kind"], row["servers"], row["state"], row["chunks"]) for row in found] == [
        ("m", "merge", ["s1", "s2"], "in transfer", 4),
        ("x", "merge", ["s1", "s2"], "queued", 0),
    ]
