"""The store's part of sinks: staged rows, and published batches that refer to them.

A published batch has a row of `batch` without a body. Its row of `published` has the number of the staged row with the
bytes. The bytes are therefore written only once, when they are staged. A stage of topic 0 has no topic: it arrives with
a topic, or is to be deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw

from pubsub.server.topic import changes as c
from pubsub.server.topic.stages import Piece, Stage, StageKey

SCHEMA: Final = (
    "create table stage (id integer primary key, topic integer not null, publisher integer not null,"
    " batch integer not null, attempt text not null, heard integer not null)",
    "create index stage_topic on stage (topic)",
    "create table staged (id integer primary key, stage integer not null, first integer not null,"
    " count integer not null, checksum integer not null, body blob)",
    "create index staged_stage on staged (stage, first)",
    "create table published (key integer primary key, source integer not null)",
)

NOT_QUARANTINED: Final = (
    "key >= ?1 and key < ?2 and +key >= ?1 and key not in (select key from quarantine where key >= ?1 and key < ?2)"
)
"""Condition for batches in a range of keys that may be changed. The row of a damaged batch may lead to pages that
belong to another row, and those pages must not be freed. Without `+key`, SQLite tests the lower limit only at its
start. On a damaged page it may meet a lower key, continue behind it, and delete everything from there on, also of
other logs."""


def _rows(db: apsw.Connection, statement: str, bind: tuple[Any, ...] = ()) -> list[Any]:
    return db.execute(statement, bind).fetchall()


def body_of(db: apsw.Connection, key: int) -> bytes | None:
    """Return the body of a published batch by its key; None if the batch is not published or has no body."""
    rows = _rows(db, "select body from published join staged on staged.id = published.source where key = ?", (key,))
    return rows[0][0] if rows else None


def size_of(db: apsw.Connection, key: int) -> int:
    """Return the size of that body in bytes."""
    rows = _rows(
        db, "select length(body) from published join staged on staged.id = published.source where key = ?", (key,)
    )
    return int(rows[0][0] or 0) if rows else 0


def staged_body(db: apsw.Connection, piece: int) -> bytes:
    rows = _rows(db, "select body from staged where id = ?", (piece,))
    return rows[0][0] if rows and rows[0][0] is not None else b""


def load(db: apsw.Connection, topic: int) -> dict[StageKey, Stage]:
    stages = {
        row[0]: Stage(*row)
        for row in db.execute("select id, publisher, batch, attempt, heard from stage where topic = ?", (topic,))
    }
    for number, *piece in db.execute(
        "select stage, id, first, count, checksum, length(body) from staged"
        " where stage in (select id from stage where topic = ?) order by stage, first",
        (topic,),
    ):
        stages[number].add(Piece(*piece))
    return {stage.key: stage for stage in stages.values()}


def dropped(db: apsw.Connection) -> list[tuple[int, int]]:
    """Return the number and the count of pieces of each stage without a topic."""
    return _rows(db, "select id, (select count(*) from staged where stage = stage.id) from stage where topic = 0")


def next_numbers(db: apsw.Connection, *, indexed: bool = True) -> tuple[int, int]:
    """Return the first free numbers of a stage and of a piece.

    Args:
        db: the connection.
        indexed: False if the index is damaged; all rows are then read.
    """
    # A published stage has no row, but its pieces still refer to it.
    pieces = "staged" if indexed else "staged not indexed"
    row = _rows(
        db,
        "select max(coalesce((select max(id) from stage), 0),"  # noqa: S608 - our own words
        f" coalesce((select max(stage) from {pieces}), 0)) + 1, coalesce((select max(id) from staged), 0) + 1",
    )
    return row[0][0], row[0][1]


def deletion(low: int, high: int) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Return statements that delete published batches with keys in [low, high), except damaged ones."""
    return (
        (f"delete from staged where id in (select source from published where {NOT_QUARANTINED})", (low, high)),  # noqa: S608
        (f"delete from published where {NOT_QUARANTINED}", (low, high)),  # noqa: S608
    )


def keep(key: int) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that copies the damaged bytes of a published batch into `quarantine`."""
    return (
        "insert or ignore into quarantine select key, checksum, body from published"
        " join staged on staged.id = published.source where key = ?1",
        (key,),
    )


def _open(db: apsw.Connection, change: c.StageOpened) -> None:
    db.execute(
        "insert into stage values (?,?,?,?,?,?)",
        (change.stage, change.topic, change.publisher, change.batch, change.attempt, change.heard),
    )


def stage(db: apsw.Connection, change: c.PieceStaged) -> None:
    db.execute(
        "insert into staged values (?,?,?,?,?,?)",
        (change.piece, change.stage, change.first, change.count, change.checksum, change.body),
    )
    db.execute("update stage set heard = ? where id = ?", (change.heard, change.stage))


def publish(db: apsw.Connection, key: int, change: c.BatchPublished) -> None:
    """Make a staged piece a batch of a log."""
    db.execute(
        "insert into batch values (?,?,?,?,?,?,?,null)",
        (key, change.count, change.publisher, change.counter, change.stamp, change.checksum, change.total),
    )
    db.execute("insert into published values (?,?)", (key, change.source))


def dropping(change: c.StagedDeleted) -> tuple[str, tuple[Any, ...]]:
    """Return the statement that deletes some pieces of a stage."""
    statement = "delete from staged where id in (select id from staged where stage = ? limit ?)"
    return statement, (change.stage, change.pieces)


APPLY: Final[dict[type[Any], Callable[[apsw.Connection, Any], object]]] = {
    c.StageOpened: _open,
    c.StageMerged: lambda db, x: db.execute("update stage set topic = ? where id = ?", (x.topic, x.stage)),
    c.StagePublished: lambda db, x: db.execute("delete from stage where id = ?", (x.stage,)),
    c.StageDropped: lambda db, x: db.execute("update stage set topic = 0 where id = ?", (x.stage,)),
}
