"""Commit the transaction of a handler on a connection of its own, in the order of the session's commits.

Only the last statements need this order: the client's own changes, `pubsub.step` and COMMIT. The session's lock is held
for them. The life's lock stays on the session's connection.

If the handler's connection is lost in COMMIT, its backend may still carry the COMMIT out, or be about to. The session's
connection then tries to count two commits at once. PostgreSQL lets this wait for a COMMIT under way, since both change
the row of the client:

* The count is raised by two: the handler's commit has not happened, and never will, because its number is used up.
* The count is one higher already: the handler's commit has happened.

The rule is docs/explanation/databases.md, DB11.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import psycopg

from pubsub.client.storage.postgres import life
from pubsub.client.storage.postgres.connecting import StoreConnection
from pubsub.client.storage.postgres.outcomes import LOST, Committing
from pubsub.errors import StorageError

_ELSEWHERE: Final = "the connection of a handler leads to another server than that of the client; call again"
_FENCE: Final = "update pubsub.state set commits = commits + 2 where client = %s and life = %s and commits = %s"
_WAITED: Final = frozenset({"55P03"})
"""SQLSTATE of a lock that was not free in time."""


class CommittingBeside(Committing):
    """A client's store that also commits on the connections of handlers."""

    _doubtful: StoreConnection | None = None
    """The connection of a handler on which a commit is in doubt."""

    def end_beside(self, connection: StoreConnection, mark: str, work: Callable[[], None]) -> None:
        """Commit the transaction of a handler. The session's lock is held.

        Args:
            connection: the handler's connection.
            mark: the value of `pubsub.tx` that its transaction began with.
            work: applies the client's changes on it.

        Raises:
            StorageError: nothing of it happened.
        """
        with self.errors():
            self._ready()
        if connection.place != self._connection.place:
            self._is_elsewhere = True
            connection.discard()
            raise StorageError(self.path, _ELSEWHERE)
        work()
        number = self._life.commits + 1
        text = f"select pubsub.step('{self._client}', '{self._life.token}', {number}, '{mark}'); commit"
        self.rolled_back, self._unsure, self._doubtful = False, True, connection
        try:
            connection.execute(text, prepare=False)
        except psycopg.Error as error:
            if connection.broken or connection.closed:
                if not self._happened_beside():
                    self.rolled_back = self.failed = True
                    raise StorageError(self.path, LOST) from None
            else:
                self._unsure, self._doubtful, self.rolled_back = False, None, True
                self._refuse(error)
        self._doubtful = None
        self._counted()

    def is_in_doubt(self, connection: StoreConnection) -> bool:
        """Return True if nobody knows yet if the commit on a handler's connection has happened."""
        return self._doubtful is connection

    def _happened_beside(self) -> bool:
        """Return True if the commit of a handler whose connection was lost happened.

        Raises:
            CommitInDoubt: the database does not say so in time.
            DatabaseOlder, LifeEnded, StoreInUse: memory differs from the database.
        """
        return self._answered(lambda _: self._fence())

    def _fence(self) -> bool:
        """Use up the number of a commit in doubt; return True if that commit has happened."""
        number, mine, doubtful = self._life.commits + 1, self._life, self._doubtful
        assert doubtful is not None
        self._refused = None
        with self.errors():
            self._ready()
            try:
                with self._connection.transaction():
                    self._connection.execute("set transaction isolation level read committed, read write")
                    self._connection.execute("set local lock_timeout = '1s'")
                    self._connection.execute(_FENCE, (self._client, mine.token, number - 1))
            except psycopg.Error as error:
                if error.sqlstate in _WAITED:
                    life.end_backend(self._connection, doubtful.pid, doubtful.since)
                raise
            found = life.read(self._connection, self._client)
        self._compare(found)
        assert found is not None
        if found.commits == number:
            return True
        life.end_backend(self._connection, doubtful.pid, doubtful.since)
        self._life.commits = found.commits
        self._unsure, self._doubtful = False, None
        return False

    def _prevent(self) -> None:
        if self._doubtful is None:
            return
        trouble, self._trouble = self._trouble, None
        try:
            self._fence()
        except StorageError:
            if self._trouble is None:  # The database does not say it yet.
                self._trouble = trouble
                raise
            # There is another life, or will be one: the commit in doubt has the token of this one.
        self._doubtful, self._trouble = None, trouble
