"""Commit in a database, and know for each commit whether it happened.

Each transaction ends with `pubsub.step`, which checks in the database that this life has the client open and that no
commit is missing, and counts the commit. Every commit is durable when it returns. A commit has one of three outcomes:

* It happened, or it did not. If the connection is lost in COMMIT, the store connects again, takes the client's lock,
  which is free once the old backend is gone, and reads the count.
* It is in doubt: the database did not say so in time.
* The database is older than this process: a restored copy, or a replica that took over.

A member of a group with the same database may have ended the life (`settling`). In this case and in the last two,
memory may differ from the database. The store says so to the session (`on_lost`), which sends nothing more. Its next
call loads the state again.

The rules are docs/explanation/databases.md, DB3 and DB4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final, TypeVar

import psycopg
from psycopg.pq import TransactionStatus

from pubsub.client.errors import CommitInDoubt, DatabaseOlder, LifeEnded
from pubsub.client.storage.interface import ErrorKind
from pubsub.client.storage.postgres import errors, installing, life
from pubsub.client.storage.postgres.connecting import StoreConnection, connect, shown
from pubsub.client.storage.reading import Reading
from pubsub.config.databases import DatabaseUrl
from pubsub.errors import HandlerMisused, StorageError, StoreDamaged, StoreInUse

Answer = TypeVar("Answer")

RECONNECT_SECONDS: Final = 0.25
"""Least time between two attempts to connect again; calls in between get the error of the last attempt."""

_POLL_SECONDS: Final = 0.1
LOST: Final = "the connection is lost; the next call connects again"


class Committing(Reading):
    """The connection and the life of one client.

    Args:
        client: the client ID.
        url: of the database.
        seconds: longest time in which a lost connection may say if its last commit happened.

    Attributes:
        failed: True if the database refused the last commit.
        rolled_back: True if the last failed `end` has certainly committed nothing.

    Raises:
        ConfigurationError: the URL or the surroundings cannot be used.
        StorageError: the database cannot be used; StoreInUse: another process has the client open.
    """

    def __init__(self, client: str, url: DatabaseUrl, seconds: float) -> None:
        self.path = shown(url, client)
        self.failed = self.rolled_back = False
        self.on_lost: Callable[[], None] = _nothing
        self._client, self._url, self._seconds = client, url, seconds
        self._texts: dict[str, str] = {}
        self._mark = ""
        self._unsure = self._is_elsewhere = False
        self._trouble: StorageError | None = None
        self._refused: tuple[float, StorageError] | None = None
        self._connection = connect(url, client)
        try:
            with self.errors(loading=True):
                installing.prepare(self._connection, self.path)
                if not life.lock(self._connection, client):
                    raise life.in_use(self._connection, client, self.path)
                self._life = life.begin(self._connection, client, url.full)
            self._adopt(self._connection)
        except BaseException:
            self._release()
            raise

    def _adopt(self, connection: StoreConnection) -> None:
        """Use a connection from here on."""
        self._connection = connection
        life.open_here.add((connection.pid, connection.since))
        self._cursor = connection.own_cursor()

    def _release(self) -> None:
        connection = getattr(self, "_connection", None)
        if connection is None:
            return
        life.open_here.discard((connection.pid, connection.since))
        connection.discard()

    @contextmanager
    def errors(self, *, loading: bool = False) -> Iterator[None]:
        """Turn errors of the database into ours."""
        try:
            yield
        except psycopg.Error as error:
            raise self._translated(error) from None
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if not loading:
                raise
            raise StoreDamaged(self.path, f"has a row of another form ({errors.line_of(error)}); restore it") from None

    def _translated(self, error: psycopg.Error) -> Exception:
        return errors.translated(self.path, error, broken=self._connection.broken or self._connection.closed)

    def kind_of(self, error: BaseException) -> ErrorKind | None:
        """Return the kind of an error of this database, or of a StorageError; None for any other exception."""
        return errors.kind_of(error, broken=self._connection.broken)

    @property
    def in_transaction(self) -> bool:
        """True if a transaction is open, as far as the connection knows."""
        return self._connection.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)

    # The open transaction

    def begin(self, *, fsync: bool) -> None:
        """Begin a transaction; each commit is durable. The application's default isolation is in force."""
        self._begin("begin read write")

    def _begin(self, statement: str) -> None:
        with self.errors():
            self._ready()
            mark = f"{self._life.token}.{self._life.commits + 1}"
            self._connection.execute(f"{statement}; select set_config('pubsub.tx', '{mark}', true)", prepare=False)
            self._mark, self._connection.guarded = mark, True

    def end(self) -> None:
        """Commit the open transaction. Raises as `ClientStore.end`."""
        number, mark = self._life.commits + 1, self._mark
        text = f"select pubsub.step('{self._client}', '{self._life.token}', {number}, '{mark}'); commit"
        self._decided(lambda: self._connection.execute(text, prepare=False))

    def _decided(self, finish: Any) -> None:
        """Run the last statements of a transaction until it is certain whether it happened; raise if it did not."""
        self.rolled_back = False
        self._unsure = True
        try:
            finish()
        except psycopg.Error as error:
            if self._connection.broken or self._connection.closed:
                if not self._happened():
                    self.rolled_back = self.failed = True
                    raise StorageError(self.path, LOST) from None
            else:
                self._unsure, self.rolled_back = False, True
                self._abandon()
                self._refuse(error)
        self._mark, self._connection.guarded = "", False
        self._counted()

    def _counted(self) -> None:
        """Count a commit that happened."""
        self._unsure = False
        self._life.commits += 1
        life.remembered[self._url.full, self._client] = self._life.commits
        self.failed = False

    def _refuse(self, error: psycopg.Error) -> None:
        """Raise the error of the last statements, after the rollback."""
        if error.sqlstate == errors.OVER:
            with self.errors():
                self._compare(life.read(self._connection, self._client))
            raise StorageError(self.path, "the database refused the commit; nothing of it happened")
        if error.sqlstate == errors.ENDED or self.kind_of(error) is ErrorKind.DISK:
            raise self._translated(error) from None
        ours = self._translated(error)
        raise ours if isinstance(ours, HandlerMisused) else error

    def undo(self, error: BaseException) -> None:
        """Roll back after a failure, and raise an error of the database: as one of ours if it is no statement's."""
        self._abandon()
        if isinstance(error, psycopg.Error):
            if self.kind_of(error) is ErrorKind.DISK:
                self.failed = True
                raise self._translated(error) from None
            raise error

    def rollback(self) -> None:
        """Roll back the open transaction, if there is one, and return to the state that the database has."""
        if self._unsure or self._trouble is not None:
            self._settle()
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Roll back the open transaction, if there is one."""
        self._mark, self._connection.guarded = "", False
        if self.in_transaction:
            with suppress(psycopg.Error):  # With the connection, the transaction is gone.
                self._connection.execute("rollback")

    # After a lost connection

    def _ready(self) -> None:
        """Connect again if the connection is lost and no transaction was open on it."""
        if self._trouble is not None:
            raise self._trouble
        if self._is_elsewhere and not self._mark:
            self._is_elsewhere = False
            self._connection.discard()
        if self._mark or not (self._connection.broken or self._connection.closed):
            return
        if self._refused is not None and time.monotonic() < self._refused[0]:
            raise self._refused[1]
        try:
            self._compare(self._reconnect(time.monotonic() + RECONNECT_SECONDS))
        except StorageError as error:
            self.failed = True
            self._refused = time.monotonic() + RECONNECT_SECONDS, error
            raise
        self._refused = None

    def _reconnect(self, until: float) -> life.Life | None:
        """Connect again with the client's lock, and return the life that the database has."""
        lost = self._connection.pid, self._connection.since
        connection = connect(self._url, self._client)
        try:
            with self.errors():
                life.lock_again(connection, self._client, self.path, lost, until)
                found = life.read(connection, self._client)
        except BaseException:
            connection.close()
            raise
        self._release()
        self._adopt(connection)
        return found

    def _happened(self) -> bool:
        """Return True if the commit whose connection was lost happened.

        Raises:
            CommitInDoubt: the database does not say so in time.
            DatabaseOlder, LifeEnded, StoreInUse: memory differs from the database.
        """
        found = self._answered(self._reconnect)
        if found is not None and found.token == self._life.token and found.commits == self._life.commits + 1:
            return True
        self._compare(found)
        self._unsure = False
        return False

    def _answered(self, ask: Callable[[float], Answer]) -> Answer:
        """Ask again and again until the database answers; the argument of `ask` is the end of the time for that.

        Raises:
            CommitInDoubt: there is no answer in time.
            StorageError: the life is over.
        """
        until, cause = time.monotonic() + self._seconds, ""
        while True:
            try:
                return ask(until)
            except StorageError as error:
                if self._trouble is not None:
                    raise
                if isinstance(error, StoreInUse):
                    self._lose(error)
                cause = error.reason
            if time.monotonic() > until:
                self._lose(CommitInDoubt(self.path, self._seconds, cause))
            time.sleep(_POLL_SECONDS)

    def _compare(self, found: life.Life | None) -> None:
        """Check that the database has this life, and exactly its commits; raise the error that ends the life if not."""
        mine = self._life
        if found is None:
            self._lose(StoreDamaged(self.path, "the client is gone from pubsub.state; restore it"))
        elif found.ended_by_a_member(mine):
            self._lose(LifeEnded(self.path))
        elif found.token != mine.token and found.number >= mine.number:
            self._lose(StoreInUse(self.path, "it opened the client after this connection was lost"))
        elif found.token != mine.token or found.commits < mine.commits:
            self._lose(DatabaseOlder(self.path, mine.commits, found.commits))

    def _lose(self, error: StorageError) -> None:
        self._trouble, self.failed = error, True
        self.life_ended = isinstance(error, LifeEnded)
        self.on_lost()
        self._forget()
        raise error

    def _settle(self) -> None:
        """Take the database's state as the truth, after a commit with an unknown outcome, or for a new life.

        Raises:
            StorageError: the database does not say it.
        """
        if isinstance(self._trouble, StoreInUse):
            raise self._trouble
        self._prevent()
        self._mark, self._connection.guarded = "", False
        with self.errors():
            if self._connection.broken or self._connection.closed:
                found = self._reconnect(time.monotonic() + self._seconds)
            else:
                if self.in_transaction:
                    self._connection.execute("rollback")
                found = life.read(self._connection, self._client)
            mine = self._life
            ended = found is not None and found.ended_by_a_member(mine)
            if found is not None and found.token == mine.token and found.commits >= mine.commits:
                mine.commits = found.commits
            elif found is not None and not ended and found.token != mine.token and found.number >= mine.number:
                self._lose(StoreInUse(self.path, "it opened the client after this connection was lost"))
            else:
                self._life = life.begin(self._connection, self._client, self._url.full, cut=not ended)
        self._trouble, self._unsure = None, False
        self._forget()
        life.remembered[self._url.full, self._client] = self._life.commits

    def _prevent(self) -> None:
        """Make sure that a commit in doubt has ended, if it was made on another connection than the session's."""

    def _forget(self) -> None:
        """Forget what was remembered of the state."""


def _nothing() -> None:
    """Stand in for a session that does not exist yet."""
