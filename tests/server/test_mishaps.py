"""Stores with parts of another moment: `pubsub server check` and a server agree; no number is given twice."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pubsub.errors import StoreDamaged
from pubsub.protocol import Outcome
from pubsub.server.offline.check import check
from pubsub.server.offline.found import Verdict
from pubsub.server.storage.loading import load
from pubsub.server.storage.schema import FILE
from pubsub.server.storage.store import Store
from tests.server.damages import LOG, TOPICS, Made, compared, mishap, serve, tried, workshop
from tests.server.stage import Stage


@pytest.fixture(scope="module")
def bench() -> Iterator[tuple[Made, Path]]:
    with workshop() as made:
        yield made


@pytest.fixture
def store(bench: tuple[Made, Path], tmp_path: Path) -> Path:
    """A stopped server's directory."""
    return filled(tmp_path, bench[0].stopped)


def filled(directory: Path, files: dict[str, bytes]) -> Path:
    for name, raw in files.items():
        (directory / name).write_bytes(raw)
    return directory


def sql(store: Path, *statements: str) -> list[Any]:
    """Run statements on a stopped server's file; the rows of the last one."""
    rows: list[Any] = []
    with contextlib.closing(apsw.Connection(str(store / FILE))) as db:
        for statement in statements:
            rows = db.execute(statement).fetchall()
    return rows


def held_back(store: Path) -> list[str]:
    return [topic.topic for topic in check(store).topics if topic.held_back]


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.nightly) for first in (45, 90, 135))])
def test_a_server_does_as_check_predicts_after_a_mishap(bench: tuple[Made, Path], first: int) -> None:
    made, copy = bench
    findings = {}
    for seed in range(first, first + 45):
        what, _, found = tried(made, copy, seed, mishap)
        if found:
            findings[f"seed {seed}, {what}"] = found
    assert findings == {}


def test_an_earlier_file_with_a_later_log_is_refused_and_unchanged(bench: tuple[Made, Path], tmp_path: Path) -> None:
    """To copy that log back is to make the file as long as it should be, with zeros for the pages that are missing."""
    made = bench[0]
    filled(tmp_path, {FILE: made.earlier[FILE], LOG: made.busy[LOG]})
    assert check(tmp_path).verdict is Verdict.BROKEN
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="bytes are left of"):
            Store(tmp_path)
    assert (tmp_path / FILE).read_bytes() == made.earlier[FILE]
    assert (tmp_path / LOG).read_bytes() == made.busy[LOG]


def test_a_file_whose_rest_is_in_its_log_is_complete(bench: tuple[Made, Path], tmp_path: Path) -> None:
    filled(tmp_path, bench[0].killed)
    pages = len(bench[0].killed[FILE]) // 16_384
    assert pages < sql(tmp_path, "pragma page_count")[0][0] or pages == 1
    filled(tmp_path, bench[0].killed)
    assert check(tmp_path).verdict is Verdict.INTACT
    Store(tmp_path).close()


def test_a_link_to_a_file_uses_the_log_beside_the_file(bench: tuple[Made, Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    filled(tmp_path / "elsewhere", bench[0].busy)
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere" / FILE)
    found = check(tmp_path)
    assert {topic.topic: topic.records for topic in found.topics}["large"] == 14  # Five of them are in the log.
    assert compared(found, serve(tmp_path)) == []
    raw = bytearray(bench[0].busy[LOG])
    raw[32 + 24 + 100] ^= 1
    filled(tmp_path / "elsewhere", {FILE: bench[0].busy[FILE], LOG: bytes(raw)})
    assert check(tmp_path).verdict is Verdict.BROKEN
    with pytest.raises(StoreDamaged, match="commits at the end"):
        Store(tmp_path)


def test_a_new_publisher_does_not_continue_the_counters_of_a_lost_one(store: Path) -> None:
    """It would get that one's number: its puts would be duplicates, and the other's records be told as its own."""
    (last,) = sql(store, "delete from publisher where id > 300", "select max(publisher) from last")[0]
    assert last > 300
    assert held_back(store) == ["many", "published"]
    stage = Stage(store)
    assert stage.put("small", 1, sender="new").outcome is Outcome.SUCCESS
    assert stage.put("many", 1, sender="new").outcome is Outcome.UNAVAILABLE
    stage.restart()
    assert stage.put("many", 1, sender="new").outcome is Outcome.UNAVAILABLE
    stage.close()
    assert sql(store, "select max(id) from publisher") == [(last + 1,)]
    assert held_back(store) == ["many", "published"]


def test_batches_of_a_publisher_lost_with_its_counters_are_lost(store: Path) -> None:
    sql(store, "delete from publisher where id > 300", "delete from last where publisher > 300")
    found = check(store)
    assert held_back(store) == []
    assert {topic.topic for topic in found.topics if topic.lost} == {"many", "published"}
    served = serve(store)
    assert compared(found, served) == []
    assert not isinstance(served, str)
    assert served["many"].lost > 200


def test_a_publisher_with_an_impossible_number_is_refused(store: Path) -> None:
    sql(store, "update publisher set id = 1 << 50 where id = (select max(id) from publisher)")
    found = check(store)
    assert found.verdict is Verdict.BROKEN
    assert "a publisher has the number" in found.problems.said[-1]
    assert isinstance(serve(store), str)


@pytest.mark.parametrize("table", ["topic", "log"])
def test_a_new_topic_does_not_get_the_number_of_a_lost_one(store: Path, table: str) -> None:
    (highest,) = sql(store, "select max(id) from topic")[0]
    (newest,) = sql(store, "select max(key) >> 40 from batch")[0]
    sql(store, "delete from topic where id > 1", "delete from log where id > 1" if table == "log" else "select 1")
    stage = Stage(store)
    assert stage.subscribe("bob", "new", 900).outcome is Outcome.SUCCESS
    for counter in range(3):
        assert stage.put("new", 1 + counter, [b"n"]).outcome is Outcome.SUCCESS
    assert stage.get("bob", "new", None, 900).records == 3
    stage.close()
    number, log = sql(store, "select id, open_log from topic where name = 'new'")[0]
    assert number > highest
    assert log > newest


def test_new_numbers_are_above_every_referenced_number(store: Path) -> None:
    (piece,) = sql(store, "select max(source) from published")[0]
    (log,) = sql(store, "select name from log where id = 1")[0]
    history = json.dumps([[log, 0, None, 77, 0]])
    sql(store, "delete from staged", "delete from stage", f"update topic set history = '{history}' where open_log = 1")
    opened = Store(store)
    loaded = load(opened)
    assert loaded.next_watermark == 78
    assert loaded.next_piece > piece
    opened.close()


def test_published_batches_without_bytes_are_lost_for_their_subscribers(store: Path) -> None:
    sql(store, "delete from published")
    found = check(store)
    assert [(topic.topic, topic.lost) for topic in found.topics if topic.problems] == [("published", 3)]
    assert "have no bytes, and some subscribers have not received them" in next(
        topic.problems.said[0] for topic in found.topics if topic.problems
    )
    assert compared(found, serve(store)) == []


def test_every_topic_is_served_from_a_backup(bench: tuple[Made, Path], tmp_path: Path) -> None:
    served = serve(filled(tmp_path, bench[0].earlier))
    assert not isinstance(served, str)
    assert {name: served[name].put for name in TOPICS} == dict.fromkeys(TOPICS, Outcome.SUCCESS)
