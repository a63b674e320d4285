"""State what a session asks of the store with a client's state: a SQLite file, or a schema of the user's own database.

A `Change` is the only thing that a session writes. `applying` turns a change into statements of a small common subset
of SQL, and runs none of them. A store runs them in its own dialect. Reading goes through `query` and `value`. A store
also says what kind an error of its database is, because only the store knows its classes of errors.

The common subset of SQL:

* Parameters are `?`, by place. Their values are of the types int, float, str, bytes and None, never bool.
* Tables are named `pubsub_…`. Every insertion lists its columns, and its key with `on conflict (…)` where it replaces.
* A column with a reserved name stands in quotes. An empty blob is a parameter.
* A condition joins its parts with `and` only. A table is deleted from, or updated, under at most one `where`.
* The number of a new row is `max + 1` of its table, since one process at a time has a client's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from enum import Enum, auto
from pathlib import Path
from typing import Any, Protocol

from pubsub.client.core.changes import Change
from pubsub.client.core.group_looks import LookedUp
from pubsub.client.core.message import RunSlice
from pubsub.errors import AfterFork
from pubsub.protocol import Position
from pubsub.protocol.names import Start

Value = int | float | str | bytes | None
Statement = tuple[str, tuple[Value, ...] | list[tuple[Value, ...]]]
"""A statement of the common subset, and the values of its parameters: a tuple, or a list of tuples for several runs."""

Bindings = Sequence[Any] | Mapping[str, Any]
"""Values of the parameters of the application's own statement."""


class ErrorKind(Enum):
    """The kinds of errors of a store's database."""

    DISK = auto()
    """The disk failed or is full, the file is damaged, or the database cannot be reached. No statement is at fault."""
    CONSTRAINT = auto()
    """The application's rows break a constraint."""
    CONFLICT = auto()
    """Another transaction was in the way: a deadlock, or a failed serialization. The same work may succeed again."""
    STATEMENT = auto()
    """Any other error of a statement."""


class Database(Protocol):
    """What a `Transaction` asks of its store.

    Attributes:
        path: the place of the state, as text for errors. It contains no password.
        connection: the connection of the database's own driver.
    """

    path: str

    @property
    def connection(self) -> Any:
        """The connection of the database's own driver."""

    @property
    def in_transaction(self) -> bool:
        """True if the transaction that this store began is still open."""

    def execute(self, statement: str, bindings: Bindings = ()) -> Any:
        """Run a statement of the application in the database's own dialect; return the cursor of its driver."""

    def executemany(self, statement: str, rows: Iterable[Bindings]) -> Any:
        """Run a statement of the application once for each row of bindings."""

    def query(self, statement: str, parameters: Sequence[Value] = ()) -> Iterable[tuple[Any, ...]]:
        """Run a statement of the common subset, and return its rows."""

    def prepare_files(self) -> None:
        """Prepare the table of the files that the command `get` writes, within an open transaction."""


class HandlerDatabase(Database, Protocol):
    """The database of one handler's transaction, on a connection of its own.

    The session's lock is held for `end` only.

    Attributes:
        begun: its transaction is open.
    """

    begun: bool

    @property
    def in_doubt(self) -> bool:
        """True if nobody knows yet if its commit has happened."""

    def begin(self) -> None:
        """Take a connection, and begin the transaction.

        Raises:
            StorageError: the database cannot be reached, or no connection became free in time.
        """

    async def begin_awaited(self, seconds: float) -> Any:
        """Begin as `begin`, within `seconds` and while other tasks run; return the driver's awaited connection."""

    async def check_awaited(self) -> None:
        """Check as `check`, while other tasks run."""

    def check(self) -> None:
        """Make the checks that the application deferred to the commit. They may wait for locks of other handlers."""

    def end(self, work: Callable[[], Iterable[Change]]) -> None:
        """Commit, with the changes that `work` returns. The session's lock is held. Raises as `ClientStore.end`."""

    def undo(self, error: BaseException) -> None:
        """Roll back, and raise an error of the database: as one of ours if it is no statement's."""

    def kind_of(self, error: BaseException) -> ErrorKind | None:
        """Return the kind of an error of this database, or of a StorageError; None for any other exception."""


