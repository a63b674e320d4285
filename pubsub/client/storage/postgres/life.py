"""Open a client for one life at a time: a lock of its session, and a random token that each transaction checks.

The lock keeps a second process out. It ends with its connection, so a token guards what the lock cannot: a process
that lost its connection, and does not know yet, commits nothing after another one has opened the client. The token is
random, because a replica that was promoted behind its primary gives the same count to two lives.

A new life counts a power cut if the cluster, its timeline or the database is another one than before, or if this
process knows of a later commit than the database has.

The rules are docs/explanation/databases.md, DB2 and DB5.
"""

from __future__ import annotations

import secrets
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psycopg

from pubsub.client.storage.postgres.connecting import Place, StoreConnection
from pubsub.errors import THIS_PROCESS, StorageError, StoreInUse

_LOCK: Final = "select pg_try_advisory_lock(hashtextextended('pubsub client ' || %s, 0))"
_POLL_SECONDS: Final = 0.02

ENDED: Final = "ended "
"""Beginning of the token of a life that another member of a group has ended."""

open_here: Final[set[tuple[int, str]]] = set()
"""Backends of the clients that this process has open: PID and time of the start."""

remembered: Final[dict[tuple[str, str], int]] = {}
"""Number of the last commit that this process knows of, by URL and client."""


@dataclass
class Life:
    """A client's row of `pubsub.state`, as far as a life is concerned.

    Attributes:
        token: of the life that opened the client last.
        number: count of lives.
        commits: number of the client's last commit.
    """

    token: str
    number: int
    commits: int

    def ended_by_a_member(self, mine: Life) -> bool:
        """Return True if another member of a group has ended `mine`, and no process has begun another life since."""
        return self.token.startswith(ENDED) and self.number == mine.number


def lock(connection: StoreConnection, client: str) -> bool:
    """Take the client's lock for this connection; False: another connection has it."""
    row = connection.execute(_LOCK, (client,)).fetchone()
    return row is not None and bool(row[0])


def lock_again(connection: StoreConnection, client: str, path: str, lost: tuple[int, str], until: float) -> None:
    """Take the lock after the connection with it was lost; its backend may still be there, and is ended then.

    Args:
        lost: PID and start of the lost connection's backend.
        until: time on `time.monotonic` at which to give up.

    Raises:
        StoreInUse: another process has taken it.
        StorageError: the lost connection's backend has not ended in time.
    """
    asked = False
    while not lock(connection, client):
        found = holder(connection, client)
        if found is not None and found[:2] != lost:
            raise StoreInUse(path, _described(found))
        if found is not None and not asked:
            connection.execute("select pg_terminate_backend(%s)", (lost[0],))
            asked = True
        if time.monotonic() > until:
            raise StorageError(path, f"the lost connection (PostgreSQL process {lost[0]}) still has the client's lock")
        time.sleep(_POLL_SECONDS)


_HANDLER: Final = "select pg_advisory_lock_shared(hashtextextended('pubsub handler ' || %s, 0))"
_END_HANDLERS: Final = """
select pg_terminate_backend(pid) from pg_locks
where locktype = 'advisory' and objsubid = 1 and granted and mode = 'ShareLock' and pid <> pg_backend_pid()
    and database = (select oid from pg_database where datname = current_database())
    and ((classid::bigint << 32) | objid::bigint) = hashtextextended('pubsub handler ' || %s, 0)
"""


def end_backend(connection: StoreConnection, pid: int, since: str) -> None:
    """End the backend of a lost connection, if it is there: it may not know yet, and keeps its locks on rows."""
    with suppress(psycopg.Error):
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where pid = %s and backend_start::text = %s",
            (pid, since),
        )


def mark_handler(connection: StoreConnection, client: str) -> None:
    """Mark a connection as one for handlers of a client, until the connection ends."""
    connection.execute(_HANDLER, (client,))


