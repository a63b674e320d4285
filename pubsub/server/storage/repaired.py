"""The store's part of repairs: the other member's copies of batches that are damaged here.

A damaged row is never written again. If its page number is damaged, its bytes may lie on pages that belong to another
row. The replacement is therefore in a separate table, which a store has from its first repair on.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from pubsub.server.topic.changes import BatchKept, BatchRepaired

TABLE: Final = (
    "create table if not exists repaired (key integer primary key, count integer not null, publisher integer not null,"
    " counter integer not null, stamp integer not null, checksum integer not null, total integer not null,"
    " body blob not null)"
)


def _exists(db: apsw.Connection) -> bool:
    return bool(db.execute("select 1 from sqlite_schema where name = 'repaired'").fetchall())


def keys(db: apsw.Connection) -> set[int]:
    return {key for (key,) in db.execute("select key from repaired")} if _exists(db) else set()


def keep(db: apsw.Connection, key: int, change: BatchRepaired | BatchKept) -> None:
    """Store a batch in place of the damaged one."""
    db.execute(TABLE)
    facts = (change.count, change.publisher, change.counter, change.stamp, change.checksum, change.total, change.body)
    db.execute("insert or replace into repaired values (?,?,?,?,?,?,?,?)", (key, *facts))


def pass_over(db: apsw.Connection, key: int) -> None:
    """Note that a damaged row stands for no record any more: a batch of no records takes its place."""
    db.execute(TABLE)
    db.execute("insert or replace into repaired values (?,0,0,0,0,0,0,?)", (key, b""))


def find(db: apsw.Connection, low: int, high: int) -> tuple[Any, ...] | None:
    """Return the last repaired batch with its key in [low, high], as a row of `batch`; None if there is none."""
    if not _exists(db):
        return None
    rows: list[Any] = db.execute(
        "select key, count, publisher, counter, stamp, checksum, total, body from repaired"
        " where key >= ? and key <= ? order by key desc limit 1",
        (low, high),
    ).fetchall()
    return rows[0] if rows else None


def drop(db: apsw.Connection, low: int, high: int) -> None:
    """Delete the repaired batches with keys in [low, high), which are no longer needed."""
    if _exists(db):
        db.execute("delete from repaired where key >= ? and key < ?", (low, high))
