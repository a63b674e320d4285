"""SQLite as the server uses it, and its traps."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

import apsw
import pytest

from pubsub.base.database import Turns, lock_directory, open_database, translate
from pubsub.errors import StorageError, StoreDamaged, StoreFull


def test_statements_in_one_string_stop_at_the_first_that_returns_a_row(tmp_path: Path) -> None:
    """Why each pragma is set by itself and read back: the trap, shown on the driver's lowest level."""
    db = apsw.Connection(str(tmp_path / "x.db"))
    rows = db.execute("pragma journal_mode = wal; pragma synchronous = 1")
    next(rows)  # whoever looks at the first row only …
    rows.close(force=True)
    assert db.pragma("synchronous") == 2  # … has not set the second
    db.close()


def test_every_pragma_is_set_and_read_back(tmp_path: Path) -> None:
    db = open_database(tmp_path / "x.db", (("journal_mode", "wal"), ("synchronous", 2), ("wal_autocheckpoint", 0)))
    assert [db.pragma(name) for name in ("page_size", "journal_mode", "synchronous", "wal_autocheckpoint")] == [
        16384,
        "wal",
        2,
        0,
    ]
    db.close()


def test_a_pragma_that_does_not_take_is_an_error() -> None:
    with pytest.raises(StorageError, match="journal_mode is 'memory' where 'wal' was set"):
        open_database(Path(":memory:"), (("journal_mode", "wal"),))


def test_what_sqlite_says_becomes_ours() -> None:
    path = Path("x")
    assert type(translate(apsw.FullError("f"), path)) is StoreFull
    assert type(translate(apsw.CorruptError("f"), path)) is StoreDamaged
    assert type(translate(apsw.NotADBError("f"), path)) is StoreDamaged
    assert type(translate(apsw.IOError("f"), path)) is StorageError


def test_a_lock_goes_with_whoever_holds_it(tmp_path: Path) -> None:
    held = lock_directory(tmp_path / "new" / "one")
    with pytest.raises(StorageError, match="in use by this very process"):
        lock_directory(tmp_path / "new" / "one")
    held.close()
    lock_directory(tmp_path / "new" / "one").close()


def test_on_a_full_disk_a_directory_is_locked_all_the_same(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        held = lock_directory(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(StorageError, match="in use"):
        lock_directory(tmp_path)
    held.close()


def test_who_asked_first_gets_its_turn_before_one_that_never_stops_asking() -> None:
    turns, waiting, got = Turns(), threading.Event(), threading.Event()

    def other() -> None:
        waiting.set()
        with turns:
            got.set()

    thread = threading.Thread(target=other)
    rounds = 0
    with turns:
        thread.start()
        waiting.wait()
    while not got.is_set():
        with turns:
            rounds += 1
            assert rounds < 100_000, "it was never let in"
    thread.join()
