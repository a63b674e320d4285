"""End the life of a group's member that is not heard, and read its work (docs/explanation/group-databases.md).

The member's token is replaced first, and its rows are read after that. A transaction of the member that is open then
cannot commit any more, since `pubsub.step` does not find its token. A commit under way has the row of the token locked,
so its rows are read. The new token is committed before anything is told.

The backends of the member are ended as well: that with its lock, and those of its handlers. Otherwise the open
transactions of a stopped process would keep their locks on the application's rows, and the next member would wait.
"""

from __future__ import annotations

from contextlib import suppress

import psycopg

from pubsub.client.core.group_looks import LookedUp
from pubsub.client.storage.postgres import life
from pubsub.client.storage.postgres.connecting import StoreConnection, connect, shown
from pubsub.client.storage.postgres.errors import line_of
from pubsub.config.databases import DatabaseUrl
from pubsub.errors import StorageError

_MEMBER = """
select member from pubsub.groups where client = %s and store = %s and topic = %s and name = %s and number = %s
"""
_DONE = "select log, part, low, high from pubsub.group_done where client = %s and member = %s order by 1, 2, 3"
_BEGUN = "select log, place, attempts from pubsub.group_begun where client = %s and member = %s order by 1, 2"


def settle_other(
    url: DatabaseUrl, looker: str, database: str, client: str, store: str, topic: str, group: str, number: int
) -> LookedUp | None:
    """End the life of another client, and return the work of its membership.

    Args:
        looker: the client that looks.
        database: the database that both have named.
        client, store: the member.
        topic, group, number: the group.

    Returns:
        None: the database does not have the member.

    Raises:
        StorageError: the database cannot be used now; nothing was read.
    """
    connection = connect(url, looker)
    try:
        if connection.place.identity != database:
            return None
        return _settle(connection, client, (client, store, topic, group, number))
    except psycopg.Error as error:
        where = shown(url, looker)
        raise StorageError(where, f"the group's member {client} cannot be looked up ({line_of(error)})") from None
    finally:
        connection.close()


def _settle(connection: StoreConnection, client: str, key: tuple[str, str, str, str, int]) -> LookedUp | None:
    with connection.transaction():
        connection.execute("set transaction isolation level read committed, read write")
        connection.execute("set local lock_timeout = '1s'")
        if connection.execute(_MEMBER, key).fetchone() is None:
            return None
        place = life.end(connection, client)
        row = connection.execute(_MEMBER, key).fetchone()
        if place is None or row is None:
            return None
        done = connection.execute(_DONE, (client, *row)).fetchall()
        begun = connection.execute(_BEGUN, (client, *row)).fetchall()
        holder = life.stale_holder(connection, client)
    if holder is not None:
        with suppress(psycopg.Error):  # The role may not end it. Then it ends with its connection.
            connection.execute("select pg_terminate_backend(%s)", (holder,))
    life.end_handlers(connection, client)
    return LookedUp(done, begun, place != connection.place)
