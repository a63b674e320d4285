"""Stores of earlier formats: a server migrates them, and a tool that only reads leaves them as they are."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from pubsub.errors import StorageError, StoreNewer
from pubsub.server.offline.check import check
from pubsub.server.offline.export import export_tree, import_tree
from pubsub.server.offline.found import Verdict
from pubsub.server.offline.restore import accept_copy
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk
from pubsub.server.standby.disk.pages import COPIED
from pubsub.server.storage import formats
from pubsub.server.storage.loading import load
from pubsub.server.storage.schema import FILE, FORMAT
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.loaded import Loaded
from pubsub.server.topic.spans import Span
from tests.server.old_formats import make_old_store, make_store, rows_of
from tests.server.test_fields import BASE, BODY, CHANGES, FULL

GONE, MERGED, OTHER, LOST, GIVEN = "1" * 16, "2" * 16, "3" * 16, "5" * 16, "6" * 16
MEMBER = "a" * 16

NEWER = (
    c.TopicContested
    | c.SettingsChanged
    | c.RemovalChanged
    | c.LogCompacted
    | c.OrderChanged
    | c.TopicPurged
    | c.DelayedKept
    | c.ShelfMerged
    | c.GroupChanged
    | c.MemberChanged
    | c.RetriesChanged
    | c.CopyKept
)
PLAIN: list[c.Change] = [
    *(change for change in FULL if not isinstance(change, NEWER)),
    c.LogOpened(20, OTHER, 0, c.LogState.INCOMING),
    c.BatchAppended(20, 1, 2, 1, 1, 9, 5, 0, BODY),
    c.LogOpened(21, LOST, 0, c.LogState.ABANDONED),
    # The receiver is a server, although its ID is also the old word for a state.
    c.LogOpened(22, GIVEN, 3),
    c.TopicChanged(3, "given", 22, (), ""),
    c.BatchAppended(22, 1, 1, 2, 1, 9, 5, 0, BODY),
    c.BatchQuarantined(22, 1),
    c.TopicGiven(3, "dead"),
    c.BatchQuarantined(1, 5),
    c.BatchPublished(1, 7, 2, 2, 1, 10, 6, 24, 1),
    c.StageOpened(4, 1, 2, 4, "again", 8),
    c.PieceStaged(4, 2, 1, 2, 5, 8, BODY),
    c.NoteKept("port", 5701),
    c.ChangeCounted(12, 44),
]
"""The contents of a store that lacks the tables of `LATER`."""

EVERYTHING: list[c.Change] = [
    *PLAIN,
    c.TopicContested(1, "e" * 16, "s2"),
    c.LogOpened(10, GONE, 2),
    c.LogOpened(11, MERGED, 2, c.LogState.MERGED),
    c.TopicChanged(2, "gone", 10, (Span(GONE, 1, None, 8),), ""),
    c.BatchAppended(10, 1, 2, 1, 1, 9, 5, 0, BODY),
    c.WatermarkStored(8, {1: 1, 2: 7}),
    c.SubscriptionChanged(2, "bob", 5, 6, True, 7, (GONE, 1), (Span(GONE, 2),)),
    c.TopicSetAside(2, "abandoned by an operator", 77),
]

CASES: dict[str, tuple[int, list[c.Change], bool]] = {
    "format 1": (1, EVERYTHING, True),
    "format 1 without later tables": (1, PLAIN, False),
    "format 2": (2, EVERYTHING, True),
    "format 2 without later tables": (2, PLAIN, False),
}

Made = tuple[Path, Path, int]


@pytest.fixture(params=CASES.values(), ids=CASES)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """A store of this format, one of an earlier format with the same contents, and that format."""
    version, contents, later = request.param
    make_store(tmp_path / "new", contents)
    make_old_store(tmp_path / "old", tmp_path / "new", version, later=later)
    return tmp_path / "new", tmp_path / "old", version


@pytest.fixture
def old(tmp_path: Path) -> Path:
    make_store(tmp_path / "new", EVERYTHING)
    make_old_store(tmp_path / "old", tmp_path / "new", 2)
    return tmp_path / "old"


def loaded(directory: Path, **how: bool) -> tuple[Loaded, list[Any]]:
    """Return everything that a server begins with, and the quarantined topics in full."""
    with contextlib.closing(Store(directory, **how)) as store:
        return load(store), list(store.topics(quarantined=True))


def raw(directory: Path) -> tuple[int, list[str], dict[str, list[tuple[Any, ...]]]]:
    """Return format, schema and rows of a store, without opening it as one."""
    with contextlib.closing(apsw.Connection(str(directory / FILE))) as db:
        schema = [text for (text,) in db.execute("select sql from sqlite_schema order by name")]
        return db.pragma("user_version"), schema, rows_of(db)


def columns(directory: Path) -> dict[str, list[Any]]:
    with contextlib.closing(apsw.Connection(str(directory / FILE))) as db:
        names = [name for (name,) in db.execute("select name from sqlite_schema where type = 'table'")]
        tables = {name: list(db.execute(f"select name, type, pk from pragma_table_info('{name}')")) for name in names}
        indexes = {name: sorted(db.execute(f"select origin, name from pragma_index_list('{name}')")) for name in names}
        return {name: [tables[name], [one for one in indexes[name] if one[0] == "c"]] for name in sorted(names)}


def test_a_server_migrates_an_earlier_format_and_serves_the_same(made: Made) -> None:
    new, old, version = made
    assert raw(old)[0] == version
    assert loaded(old) == loaded(new)
    assert raw(old)[0] == FORMAT == 3
    assert raw(old)[2] == raw(new)[2], "and every row is as the new format has it"
    assert columns(old) == columns(new)


def test_a_second_opening_changes_nothing(made: Made) -> None:
    _, old, _ = made
    first = loaded(old)
    before = (old / FILE).read_bytes()
    assert loaded(old) == first
    assert (old / FILE).read_bytes() == before


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: type(change).__name__)
def test_a_change_is_written_to_a_migrated_store_as_to_a_new_one(change: c.Change, tmp_path: Path) -> None:
    make_store(tmp_path / "new", [one for one in BASE if not isinstance(one, NEWER)])
    make_old_store(tmp_path / "old", tmp_path / "new", 2)
    for name in ("new", "old"):
        make_store(tmp_path / name, [change])
    assert raw(tmp_path / "old")[2] == raw(tmp_path / "new")[2]


def test_an_earlier_format_is_read_without_being_changed(made: Made) -> None:
    new, old, version = made
    before, contents = (old / FILE).read_bytes(), raw(old)
    assert loaded(old, read_only=True) == loaded(new)
    with contextlib.closing(Store(old, read_only=True)) as store:
        for table, rows in raw(new)[2].items():
            assert list(store.db.execute(f"select * from {table}")) == rows
        assert store.reader.log_state(LOST) is c.LogState.ABANDONED
        assert store.reader.log_state(OTHER) is c.LogState.INCOMING
        with pytest.raises(StorageError), store.guarded():
            store.apply([c.NoteKept("port", 1)])
    assert (old / FILE).read_bytes() == before
    assert raw(old) == contents
    assert contents[0] == version


def test_the_check_of_an_earlier_format_finds_the_same_and_changes_nothing(made: Made) -> None:
    new, old, _ = made
    before = {path.name: path.read_bytes() for path in old.iterdir()}
    assert replace(check(old), directory="") == replace(check(new), directory="")
    assert {path.name: path.read_bytes() for path in old.iterdir()} == before


def test_the_check_of_an_earlier_format_finds_damaged_pages_of_its_tables(old: Path) -> None:
    with contextlib.closing(apsw.Connection(str(old / FILE))) as db:
        (number, size) = next(
            db.execute("select rootpage, page_size from sqlite_schema, pragma_page_size where name = 'entry'")
        )
    with (old / FILE).open("r+b") as file:
        file.seek((number - 1) * size)
        file.write(b"\xff" * size)
    before = (old / FILE).read_bytes()
    found = check(old)
    assert found.verdict is Verdict.BROKEN
    with pytest.raises(StorageError, match="run pubsub server check"):
        Store(old)
    assert (old / FILE).read_bytes() == before


@pytest.mark.parametrize("aside", [False, True], ids=["served", "quarantined"])
def test_the_export_of_an_earlier_format_is_the_same_and_changes_nothing(
    made: Made, tmp_path: Path, *, aside: bool
) -> None:
    new, old, version = made
    before = (old / FILE).read_bytes()
    trees = []
    for directory in (new, old):
        target = tmp_path / f"tree-{directory.name}"
        export_tree(directory, target, quarantined=aside)
        (root,) = target.iterdir()
        trees.append({path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()})
    assert trees[0] == trees[1]
    assert (old / FILE).read_bytes() == before
    assert raw(old)[0] == version


@pytest.mark.parametrize("step", range(len(formats.MIGRATION) + 1))
def test_a_migration_that_fails_leaves_the_earlier_format(
    old: Path, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, contents = (old / FILE).read_bytes(), raw(old)
    with monkeypatch.context() as patch:
        patch.setattr(formats, "MIGRATION", (*formats.MIGRATION[:step], "insert into no_such_table values (1)"))
        with pytest.raises(StorageError):
            Store(old)
    assert (old / FILE).read_bytes() == before
    assert raw(old) == contents
    assert loaded(old) == loaded(old.with_name("new"))


KILLED = """
import os, sys
from pathlib import Path
from pubsub.server.storage import formats
from pubsub.server.storage.store import Store

