"""Earlier formats of the server's store: migrates them, or shows them under the names of this format.

A server migrates a store when it opens it to write. All statements are in one transaction, so a killed or failed
migration leaves the earlier format. Almost all of them rename a table or a column, which changes SQLite's schema and no
rows. A migration therefore takes as long for ten topics as for ten thousand, except for one pass over the table `log`.

A tool that only reads does not migrate, because the store could then no longer go back to its release. It gets
temporary views. They exist only in its connection, and hide the tables of the same names.

    format 1   a span cannot be marked as doubtful
    format 2   the same tables
    format 3   the names that are in `schema`
"""

from __future__ import annotations

from typing import Final

import apsw

from pubsub.server.storage import delayed
from pubsub.server.storage.schema import ADDED as ADDED_TO_FORMAT
from pubsub.server.storage.schema import FORMAT

OLD_NAMES: Final = ("entry", "skip", "aside")
"""Tables of formats 1 and 2 that have another name in this format."""

ADDED: Final = (
    "create table if not exists topic_settings (topic integer primary key, settings text not null)",
    "create table if not exists rival (topic integer, log text, server text not null, primary key (topic, log))"
    " without rowid",
    "create table if not exists aside (id integer primary key, name text not null, open_log integer not null,"
    " spine text not null, reason text not null, stamp integer not null)",
)
"""Tables that a store of format 1 or 2 may lack."""


LATER: Final = (
    "create table if not exists purge (topic integer, log text, kept integer not null, unread integer not null,"
    " primary key (topic, log)) without rowid",
    *delayed.SCHEMA,
    *ADDED_TO_FORMAT,
)
"""Tables that a store of any format may lack, this one included."""


def _state(column: str) -> str:
    """Return SQL for the present name of a log's state."""
    return (
        f"case {column} when 'absorbed' then 'merged' when 'dead' then 'abandoned' when 'aside' then 'quarantined'"
        f" else {column} end"
    )


# The receiver of a quarantined log is the state that it had before. Any other receiver may be a server with that ID.
_RECEIVER: Final = f"case state when 'aside' then {_state('receiver')} else receiver end"

MIGRATION: Final = (
    *ADDED,
    "alter table entry rename to subscription",
    "alter table subscription rename column opening to epoch",
    "alter table subscription rename column legs to backlog",
    "alter table topic rename column spine to history",
    "alter table skip rename to watermark",
    "alter table aside rename to quarantined_topic",
    "alter table quarantined_topic rename column spine to history",
    f"update log set receiver = {_RECEIVER}, state = {_state('state')} where state in ('absorbed', 'dead', 'aside')",  # noqa: S608
    f"pragma user_version = {FORMAT}",
)
"""The statements that convert a store of format 1 or 2."""

VIEWS: Final = (
    "create temp view subscription as select topic, subscriber, number, opening as epoch, subscribed, since, log,"
    " acknowledged, legs as backlog from main.entry",
    "create temp view topic as select id, name, open_log, spine as history, frozen from main.topic",
    "create temp view watermark as select id, publisher, counter from main.skip",
    f"create temp view log as select id, name, topic, {_state('state')} as state, low, end, total,"  # noqa: S608
    f" {_RECEIVER} as receiver from main.log",
    "create temp view quarantined_topic as select id, name, open_log, spine as history, reason, stamp from aside",
)
"""The tables of formats 1 and 2 under the names of this format."""


def migrate(db: apsw.Connection, found: int) -> None:
    """Convert a store to this format, durably, if it has an earlier one, and add the tables that it lacks.

    Args:
        db: the writing connection; the store is not damaged.
        found: its format.

    Raises:
        apsw.Error: the store keeps its format.
    """
    wanted = [statement for statement in (*LATER, *ADDED_TO_FORMAT) if _lacks(db, statement)]
    wanted += MIGRATION if found < FORMAT else ()
    if wanted:
        with db:
            for statement in wanted:
                db.execute(statement)


def show(db: apsw.Connection, found: int) -> None:
    """Show a store of an earlier format under the names of this format, in this connection only.

    `pragma integrity_check(TABLE)` checks a view and no table afterwards: check the pages first, or in another
    connection.

    Args:
        db: a connection, which may be for reading only.
        found: the store's format.
    """
    for statement in (*LATER, *(ADDED if found < FORMAT else ())):
        if _lacks(db, statement):
            db.execute(statement.replace("create table", "create temp table", 1))
    for statement in VIEWS if found < FORMAT else ():
        db.execute(statement)


def _lacks(db: apsw.Connection, statement: str) -> bool:
    """Return True if a store lacks the table that a statement creates."""
    name = statement.split()[5]
    return not list(db.execute("select 1 from sqlite_schema where type = 'table' and name = ?", (name,)))
