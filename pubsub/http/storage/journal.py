"""The file of reliable requests: its lock, its own time, and one transaction at a time.

It is a client's state file, or a file of the same format if there is no client. A handler's changes to the
application's tables, its puts to topics, and the receipt of the request are one commit. Every commit is fsynced,
because a request or a response follows that cannot be undone.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, Protocol

from pubsub.base import forks
from pubsub.client.core.numbers import Numbers
from pubsub.client.core.outbox import Draft, Outbox
from pubsub.client.core.retries import Retries
from pubsub.client.storage.disk_errors import row_errors, storage_errors
from pubsub.client.storage.store import Store
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import AfterFork, CallerError, StorageError, StoreInUse, StoreNewer
from pubsub.http.clock import HttpClock, MachineClock
from pubsub.http.core.elapsed import Anchor, resume
from pubsub.http.storage import inbox, outbox
from pubsub.http.storage.tables import FORMAT, TABLES

if TYPE_CHECKING:
    from pubsub.client.client import Client

FILE: Final = "http.db"


class Place(Protocol):
    """The file with the tables: our own, or a client's."""

    path: str

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One fsynced commit around a `with` block."""

    def close(self) -> None:
        """Stop using the file."""


WORKERS: Final = "; each worker of a web server needs a name of its own: docs/http.md, *Several workers*"
"""Hint for a web server in which another worker has the directory open."""


class OwnFile:
    """A state file without a client: `DIR/http.db`.

    Args:
        directory: created if it is missing.
        boot: identity of the machine's boot.
        vfs: SQLite's file system; None: the default.

    Raises:
        StorageError: it cannot be used; subclasses StoreInUse, StoreNewer, StoreDamaged and StoreFull say why.
    """

    def __init__(self, directory: Path, boot: str, vfs: str | None = None) -> None:
        try:
            self._store = Store(directory / FILE, boot, power_safe=True, vfs=vfs)
        except StoreInUse as error:
            error.remedy = WORKERS
            raise
        self.path = self._store.path
        # This outbox stays empty: a client rejects a transaction with an outbox other than its own.
        numbers = Numbers(0, lambda: 0.0, Random(0), lambda _: None, [0])
        self._topics = Outbox(numbers, 0, lambda: Retries(1, 1, 1.0), 1, 1)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One fsynced commit around a `with` block.

        Raises:
            StorageError: nothing was committed.
        """
        transaction = Transaction(self._store, Draft(self._topics))
        with storage_errors(self.path), self._store.transaction(fsync=True):
            try:
                yield transaction
                transaction.check_usable()
            finally:
                transaction.open = False

    def close(self) -> None:
        """Release the file.

        Raises:
            StorageError: the last commit failed; the file is released nevertheless.
        """
        with storage_errors(self.path):
            self._store.close()

    def forked(self, error: AfterFork) -> None:
        """Disable the store in a child process."""
        self._store.forked(error)


class ClientFile:
    """The state file of an open client; closing this object does not close the client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.path = client._session.store.path
        if client.settings.database is not None:
            raise CallerError(
                f"reliable HTTP keeps its requests in a client's state file, and the state of client {client.name} is "
                f"in {self.path}: name a client without a database, or a directory"
            )

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One fsynced commit around a `with` block, including the puts in it."""
        return self._client.transaction()

    def close(self) -> None:
        """Do nothing: the owner of the client closes it."""


class Journal:
    """The open tables of reliable requests; any thread may make any call.

    Args:
        place: their file.
        clock: source of time.
        counts_boots: see `core.elapsed`.
    """

    def __init__(self, place: Place, clock: HttpClock | None = None, *, counts_boots: bool = True) -> None:
        self._place, self._clock = place, clock or MachineClock()
        self.path = place.path
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._over: str | AfterFork = ""
        try:
            with self.transaction() as transaction, row_errors(self.path):
                self._begin_life(transaction, counts_boots)
        except BaseException:
            with suppress(StorageError):
                place.close()
            raise
        forks.watch(self)

    def _begin_life(self, transaction: Transaction, counts_boots: bool) -> None:
        """Create missing tables, and determine the store's own time."""
        for table in TABLES:
            transaction.execute(table)
        state = dict(transaction.execute("select key, value from pubsub_http_state"))
        if state.setdefault("format", FORMAT) > FORMAT:
            raise StoreNewer(self.path, state["format"], FORMAT)
        last = None
        if "elapsed" in state:
            last = Anchor(state["elapsed"], state["uptime"], state["boot"], state["wall"])
        clock = self._clock
        anchor = resume(last, clock.uptime(), clock.boot(), clock.wall(), counts_boots=counts_boots)
        # The anchor is stored only at intervals, so times stored since then may be later than the anchor.
        latest = max(inbox.latest(transaction), outbox.latest(transaction))
        self._anchor = replace(anchor, elapsed=max(anchor.elapsed, latest))
        self._save_time(transaction)

    def now(self) -> float:
        """Seconds of the store's own time."""
        return self._anchor.elapsed + self._clock.uptime() - self._anchor.uptime

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One fsynced commit around a `with` block; other threads wait.

        Raises:
            CallerError: this thread has a transaction open, or the journal is closed.
            StorageError: nothing was committed.
        """
        me = threading.get_ident()
        if self._owner == me:
            raise CallerError("a transaction is open on this thread; pass it to the call, or call after its end")
        if isinstance(self._over, AfterFork):
            raise self._over
        with self._lock:
            if self._over:
                raise CallerError(f"{self.path} is closed; open it again")
            self._owner = me
            try:
                with self._place.transaction() as transaction:
                    yield transaction
            finally:
                self._owner = None

    def save_time(self) -> None:
        """Store the time, for a start after the next boot."""
        with self.transaction() as transaction:
            self._save_time(transaction)

    def _save_time(self, transaction: Transaction) -> None:
        clock = self._clock
        rows = {
            "format": FORMAT, "elapsed": self.now(), "uptime": clock.uptime(), "boot": clock.boot(),
            "wall": clock.wall(),
        }  # fmt: skip
        transaction.executemany("insert or replace into pubsub_http_state values (?, ?)", list(rows.items()))

    def close(self) -> None:
        """Store the time and release the file; a second call does nothing."""
        if self._over:
            return
        try:
            self.save_time()
        finally:
            with self._lock:
                self._over = "closed"
                self._place.close()

    def forked(self, parent: int) -> None:
        """Disable the journal in a child of process `parent`."""
        error = AfterFork(f"{self.path}", parent)
        self._over = error
        if isinstance(self._place, OwnFile):
            self._place.forked(error)