class ClientStore(Database, Protocol):
    """The open state of one client. One process at a time has it open.

    Attributes:
        failed: True if the store refused the last commit; later work needs a successful `sync` first.
        rolled_back: True if the last failed `end` has certainly committed nothing.
        life_ended: True if another member of a group has ended the life of this client.
    """

    failed: bool
    rolled_back: bool
    life_ended: bool

    on_lost: Callable[[], None]
    """The session sets it. It is called when memory may differ from the state: a commit is in doubt, or the state went
    back. The session sends nothing more then, and its next call loads the state again.
    """

    @property
    def database(self) -> str:
        """Return the ID of the database, the same for each client in it; "": no other client has its state there."""

    @property
    def power_safe(self) -> bool:
        """Return True if every commit survives a power cut."""

    @property
    def folder(self) -> Path | None:
        """Return the directory of the state file, in which other processes leave requests; None: there is none."""

    def handler_database(self) -> HandlerDatabase | None:
        """Return the database of a handler's transaction beside the session; None: it uses the session's connection."""

    # Its life

    def forked(self, error: AfterFork) -> None:
        """Abandon the connection in a child process; later uses raise `error`."""

    def close(self, *, clean: bool = True) -> None:
        """Release the state. `clean`: first make everything durable, and set the mark of a clean close.

        Raises:
            StorageError: that failed; the state is released all the same, without the mark.
        """

    # Errors

    def errors(self, *, loading: bool = False) -> AbstractContextManager[None]:
        """Turn errors of the database into ours.

        Args:
            loading: the block reads the client's own rows, so that a row of the wrong form is an error of the database
                too.
        """

    def kind_of(self, error: BaseException) -> ErrorKind | None:
        """Return the kind of an error of this database, or of a StorageError; None for any other exception."""

    # Writing

    def commit(self, changes: Iterable[Change], *, fsync: bool = False) -> bool:
        """Apply changes in one transaction.

        Args:
            changes: the changes in order.
            fsync: they must survive a power cut.

        Returns:
            True if it survives a power cut, and with it every earlier commit.

        Raises:
            StorageError: nothing of it happened.
        """

    def begin(self, *, fsync: bool) -> None:
        """Begin a transaction. `fsync`: its commit must survive a power cut."""

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply changes within an open transaction."""

    def end(self) -> None:
        """Commit the open transaction.

        Raises:
            StorageError: nothing of it happened.
        """

    def undo(self, error: BaseException) -> None:
        """Roll back after a failure, and raise an error of the database: as one of ours if it is no statement's."""

    def rollback(self) -> None:
        """Roll back the open transaction, if there is one. After that, a read shows the last durable state."""

    def sync(self) -> None:
        """Make all commits so far durable.

        Raises:
            StorageError: that failed.
        """

    def save_milliseconds(self, milliseconds: int) -> None:
        """Make the number allocator's milliseconds durable.

        Raises:
            StorageError: the commit failed.
        """

    # Other clients

    def settle_other(self, client: str, store: str, topic: str, group: str, number: int) -> LookedUp | None:
        """End the life of another client with its state in the same database, so that it commits nothing more; then
        return what it has done as the member of a group.

        Args:
            client, store: the member.
            topic, group, number: the group, as the member has joined it.

        Returns:
            None: the database does not have the member.

        Raises:
            StorageError: the database cannot be used now.
        """

    # Reading: `Reading` implements these for every store.

    def state(self, key: str) -> Any:
        """Return one of the client's own values: store, milliseconds, known, cuts."""

    def known_milliseconds(self) -> list[int]:
        """Return the milliseconds of all used numbers, from the first remembered one on; see `Numbers`."""

    def rows(self) -> Iterator[tuple[int, str, int, int, int, int, int]]:
        """Yield the outbox in order: counter, topic, previous, count, whole, checksum, bytes of the body."""

    def has_row(self, counter: int) -> bool:
        """Return True if the outbox has the row."""

    def body(self, counter: int) -> bytes:
        """Return the batch of an outbox row.

        Raises:
            StorageError: it cannot be read.
        """

    def chains(self) -> Iterator[tuple[str, int, int, str]]:
        """Yield topic, previous counter, cleared power cut and log of each topic with puts."""

    def subscriptions(self) -> Iterator[tuple[str, bool, bool, bool, int, str, Position | None, Position | None, int]]:
        """Yield topic, wanted, settled, fresh, number, log, last position, tried position and attempts of each."""

    def starts(self) -> Iterator[tuple[str, Start]]:
        """Yield each topic with a subscription that does not begin at the end, and its start."""

    def patterns(self) -> list[tuple[str, bool, bool, int, int]]:
        """Return pattern, wanted, settled, number and stamp of each pattern of topics."""

    def joined(self) -> list[tuple[str, int]]:
        """Return each topic that a pattern brought, with the number of the pattern."""

    def replays(self) -> Iterator[tuple[str, int]]:
        """Yield each topic with a replay, and the number of its last one."""

    def taken(self, topic: str) -> dict[str, int]:
        """Return the last taken counter of each publisher of a topic."""

    def retries(self) -> Iterator[tuple[str, Position, float, float, int]]:
        """Yield topic, position, due time, length of the wait, and number of attempts that are no failures."""

    def waiting(self) -> Iterator[tuple[int, str, bytes, int, int, int, float, float]]:
        """Yield number, topic, lane, size, attempts, later, due time and length of the wait of each, in order."""

    def waiting_piece(self, number: int) -> RunSlice:
        """Return a waiting message, as a record of the service.

        Raises:
            StorageError: it cannot be read.
        """

    def groups(self) -> list[tuple[int, str, str, str, int, str, str, str, int, bool]]:
        """Return member, topic, name, store, number, log, values, wish, cuts and left of each membership."""

    def group_done(self, member: int) -> list[tuple[str, int, int, int]]:
        """Return log, part, low and high of each finished range that a membership may not have told."""

    def group_begun(self, member: int) -> list[tuple[str, int, int]]:
        """Return log, offset and number of each attempt that a membership has begun and may not have told."""

    def files(self) -> list[tuple[str | bytes, str | bytes, int]]:
        """Return path, part file and committed length of each file that the command `get` has not finished."""

    def untold(self) -> list[tuple[str, str, str, str]]:
        """Return topic, first and last position and reason of each loss that was not raised yet, oldest first."""

    def untold_letters(self) -> set[int]:
        """Return the numbers of the dead letters of losses that were not raised yet."""

    def letters(self, topic: str | None) -> list[Any]:
        """Return a `LetterRow` of each dead letter of one topic, or of all, oldest first."""

    def letter_contents(self, number: int) -> tuple[bytes, bytes, bytes]:
        """Return body, key and encoded headers of a dead letter."""

    def dead_letters(self, topic: str | None, *, bodies: bool = True) -> list[tuple[Any, ...]]:
        """Return the dead letters of one topic or of all, oldest first, in the order of `DeadLettered`'s fields."""
