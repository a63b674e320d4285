"""Copies the write-ahead log back into the store's file, outside of the server's loop.

SQLite would do this within a commit, and that commit would then take as long as a checkpoint. Here a thread with a
separate connection does it every 50 ms, and delays no commit. A passive checkpoint cannot let the log start over while
a writer is always ahead of it (430 MB in 3 s, measured). If the log exceeds a size, the thread therefore does one more
round under the writer's lock. After that round nothing is left to copy, and the next commit writes at the start of the
log.

Before that round the thread does further rounds at once, as long as each has less to copy. During a round of 32 MB the
writer adds up to 20 MB. On a busy disk, to copy and sync these under the lock delayed the writer by 20 to 120 ms. After
some more rounds the delay is 3 to 20 ms. The log grows once at the start and is never truncated, because overwriting
costs half the fsync of appending.

The rule is docs/explanation/stores.md, S2.
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
"""Size of the log beyond which the writer waits for the rest of a checkpoint."""

CATCH_UPS_MAX: Final = 8
"""Maximum number of rounds without the writer's lock, in direct succession, before the round with the lock."""

LITTLE_PAGES: Final = 64
"""Number of pages, written during such a round, that is small enough to copy under the lock."""

GROWN_BYTES: Final = 16 * 1024 * 1024

_log: Final = logging.getLogger(__name__)


def grow_log(store: Store, size: int = GROWN_BYTES) -> None:
    """Extend the write-ahead log to a size, and leave the store unchanged.

    A transaction larger than the page cache is written to the log before its commit. A rollback leaves the space in the
    log.
    """
    db = store.db
    cache = db.pragma("cache_size")
    db.pragma("cache_size", 8)
    try:
        db.execute("begin immediate")
        db.execute("create table growth (body blob)")
        # The last pages stay in the cache and never reach the log, so one more row is written.
        for _ in range((size >> 20) + 1):
            db.execute("insert into growth values (zeroblob(1048576))")
    except apsw.FullError:
        _log.warning("no space to grow the write-ahead log of %s to %d bytes: free some space", store.path, size)
    finally:
        if db.in_transaction:
            db.execute("rollback")
        db.pragma("cache_size", cache)


class Checkpointer:
    """The thread that checkpoints a store.

    An I/O error ends the thread. Data that was not synced then may be lost even if a later sync succeeds, so no answer
    may rely on it. The log still holds everything for the next start.

    Args:
        store: the store to checkpoint.
        lock: held by the loop while it writes.
        failed: called on this thread if it ends with an error.

    Attributes:
        rounds: durations of the rounds that copied pages, in seconds; any thread may read it.
    """

    def __init__(self, store: Store, lock: Turns, failed: Callable[[], None]) -> None:
        self._path, self._lock, self._failed = store.path, lock, failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self._failure: StorageError | None = None
        self._was_full = False
        self._finished = 0
        """Pages of the log when all of it was copied under the lock. If the number is the same again, nothing was
        written."""
        self._durations, self._copied = Histogram(SECONDS), (0, 0)
        self.rounds: Counted = self._durations.counted()

    def start(self) -> None:
        """Start the thread.

        Raises:
            StorageError: the file cannot be opened.
        """
        # The writer has set up the file. This connection must not checkpoint automatically, nor when it closes.
        self._db = open_database(self._path, (("wal_autocheckpoint", 0), ("synchronous", 2)))
        self._db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for its end."""
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raise the error of the thread, if it has failed.

        Raises:
            StorageError: a checkpoint failed for another reason than a full disk.
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
        """Run one round. Return False if it failed, except for a full disk; `check` then raises the error."""
        try:
            self._round(db)
            self._was_full = False
        except apsw.BusyError:
            pass
        except apsw.FullError:
            if not self._was_full:
                _log.error("no space to copy the write-ahead log of %s back into it: free some space", self._path)
            self._was_full = True
        except apsw.Error as error:
            self._failure = translate(error, self._path)
            self._failed()
            return False
        return True

    def _round(self, db: apsw.Connection) -> None:
        # Without a read before, a connection's checkpoint does nothing and returns (-1, -1).
        db.execute("select 1 from sqlite_schema limit 1").fetchall()
        begun = time.monotonic()
        pages, copied = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if pages * PAGE_BYTES > WAL_BYTES_MAX and pages != self._finished:
            self._catch_up(db, pages)
            with self._lock:
                pages, copied = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            self._finished = pages if copied == pages else 0
        if (pages, copied) != self._copied:  # Each round reports the same pair until more is copied.
            self._copied = pages, copied
            self._durations.observe(time.monotonic() - begun)
            self.rounds = self._durations.counted()

    def _catch_up(self, db: apsw.Connection, pages: int) -> None:
        """Copy the pages written meanwhile, as long as they get fewer. The rest is copied while the writer waits."""
        written = pages
        for _ in range(CATCH_UPS_MAX):
            before = pages
            pages, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            if not LITTLE_PAGES < pages - before < written:
                return
            written = pages - before
