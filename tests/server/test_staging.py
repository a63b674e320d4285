"""Staged rows without a later publish are dropped, and deleted in pieces; rows in use stay.

The rules are those of docs/explanation/spark-exchange.md, K13 and K14.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from pubsub.protocol import Outcome, Publish
from pubsub.server.upkeep import staging
from tests.server.stage import Stage
from tests.server.test_sinks import QUERY, counted, publish, rows, write


def test_a_publish_drops_every_other_stage_of_that_batch_and_older_ones(stage: Stage) -> None:
    for batch, attempt in ((0, "x"), (1, "lost"), (1, "won"), (2, "next")):
        write(stage, batch, attempt, 0, b"%d" % batch)
    publish(stage, 1, won=1)
    assert [stage.key[1:] for stage in stage.core.state.topics["t"].stages.values()] == [(2, "next")]
    stage.sleep(1)
    assert (counted(stage, "stage"), counted(stage, "staged")) == (1, 2), "its own, and what was published"
    stage.restart()
    assert publish(stage, 2, next=1).outcome is Outcome.SUCCESS


def test_large_leftovers_are_deleted_in_pieces(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "DELETED_PIECES", 3)
    for first in range(10):
        write(stage, 0, "lost", first, b"x")
    publish(stage, 0)
    left = [counted(stage, "staged")]
    while left[-1]:
        stage.loop()
        left.append(counted(stage, "staged"))
    assert left in ([10, 7, 4, 1, 0], [7, 4, 1, 0])
    assert counted(stage, "stage") == 0


def test_deleting_goes_on_after_a_restart(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "DELETED_PIECES", 1)
    for first in range(5):
        write(stage, 0, "lost", first, b"x")
    publish(stage, 0)
    stage.restart()
    stage.sleep(1)
    assert (counted(stage, "stage"), counted(stage, "staged")) == (0, 0)


def test_a_stage_that_is_silent_for_long_expires_and_one_that_is_written_does_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert staging.IDLE_SECONDS == 24 * 3600
    monkeypatch.setattr(staging, "IDLE_SECONDS", 1000.0)
    write(stage, 0, "idle", 0, b"1")
    write(stage, 0, "busy", 0, b"1")
    stage.sleep(600)
    write(stage, 0, "busy", 1, b"2")
    stage.sleep(999)
    assert publish(stage, 0, idle=1).outcome is Outcome.RESTAGE
    assert publish(stage, 0, busy=2).outcome is Outcome.SUCCESS


def test_a_publish_drops_older_tries_of_its_batch_but_no_later_ones(stage: Stage) -> None:
    write(stage, 0, "dead", 0, b"1")
    write(stage, 1, "other batch", 0, b"1")
    stage.sleep(1)
    write(stage, 0, "late", 0, b"1")
    stage.sleep(1)
    assert publish(stage, 0, late=2).outcome is Outcome.RESTAGE
    assert write(stage, 0, "dead", 1, b"2").outcome is Outcome.GAP
    write(stage, 0, "again", 0, b"1", b"2")
    assert publish(stage, 0, late=2).outcome is Outcome.RESTAGE, "repeated, and late"
    assert write(stage, 0, "again", 2, b"3").rows == 3
    assert write(stage, 1, "other batch", 1, b"2").rows == 2
    stage.restart()
    assert write(stage, 0, "dead", 1, b"2").outcome is Outcome.GAP
    assert publish(stage, 0, again=3).outcome is Outcome.SUCCESS


def test_tries_of_a_batch_that_is_written_again_and_again_do_not_fill_the_topic(stage: Stage) -> None:
    stage.core.state.settings = replace(stage.core.state.settings, backlog_bytes_max=1000)
    for number in range(20):
        stage.sleep(1)
        name = f"try {number}"
        assert write(stage, 0, name, 0, b"x" * 100).outcome is Outcome.SUCCESS
        assert publish(stage, 0, **{name: 1, "at another server": 1}).outcome is Outcome.RESTAGE
    assert len(stage.core.state.topics["t"].stages) == 1


def test_a_sink_without_room_drops_its_own_abandoned_tries(stage: Stage) -> None:
    stage.core.state.settings = replace(stage.core.state.settings, backlog_bytes_max=1000)
    write(stage, 0, "left", 0, b"x" * 500)
    stage.ask(rows(0, "another's", 0, [b"x"], "00000000000000bb"))
    stage.sleep(staging.LEFT_SECONDS - 1)
    write(stage, 0, "going on", 0, b"x" * 100)
    assert write(stage, 0, "new", 0, b"x" * 500).outcome is Outcome.FULL
    stage.sleep(2)
    assert write(stage, 0, "going on", 1, b"x").rows == 2
    assert write(stage, 0, "new", 0, b"x" * 500).rows == 1
    assert publish(stage, 0, left=1).outcome is Outcome.RESTAGE
    assert stage.ask(rows(0, "another's", 1, [b"x"], "00000000000000bb")).rows == 2
    stage.restart()
    assert len(stage.core.state.topics["t"].stages) == 3


def test_a_stage_continued_after_a_long_time_is_not_dropped_for_room(stage: Stage) -> None:
    stage.core.state.settings = replace(stage.core.state.settings, backlog_bytes_max=1000)
    write(stage, 0, "left", 0, b"x" * 500)
    write(stage, 0, "going on", 0, b"first")
    stage.sleep(staging.LEFT_SECONDS + 1)
    assert write(stage, 0, "going on", 1, b"x" * 600).rows == 2
    assert [stage.key[2] for stage in stage.core.state.topics["t"].stages.values()] == ["going on"]
    assert write(stage, 0, "going on", 2, b"x" * 600).outcome is Outcome.FULL, "nobody else's is left"
    stage.sleep(staging.LEFT_SECONDS + 1)
    assert write(stage, 0, "going on", 2, b"x" * 600).outcome is Outcome.FULL, "nor does it make room for itself"
    stage.restart()
    assert publish(stage, 0, **{"going on": 2}).rows == 2


def test_an_unpublished_stage_is_deleted_after_the_disk_was_full(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "DELETED_PIECES", 1)
    write(stage, 0, "dropped", 0, b"1")
    write(stage, 0, "dropped", 1, b"2")
    write(stage, 0, "dropped", 2, b"3")
    write(stage, 0, "kept", 0, b"1")
    stage.say(Publish("out", "t", 0, QUERY, {"kept": 1}))
    stage.loop()
    assert stage.store.dropped_stages() != []
    stage.fail_commit = True  # What deletes the rest of it is taken back, piece after piece.
    for _ in range(4):
        stage.loop()
        assert stage.core.deadline() > stage.now, "a full disk would keep a core busy"
        stage.sleep(staging.PAUSE_SECONDS)
    stage.fail_commit = False
    stage.sleep(1)
    assert publish(stage, 0, kept=1).outcome is Outcome.DUPLICATE
    assert stage.store.dropped_stages() == []
