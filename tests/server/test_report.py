"""The report of a server to operators."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pubsub.protocol import Get, Report, Subscribe
from pubsub.server.requests import report as report_module
from tests.server.moving import Pair, put, take
from tests.server.stage import Stage


def ask(stage: Stage) -> Any:
    stage.now += 1.0
    return json.loads(bytes(stage.ask(Report("op", "s1")).body))


def test_the_report_shows_the_held_messages_and_the_subscribers_with_backlog(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 6)
    stage.subscribe("gone", "t", 7)
    stage.unsubscribe("gone", "t", 8)
    stage.put("t", 1, [b"a", b"b", b"c"])
    stage.put("t", 4, [b"d"], sender="erin")
    stage.get("bob", "t", (log, 3), 5)
    stage.get("bob", "t", (log, 4), 5, records_max=0)
    stage.say(Get("bob", "t", (log, 4), 5, 5, wait_ms=60_000))
    stage.loop()
    facts = ask(stage)
    assert (facts["role"], facts["id"], facts["full"]) == ("server", "s1", False)
    assert facts["counters"]["records"] == 4
    topic = facts["topics"]["t"]
    assert (topic["log"], topic["records"], topic["publishers"], topic["backlog"]) == (log, 4, 2, 4)
    assert topic["bytes"] == stage.core.state.topics["t"].open.total
    age = topic["oldest_unacknowledged_seconds"]
    assert topic["subscribers"] == {
        "bob": {
            "waiting": 0,
            "oldest_unacknowledged_seconds": None,
            "polling": True,
            "acknowledged": f"{log}.4",
            "number": 5,
            "expired": 0,
        },
        "carol": {
            "waiting": 4,
            "oldest_unacknowledged_seconds": age,
            "polling": False,
            "acknowledged": f"{log}.0",
            "number": 6,
            "expired": 0,
        },
    }


def test_the_report_shows_the_live_proxies(stage: Stage) -> None:
    stage.sleep(5)
    proxies = ask(stage)["proxies"]
    assert [(proxy["address"], proxy["alive"]) for proxy in proxies] == [
        ("tcp://127.0.0.1:1", True),
        ("tcp://127.0.0.1:2", False),
    ]


def test_the_report_has_a_limit_and_counts_the_omissions(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_module, "TOPICS_MAX", 2)
    monkeypatch.setattr(report_module, "SUBSCRIBERS_MAX", 3)
    for topic in ("a", "b", "c"):
        for who in ("x", "y"):
            stage.subscribe(who, topic, 5)
    stage.put("b", 1)
    facts = ask(stage)
    assert {name: list(topic["subscribers"]) for name, topic in facts["topics"].items()} == {
        "a": ["x", "y"],
        "b": ["x"],
    }
    assert facts["topics"]["b"]["backlog"] == 1
    assert facts["left_out"] == {"topics": 1, "subscribers": 1, "ages": 0}


def test_repeated_requests_cost_one_report(stage: Stage) -> None:
    stage.put("t", 1)
    first = stage.ask(Report("op", "s1")).body
    assert stage.ask(Report("op", "s1")).body is first
    stage.now += 0.1
    assert stage.ask(Report("op", "s1")).body is not first


@pytest.mark.parametrize("later", [0, 1, 40])
def test_messages_from_before_a_subscription_do_not_count_for_it_after_a_join(tmp_path: Path, later: int) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    for number in range(40):
        assert put(pair["s2"], "carl", number + 1, number, b"early") == "success"
    pair["s1"].now += 60.0
    pair["s2"].now += 60.0
    pair["s1"].ask(Subscribe("eve", "t", 9, 9))
    pair["s2"].now += 1.0
    for number in range(40, 40 + later):
        assert put(pair["s2"], "carl", number + 1, number, b"late") == "success"
    pair.merge("s2", "s1")
    pair.turns()
    assert ask(pair["s1"])["topics"]["t"]["subscribers"]["eve"]["waiting"] == later
    assert ask(pair["s1"])["topics"]["t"]["backlog"] == later
    assert take(pair["s1"], "eve", 9) == [b"late"] * later
    pair.close()
