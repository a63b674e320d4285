"""SQLite for servers and services: connections, the lock of a directory, and SQLite's errors as ours.

The rules are those of docs/explanation/stores.md, S6 and S8.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, Final
from weakref import WeakValueDictionary

import apsw

from pubsub.base import forks
from pubsub.base.wal import log_of
from pubsub.errors import THIS_PROCESS, ConfigurationError, StorageError, StoreDamaged, StoreFull, StoreInUse

PAGE_BYTES: Final = 16 * 1024

LEAST_BYTES: Final = 512
"""Size of SQLite's smallest page."""

CAREFUL: Final = "pragma cell_size_check = on"
"""Makes SQLite check the cell sizes of each page that it reads. Without this a deletion may spread a damaged page's
contents over neighbouring pages, and intact rows vanish. SQLite checks a page once, when it enters the cache. So the
cache must be emptied after each `apsw.CorruptError` (`forget_pages`)."""


class Turns:
    """A lock that threads get in the order of their requests.

    A plain lock returns to the thread that released it a moment ago, if that asks again at once. A busy writer would
    then never let a checkpoint run (440 MB of log in a second, measured).
    """

    def __init__(self) -> None:
        self._first = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._first:  # Held by the next thread; a thread that asks again waits after it.
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def lock_directory(directory: Path) -> IO[str]:
    """Create a directory if it is missing, and lock it against other processes while the result stays open.

    Raises:
        ConfigurationError: it cannot be created or written.
        StoreInUse: another process has locked it.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = (directory / "lock").open("a+", encoding="ascii", errors="replace")
    except OSError as error:
        raise ConfigurationError(f"directory {directory} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.seek(0)
        owner = f"process {file.read(100).strip() or 'unknown'}"
        file.close()
        here = _locks.files.get(directory.resolve())
        raise StoreInUse(str(directory), THIS_PROCESS if here is not None and not here.closed else owner) from None
    with contextlib.suppress(OSError):  # On a full disk the lock still works; only its process ID is missing.
        file.truncate(0)
        os.write(file.fileno(), f"{os.getpid()}\n".encode())
    _locks.files[directory.resolve()] = file
    return file


class _Locks:
    def __init__(self) -> None:
        self.files: WeakValueDictionary[Path, IO[str]] = WeakValueDictionary()
        forks.watch(self)

    def forked(self, parent: int) -> None:
        """Close the parent's lock files in a child, so that it does not hold them longer than the parent."""
        for file in self.files.values():
            file.close()
        self.files = WeakValueDictionary()
        forks.watch(self)


_locks: Final = _Locks()


def open_database(
    path: Path, pragmas: Sequence[tuple[str, Any]], page_bytes: int = PAGE_BYTES, vfs: str | None = None
) -> apsw.Connection:
    """Return a connection with every pragma set one by one and read back.

    Reason: `execute("pragma a; pragma b")` stops without an error at the first one that returns a row.

    Args:
        vfs: SQLite's file system; None for the machine's.

    Raises:
        StoreDamaged: the file is no database.
        StorageError: it cannot be created or opened, or a pragma had no effect.
    """
    if vfs is None:
        begin_file(path, page_bytes)
    try:
        db = apsw.Connection(str(path), vfs=vfs, statementcachesize=200)
        db.set_busy_timeout(5_000)
        db.execute(CAREFUL)
        db.pragma("page_size", page_bytes)
        for name, value in pragmas:
            db.pragma(name, value)
            found = db.pragma(name)
            if found != value:
                raise StorageError(str(path), f"pragma {name} is {found!r} although {value!r} was set")
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreDamaged(str(path), f"damaged: {error}") from None
    except apsw.Error as error:
        raise StorageError(str(path), f"cannot be opened: {error}") from None
    return db


def begin_file(path: Path, page_bytes: int = PAGE_BYTES, mode: int = 0o644) -> None:
    """Create the file of a new database, with its first page; check that an existing file was not truncated.

    SQLite takes an empty file for a new database. It would also leave one if the process died while it creates the
    file, or if the disk is full. So the file is created here, and gets its name together with its first page. An empty
    file under that name was therefore truncated.

    Args:
        page_bytes: the page size of a new file.
        mode: the permissions of a new file, before the umask.

    Raises:
        StoreDamaged: the file was truncated.
        StorageError: it cannot be created; StoreFull if there is no space.
    """
    see_begun(path)
    if path.exists():
        return
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        try:
            _write_first_page(new, page_bytes, mode)
            _link(new, path)
        finally:
            new.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StoreFull(str(path), "no space to make it") from None
        raise StorageError(str(path), f"cannot be made: {error.strerror}") from None


def _write_first_page(path: Path, page_bytes: int, mode: int) -> None:
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        db.pragma("page_size", page_bytes)
        db.pragma("user_version", 0)  # The database has no page before a first write.
        page = db.serialize("main")
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
        file.write(page)
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, target: Path) -> None:
    """Give a file its name, unless another process or thread has created it meanwhile."""
    try:
        os.link(path, target)
    except FileExistsError:
        return
    except OSError as error:
        # A file system without hard links: SQLite makes the file, as long as it can.
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}:
            raise


def see_begun(path: Path) -> None:
    """Check that a file was not truncated so far that SQLite takes it for a new one.

    Raises:
        StoreDamaged: it was.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        if _is_logged(path):
            raise StoreDamaged(str(path), "is gone, and its write-ahead log is not; put a backup back") from None
        return
    except OSError:
        return  # The attempt to open it raises the reason.
    if size <= 1 and _is_logged(path):  # SQLite treats a file of one byte as empty, and deletes the log.
        raise StoreDamaged(str(path), "damaged: it is empty, and its write-ahead log is not; put a backup back")
    if size < LEAST_BYTES and not _is_logged(path):
        was = f"was cut to {size} bytes" if size else "is empty"
        raise StoreDamaged(str(path), f"damaged: it {was}; put a backup back, or delete it to begin anew")


def _is_logged(path: Path) -> bool:
    """Return whether the write-ahead log has contents; the file's first page may be there."""
    try:
        with log_of(path).open("rb") as log:
            return any(log.read(32))  # A log with a head of zeros is kept only for its space.
    except OSError:
        return False


def forget_pages(db: apsw.Connection) -> None:
    """Empty SQLite's cache after a damaged page was found. SQLite does not check cached pages again."""
    with contextlib.suppress(apsw.Error):
        db.pragma("shrink_memory")


def find_damage(db: apsw.Connection, tables: Sequence[str], most: int = 1) -> list[str]:
    """Return SQLite's findings about the pages of these tables and of their indexes.

    With `sqlite_schema` among the tables, pages that hold nothing are checked too.

    Args:
        most: limit of the findings.
    """
    out: list[str] = []
    known = {"sqlite_schema", *(name for (name,) in db.execute("select name from sqlite_schema where type = 'table'"))}
    for table in tables:
        if table not in known:  # For an unknown name SQLite would check the whole file.
            continue
        try:
            for (text,) in db.execute(f"pragma integrity_check({table})"):
                out += [line for line in str(text).splitlines() if line != "ok" and not line.startswith("***")]
        except apsw.CorruptError as error:
            out.append(str(error))
        if len(out) >= most:
            break
    return out[:most]


def translate(error: apsw.Error, path: Path) -> StorageError:
    """Return SQLite's error as one of ours."""
    if isinstance(error, apsw.FullError):
        return StoreFull(str(path), "the disk, or the limit set for this store, is full")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.ConstraintError):
        return StoreDamaged(str(path), f"damaged: {error}")
    return StorageError(str(path), f"cannot be written or read: {error}")
