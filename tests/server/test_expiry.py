"""The setting `expire`: what is too old is not delivered, and is no loss (docs/explanation/defaults.md, Y3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pubsub.protocol import Outcome, Report
from tests.server.stage import Stage, bodies
from tests.server.test_settings import configure


def subscribed(directory: Path, expire: str = "100s", **changed: Any) -> Stage:
    stage = Stage(directory, **changed)
    configure(stage, keep="ever", drop="never", expire=expire)
    assert stage.subscribe("a", "t", 1).outcome is Outcome.SUCCESS
    return stage


def put_each(stage: Stage, first: int, last: int, seconds: float) -> None:
    for counter in range(first, last + 1):
        assert stage.put("t", counter, [b"%d" % counter]).outcome is Outcome.SUCCESS
        stage.sleep(seconds)


def test_only_young_messages_are_delivered_and_the_others_are_no_loss(tmp_path: Path) -> None:
    stage = subscribed(tmp_path)
    put_each(stage, 1, 20, 10)
    answer = stage.get("a", "t", None, 1)
    assert answer.outcome is Outcome.SUCCESS
    assert bodies(answer) == [b"%d" % n for n in range(11, 21)] or bodies(answer) == [b"%d" % n for n in range(12, 21)]
    facts = json.loads(bytes(stage.ask(Report("op", "s1", "t"), origin=b"").body))["topics"]["t"]
    assert facts["subscribers"]["a"]["expired"] == 20 - answer.records
    assert stage.core.state.counters["expired"] == 20 - answer.records
    assert facts["expire"] == "100s"
    stage.close()


def test_a_position_that_was_handed_out_is_acknowledged_after_it_expired(tmp_path: Path) -> None:
    stage = subscribed(tmp_path)
    put_each(stage, 1, 3, 0)
    first = stage.get("a", "t", None, 1)
    assert first.records == 3
    stage.sleep(500)
    put_each(stage, 4, 4, 0)
    late = stage.get("a", "t", None, 1)  # The client asks again, and has not acknowledged yet.
    assert bodies(late) == [b"4"]
    done = stage.get("a", "t", first.message, 1)
    assert (done.outcome, bodies(done)) == (Outcome.SUCCESS, [b"4"])
    assert stage.get("a", "t", late.message, 1, records_max=0).outcome is Outcome.EMPTY
    assert not stage.core.state.topics["t"].waiting(stage.core.state.topics["t"].subscriptions["a"].cursor.backlog)
    stage.close()


def test_what_expired_is_counted_once_for_a_subscriber_that_asks_often(tmp_path: Path) -> None:
    stage = subscribed(tmp_path)
    put_each(stage, 1, 5, 0)
    stage.sleep(500)
    for _ in range(3):
        assert stage.get("a", "t", None, 1).outcome is Outcome.EMPTY
    assert stage.core.state.counters["expired"] == 5
    stage.close()


def test_nothing_expires_by_a_clock_that_is_ahead(tmp_path: Path) -> None:
    stage = subscribed(tmp_path)
    put_each(stage, 1, 5, 0)
    stage.wall += 86_400
    stage.proxies_behind = 86_400.0
    stage.restart()
    assert len(bodies(stage.get("a", "t", None, 1))) == 5
    stage.close()


def test_expired_messages_take_no_room_in_a_full_backlog(tmp_path: Path) -> None:
    stage = subscribed(tmp_path, backlog_bytes_max=1000)
    put_each(stage, 1, 20, 0)
    assert stage.put("t", 21, [b"x" * 900]).outcome is Outcome.FULL
    stage.sleep(600)
    assert stage.put("t", 21, [b"x" * 900]).outcome is Outcome.SUCCESS
    assert bodies(stage.get("a", "t", None, 1)) == [b"x" * 900]
    stage.close()


def test_a_message_expires_while_its_subscriber_waits_for_others(tmp_path: Path) -> None:
    stage = subscribed(tmp_path)
    put_each(stage, 1, 5, 0)
    stage.sleep(99)
    assert stage.get("a", "t", None, 1).records == 5
    stage.sleep(2)
    assert stage.get("a", "t", None, 1).outcome is Outcome.EMPTY
    configure(stage, expire="never")
    assert stage.get("a", "t", None, 1).records == 5
    stage.close()
