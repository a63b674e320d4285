"""The write-ahead log: grown at start, kept short while a writer is busy, never the reason for a false success."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any, NoReturn

import apsw
import pytest

from pubsub.base.database import PAGE_BYTES, Turns, open_database
from pubsub.errors import StorageError
from pubsub.server.storage.checkpoint import CATCH_UPS_MAX, LITTLE_PAGES, WAL_BYTES_MAX, Checkpointer, grow_log
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c

MIB = 1024 * 1024


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def log_bytes(store: Store) -> int:
    return Path(f"{store.path}-wal").stat().st_size


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.005)


def append(store: Store, offset: int, size: int) -> None:
    body = offset.to_bytes(8, "big") * (size // 8)
    with store.guarded():
        store.apply([c.BatchAppended(1, offset, 1, 1, offset, 1, 0, 0, body)])


def test_growing_leaves_room_in_the_log_and_nothing_in_the_store(store: Store) -> None:
    before = store.db.execute("select name from sqlite_schema order by name").fetchall()
    pages = store.db.pragma("page_count")
    cache = store.db.pragma("cache_size")
    grow_log(store, 4 * MIB)
    assert log_bytes(store) >= 3.9 * MIB
    assert store.db.execute("select name from sqlite_schema order by name").fetchall() == before
    assert (store.db.pragma("page_count"), store.db.pragma("cache_size")) == (pages, cache)
    assert store.db.pragma("freelist_count") == 0
    assert not store.db.in_transaction
    size = log_bytes(store)
    append(store, 1, MIB)
    assert log_bytes(store) == size


def test_growing_a_log_without_room_is_no_error(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path, bytes_max=2 * MIB)
    cache = store.db.pragma("cache_size")
    grow_log(store, 8 * MIB)
    assert "no space to grow the write-ahead log" in caplog.text
    assert (store.db.in_transaction, store.db.pragma("cache_size")) == (False, cache)
    append(store, 1, MIB // 4)
    assert store.db.execute("select count(*) from batch").fetchall() == [(1,)]
    store.close()


def test_a_new_connection_checkpoints_nothing_before_its_first_read(store: Store) -> None:
    append(store, 1, MIB)
    db = open_database(store.path, (("wal_autocheckpoint", 0),))
    other = apsw.Connection(str(store.path))
    assert other.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE) == (-1, -1)  # why `_round` reads first
    other.close()
    checkpointer = Checkpointer(store, Turns(), lambda: None)
    before = store.path.stat().st_size
    checkpointer._round(db)
    assert store.path.stat().st_size > before
    pages, copied = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    assert pages == copied > 0
    db.close()


def test_the_log_stays_short_while_a_writer_is_busy(store: Store) -> None:
    lock = Turns()
    checkpointer = Checkpointer(store, lock, lambda: None)
    checkpointer.start()
    body = b"x" * MIB
    longest = 0
    for offset in range(1, 301):
        with lock, store.guarded():
            store.apply([c.BatchAppended(1, offset, 1, 1, offset, 1, 0, 0, body)])
            if offset % 8 == 0:  # and as much goes as comes
                store.apply([c.LogTrimmed(1, offset - 4, offset + 1, 0)])
        longest = max(longest, log_bytes(store))
    checkpointer.stop()
    checkpointer.check()
    assert longest <= 128 * MIB


class Pages:
    """A connection to a log with so many pages at each look, all of which are copied, and the writer's lock.

    Attributes:
        looks: of each, whether the lock was held.
    """

    def __init__(self, *pages: int) -> None:
        self.left, self.held = list(pages), False
        self.looks: list[bool] = []

    def execute(self, statement: str) -> Pages:
        return self

    def fetchall(self) -> list[object]:
        return []

    def wal_checkpoint(self, mode: int) -> tuple[int, int]:
        self.looks.append(self.held)
        return self.left[0], self.left.pop(0)

    def __enter__(self) -> None:
        self.held = True

    def __exit__(self, *_: object) -> None:
        self.held = False


FULL_LOG = WAL_BYTES_MAX // PAGE_BYTES + 1


@pytest.mark.parametrize(
    ("growth", "rounds"),
    [
        ((0, 0), 2),
        ((LITTLE_PAGES, 5), 2),
        ((500, 300, 100, 10, 0), 5),
        ((500, 400, 400, 3), 4),
        ((500, 900, 3), 3),
        ((-FULL_LOG + 7, 0), 2),
        ((*range(900, 100, -50), 0), CATCH_UPS_MAX + 1),
    ],
    ids=["an idle writer", "little", "ever less", "as much", "more", "a log that began anew", "for ever a little less"],
)
def test_the_writer_is_held_for_the_last_round_when_little_is_left_or_none_gained(
    store: Store, growth: tuple[int, ...], rounds: int
) -> None:
    db: Any = Pages(*accumulate((FULL_LOG, *growth)))
    Checkpointer(store, db, lambda: None)._round(db)
    assert db.looks == [False] * rounds + [True]


def test_a_short_log_is_copied_in_one_round_without_holding_the_writer(store: Store) -> None:
    db: Any = Pages(FULL_LOG - 1, FULL_LOG - 1)
    Checkpointer(store, db, lambda: None)._round(db)
    assert db.looks == [False]


def test_the_thread_copies_the_log_back_by_itself(store: Store) -> None:
    checkpointer = Checkpointer(store, Turns(), lambda: None)
    checkpointer.start()
    append(store, 1, 2 * MIB)
    until(lambda: store.path.stat().st_size >= 2 * MIB)
    checkpointer.stop()


def test_a_failed_checkpoint_is_reported_and_ends_the_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: Checkpointer, db: apsw.Connection) -> NoReturn:
        raise apsw.IOError("disk I/O error")

    monkeypatch.setattr(Checkpointer, "_round", fails)
    told = threading.Event()
    checkpointer = Checkpointer(store, Turns(), told.set)
    checkpointer.check()
    checkpointer.start()
    assert told.wait(10)
    with pytest.raises(StorageError, match="disk I/O error"):
        checkpointer.check()
    checkpointer.stop()


@pytest.mark.parametrize("error", [apsw.FullError("database or disk is full"), apsw.BusyError("database is locked")])
def test_a_full_disk_or_a_busy_file_is_tried_again(
    store: Store, monkeypatch: pytest.MonkeyPatch, error: apsw.Error
) -> None:
    rounds = 0

    def fails(self: Checkpointer, db: apsw.Connection) -> None:
        nonlocal rounds
        rounds += 1
        if rounds < 3:
            raise error

    monkeypatch.setattr(Checkpointer, "_round", fails)
    checkpointer = Checkpointer(store, Turns(), lambda: None)
    checkpointer.start()
    until(lambda: rounds >= 4)
    checkpointer.stop()
    checkpointer.check()


def test_a_failed_disk_leaves_the_log_for_the_next_start(tmp_path: Path) -> None:
    store = Store(tmp_path)
    append(store, 1, MIB)
    size = log_bytes(store)
    store.keep_log()
    store.close()
    assert Path(f"{store.path}-wal").stat().st_size == size
    store = Store(tmp_path)
    assert store.db.execute("select count(*) from batch").fetchone() == (1,)
    store.close()


class Synced(apsw.VFS):
    """The operating system's, that knows what was written to a store's own file and not synced since."""

    def __init__(self) -> None:
        self.name = f"synced {id(self)}"
        super().__init__(self.name, "unix", makedefault=True)
        self.written = self.unsynced = 0

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return SyncedFile(self, name, flags)


class SyncedFile(apsw.VFSFile):
    """A file of it."""

    def __init__(self, disk: Synced, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        self._disk, self._counts = disk, path.endswith(".db")

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._counts:
            self._disk.written += 1
            self._disk.unsynced += 1
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        super().xSync(flags)
        if self._counts:
            self._disk.unsynced = 0


def test_copied_pages_are_synced_before_the_log_is_overwritten(tmp_path: Path) -> None:
    disk = Synced()
    store = Store(tmp_path)
    checkpointer = Checkpointer(store, Turns(), lambda: None)
    disk.written = disk.unsynced = 0
    append(store, 1, MIB)
    checkpointer.start()
    try:
        until(lambda: disk.written and not disk.unsynced)
    finally:
        checkpointer.stop()
        store.close()
        disk.unregister()
