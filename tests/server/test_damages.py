"""Damaged stores: a server does as `pubsub server check` predicts, and damage stays within one topic."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from pubsub.errors import StoreDamaged
from pubsub.protocol import Get, Outcome
from pubsub.server.offline.check import check
from pubsub.server.offline.found import Verdict
from pubsub.server.storage.schema import FILE
from pubsub.server.storage.store import Store
from tests.server.damages import LOG, PAGE, TOPICS, Made, serve, tried, workshop
from tests.server.moving import Pair, put, split
from tests.server.stage import Stage
from tests.server.stage import put as record


@pytest.fixture(scope="module")
def bench() -> Iterator[tuple[Made, Path]]:
    with workshop() as made:
        yield made


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, *(pytest.param(first, marks=pytest.mark.nightly) for first in (50, 100, 150))])
def test_a_server_does_as_check_predicts_for_a_damaged_store(bench: tuple[Made, Path], first: int) -> None:
    made, copy = bench
    findings = {}
    for seed in range(first, first + 50):
        what, _, found = tried(made, copy, seed)
        if found:
            findings[f"seed {seed}, {what}"] = found
    assert findings == {}


def test_damage_of_every_kind_of_page_is_tested(bench: tuple[Made, Path]) -> None:
    assert set(bench[0].pages) == {
        "first",
        "free",
        "leaf of batch",
        "internal of batch",
        "overflow of batch",
        "leaf of a table",
        "internal of a table",
        "overflow of a table",
        "index leaf",
        "index internal",
    }


@pytest.fixture
def store(bench: tuple[Made, Path], tmp_path: Path) -> Path:
    """A stopped server's directory."""
    for name, raw in bench[0].stopped.items():
        (tmp_path / name).write_bytes(raw)
    return tmp_path


