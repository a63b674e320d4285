"""Sinks: a batch appears completely and once, after any replay, kill, move or join between its steps.

The rules are those of docs/explanation/spark-exchange.md, K8, K9, K10 and K11.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pubsub.protocol import Get, Outcome, Publish, Read, Records, Status, encode_batch
from pubsub.protocol import Stage as StageRows
from pubsub.protocol.transfers import Owners
from pubsub.server.requests import admission, sinks
from tests.server.moving import Pair, split, take
from tests.server.stage import Stage, bodies

QUERY = "00000000000000aa"


def rows(batch: int, attempt: str, first: int, values: Sequence[bytes], query: str = QUERY) -> StageRows:
    body = encode_batch(values)
    return StageRows("out", "t", batch, query, attempt, first, len(values), crc32(body), body=body)


def write(stage: Stage, batch: int, attempt: str, first: int, *values: bytes) -> Status:
    return stage.ask(rows(batch, attempt, first, values))


def publish(stage: Stage, batch: int, **stages: int) -> Status:
    return stage.ask(Publish("out", "t", batch, QUERY, stages))


def topic_rows(stage: Stage) -> list[bytes]:
    """All that is visible in the topic."""
    answer = stage.ask(Read("worker", "t", None, records_max=1000))
    return bodies(answer) if answer.outcome is Outcome.SUCCESS else []


def counted(stage: Stage, table: str) -> int:
    return stage.store.db.execute(f"select count(*) from {table}").fetchall()[0][0]


# Staging


def test_staged_messages_are_invisible_and_published_ones_visible_at_once(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    assert write(stage, 0, "a", 0, b"1", b"2").rows == 2
    assert write(stage, 0, "b", 0, b"3").rows == 1
    assert write(stage, 0, "a", 2, b"4").rows == 3
    assert topic_rows(stage) == []
    assert stage.get("bob", "t", None, 5).outcome is Outcome.EMPTY
    answer = publish(stage, 0, b=1, a=3)
    assert (answer.outcome, answer.rows, answer.last) == (Outcome.SUCCESS, 4, 1 << 32 | 3)
    got = stage.get("bob", "t", None, 5)
    assert bodies(got) == [b"3", b"1", b"2", b"4"]
    runs = Records(bytes(got.body)).runs
    assert [(run.publisher, run.counter) for run in runs] == [(f"out/{QUERY}", 1 << 32 | row) for row in (0, 1, 3)]


def test_a_waiting_get_is_woken_by_a_publish(stage: Stage) -> None:
    stage.subscribe("bob", "t", 5)
    write(stage, 0, "a", 0, b"1")
    waiting = stage.say(Get("bob", "t", None, 5, 5, records_max=9, wait_ms=5000))
    stage.loop()
    publish(stage, 0, a=1)
    assert bodies(stage.answered(waiting)) == [b"1"]


def test_a_repeat_of_rows_is_recognized_by_its_first_row(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"1", b"2")
    write(stage, 0, "a", 2, b"3")
    for _ in range(2):
        again = write(stage, 0, "a", 0, b"1", b"2")
        assert (again.outcome, again.rows) == (Outcome.SUCCESS, 3)
        stage.restart()
    publish(stage, 0, a=3)
    assert topic_rows(stage) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("first", [1, 3, 5], ids=["cut otherwise", "one missing", "more missing"])
def test_rows_that_do_not_follow_are_a_gap(stage: Stage, first: int) -> None:
    write(stage, 0, "a", 0, b"1", b"2")
    answer = write(stage, 0, "a", first, b"x", b"y")
    assert (answer.outcome, answer.rows) == (Outcome.GAP, 2)
    assert write(stage, 0, "new", 1, b"x").outcome is Outcome.GAP


def test_stages_survive_a_restart(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"1", b"2")
    stage.restart()
    assert write(stage, 0, "a", 2, b"3").rows == 3
    stage.restart()
    assert publish(stage, 0, a=3).outcome is Outcome.SUCCESS
    stage.restart()
    assert topic_rows(stage) == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    "changed",
    [
        {"count": 0},
        {"count": 3},
        {"checksum": 1},
        {"body": b""},
        {"batch": sinks.BATCHES_MAX},
        {"first": sinks.ROWS_MAX},
    ],
    ids=str,
)
def test_impossible_rows_are_refused(stage: Stage, changed: dict[str, Any]) -> None:
    message = rows(0, "a", 0, [b"1"])
    for name, value in changed.items():
        setattr(message, name, value)
    assert stage.ask(message).outcome is Outcome.REFUSED
    assert stage.core.state.topics == {}


def test_an_impossible_publish_is_refused(stage: Stage) -> None:
    assert publish(stage, sinks.BATCHES_MAX).outcome is Outcome.REFUSED
    assert publish(stage, 0, a=0).outcome is Outcome.REFUSED
    assert publish(stage, 0, a=sinks.ROWS_MAX, b=1).outcome is Outcome.REFUSED
    assert stage.core.state.topics == {}


# Publishing


def test_a_replay_is_a_duplicate_with_any_stages(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"1", b"2")
    first = publish(stage, 0, a=2)
    for stages in ({"a": 2}, {"other": 5}, {}):
        again = publish(stage, 0, **stages)
        assert (again.outcome, again.last, again.log) == (Outcome.DUPLICATE, first.last, first.log)
        stage.restart()
    assert topic_rows(stage) == [b"1", b"2"]


def test_rows_of_a_published_batch_are_duplicates(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"1")
    publish(stage, 0, a=1)
    for _ in range(2):
        assert write(stage, 0, "late", 0, b"x").outcome is Outcome.DUPLICATE
        stage.restart()
    assert counted(stage, "stage") == 0


def test_a_batch_that_follows_is_taken_without_a_question(stage: Stage) -> None:
    stage.sole_owner = None
    for batch in range(3):
        write(stage, batch, "a", 0, b"%d" % batch)
        assert publish(stage, batch, a=1).outcome is Outcome.SUCCESS
    assert not any(isinstance(out.message, Owners) for out in stage.sent)


def test_a_batch_without_rows_counts(stage: Stage) -> None:
    stage.sole_owner = None
    assert publish(stage, 0).outcome is Outcome.SUCCESS
    stage.restart()
    assert publish(stage, 0).outcome is Outcome.DUPLICATE
    write(stage, 1, "a", 0, b"1")
    assert publish(stage, 1, a=1).outcome is Outcome.SUCCESS
    assert topic_rows(stage) == [b"1"]


@pytest.mark.parametrize("sole_owner", [True, False, None])
def test_a_batch_out_of_order_is_taken_only_while_the_topic_is_whole(stage: Stage, sole_owner: bool | None) -> None:
    stage.sole_owner = sole_owner
    write(stage, 5, "a", 0, b"1")
    callback = stage.say(Publish("out", "t", 5, QUERY, {"a": 1}))
    stage.sleep(3)
    answer = stage.answered(callback)
    assert answer.outcome is (Outcome.SUCCESS if sole_owner else Outcome.BUSY)
    stage.sole_owner = True
    assert publish(stage, 5, a=1).outcome is (Outcome.DUPLICATE if sole_owner else Outcome.SUCCESS)
    assert topic_rows(stage) == [b"1"]


def test_two_publishes_of_one_batch_that_wait_for_the_same_answer_append_the_batch_once(stage: Stage) -> None:
    write(stage, 5, "a", 0, b"1")
    one, two = (stage.say(Publish("out", "t", 5, QUERY, {"a": 1})) for _ in range(2))
    for _ in range(3):
        stage.loop()
    assert [stage.answered(one).outcome, stage.answered(two).outcome] == [Outcome.SUCCESS, Outcome.DUPLICATE]
    assert topic_rows(stage) == [b"1"]


@pytest.mark.parametrize("stages", [{"b": 1}, {"a": 1}, {"a": 3}, {"a": 2, "b": 1}], ids=str)
def test_a_stage_that_is_not_here_in_full_answers_restage_and_publishes_nothing(
    stage: Stage, stages: dict[str, int]
) -> None:
    write(stage, 0, "a", 0, b"1", b"2")
    answer = publish(stage, 0, **stages)
    assert answer.outcome is Outcome.RESTAGE
    assert topic_rows(stage) == []
    assert publish(stage, 0, a=2).outcome is Outcome.SUCCESS, "what is there stays"


def test_a_publish_with_stages_makes_no_topic(stage: Stage) -> None:
    assert publish(stage, 0, a=2).outcome is Outcome.RESTAGE
    assert stage.core.state.topics == {}


def test_two_queries_of_one_sink_know_nothing_of_each_other(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"1")
    publish(stage, 0, a=1)
    other = "00000000000000bb"
    stage.ask(rows(0, "a", 0, [b"2"], query=other))
    assert stage.ask(Publish("out", "t", 0, other, {"a": 1})).outcome is Outcome.SUCCESS
    assert topic_rows(stage) == [b"1", b"2"]


def test_a_request_to_a_topic_on_its_way_is_answered_moved(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"1")
    stage.core.state.topics["t"].frozen = "tcp://127.0.0.1:9"
    assert write(stage, 0, "a", 1, b"2").outcome is Outcome.MOVED
    assert publish(stage, 0, a=1).outcome is Outcome.MOVED


# What is published


def test_retention_deletes_the_bytes_of_published_records(stage: Stage) -> None:
    log = stage.subscribe("bob", "t", 5).log
    for batch in range(3):
        write(stage, batch, "a", 0, b"%d" % batch)
        publish(stage, batch, a=1)
    stage.get("bob", "t", (log, 2), 5)
    stage.sleep(200)
    assert (counted(stage, "batch"), counted(stage, "staged"), counted(stage, "published")) == (1, 1, 1)
    assert bodies(stage.get("bob", "t", (log, 2), 5)) == [b"2"]
    stage.get("bob", "t", (log, 3), 5)
    stage.sleep(200)
    assert (counted(stage, "batch"), counted(stage, "staged"), counted(stage, "published")) == (0, 0, 0)
    stage.restart()
    assert publish(stage, 2, a=1).outcome is Outcome.DUPLICATE, "the memory stays"
    assert stage.core.state.topics["t"].open.end == 4


def test_the_bytes_are_written_once(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"x" * 1000)
    publish(stage, 0, a=1)
    (total,) = stage.store.db.execute(
        "select (select coalesce(sum(length(body)), 0) from batch) + (select sum(length(body)) from staged)"
    ).fetchone()
    assert total < 1100
    stage.restart()
    topic = stage.core.state.topics["t"]
    assert topic.open.total == 1012, "what the backlog's limit counts"


def test_damaged_rows_are_lost_and_set_aside(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"1")
    publish(stage, 0, a=1)
    stage.restart()
    stage.store.db.execute("update staged set body = x'00'")
    answer = stage.ask(Read("worker", "t", None, records_max=9))
    assert answer.outcome is Outcome.LOST
    assert (counted(stage, "quarantine"), counted(stage, "staged"), counted(stage, "batch")) == (1, 1, 1)


# Limits and the disk


def test_limits_are_refused_with_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(tmp_path, topics_max=1, publishers_max=1, backlog_bytes_max=2000)
    write(stage, 0, "a", 0, b"x" * 100)
    other = rows(0, "a", 0, [b"1"])
    other.topic = "u"
    assert stage.ask(other).reason == "topics_max"
    assert publish(stage, 0, a=1).outcome is Outcome.SUCCESS
    assert stage.ask(rows(0, "a", 0, [b"1"], query="b" * 16)).reason == "publishers_max"
    assert write(stage, 1, "a", 0, b"x" * 1900).outcome is Outcome.SUCCESS
    assert write(stage, 1, "b", 0, b"x" * 1900).reason == "backlog_bytes_max"
    monkeypatch.setattr(admission, "STAGES_MAX", 1)
    assert write(stage, 1, "c", 0, b"x").reason == "STAGES_MAX"
    monkeypatch.setattr(admission, "PIECES_MAX", 1)
    assert write(stage, 1, "a", 1, b"x").reason == "PIECES_MAX"
    stage.core.state.full = True
    assert write(stage, 1, "a", 1, b"x").reason == "disk"
    assert publish(stage, 1, a=1).reason == "disk"
    stage.close()


@pytest.mark.parametrize("step", ["stage", "publish", "drop"])
def test_a_step_that_finds_the_disk_full_has_not_happened(stage: Stage, step: str) -> None:
    write(stage, 0, "a", 0, b"1")
    write(stage, 0, "other", 0, b"x")
    before = set(stage.core.state.topics["t"].stages)
    stage.fail_commit = True
    if step == "stage":
        assert write(stage, 0, "a", 1, b"2").outcome is Outcome.FULL
    else:
        assert publish(stage, 0, a=1).outcome is Outcome.FULL
    stage.fail_commit = step == "drop"
    stage.loop()
    stage.fail_commit = False
    stage.core.state.full = False
    assert set(stage.core.state.topics["t"].stages) == before
    assert topic_rows(stage) == []
    stage.sleep(1)
    assert counted(stage, "staged") == 2
    stage.restart()
    assert publish(stage, 0, a=1).outcome is Outcome.SUCCESS
    assert topic_rows(stage) == [b"1"]
    stage.sleep(1)
    assert counted(stage, "staged") == 1


# A topic that moves or is joined between the steps


def test_a_topic_that_moves_between_stage_and_publish_keeps_its_stages(pair: Pair) -> None:
    write(pair["s1"], 0, "a", 0, b"1", b"2")
    write(pair["s1"], 0, "b", 0, b"3")
    pair.merge("s1", "s2")
    pair.turns()
    assert pair.holders() == ["s2"]
    moved = pair["s2"]
    moved.restart()
    assert write(moved, 0, "b", 1, b"4").rows == 2
    assert publish(moved, 0, a=2, b=2).outcome is Outcome.SUCCESS
    assert topic_rows(moved) == [b"1", b"2", b"3", b"4"]
    pair["s1"].sleep(1)
    assert [counted(pair["s1"], table) for table in ("stage", "staged", "published")] == [0, 0, 0]


def test_a_topic_that_moves_between_publish_and_replay_knows_the_batch(pair: Pair) -> None:
    write(pair["s1"], 0, "a", 0, b"1", b"2")
    publish(pair["s1"], 0, a=2)
    pair.merge("s1", "s2")
    pair.turns()
    moved = pair["s2"]
    assert write(moved, 0, "again", 0, b"2", b"1").outcome is Outcome.DUPLICATE
    assert publish(moved, 0, again=2).outcome is Outcome.DUPLICATE
    assert topic_rows(moved) == [b"1", b"2"]
    assert counted(pair["s1"], "batch") == counted(pair["s1"], "staged") == counted(pair["s1"], "published") == 0


def test_rows_that_are_duplicates_on_one_side_must_be_published_on_the_other(pair: Pair) -> None:
    split(pair)
    one, other = pair["s1"], pair["s2"]
    write(other, 0, "a", 0, b"1", b"2")
    publish(other, 0, a=2)
    assert write(one, 0, "b", 0, b"2").outcome is Outcome.SUCCESS
    assert write(other, 0, "c", 0, b"1").outcome is Outcome.DUPLICATE
    assert publish(one, 0, b=1, c=1).outcome is Outcome.RESTAGE, "a part would have to be taken for the batch"
    write(one, 0, "d", 0, b"2", b"1")
    assert publish(one, 0, d=2).outcome is Outcome.SUCCESS
    pair.merge("s2", "s1")
    pair.turns()
    for subscriber in ("bob", "eve"):
        assert sorted(take(one, subscriber)) == [b"1", b"2", b"alice1", b"alice2", b"carl1", b"carl2"]


def test_a_batch_published_on_both_sides_of_a_split_exists_once_after_the_join(pair: Pair) -> None:
    split(pair)
    for name, values in (("s1", (b"1", b"2")), ("s2", (b"2", b"1"))):
        write(pair[name], 0, "a", 0, *values)
        assert publish(pair[name], 0, a=2).outcome is Outcome.SUCCESS
    pair.merge("s2", "s1")
    pair.turns()
    assert topic_rows(pair["s1"]) == [b"alice1", b"alice2", b"1", b"2", b"carl1", b"carl2"]


def test_a_join_drops_the_stages_of_batches_that_the_other_side_published(pair: Pair) -> None:
    split(pair)
    write(pair["s1"], 0, "a", 0, b"1")
    publish(pair["s1"], 0, a=1)
    write(pair["s2"], 0, "b", 0, b"1")
    write(pair["s2"], 1, "c", 0, b"2")
    pair.merge("s2", "s1")
    pair.turns()
    joined = pair["s1"]
    assert [stage.key[1:] for stage in joined.core.state.topics["t"].stages.values()] == [(1, "c")]
    assert publish(joined, 1, c=1).outcome is Outcome.SUCCESS
    joined.restart()
    assert topic_rows(joined)[-2:] == [b"carl2", b"2"]


def test_the_longer_one_of_an_attempt_staged_on_both_sides_stays(pair: Pair) -> None:
    split(pair)
    write(pair["s1"], 0, "a", 0, b"1")
    write(pair["s2"], 0, "a", 0, b"1")
    write(pair["s2"], 0, "a", 1, b"2")
    write(pair["s1"], 0, "b", 0, b"3", b"4")
    write(pair["s2"], 0, "b", 0, b"3")
    pair.merge("s2", "s1")
    pair.turns()
    assert publish(pair["s1"], 0, a=2, b=2).outcome is Outcome.SUCCESS
    assert topic_rows(pair["s1"])[-4:] == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("step", ["chunk", "commit", "done"])
@pytest.mark.parametrize("who", ["s1", "s2"])
def test_a_crash_while_stages_travel_leaves_each_once(tmp_path: Path, who: str, step: str) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    write(pair["s1"], 0, "a", 0, b"1", b"2")
    write(pair["s1"], 1, "b", 0, b"3")
    pair.crash = (who, step)
    pair.merge("s1", "s2")
    pair.turns(60)
    assert pair.holders() == ["s2"]
    for stage in pair.stages.values():
        stage.sleep(120)
    assert counted(pair["s1"], "staged") == 0
    assert counted(pair["s2"], "staged") == 2
    assert publish(pair["s2"], 0, a=2).outcome is Outcome.SUCCESS
    assert publish(pair["s2"], 1, b=1).outcome is Outcome.SUCCESS
    assert topic_rows(pair["s2"]) == [b"1", b"2", b"3"]
    pair.close()


def test_many_rows_travel_in_several_chunks(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pubsub.server.moves.chunks.CHUNK_BATCHES", 2)
    for first in range(7):
        write(pair["s1"], 0, "a", first, b"%d" % first)
    pair.merge("s1", "s2")
    pair.turns()
    assert publish(pair["s2"], 0, a=7).outcome is Outcome.SUCCESS
    assert topic_rows(pair["s2"]) == [b"%d" % first for first in range(7)]


def test_the_number_of_a_published_stage_is_not_used_again(stage: Stage) -> None:
    write(stage, 0, "a", 0, b"1", b"2")
    assert publish(stage, 0, a=2).outcome is Outcome.SUCCESS
    stage.restart()
    assert write(stage, 1, "b", 0, b"3").rows == 1
    stage.restart()
    assert publish(stage, 1, b=1).outcome is Outcome.SUCCESS
    assert topic_rows(stage) == [b"1", b"2", b"3"]
    stage.restart()
    assert write(stage, 2, "dropped", 0, b"4").rows == 1
    assert write(stage, 2, "c", 0, b"5").rows == 1
    assert publish(stage, 2, c=1).outcome is Outcome.SUCCESS
    for _ in range(5):  # What was dropped is deleted, and nothing else.
        stage.loop()
    stage.restart()
    assert topic_rows(stage) == [b"1", b"2", b"3", b"5"]
