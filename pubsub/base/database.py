"""SQLite as servers and services use it: connections, the lock on a directory, what its errors mean here."""

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
"""Size of a database's smallest page."""

CAREFUL: Final = "pragma cell_size_check = on"
"""Has SQLite look at the sizes of the cells of each page that it reads. Without that a deletion may spread a damaged
page's noise over the sound pages beside it, and rows vanish that nobody deleted. It looks once, when a page comes into
its cache: after each `apsw.CorruptError` the cache must be emptied (`forget_pages`)."""


class Turns:
    """A lock that threads get in the order in which they asked.

    A plain lock goes back to the thread that released it a moment ago if it asks again at once: a busy writer would
    never let a checkpoint in (440 MB of log in a second, measured).
    """

    def __init__(self) -> None:
        self._first = threading.Lock()
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._first:  # Held by whoever is next; the one before asks again behind it.
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def lock_directory(directory: Path) -> IO[str]:
    """Make a directory, if it is not there, and keep every other process out of it while the result stays open.

    Raises:
        ConfigurationError: it cannot be made or written.
        StoreInUse: another process has it.
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
    with contextlib.suppress(OSError):  # On a full disk: the lock holds all the same, only whose it is is not known.
        file.truncate(0)
        os.write(file.fileno(), f"{os.getpid()}\n".encode())
    _locks.files[directory.resolve()] = file
    return file


class _Locks:
    """The lock files that this process has open, by directory."""

    def __init__(self) -> None:
        self.files: WeakValueDictionary[Path, IO[str]] = WeakValueDictionary()
        forks.watch(self)

    def forked(self, parent: int) -> None:
        """This is a child: what it has of the parent's locks must not outlive the parent's use of them."""
        for file in self.files.values():
            file.close()
        self.files = WeakValueDictionary()
        forks.watch(self)


_locks: Final = _Locks()


def open_database(
    path: Path, pragmas: Sequence[tuple[str, Any]], page_bytes: int = PAGE_BYTES, vfs: str | None = None
) -> apsw.Connection:
    """A connection with every pragma set one by one and read back.

    `execute("pragma a; pragma b")` stops, silently, at the first that returns a row; that is why.

    Args:
        vfs: SQLite's file system; None: the machine's.

    Raises:
        StoreDamaged: the file is not a database.
        StorageError: it cannot be made or opened, or a pragma did not take.
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
                raise StorageError(str(path), f"pragma {name} is {found!r} where {value!r} was set")
    except (apsw.NotADBError, apsw.CorruptError) as error:
        raise StoreDamaged(str(path), f"damaged: {error}") from None
    except apsw.Error as error:
        raise StorageError(str(path), f"cannot be opened: {error}") from None
    return db


def begin_file(path: Path, page_bytes: int = PAGE_BYTES, mode: int = 0o644) -> None:
    """Make the file of a database that is not there; see that one that is there is none that was cut to its begin.

    SQLite takes an empty file for a new database. It would leave one too, where the process dies as it makes it or the
    disk is full. So a file gets its name here, and with it its first page. An empty file is then one that was emptied.

    Args:
        page_bytes: of a file that is made; mode: its permissions, from which the umask is taken.

    Raises:
        StoreDamaged: it was cut.
        StorageError: it cannot be made; StoreFull says that there is no space.
    """
    see_begun(path)
    if path.exists():
        return
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}.new")
    try:
        try:
            _write_first_page(beside, page_bytes, mode)
            _link(beside, path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StoreFull(str(path), "no space to make it") from None
        raise StorageError(str(path), f"cannot be made: {error.strerror}") from None


def _write_first_page(path: Path, page_bytes: int, mode: int) -> None:
    with contextlib.closing(apsw.Connection(":memory:")) as db:
        db.pragma("page_size", page_bytes)
        db.pragma("user_version", 0)  # It has no page before something is written.
        page = db.serialize("main")
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
        file.write(page)
        file.flush()
        os.fsync(file.fileno())


def _link(path: Path, target: Path) -> None:
    """Give a file its name; not where another process, or thread, was faster."""
    try:
        os.link(path, target)
    except FileExistsError:
        return
    except OSError as error:
        # A file system without hard links: SQLite makes the file, as long as it can.
        if error.errno not in {errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL}:
            raise


def see_begun(path: Path) -> None:
    """See that a file is none that was cut down to its begin, which SQLite takes for a new one.

    Raises:
        StoreDamaged: it is.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        if _is_logged(path):
            raise StoreDamaged(str(path), "is gone, and its write-ahead log is not; put a backup back") from None
        return
    except OSError:
        return  # Opening it says why.
    if size <= 1 and _is_logged(path):  # SQLite takes one byte for none, and then deletes the log.
        raise StoreDamaged(str(path), "damaged: it is empty, and its write-ahead log is not; put a backup back")
    if size < LEAST_BYTES and not _is_logged(path):
        was = f"was cut to {size} bytes" if size else "is empty"
        raise StoreDamaged(str(path), f"damaged: it {was}; put a backup back, or delete it to begin anew")


def _is_logged(path: Path) -> bool:
    """Whether the write-ahead log has something, where its first page may be."""
    try:
        with log_of(path).open("rb") as log:
            return any(log.read(32))  # A head of zeros is one of a log that is kept for its space.
    except OSError:
        return False


def forget_pages(db: apsw.Connection) -> None:
    """Have SQLite read each page anew, since it met a damaged one: what is in its cache it would take for sound."""
    with contextlib.suppress(apsw.Error):
        db.pragma("shrink_memory")


def find_damage(db: apsw.Connection, tables: Sequence[str], most: int = 1) -> list[str]:
    """What SQLite finds wrong with the pages of these tables and of their indexes; with those that hold nothing where
    `sqlite_schema` is among them.

    Args:
        most: so many findings at most.
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
    """What SQLite said, as one of our errors."""
    if isinstance(error, apsw.FullError):
        return StoreFull(str(path), "the disk, or the limit set for this store, is full")
    if isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.ConstraintError):
        return StoreDamaged(str(path), f"damaged: {error}")
    return StorageError(str(path), f"cannot be written or read: {error}")