def killed(step, statements):
    yield from statements[:step]
    os._exit(9)

formats.MIGRATION = killed(int(sys.argv[2]), formats.MIGRATION)
Store(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("step", range(len(formats.MIGRATION) + 1))
def test_a_migration_that_is_killed_leaves_the_earlier_format(old: Path, step: int) -> None:
    contents = raw(old)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(old), str(step)], check=False)
    assert killed.returncode == 9
    assert loaded(old, read_only=True) == loaded(old.with_name("new")), "a tool reads it as it was left"
    assert raw(old) == contents
    assert loaded(old) == loaded(old.with_name("new"))
    assert raw(old)[0] == FORMAT


def test_a_full_disk_leaves_the_earlier_format(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents, size = raw(old), (old / FILE).stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(formats, "MIGRATION", ("pragma max_page_count = 1", "create table t (x)", *formats.MIGRATION))
        with pytest.raises(StorageError, match="full"):
            Store(old)
    assert (raw(old), (old / FILE).stat().st_size) == (contents, size)


@pytest.mark.parametrize(
    "use", [accept_copy, lambda old: import_tree(old, old.with_name("tree"))], ids=["restored", "import"]
)
def test_a_command_that_writes_migrates(old: Path, use: Callable[[Path], object]) -> None:
    make_store(old.with_name("third"), [c.LogOpened(1, "9" * 16, 1), c.TopicChanged(1, "w", 1, (), "")])
    export_tree(old.with_name("third"), old.with_name("tree"))
    use(old)
    assert raw(old)[0] == FORMAT
    assert check(old).verdict in {Verdict.INTACT, Verdict.DAMAGED}


def test_a_member_migrates_an_earlier_releases_page_copy_and_refuses_a_later_ones(old: Path) -> None:
    (old / FILE).rename(old / COPIED)
    local = LocalFile(old)
    local.make(MEMBER)
    disk = MemberDisk(old, local)
    assert disk.store is not None
    assert disk.store.db.pragma("user_version") == FORMAT
    assert load(disk.store) == loaded(old.with_name("new"))[0]
    disk.store.db.pragma("user_version", FORMAT + 1)
    disk.close()
    (old / FILE).rename(old / COPIED)
    with pytest.raises(StoreNewer) as raised:
        MemberDisk(old, local)
    assert "\n" not in str(raised.value)
