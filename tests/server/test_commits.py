"""A commit as bytes, in both forms: every change comes back as it was, and another store that carries them out becomes
alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pubsub.errors import DecodeError
from pubsub.protocol import Outcome, Publish, Read, Subscribe
from pubsub.protocol.messages import Stage as StageRows
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.commits import FORM, FRAME_BYTES, Commit, decode, encode, frames
from tests.fields import variants
from tests.server.stage import STORE, Stage, put
from tests.server.test_fields import CHANGES

GOLDEN = Path(__file__).parent / "golden"
FORMS = (1, 2)
BODIES: list[c.Change] = [
    c.BatchAppended(1, n, 1, 1, n, 9, 5, 0, body) for n, body in enumerate([b"", None, b"{\n}", b"\n", b"x" * 40], 1)
]


def test_every_change_is_tested() -> None:
    assert {type(change) for change in CHANGES} == set(get_args(c.Change))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_every_field_of_every_change_round_trips(change: c.Change, form: int) -> None:
    for each in (change, *(variant for _, variant in variants(change))):
        commit = Commit(7, 3, [each, c.LogUsedUp(9), each])
        assert decode(encode(commit, form)) == commit


def shown() -> Iterator[tuple[str, Commit]]:
    """Commits that show each change with each of its fields otherwise, by the names that they have in the files."""
    for change in CHANGES:
        for name, each in (("", change), *variants(change)):
            yield f"{type(change).__name__}.{name}".rstrip("."), Commit(7, 3, [each, c.LogUsedUp(9), each])
    later = (
        c.SettingsChanged
        | c.RemovalChanged
        | c.LogCompacted
        | c.BatchKept
        | c.OrderChanged
        | c.TopicPurged
        | c.DelayedKept
        | c.DelayedGone
        | c.ShelfMerged
        | c.ShelfDiscarded
        | c.GroupChanged
        | c.MemberChanged
        | c.MemberGone
        | c.RetriesChanged
        | c.CopyKept
        | c.CopyChanged
        | c.CopyGone
        | c.CopiesMerged
        | c.CopiesDropped
        | c.GroupEmptied
    )
    first = [change for change in CHANGES if not isinstance(change, later)]  # Of the first release.
    yield from (("all", Commit(7, 3, first)), ("none", Commit(7, 3, [])), ("bodies", Commit(7, 3, BODIES)))


@pytest.mark.parametrize("form", FORMS)
def test_the_bytes_of_every_commit_are_unchanged(form: int) -> None:
    """Each line of a file is a commit as a release wrote it into its stream; a line that is there stays there."""
    golden = dict(line.split() for line in (GOLDEN / f"commits_{form}.txt").read_text().splitlines())
    assert {name: encode(commit, form).hex() for name, commit in shown()} == golden
    assert {name: decode(bytes.fromhex(data)) for name, data in golden.items()} == dict(shown())


def test_the_first_byte_distinguishes_the_forms_and_a_newer_form_is_refused() -> None:
    commit = Commit(7, 3, CHANGES)
    first, second = encode(commit, 1), encode(commit)
    assert (first[:1], second[:2]) == (b"{", bytes([0x94, FORM]))
    assert encode(commit, FORM + 1) == second
    with pytest.raises(DecodeError):
        decode(bytes([0x94, FORM + 1]) + second[2:])


@pytest.mark.parametrize("form", FORMS)
def test_each_change_gets_its_own_body_as_a_view(form: int) -> None:
    staged = c.PieceStaged(1, 1, 0, 1, 5, 9, memoryview(b"rows"))
    data = encode(Commit(1, 1, [*BODIES, staged]), form)
    bodies = [getattr(change, "body", None) for change in decode(data).changes]
    assert bodies == [b"", None, b"{\n}", b"\n", b"x" * 40, b"rows"]
    assert {body.obj is data for body in bodies if body is not None} == {True}


@pytest.mark.parametrize("form", FORMS)
def test_a_long_commit_is_split_into_parts(form: int) -> None:
    changes = [c.WatermarkStored(1, {n: n for n in range(100_000)}), *(BODIES[0], BODIES[-1]) * 3]
    changes[3:3] = [c.PieceStaged(1, 1, 0, 1, 5, 9, bytes(3 * FRAME_BYTES))]
    commit = Commit(1, 1, changes)
    parts = frames(commit, form)
    assert len(parts) >= 4
    assert all(0 < len(part) <= FRAME_BYTES for part in parts)
    assert b"".join(parts) == encode(commit, form)
    assert decode(*parts) == commit


@given(st.sampled_from(FORMS), st.lists(st.integers(0, 10_000), max_size=6))
def test_a_commit_is_read_from_any_split_of_its_bytes(form: int, cuts: list[int]) -> None:
    data = DATA[form]
    places = sorted(min(cut, len(data)) for cut in (0, *cuts, len(data)))
    parts = [data[low:high] for low, high in pairwise(places)]
    assert decode(*parts) == decode(*map(memoryview, parts)) == Commit(7, 3, CHANGES)


DATA = {form: encode(Commit(7, 3, CHANGES), form) for form in FORMS}


def is_refused(data: bytes) -> bool:
    """Whether a commit cannot be read; any other error than `DecodeError` ends the test."""
    try:
        decode(data)
    except DecodeError:
        return True
    return False


@given(st.sampled_from(FORMS), st.integers(0, 10_000), st.binary(max_size=6), st.integers(0, 4))
def test_an_invalid_commit_raises_only_decode_error(form: int, place: int, junk: bytes, cut: int) -> None:
    data = DATA[form]
    place %= len(data)
    is_refused(data[:place] + junk + data[place + cut :])
    assert is_refused(data[:place])
    assert is_refused(data + junk) == bool(junk)


@given(st.sampled_from(FORMS), st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 7)), min_size=1, max_size=3))
def test_flipped_bits_are_refused_or_are_another_commit(form: int, flips: list[tuple[int, int]]) -> None:
    data = bytearray(DATA[form])
    for place, bit in flips:
        data[place % len(data)] ^= 1 << bit
    is_refused(bytes(data))


@given(st.sampled_from([b"", b"{", b"\x94\x02", b"\x94\x02\x01\x01\x91"]), st.binary(max_size=60))
def test_random_bytes_are_refused(beginning: bytes, data: bytes) -> None:
    is_refused(beginning + data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x91" * 200_000,
        b"\x94\x02\x01\x01" + b"\x91" * 200_000,
        b"\x94\x02\x01\x01\xdd\xff\xff\xff\xff",
        b"\x94\x02\x01\x01\x91\x93\xafWatermarkStored\x01\xdf\xff\xff\xff\xff",
        b"\x94\x02\x01\x01\x91\x96\xacTopicChanged\x01\xa1t\x01\xdd\xff\xff\xff\xff",
        b"\x94\x02\x01\x01\x91\x98\xabPieceStaged\x01\x01\x01\x01\x01\x01\xc6\xff\xff\xff\xff",
        b'{"changes":' + b"[" * 200_000 + b"\n",
        b'{"incarnation":1,"number":1,"changes":[["LogUsedUp",{"log":' + b"9" * 5_000 + b"}]]}\n",
        b'{"incarnation":1,"number":1,"changes":[["LogUsedUp",{"log":1e999}]]}\n',
    ],
    ids=range(9),
)
def test_deeply_nested_or_seemingly_huge_data_is_refused(data: bytes) -> None:
    assert is_refused(data)


IMPOSSIBLE: list[tuple[int, Any]] = [
    (0, []),
    (1, [["Nothing"]]),
    (1, [["LogUsedUp"]]),
    (1, [["LogUsedUp", 1, 2]]),
    (1, [["LogUsedUp", -1]]),
    (1, [["LogUsedUp", 2**63]]),
    (1, [["LogUsedUp", True]]),
    (1, [["LogUsedUp", 1.0]]),
    (1, [["LogUsedUp", "1"]]),
    (1, [["LogUsedUp", None]]),
    (1, [["LogOpened", 1, "a", 1, "odd"]]),
    (1, [["LogOpened", 1, 5, 1, "held"]]),
    (1, [["BodiesDropped", 1, 2, -3]]),
    (1, [["LogEnded", 1, 1]]),
    (1, [["TopicChanged", 1, "t", 1, [["a", 1, None, 0, 0, False, 7]], ""]]),
    (1, [["TopicChanged", 1, "t", 1, [["a", -1, None, 0, 0]], ""]]),
    (1, {"a": 1}),
    (1, None),
]


@pytest.mark.parametrize(("number", "changes"), IMPOSSIBLE, ids=range(len(IMPOSSIBLE)))
def test_an_impossible_commit_is_refused(number: int, changes: Any) -> None:
    assert is_refused(msgspec.msgpack.encode([2, 1, number, changes]))
    fields = {change.__name__: change.__struct_fields__ for change in get_args(c.Change)}
    if isinstance(changes, list):
        changes = [
            [name, dict(zip((*fields.get(name, ()), "more"), values, strict=False))] for name, *values in changes
        ]
    assert is_refused(json.dumps({"incarnation": 1, "number": number, "changes": changes}).encode() + b"\n")


@pytest.mark.parametrize("head", [{}, [], 1, {"incarnation": 1, "number": 1}, {"incarnation": 1, "changes": []}])
def test_a_line_other_than_a_commit_is_refused(head: Any) -> None:
    assert is_refused(json.dumps(head).encode() + b"\n")
    assert is_refused(msgspec.msgpack.encode(head))


@pytest.mark.parametrize(
    "row", [["a", 1], ["a", 1, None, 0, 0, 2], ["a", 1, None, 0, 0, 0], ["a", 1, None, 0, 0, 1, 1]]
)
def test_a_span_of_the_first_form_has_a_mark_or_none(row: list[Any]) -> None:
    data = encode(Commit(1, 1, [c.TopicChanged(1, "t", 1, (), "")]), 1)
    assert not is_refused(data)
    assert is_refused(data.replace(b'"history":[]', b'"history":' + json.dumps([row]).encode()))


@pytest.mark.parametrize("size", ["-2", "41", "true", "null", '"1"', "1.0"])
def test_a_body_of_the_first_form_has_a_possible_length(size: str) -> None:
    data = encode(Commit(1, 1, BODIES[-1:]), 1)
    assert not is_refused(data)
    assert is_refused(data.replace(b'"body":40', b'"body":' + size.encode()))


LOCAL = {"store", "incarnation", "server", "note port"}
"""What a store has for itself (`storage.local`)."""


def rows(store: Store) -> list[Any]:
    tables = [name for (name,) in store.db.execute("select name from sqlite_schema where type = 'table' order by name")]
    every = [(table, *row) for table in tables for row in store.db.execute(f"select * from {table}")]
    return sorted((row for row in every if not (row[0] == "meta" and row[1] in LOCAL)), key=repr)


def test_a_store_with_every_applied_commit_equals_the_original(tmp_path: Path) -> None:
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
    for place, commit in enumerate(stage.commits):
        with twin.guarded():
            twin.apply(decode(encode(commit, FORMS[place % 2])).changes)
    assert rows(twin) == rows(stage.store)
    assert {"batch", "published", "subscription", "topic"} <= {row[0] for row in rows(twin)}
    twin.close()
    stage.close()
