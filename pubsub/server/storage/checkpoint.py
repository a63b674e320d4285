"""Copying the write-ahead log back into the store's file, off the loop.

SQLite would do it within a commit, whose latency then is that of a checkpoint. Here a thread with a connection of its
own does it every 50 ms, without holding anybody up. A passive checkpoint cannot let the log start over while a writer
is always ahead of it (430 MB in 3 s, measured), so beyond a size it does one more round under the writer's lock: then
nothing is left over and the next commit writes at the log's head. Before that it does further rounds at once, as long
as each has less to copy: during a round of 32 MB up to 20 are written, and to copy and sync those held the writer for
20 to 120 ms on a busy disk; after some rounds more it is 3 to 20. The log is grown once at start and never truncated,
because overwriting costs half the fsync of appending.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import apsw

from pubsub.base.database import PAGE_BYTES, Turns, open_database, translate
from pubsub.base.histograms import SECONDS, Counted, Histogram
from pubsub.errors import StorageError
from pubsub.server.storage.store import Store

INTERVAL_SECONDS: Final = 0.05
WAL_BYTES_MAX: Final = 32 * 1024 * 1024
"""Size of the log beyond which the writer is held for the rest of a checkpoint."""

CATCH_UPS_MAX: Final = 8
"""Rounds without the writer's lock, one right after the other, before the one that holds the writer."""

LITTLE_PAGES: Final = 64
"""Pages written during such a round that are few enough to copy under the lock."""

GROWN_BYTES: Final = 16 * 1024 * 1024

_log: Final = logging.getLogger(__name__)


def grow_log(store: Store, size: int = GROWN_BYTES) -> None:
    """Make the write-ahead log so large, without leaving anything in the store.

    A transaction larger than the page cache goes to the log before it commits; rolled back, it leaves the space.
    """
    db = store.db
    cache = db.pragma("cache_size")
    db.pragma("cache_size", 8)
    try:
        db.execute("begin immediate")
        db.execute("create table growth (body blob)")
        # Pages that are still in the cache at the end never get to the log, so one more is written.
        for _ in range((size >> 20) + 1):
            db.execute("insert into growth values (zeroblob(1048576))")
    except apsw.FullError:
        _log.warning("no space to grow the write-ahead log of %s to %d bytes", store.path, size)
    finally:
        if db.in_transaction:
            db.execute("rollback")
        db.pragma("cache_size", cache)


class Checkpointer:
    """The thread that checkpoints a store.

    An I/O error ends it: what was not synced then may be lost although a later sync succeeds, so nothing may be
    answered any more that relies on it. The log still holds everything, for the next start.

    Args:
        store: whose file it is.
        lock: held by the loop while it writes.
        failed: called, on this thread, when it ends by an error.

    Attributes:
        rounds: how long rounds took that copied something, in seconds; any thread may take it.
    """

    def __init__(self, store: Store, lock: Turns, failed: Callable[[], None]) -> None:
        self._path, self._lock, self._failed = store.path, lock, failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._failure: StorageError | None = None
        self._was_full = False
        self._finished = 0
        """Pages of the log when all of it was copied under the lock; so many again means that nothing was written."""
        self._durations, self._copied = Histogram(SECONDS), (0, 0)
        self.rounds: Counted = self._durations.counted()

    def start(self) -> None:
        """Begin.

        Raises:
            StorageError: the file cannot be opened.
        """
        # The writer has set the file up; this connection must not checkpoint on its own, nor when it closes.
        self._db = open_database(self._path, (("wal_autocheckpoint", 0), ("synchronous", 2)))
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """See that it still works.

        Raises:
            StorageError: a checkpoint failed, and not for want of space.
        """
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            while not self._stop.wait(INTERVAL_SECONDS):
                if not self.attempt(self._db):
                    return
        finally:
            self._db.close()

    def attempt(self, db: apsw.Connection) -> bool:
        """One round; False where it failed, and not for want of space: the loop is told by `check`."""
        try:
            self._round(db)
            self._was_full = False
        except apsw.BusyError:
            pass
        except apsw.FullError:
            if not self._was_full:
                _log.error("no space to copy the write-ahead log of %s back into it", self._path)
            self._was_full = True
        except apsw.Error as error:
            self._failure = translate(error, self._path)
            self._failed()
            return False
        return True

    def _round(self, db: apsw.Connection) -> None:
        # A connection that has not read yet answers (-1, -1) to a checkpoint, and does nothing.
        db.execute("select 1 from sqlite_schema limit 1").fetchall()
        begun = time.monotonic()
        pages, copied = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if pages * PAGE_BYTES > WAL_BYTES_MAX and pages != self._finished:
            self._catch_up(db, pages)
            with self._lock:
                pages, copied = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._finished = pages if copied == pages else 0
        if (pages, copied) != self._copied:  # What is copied already is told again in each round.
            self._copied = pages, copied
            self._durations.observe(time.monotonic() - begun)
            self.rounds = self._durations.counted()

    def _catch_up(self, db: apsw.Connection, pages: int) -> None:
        """Copy what was written meanwhile, as long as it gets less: what is left is copied while the writer is held."""
        written = pages
        for _ in range(CATCH_UPS_MAX):
            before = pages
            pages, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if not LITTLE_PAGES < pages - before < written:
                return
            written = pages - before