def spoil(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


def large(made: Made, store: Path) -> list[int]:
    """The pages on which the bodies of one topic go on."""
    raw = (store / FILE).read_bytes()
    return [
        page for page in made.pages["overflow of batch"] if raw[(page - 1) * PAGE : page * PAGE].count(b"x00000") > 800
    ]


@pytest.mark.parametrize("leads_to", [0, 2, 1 << 30])
def test_a_body_with_misleading_pages_is_lost_and_all_topics_continue(
    bench: tuple[Made, Path], store: Path, leads_to: int
) -> None:
    page = large(bench[0], store)[2]
    spoil(store / FILE, (page - 1) * PAGE, struct.pack(">I", leads_to))
    found = check(store)
    assert found.verdict is Verdict.DAMAGED
    assert [topic.topic for topic in found.topics if topic.problems] == ["large"]
    served = serve(store)  # It reads all, lets time pass until all of it goes, and starts again.
    assert not isinstance(served, str)
    assert [served[name].put for name in TOPICS] == [Outcome.SUCCESS] * 4
    assert served["large"].records > 0
    assert [(served[name].ended, served[name].lost) for name in TOPICS if name != "large"] == [(Outcome.EMPTY, 0)] * 3


@pytest.mark.parametrize("way", ["beside a put", "opened anew"])
def test_a_damaged_page_met_in_a_changing_loop_affects_only_its_topic(
    bench: tuple[Made, Path], store: Path, way: str
) -> None:
    raw = (store / FILE).read_bytes()
    pages = bench[0].pages["leaf of batch"]
    page = next(page for page in pages if b"m250" in raw[(page - 1) * PAGE : page * PAGE])
    spoil(store / FILE, (page - 1) * PAGE, b"\xff" * 8)
    assert check(store).verdict is Verdict.DAMAGED
    stage = Stage(store)
    last, epoch, stored, answer = None, 5, 0, None
    for _ in range(20):
        put_beside = stage.say(record("small", 9_000_000 + stored)) if way == "beside a put" else None
        epoch += way == "opened anew"
        answer = stage.ask(Get("bob", "many", last, 5, epoch, records_max=50))
        if put_beside is not None:
            assert stage.answered(put_beside).outcome is Outcome.SUCCESS
            stored += 1
        if answer.outcome is not Outcome.SUCCESS:
            break
        last = answer.message
    assert answer is not None
    assert answer.outcome is Outcome.UNAVAILABLE
    assert last is not None
    assert stage.put("published", 9_000_000).outcome is Outcome.SUCCESS
    stage.restart()
    assert stage.ask(Get("bob", "many", last, 5, epoch, records_max=50)).outcome is Outcome.UNAVAILABLE
    found = stage.get("bob", "small", None, 5, epoch=6)
    assert found.outcome is Outcome.SUCCESS
    assert found.records == 190 + stored
    stage.close()


def test_a_topic_with_an_unreadable_description_is_held_back_and_others_are_served(store: Path) -> None:
    with apsw.Connection(str(store / FILE)) as db:
        db.execute("update subscription set backlog = '[[]]' where topic = (select id from topic where name = 'small')")
    db.close()
    found = check(store)
    assert [(topic.topic, topic.held_back) for topic in found.topics if topic.problems] == [("small", True)]
    stage = Stage(store)
    assert stage.ask(Get("bob", "small", None, 5, 5, records_max=9)).outcome is Outcome.UNAVAILABLE
    assert stage.put("small", 9_000_000).outcome is Outcome.UNAVAILABLE
    assert stage.put("many", 9_000_000).outcome is Outcome.SUCCESS
    assert "small" in {name for periodic in stage.periodics() for name in (periodic.topics or {})}
    stage.sleep(100)
    assert stage.core.state.topics["small"].name in stage.core.state.damaged
    stage.close()


def test_a_page_that_every_topic_needs_is_refused_at_the_start(bench: tuple[Made, Path], store: Path) -> None:
    for kind in ("index leaf", "free"):
        page = bench[0].pages[kind][0]
        before = (store / FILE).read_bytes()
        spoil(store / FILE, (page - 1) * PAGE, b"\xff" * 64)
        refused = kind != "free"  # A free page that lists no others holds nothing.
        assert (check(store).verdict is Verdict.BROKEN) is refused
        assert isinstance(serve(store), str) is refused
        (store / FILE).write_bytes(before)


def test_commits_behind_a_damaged_frame_of_the_log_are_reported(bench: tuple[Made, Path], store: Path) -> None:
    for name, raw in bench[0].killed.items():
        (store / name).write_bytes(raw)
    spoil(store / LOG, 32 + 3 * (PAGE + 24), bytes(24))
    assert check(store).verdict is Verdict.BROKEN
    with pytest.raises(StoreDamaged, match="commits at the end"):
        Store(store)


def test_a_log_without_its_head_is_not_mistaken_for_an_empty_one(bench: tuple[Made, Path], store: Path) -> None:
    for name, raw in bench[0].killed.items():
        (store / name).write_bytes(raw)
    spoil(store / LOG, 0, bytes(32))
    assert check(store).verdict is Verdict.BROKEN
    with pytest.raises(StoreDamaged, match="cannot be read"):
        Store(store)


def test_a_topic_that_cannot_be_given_for_a_damaged_page_stays_and_the_server_goes_on(tmp_path: Path) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    split(pair)
    assert put(pair["s2"], "carl", 20, 11, b"z" * 100_000) == "success"
    pair["s2"].close()
    raw = (tmp_path / "s2" / FILE).read_bytes()
    page = next(at for at in range(0, len(raw), PAGE) if raw[at + 100 : at + 9_000] == b"z" * 8_900)
    spoil(tmp_path / "s2" / FILE, page, struct.pack(">I", 1 << 30))
    pair["s2"].open()
    pair.merge("s2", "s1")
    pair.turns()
    assert pair.holders() == ["s1", "s2"]
    assert pair["s2"].core.state.topics["t"].frozen
    assert pair["s2"].core.state.is_held_back("t")
    assert pair["s2"].put("u", 1).outcome is Outcome.SUCCESS
    pair.close()


def test_a_damaged_index_of_staged_rows_affects_only_its_topic(bench: tuple[Made, Path], store: Path) -> None:
    with contextlib.closing(apsw.Connection(str(store / FILE))) as db:
        pages = db.execute("select pageno from dbstat where name = 'staged_stage' and pagetype = 'leaf'").fetchall()
    spoil(store / FILE, (pages[-1][0] - 1) * PAGE, b"\xff" * 8)
    found = check(store)
    assert found.verdict is Verdict.DAMAGED
    assert [topic.topic for topic in found.topics if topic.held_back] == ["published"]
    served = serve(store)
    assert not isinstance(served, str)
    assert [served[name].ended for name in TOPICS] == [
        Outcome.UNAVAILABLE if name == "published" else Outcome.EMPTY for name in TOPICS
    ]


@pytest.mark.parametrize("size", [0, 1, 60, 300, 20_000])
@pytest.mark.parametrize("logged", [False, True])
def test_a_server_does_as_check_predicts_for_a_truncated_file(
    bench: tuple[Made, Path], store: Path, size: int, logged: bool
) -> None:
    if logged:
        for name, raw in bench[0].killed.items():
            (store / name).write_bytes(raw)
    with (store / FILE).open("r+b") as file:
        file.truncate(size)
    refuses = check(store).verdict is Verdict.BROKEN
    try:
        Store(store).close()
    except StoreDamaged:
        assert refuses
    else:
        assert not refuses
