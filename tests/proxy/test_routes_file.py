"""The routes file: the faults that it survives, and the ones that stop a proxy."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from pubsub.errors import StorageError, StoreDamaged, StoreFull, StoreInUse, StoreNewer
from pubsub.protocol.register import View
from pubsub.proxy import routes_file
from pubsub.proxy.remembered import RegisterRow, Remembered, RouteChanges, StoreRow
from pubsub.proxy.routes_file import FILE_NAME, FORMAT, RoutesStore
from tests.proxy.stage import log_id

ROW = StoreRow(log_id("s1"), "s1", 3, 9, "tcp://s1", overflow=True)

A, B = "a" * 16, "b" * 16
REGISTER = RegisterRow(ROW.store, 9, 7, View(5, A, "tcp://h:1", (A, B), (A,)), "s1")
FORMAT_3 = (
    "create table stores (store text primary key, server text not null, incarnation integer not null,"
    " change integer not null, address text not null, overflow integer not null, heard integer not null default 1)"
    " without rowid",
    "create table holders (topic text, store text, log text not null, primary key (topic, store)) without rowid",
    "create table dead (topic text, log text, server text not null, store text not null, address text not null,"
    " primary key (topic, log)) without rowid",
    "create table gone (store text primary key, incarnation integer not null, here integer not null) without rowid",
)
"""What a release before registers made."""


def changes(**topics: str | None) -> RouteChanges:
    return RouteChanges({ROW.store: ROW}, {(t, ROW.store): log and log_id(log) for t, log in topics.items()})


def reopened(directory: Path) -> Remembered:
    store = RoutesStore(directory)
    try:
        return store.load()
    finally:
        store.close()


def test_a_new_file_remembers_nothing(tmp_path: Path) -> None:
    assert reopened(tmp_path / "made" / "when" / "missing") == Remembered([], [])


def test_written_routes_are_read_back(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    store.write(changes(a="1", b="2"))
    store.write(changes(a=None, b="3", c=None))
    store.close()
    assert reopened(tmp_path) == Remembered([ROW], [("b", ROW.store, log_id("3"))])


def test_a_store_can_be_forgotten(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    store.write(changes(a="1"))
    store.write(RouteChanges({ROW.store: None}, {("a", ROW.store): None}))
    store.close()
    assert reopened(tmp_path) == Remembered([], [])


def test_registers_are_read_back_with_their_latest_values(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    store.write(RouteChanges(registers={ROW.store: REGISTER}))
    later = RegisterRow(ROW.store, 11, 11, View(11, B, "tcp://[::1]:2", (A, B), (A, B)), "s1")
    other = RegisterRow(log_id("s2"), 3, 0, View(0, A, "ipc:///tmp/a/b", (A,), (A,)), "s2")
    store.write(RouteChanges(registers={ROW.store: later, other.store: other}))
    store.close()
    assert sorted(reopened(tmp_path).registers, key=lambda row: row.promised) == [other, later]


def test_a_file_keeps_its_identity_and_a_replacement_has_another(tmp_path: Path) -> None:
    seen = []
    for _ in range(2):
        store = RoutesStore(tmp_path)
        seen.append(store.identity)
        store.close()
    (tmp_path / FILE_NAME).unlink()
    store = RoutesStore(tmp_path)
    seen.append(store.identity)
    store.close()
    assert seen[0] == seen[1] != seen[2]


def test_a_file_is_made_with_the_given_identity_and_keeps_it(tmp_path: Path) -> None:
    RoutesStore(tmp_path, identity=A).close()
    store = RoutesStore(tmp_path, identity=B)
    assert store.identity == A
    store.close()


def test_a_file_of_the_release_before_registers_is_taken_over_and_gets_an_identity(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / FILE_NAME))
    for statement in FORMAT_3:
        db.execute(statement)
    db.execute("insert into stores values (?, 's1', 3, 9, 'tcp://s1', 1, 1)", (ROW.store,))
    db.pragma("application_id", routes_file._APPLICATION)
    db.pragma("user_version", 3)
    db.close()
    store = RoutesStore(tmp_path)
    identity = store.identity
    assert store.load() == Remembered([ROW], [])
    store.write(RouteChanges(registers={ROW.store: REGISTER}))
    store.close()
    store = RoutesStore(tmp_path)
    assert (store.identity, store.load().registers) == (identity, (REGISTER,))
    store.close()


def test_a_release_before_registers_refuses_a_file_with_registers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RoutesStore(tmp_path)
    store.write(RouteChanges(registers={ROW.store: REGISTER}))
    store.close()
    monkeypatch.setattr(routes_file, "FORMAT", 3)
    with pytest.raises(StoreNewer):
        RoutesStore(tmp_path)
    monkeypatch.undo()
    assert reopened(tmp_path).registers == (REGISTER,)


@pytest.mark.parametrize(
    "damage",
    [
        "update registers set leader = '../x'",
        "update registers set in_sync = ''",
        "update registers set server = ''",
        "update registers set members = leader, in_sync = members",
        "update registers set promised = ballot - 1",
        "update registers set term = -1",
        "update registers set address = 'anywhere'",
        "update registers set ballot = 'high'",
        "update registers set store = 'x'",
        "delete from identity",
    ],
)
def test_a_register_that_no_proxy_writes_stops_the_proxy(tmp_path: Path, damage: str) -> None:
    store = RoutesStore(tmp_path)
    store.write(RouteChanges(registers={ROW.store: REGISTER}))
    assert store._db is not None
    store._db.execute(damage)
    store.close()
    with pytest.raises(StoreDamaged):
        reopened(tmp_path)


def test_every_setting_of_sqlite_took_effect(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    db = store._db
    assert db is not None
    assert (db.pragma("journal_mode"), db.pragma("synchronous"), db.pragma("locking_mode")) == ("wal", 2, "exclusive")
    store.close()


KILLED = """
import os, signal, sys
from pathlib import Path
from pubsub.proxy.routes_file import RoutesStore
from tests.proxy.test_routes_file import changes
store = RoutesStore(Path(sys.argv[1]))
k = 0
while True:
    store.write(changes(**{f"t{k}": "1"}))
    k += 1
    print(k, flush=True)
