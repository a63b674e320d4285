"""SQLite as the server uses it, and its traps."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
from pathlib import Path
from unittest import mock

import apsw
import pytest

from pubsub.base.database import Turns, begin_file, lock_directory, open_database, translate
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


def test_a_pragma_that_does_not_take_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="journal_mode is 'delete' although 'none' was set"):
        open_database(tmp_path / "x.db", (("journal_mode", "none"),))


def test_a_file_gets_its_name_and_its_first_page_at_once(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    begin_file(path, 8_192, 0o600)
    assert path.stat().st_size == 8_192
    assert path.stat().st_mode & 0o777 == 0o600
    before = path.read_bytes()
    begin_file(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with contextlib.closing(apsw.Connection(str(path))) as db:
        assert (db.pragma("page_size"), db.pragma("integrity_check"), db.pragma("user_version")) == (8_192, "ok", 0)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_file_that_could_not_be_made_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    monkeypatch.setattr(os, call, mock.Mock(side_effect=error))
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else StorageError):
        open_database(tmp_path / "x.db", ())
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    open_database(tmp_path / "x.db", ()).close()


def test_a_full_disk_during_the_creation_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
    with pytest.raises(StoreFull, match="no space to make it"):
        open_database(tmp_path / "x.db", ())
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_hard_links_has_sqlite_make_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", mock.Mock(side_effect=OSError(errno.EPERM, "Operation not permitted")))
    db = open_database(tmp_path / "x.db", (("journal_mode", "wal"),))
    assert db.pragma("page_size") == 16_384
    db.close()
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


def test_a_file_that_another_process_made_meanwhile_stays_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def late(source: Path, target: Path) -> None:
        target.write_bytes(b"the other's")
        link(source, target)

    monkeypatch.setattr(os, "link", late)
    begin_file(tmp_path / "x.db")
    assert (tmp_path / "x.db").read_bytes() == b"the other's"
    assert [path.name for path in tmp_path.iterdir()] == ["x.db"]


@pytest.mark.parametrize(
    ("size", "logged", "says"),
    [
        (0, False, "damaged: it is empty; put a backup back, or delete it to begin anew"),
        (1, False, "damaged: it was cut to 1 bytes; put a backup back, or delete it to begin anew"),
        (511, False, "damaged: it was cut to 511 bytes; put a backup back, or delete it to begin anew"),
        (0, True, "damaged: it is empty, and its write-ahead log is not; put a backup back"),
        (1, True, "damaged: it is empty, and its write-ahead log is not; put a backup back"),
        (None, True, "is gone, and its write-ahead log is not; put a backup back"),
    ],
)
def test_a_truncated_file_does_not_count_as_new(tmp_path: Path, size: int | None, logged: bool, says: str) -> None:
    path = tmp_path / "x.db"
    if size is not None:
        path.write_bytes(b"S" * size)
    if logged:
        (tmp_path / "x.db-wal").write_bytes(b"\x37\x7f\x06\x82" * 30)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(StoreDamaged) as error:
        open_database(path, ())
    assert str(error.value) == f"{path}: {says}"
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_errors_of_sqlite_become_errors_of_the_package() -> None:
    path = Path("x")
    assert type(translate(apsw.FullError("f"), path)) is StoreFull
    assert type(translate(apsw.CorruptError("f"), path)) is StoreDamaged
    assert type(translate(apsw.NotADBError("f"), path)) is StoreDamaged
    assert type(translate(apsw.IOError("f"), path)) is StorageError


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    held = lock_directory(tmp_path / "new" / "one")
    with pytest.raises(StorageError, match="in use by this very process"):
        lock_directory(tmp_path / "new" / "one")
    held.close()
    lock_directory(tmp_path / "new" / "one").close()


def test_a_directory_is_locked_on_a_full_disk(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        held = lock_directory(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    with pytest.raises(StorageError, match="in use"):
        lock_directory(tmp_path)
    held.close()


def test_the_first_waiting_thread_gets_its_turn_before_a_greedy_one() -> None:
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
