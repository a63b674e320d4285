"""The report: the age of the oldest unacknowledged message of a subscriber, and topics on their way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw
import pytest

from pubsub.protocol import Report
from pubsub.server.requests import waiting as waiting_module
from tests.server.moving import ADDRESS, Pair, put
from tests.server.stage import Stage


def ask(stage: Stage) -> Any:
    stage.now += 1.0
    return json.loads(bytes(stage.ask(Report("op", "s1")).body))


def age(stage: Stage, who: str = "bob", topic: str = "t") -> float | None:
    found = ask(stage)["topics"][topic]["subscribers"][who]["oldest_unacknowledged_seconds"]
    assert found is None or isinstance(found, float | int)
    return found


def test_an_empty_backlog_has_no_age(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    assert age(stage) is None
    assert ask(stage)["topics"]["t"]["oldest_unacknowledged_seconds"] is None


def test_the_age_is_the_time_since_the_oldest_message_was_put(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.put("t", 1, [b"a", b"b"])
    stage.now += 100.0
    stage.put("t", 3)
    stage.now += 9.0
    assert age(stage) == pytest.approx(110.0, abs=0.5)
    stage.get("bob", "t", (log, 1), 5, records_max=0)  # The second of the same batch is as old.
    assert age(stage) == pytest.approx(111.0, abs=0.5)
    stage.get("bob", "t", (log, 2), 5, records_max=0)
    assert age(stage) == pytest.approx(12.0, abs=0.5)
    stage.get("bob", "t", (log, 3), 5, records_max=0)
    assert age(stage) is None


def test_the_topic_is_as_old_as_its_slowest_subscriber(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    stage.subscribe("carol", "t", 6)
    stage.put("t", 1)
    stage.now += 50.0
    stage.put("t", 2)
    stage.get("bob", "t", (log, 1), 5, records_max=0)
    topic = ask(stage)["topics"]["t"]
    assert topic["subscribers"]["bob"]["oldest_unacknowledged_seconds"] == pytest.approx(1.0, abs=0.5)
    assert topic["oldest_unacknowledged_seconds"] == pytest.approx(51.0, abs=0.5)


def test_the_age_survives_a_restart(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    stage.now += 30.0
    stage.restart()
    assert age(stage) == pytest.approx(31.0, abs=0.5)


def test_a_message_from_before_a_subscription_does_not_count_for_its_age(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    assert put(pair["s2"], "carl", 1, 0, b"early") == "success"
    for stage in pair.stages.values():
        stage.now += 60.0
    pair["s1"].subscribe("eve", "t", 9)
    pair["s2"].now += 1.0
    assert put(pair["s2"], "carl", 2, 1, b"late") == "success"
    pair.merge("s2", "s1")
    pair.turns()
    found = age(pair["s1"], "eve")
    assert found is not None
    assert found < 30.0
    pair.close()


def test_subscribers_at_one_position_cost_one_lookup(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting_module, "LOOKUPS_MAX", 1)
    for who in ("a", "b", "c"):
        stage.subscribe(who, "t", 5)
    stage.put("t", 1)
    facts = ask(stage)
    assert all(one["oldest_unacknowledged_seconds"] for one in facts["topics"]["t"]["subscribers"].values())
    assert facts["left_out"]["ages"] == 0


def test_ages_beyond_the_limit_of_lookups_are_unknown_and_counted(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_module, "LOOKUPS_MAX", 1)
    for topic in ("a", "b"):
        stage.subscribe("bob", topic, 5)
        stage.put(topic, 1)
    facts = ask(stage)
    assert facts["topics"]["a"]["oldest_unacknowledged_seconds"] is not None
    assert facts["topics"]["b"]["oldest_unacknowledged_seconds"] is None
    assert facts["left_out"]["ages"] == 1


def test_the_age_in_a_damaged_store_is_unknown(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.subscribe("bob", "t", 5)
    stage.put("t", 1)
    reader = stage.core.state.reader

    def damaged(*_: object) -> Any:
        raise reader._unreadable(apsw.CorruptError("damaged"))  # type: ignore[attr-defined]

    monkeypatch.setattr(reader, "newest", damaged)
    assert age(stage) is None


def test_the_figures_of_the_process_come_from_its_shell(stage: Stage) -> None:
    stage.core.state.process = lambda: {"memory_bytes": 5}
    stage.core.reports.metrics = "http://h:1/metrics"
    facts = ask(stage)
    assert (facts["process"], facts["metrics"]) == ({"memory_bytes": 5}, "http://h:1/metrics")


def test_both_servers_show_topics_on_their_way(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    assert put(pair["s2"], "carl", 1, 0, b"x") == "success"
    pair.lose = {"commit"}
    pair.merge("s2", "s1")
    for _ in range(4):
        pair.turn()
    (giving,) = ask(pair["s2"])["moves"]
    assert (giving["topic"], giving["direction"]) == ("t", "giving")
    assert giving["other"] in {"s1", ADDRESS["s1"]}
    assert giving["state"] in {"frozen", "sending"}
    (receiving,) = ask(pair["s1"])["moves"]
    assert (receiving["direction"], receiving["other"]) == ("receiving", "s2")
    assert receiving["chunks"] >= 1
    pair.lose = set()
    pair.turns()
    assert [ask(pair[name])["moves"] for name in ("s1", "s2")] == [[], []]
    pair.close()