"""


def test_every_write_that_returned_survives_sigkill(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True, cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(20):
        process.stdout.readline()
    process.send_signal(signal.SIGKILL)
    written = int((process.stdout.read().split() or ["20"])[-1])
    process.wait()
    process.stdout.close()
    held = {topic for topic, _, _ in reopened(tmp_path).holders}
    assert {f"t{k}" for k in range(written)} <= held


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    with pytest.raises(StoreInUse, match="in use by this very process"):
        RoutesStore(tmp_path)
    store.close()
    other = apsw.Connection(str(tmp_path / FILE_NAME))
    other.pragma("locking_mode", "exclusive")
    other.execute("begin immediate")
    with pytest.raises(StoreInUse, match="in use by another process"):
        RoutesStore(tmp_path)
    other.close()
    assert reopened(tmp_path).stores == []


def test_a_file_of_a_newer_release_is_refused_and_unchanged(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    store.write(changes(a="1"))
    assert store._db is not None
    store._db.pragma("user_version", FORMAT + 1)
    store.close()
    with pytest.raises(StoreNewer) as caught:
        RoutesStore(tmp_path)
    assert (caught.value.found, caught.value.known) == (FORMAT + 1, FORMAT)
    db = apsw.Connection(str(tmp_path / FILE_NAME))
    assert db.execute("select count(*) from holders").get == 1
    db.close()


def test_a_file_that_is_no_database_stops_the_proxy_with_a_remedy(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"not a database at all" * 300)
    with pytest.raises(
        StoreDamaged, match="put it aside and start the proxy without it, best while every server is running"
    ):
        RoutesStore(tmp_path)
    assert (tmp_path / FILE_NAME).read_bytes().startswith(b"not a database")


def test_another_program_s_database_is_not_taken_over(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / FILE_NAME))
    db.execute("create table mine (x)")
    db.close()
    with pytest.raises(StoreDamaged, match="not a routes file"):
        RoutesStore(tmp_path)


def test_pages_that_were_overwritten_are_found_at_the_start(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    store.write(changes(**{f"topic{k}": "1" for k in range(2000)}))
    store.close()
    path = tmp_path / FILE_NAME
    place = path.read_bytes().index(b"topic1000")
    with path.open("r+b") as file:
        file.seek(place // 4096 * 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(StoreDamaged):
        reopened(tmp_path)


@pytest.mark.parametrize("damage", ["update holders set log = '../x'", "update holders set given = 'soon'"])
def test_rows_that_no_proxy_writes_are_found_at_the_start(tmp_path: Path, damage: str) -> None:
    store = RoutesStore(tmp_path)
    store.write(changes(a="1"))
    assert store._db is not None
    store._db.execute(damage)
    store.close()
    with pytest.raises(StoreDamaged, match="rows that no proxy writes"):
        reopened(tmp_path)


def test_a_full_disk_writes_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    store = RoutesStore(tmp_path)
    db = store._db
    assert db is not None
    db.pragma("max_page_count", db.pragma("page_count"))
    many = changes(**{f"topic{k}": "1" for k in range(40_000)})  # More than the pages that it has ahead.
    with pytest.raises(StoreFull, match="no space"):
        store.write(many)
    assert store.load() == Remembered([], [])
    db.pragma("max_page_count", 1_000_000)
    store.write(many)
    assert len(store.load().holders) == 40_000
    store.close()


def test_a_directory_that_cannot_be_made_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="cannot be used"):
        RoutesStore(tmp_path / "file" / "below")


def test_an_emptied_file_stops_the_proxy_and_a_missing_one_does_not(tmp_path: Path) -> None:
    """With what it remembered, it would forget what operators gave up too."""
    RoutesStore(tmp_path).close()
    (tmp_path / FILE_NAME).write_bytes(b"")
    with pytest.raises(StoreDamaged, match="it is empty; put a backup back, or delete it to begin anew"):
        RoutesStore(tmp_path)
    (tmp_path / FILE_NAME).unlink()
    RoutesStore(tmp_path).close()