def end_handlers(connection: StoreConnection, client: str) -> None:
    """End the connections for handlers of a life that is over: their open transactions would keep the locks on rows.

    The token of the life is replaced already, so nothing of these transactions can be committed.
    """
    with suppress(psycopg.Error):  # The role may not end them. Then they end with their process.
        connection.execute(_END_HANDLERS, (client,))


_HOLDER: Final = """
select a.pid, coalesce(a.backend_start::text, ''), host(a.client_addr)
from pg_locks l join pg_stat_activity a using (pid)
where l.locktype = 'advisory' and l.objsubid = 1 and l.granted
    and l.database = (select oid from pg_database where datname = current_database())
    and ((l.classid::bigint << 32) | l.objid::bigint) = hashtextextended('pubsub client ' || %s, 0)
"""
_Holder = tuple[int, str, str | None]


def holder(connection: StoreConnection, client: str) -> _Holder | None:
    """Return PID, start and address of the connection with the lock; None if it is free by now."""
    return connection.execute(_HOLDER, (client,)).fetchone()


def _described(found: _Holder) -> str:
    pid, since, address = found
    if (pid, since) in open_here:
        return THIS_PROCESS
    where = "a local socket" if address is None else address
    return f"PostgreSQL process {pid} from {where}, since {since.partition('.')[0] or 'an unknown time'}"


def in_use(connection: StoreConnection, client: str, path: str) -> StoreInUse:
    """Build the error for a lock that another connection has."""
    found = holder(connection, client)
    return StoreInUse(path, "it has ended just now" if found is None else _described(found))


def end(connection: StoreConnection, client: str) -> Place | None:
    """Replace the token of a client by one that no process has, in an open transaction; wait for a commit under way.

    Returns:
        Where the life began; None: the database has no such client.
    """
    row = connection.execute(
        "update pubsub.state set life = %s where client = %s returning system, timeline, database",
        (ENDED + secrets.token_hex(16), client),
    ).fetchone()
    return None if row is None else Place(*row)


def stale_holder(connection: StoreConnection, client: str) -> int | None:
    """Return the PID of the connection with a client's lock, unless it waits to begin a life; None: there is none."""
    found = holder(connection, client)
    if found is None:
        return None
    waits = connection.execute("select exists (select from pg_locks where pid = %s and not granted)", found[:1])
    return None if waits.fetchone() == (True,) else found[0]


def read(connection: StoreConnection, client: str) -> Life | None:
    """Return the life that the database knows; None if it has no such client."""
    row = connection.execute("select life, lives, commits from pubsub.state where client = %s", (client,)).fetchone()
    return None if row is None else Life(*row)


def begin(connection: StoreConnection, client: str, url: str, *, cut: bool = False) -> Life:
    """Begin a life in a transaction of its own; the lock is held. `cut`: commits were lost."""
    known = remembered.get((url, client), 0)
    with connection.transaction():
        connection.execute("set transaction isolation level read committed, read write")
        found = connection.execute(
            "select lives, commits, system, timeline, database from pubsub.state where client = %s for update",
            (client,),
        ).fetchone()
        token = secrets.token_hex(16)
        if found is None:
            life = Life(token, 1, 1)
            connection.execute(
                "insert into pubsub.state"
                " (client, life, lives, commits, store, milliseconds, known, cuts, system, timeline, database)"
                " values (%s, %s, 1, 1, %s, 0, '', 0, %s, %s, %s)",
                (client, token, secrets.token_hex(8), *connection.place),
            )
        else:
            lives, commits, *place = found
            cut = cut or tuple(place) != connection.place or commits < known
            life = Life(token, lives + 1, max(commits, known) + 1)
            connection.execute(
                "update pubsub.state set life = %s, lives = %s, commits = %s, cuts = cuts + %s, system = %s,"
                " timeline = %s, database = %s, opened = now() where client = %s",
                (token, life.number, life.commits, int(cut), *connection.place, client),
            )
    remembered[url, client] = life.commits
    end_handlers(connection, client)
    return life
