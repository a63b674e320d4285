"""The store's part of delayed puts: a row for each batch that waits, and the shelves that merges gave to topics.

A row is in the order of its key, so the next due rows of a topic lie together. Rows of a shelf without a topic are
deleted in pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw

from pubsub.server.topic import changes as c
from pubsub.server.topic.delayed import Delayed, Waiting, delayed_of

SCHEMA: Final = (
    "create table if not exists shelf (id integer primary key, topic integer not null)",
    "create table if not exists delayed (shelf integer, due integer, publisher integer, counter integer,"
    " count integer not null, checksum integer not null, body blob not null,"
    " primary key (shelf, due, publisher, counter)) without rowid",
)
"""A store of an earlier release gets these tables at its opening."""

_KEY: Final = "shelf = ? and due = ? and publisher = ? and counter = ?"

_NUMBERS: Final = {int}


def load(db: apsw.Connection, topic: int) -> Delayed | None:
    """Return the rows of a topic by its number; None if a value is no number.

    Raises:
        apsw.CorruptError: a page is damaged.
    """
    shelves = tuple(number for (number,) in db.execute("select id from shelf where topic = ? order by id", (topic,)))
    rows: list[Waiting] = []
    for shelf in (topic, *shelves):
        found = db.execute(
            "select due, publisher, counter, count, checksum, length(body), shelf from delayed where shelf = ?",
            (shelf,),
        )
        rows += [Waiting(*row) for row in found]
    return delayed_of(rows, shelves) if all(set(map(type, row)) <= _NUMBERS for row in rows) else None


def body_of(db: apsw.Connection, row: Waiting) -> bytes | None:
    """Return the body of a row; None if it is not in the store."""
    found = db.execute(f"select body from delayed where {_KEY}", (row.shelf, row.due, *row.key)).fetchall()  # noqa: S608
    return found[0][0] if found and type(found[0][0]) is bytes else None


def orphans(db: apsw.Connection) -> list[int]:
    """Return the shelves with rows and without a topic, which are to be deleted."""
    found: list[int] = []
    shelf: Any = -1
    owned = "select id from topic union select id from quarantined_topic union select id from shelf"
    held = {number for (number,) in db.execute(owned)}
    while row := db.execute("select shelf from delayed where shelf > ? order by shelf limit 1", (shelf,)).fetchall():
        shelf = row[0][0]
        found += [] if shelf in held else [shelf]
    return found


def _keep(db: apsw.Connection, change: c.DelayedKept) -> None:
    db.execute(
        "insert into delayed values (?,?,?,?,?,?,?)",
        (change.shelf, change.due, change.publisher, change.counter, change.count, change.checksum, change.body),
    )


def _remove(db: apsw.Connection, change: c.DelayedGone) -> None:
    key = change.shelf, change.due, change.publisher, change.counter
    db.execute(f"delete from delayed where {_KEY}", key)  # noqa: S608 - our own words


def discarding(change: c.ShelfDiscarded) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that deletes some rows of a shelf without a topic."""
    statement = (
        "delete from delayed where shelf = ?1 and (due, publisher, counter) in"
        " (select due, publisher, counter from delayed where shelf = ?1 order by due, publisher, counter limit ?2)"
    )
    return statement, (change.shelf, change.rows)


APPLY: Final[dict[type[Any], Callable[[apsw.Connection, Any], object]]] = {
    c.DelayedKept: _keep,
    c.DelayedGone: _remove,
    c.ShelfMerged: lambda db, x: db.execute("insert or replace into shelf values (?,?)", (x.shelf, x.topic)),
}
