"""Copying the write-ahead log back into the store's file, off the loop.

SQLite would do it within a commit, whose latency then is that of a checkpoint. Here a thread with a connection of its
own does it every 50 ms, without holding anybody up. A passive checkpoint cannot let the log start over while a writer
is always ahead of it (430 MB in 3 s, measured), so beyond a size it does one more round under the writer's lock: then
nothing is left over and the next commit writes at the log's head. The log is grown once at start and never truncated,
because overwriting costs half the fsync of appending.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

import apsw

from pubsub.server.database import PAGE_BYTES, open_database
from pubsub.server.store import Store

INTERVAL_SECONDS: Final = 0.05
WAL_BYTES_MAX: Final = 32 * 1024 * 1024
"""Size of the log beyond which the writer is held for the rest of a checkpoint."""

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
        for _ in range(max(1, size >> 20)):
            db.execute("insert into growth values (zeroblob(1048576))")
    except apsw.FullError:
        _log.warning("no space to grow the write-ahead log of %s to %d bytes", store.path, size)
    finally:
        if db.in_transaction:
            db.execute("rollback")
        db.pragma("cache_size", cache)


class Checkpointer:
    """The thread that checkpoints a store.

    Args:
        store: whose file it is.
        lock: held by the loop while it writes.
    """

    def __init__(self, store: Store, lock: threading.Lock) -> None:
        self._path, self._lock = store.path, lock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
        self.failure: str = ""
        """What the last checkpoint failed with, "" where it did not."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        # The writer has set the file up; this connection must not wait for it, nor checkpoint on its own.
        db = open_database(self._path, (("wal_autocheckpoint", 0), ("synchronous", 2)))
        try:
            while not self._stop.wait(INTERVAL_SECONDS):
                try:
                    self._round(db)
                    self.failure = ""
                except apsw.BusyError:
                    continue
                except apsw.Error as error:
                    if str(error) != self.failure:
                        _log.error("checkpoint of %s failed: %s", self._path, error)
                    self.failure = str(error)
        finally:
            db.close()

    def _round(self, db: apsw.Connection) -> None:
        # A connection that has not read yet answers (-1, -1) to a checkpoint, and does nothing.
        db.execute("select 1 from sqlite_schema limit 1").fetchall()
        pages, _ = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        if pages * PAGE_BYTES > WAL_BYTES_MAX:
            with self._lock:
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
