"""A commit as bytes: every change comes back as it was, and another store that carries them out becomes alike."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import DecodeError
from pubsub.protocol import Outcome, Publish, Read, Subscribe
from pubsub.protocol.messages import Stage as StageRows
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.commits import FRAME_BYTES, UNCOPIED_BYTES, Commit, decode, encode, frames
from tests.fields import variants
from tests.server.stage import STORE, Stage, put
from tests.server.test_fields import CHANGES


def test_every_change_is_tried_here() -> None:
    assert {type(change) for change in CHANGES} == set(get_args(c.Change))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_every_field_of_every_change_comes_back(change: c.Change) -> None:
    for each in (change, *(variant for _, variant in variants(change))):
        commit = Commit(7, 3, [each, c.LogUsedUp(9), each])
        assert decode(encode(commit)) == commit


def test_bodies_come_back_each_to_its_own() -> None:
    appended = [c.BatchAppended(1, n, 1, 1, n, 9, 5, 0, body) for n, body in enumerate([b"", None, b"{\n}", b"\n"], 1)]
    staged = c.PieceStaged(1, 1, 0, 1, 5, 9, memoryview(b"rows"))
    commit = decode(encode(Commit(1, 1, [*appended, staged])))
    assert [getattr(change, "body", None) for change in commit.changes] == [b"", None, b"{\n}", b"\n", b"rows"]


def body_of(change: Any) -> Any:
    """What a body that was read is a view into."""
    return getattr(change.body, "obj", None)


def test_large_bodies_are_parts_of_their_own_and_not_copied() -> None:
    large, small = bytes(UNCOPIED_BYTES), b"x" * (UNCOPIED_BYTES - 1)
    bodies = [small, large, b"", *[small] * 50, large]
    commit = Commit(1, 1, [c.BatchAppended(1, n, 1, 1, n, 9, 5, 0, body) for n, body in enumerate(bodies, 1)])
    parts = frames(commit)
    assert sum(part is large for part in parts) == 2
    assert all(0 < len(part) <= FRAME_BYTES for part in parts)
    assert len(parts) == 1 + 1 + 1 + 2 + 1  # The line, the small ones before, a large one, those between, a large one.
    assert b"".join(parts) == encode(commit)
    read = decode(*parts)
    assert read == commit
    assert sum(body_of(change) is large for change in read.changes) == 2


def test_a_line_of_any_length_is_cut_into_parts() -> None:
    commit = Commit(1, 1, [c.WatermarkStored(1, {n: n for n in range(100_000)})])
    assert len(frames(commit)) == 2
    assert decode(*frames(commit)) == commit


@given(st.lists(st.integers(0, 10_000), max_size=6))
def test_it_does_not_matter_how_the_bytes_are_cut(cuts: list[int]) -> None:
    places = sorted(min(cut, len(LINE)) for cut in (0, *cuts, len(LINE)))
    assert decode(*(LINE[low:high] for low, high in pairwise(places))) == Commit(7, 3, CHANGES)


LINE = encode(Commit(7, 3, CHANGES))


@given(st.integers(0, len(LINE) - 1), st.binary(max_size=6), st.integers(0, 4))
def test_what_is_no_commit_is_refused_and_nothing_else_happens(place: int, junk: bytes, cut: int) -> None:
    for data in (LINE[:place] + junk + LINE[place + cut :], LINE[:place], LINE + junk):
        try:
            decode(data)
        except DecodeError:
            continue


@pytest.mark.parametrize(
    "head",
    [
        {},
        [],
        {"incarnation": 1, "number": 0, "changes": []},
        {"incarnation": 1, "number": 1, "changes": [["Nothing", {}]]},
        {"incarnation": 1, "number": 1, "changes": [["LogUsedUp", {}]]},
        {"incarnation": 1, "number": 1, "changes": [["LogUsedUp", {"log": 1, "more": 2}]]},
        {"incarnation": 1, "number": 1, "changes": [["LogUsedUp", {"log": -1}]]},
        {"incarnation": 1, "number": 1, "changes": [["LogUsedUp", {"log": True}]]},
        {"incarnation": 1, "number": 1, "changes": [["LogOpened", {"log": 1, "id": "a", "topic": 1, "state": "odd"}]]},
    ],
)
def test_a_commit_that_cannot_be_is_refused(head: Any) -> None:
    with pytest.raises(DecodeError):
        decode(json.dumps(head).encode() + b"\n")


LOCAL = {"store", "incarnation", "server", "note port"}
"""What a store has for itself (`storage.local`)."""


def rows(store: Store) -> list[Any]:
    tables = [name for (name,) in store.db.execute("select name from sqlite_schema where type = 'table' order by name")]
    every = [(table, *row) for table in tables for row in store.db.execute(f"select * from {table}")]
    return sorted((row for row in every if not (row[0] == "meta" and row[1] in LOCAL)), key=repr)


def test_a_store_that_carries_out_every_commit_becomes_alike(tmp_path: Path) -> None:
    stage = Stage(tmp_path / "s1", retention_hold_seconds=13.0)
    stage.commits = []
    stage.subscribe("bob", "t", 5)
    stage.ask(Subscribe("spark", "t", 5, 5, name="all", start="earliest"))
    log = stage.put("t", 1, [b"a", b"b"]).log
    stage.put("t", 3, [b"c"], previous=2, keys=[b"k"])
    stage.say(put("t", 4, previous=3, sender="carl"))
    stage.get("bob", "t", (log, 2), 5)
    stage.ask(Read("spark", "t", None, records_max=10))
    body = put("t", 1, [b"row"]).body
    rows_of = {
        "batch": 0,
        "publisher": STORE,
        "attempt": "try",
        "first": 0,
        "count": 1,
        "checksum": put("t", 1, [b"row"]).checksum,
    }
    assert stage.ask(StageRows("sink", "t", **rows_of, body=body)).outcome is Outcome.SUCCESS
    assert stage.ask(Publish("sink", "t", 0, STORE, {"try": 1})).outcome is Outcome.SUCCESS
    stage.unsubscribe("bob", "t", 6)
    stage.fail_commit = True
    stage.put("u", 1)
    stage.fail_commit = stage.core.state.full = False
    stage.put("v", 1)
    stage.sleep(60)
    numbers = [(commit.incarnation, commit.number) for commit in stage.commits]
    assert numbers == [(stage.core.state.incarnation, number) for number in range(1, len(numbers) + 1)]
    twin = Store(tmp_path / "twin")
    for commit in stage.commits:
        with twin.guarded():
            twin.apply(decode(encode(commit)).changes)
    assert rows(twin) == rows(stage.store)
    assert {"batch", "published", "entry", "topic"} <= {row[0] for row in rows(twin)}
    twin.close()
    stage.close()
