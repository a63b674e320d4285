"""The file of reliable requests: who has it open, its own time, and one transaction at a time.

It is a client's state file, or one of the same make where there is no client: what a handler does to the application's
tables, what it puts to topics, and the receipt of the request are one commit. Every commit is fsynced, since each is
followed by something that cannot be taken back: a request, or an answer.
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
    """Where the tables are: a file of our own, or a client's."""

    path: str

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One commit around a `with` block, fsynced."""

    def close(self) -> None:
        """No more is read or written."""


WORKERS: Final = "; of a web server with several workers each needs a name of its own: docs/http.md, *Several workers*"
"""What to do where the other process is another worker of the same web server."""


class OwnFile:
    """A state file without a client: `DIR/http.db`.

    Args:
        directory: its directory, made where it is missing.
        boot: which start of the machine this is.
        vfs: SQLite's file system, where it is not the machine's.

    Raises:
        StorageError: it cannot be used; StoreInUse, StoreNewer, StoreDamaged, StoreFull say why.
    """

    def __init__(self, directory: Path, boot: str, vfs: str | None = None) -> None:
        try:
            self._store = Store(directory / FILE, boot, power_safe=True, vfs=vfs)
        except StoreInUse as error:
            error.remedy = WORKERS
            raise
        self.path = self._store.path
        # No topic is put to from here; a client says of a transaction with another outbox that it is not its own.
        numbers = Numbers(0, lambda: 0.0, Random(0), lambda _: None, [0])
        self._topics = Outbox(numbers, 0, lambda: Retries(1, 1, 1.0), 1, 1)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One commit around a `with` block, fsynced.

        Raises:
            StorageError: nothing of it happened.
        """
        transaction = Transaction(self._store.db, Draft(self._topics))
        with storage_errors(self.path), self._store.transaction(fsync=True):
            try:
                yield transaction
                transaction.check_whole()
            finally:
                transaction.open = False

    def close(self) -> None:
        """Release the file.

        Raises:
            StorageError: the last commit failed; the file is released all the same.
        """
        with storage_errors(self.path):
            self._store.close()

    def forked(self, error: AfterFork) -> None:
        """This is a child of the process that opened it."""
        self._store.forked(error)


class ClientFile:
    """The state file of a client that is open; it stays so when this is closed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.path = client._session.store.path

    def transaction(self) -> AbstractContextManager[Transaction]:
        """One commit around a `with` block, fsynced, with the puts that are made in it."""
        return self._client.transaction()

    def close(self) -> None:
        """Whoever opened the client closes it."""


class Journal:
    """The tables of reliable requests, opened; every call may be made from any thread.

    Args:
        place: where they are.
        clock: where the time comes from.
        counts_boots: see `core.elapsed`.

    Attributes:
        path: of the file.
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
        """Make the tables where they are missing, and find out what time it is."""
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
        # The anchor is stored now and then only: what was stored later than it happened before now, too.
        latest = max(inbox.latest(transaction), outbox.latest(transaction))
        self._anchor = replace(anchor, elapsed=max(anchor.elapsed, latest))
        self._save_time(transaction)

    def now(self) -> float:
        """Seconds of the store's own time."""
        return self._anchor.elapsed + self._clock.uptime() - self._anchor.uptime

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """One commit around a `with` block, fsynced; other threads wait.

        Raises:
            CallerError: this thread is inside one, or the journal is closed.
            StorageError: nothing of it happened.
        """
        me = threading.get_ident()
        if self._owner == me:
            raise CallerError("a transaction is open on this thread: give it to the call, or make the call behind it")
        if isinstance(self._over, AfterFork):
            raise self._over
        with self._lock:
            if self._over:
                raise CallerError(f"{self.path} is closed")
            self._owner = me
            try:
                with self._place.transaction() as transaction:
                    yield transaction
            finally:
                self._owner = None

    def save_time(self) -> None:
        """Keep what time it is, for a start after the next boot."""
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
        """Keep what time it is, and release the file; a second call does nothing."""
        if self._over:
            return
        try:
            self.save_time()
        finally:
            with self._lock:
                self._over = "closed"
                self._place.close()

    def forked(self, parent: int) -> None:
        """This is a child of process `parent`."""
        error = AfterFork(f"{self.path}", parent)
        self._over = error
        if isinstance(self._place, OwnFile):
            self._place.forked(error)
