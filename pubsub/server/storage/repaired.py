"""The store's part of repairs: batches that are damaged here, as the store's other member has them.

A damaged row is never written again: where a page number is what was damaged, its bytes are spread over pages that are
another row's. So what takes its place stands in a table of its own, which a store has from its first repair on.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from pubsub.server.topic.changes import BatchRepaired

TABLE: Final = (
    "create table if not exists repaired (key integer primary key, count integer not null, publisher integer not null,"
    " counter integer not null, stamp integer not null, checksum integer not null, total integer not null,"
    " body blob not null)"
)


def _exists(db: apsw.Connection) -> bool:
    return bool(db.execute("select 1 from sqlite_schema where name = 'repaired'").fetchall())


def keys(db: apsw.Connection) -> set[int]:
    """The keys of all that were repaired."""
    return {key for (key,) in db.execute("select key from repaired")} if _exists(db) else set()


def keep(db: apsw.Connection, key: int, change: BatchRepaired) -> None:
    """Keep a batch in the place of the damaged one."""
    db.execute(TABLE)
    facts = (change.count, change.publisher, change.counter, change.stamp, change.checksum, change.total, change.body)
    db.execute("insert or replace into repaired values (?,?,?,?,?,?,?,?)", (key, *facts))


def find(db: apsw.Connection, low: int, high: int) -> tuple[Any, ...] | None:
    """The last repaired batch with its key in [low, high], as a row of `batch`; None where there is none."""
    if not _exists(db):
        return None
    rows: list[Any] = db.execute(
        "select key, count, publisher, counter, stamp, checksum, total, body from repaired"
        " where key >= ? and key <= ? order by key desc limit 1",
        (low, high),
    ).fetchall()
    return rows[0] if rows else None


def drop(db: apsw.Connection, low: int, high: int) -> None:
    """Forget those with keys in [low, high): they are needed no more."""
    if _exists(db):
        db.execute("delete from repaired where key >= ? and key < ?", (low, high))
