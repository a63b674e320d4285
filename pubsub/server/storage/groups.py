"""The store's part of consumer groups: groups, members, retries, and copied records with their bodies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw
import msgspec
from msgspec.structs import astuple

from pubsub.server.topic import changes as c
from pubsub.server.topic.facts import Facts
from pubsub.server.topic.group import Group, member_of
from pubsub.server.topic.group_rows import CopyRow, GroupRow, MemberRow, RetryRow

SCHEMA: Final = (
    "create table if not exists consumer_group (topic integer, name text, row text not null,"
    " primary key (topic, name)) without rowid",
    "create table if not exists group_member (topic integer, name text, client text, store text, row text not null,"
    " primary key (topic, name, client, store)) without rowid",
    "create table if not exists group_retry (topic integer, name text, part integer, log text, low integer,"
    " high integer not null, attempts integer not null, forgiven integer not null, losses integer not null,"
    " due integer not null, doubtful integer not null, error text not null,"
    " primary key (topic, name, part, log, low)) without rowid",
    "create table if not exists group_copy (topic integer, name text, log text, place integer, row text not null,"
    " body blob not null, primary key (topic, name, log, place)) without rowid",
)
"""A store of an earlier release gets these tables at its opening."""

TABLES: Final = ("consumer_group", "group_member", "group_retry", "group_copy")

_COPY: Final = "topic = ? and name = ? and log = ? and place = ?"


def _text(row: msgspec.Struct) -> str:
    return msgspec.json.encode(row).decode("ascii")


def load(db: apsw.Connection, topic: int) -> dict[str, Group]:
    """Return the groups of a topic by its number.

    Raises:
        apsw.CorruptError: a page is damaged.
        ValueError, TypeError: a row has another form.
    """
    groups: dict[str, Group] = {}
    for name, text in _rows(db, "select name, row from consumer_group where topic = ? order by name", topic):
        members = _rows(db, "select client, store, row from group_member where topic = ? and name = ?", topic, name)
        retries = _rows(
            db,
            "select part, log, low, high, attempts, forgiven, losses, due, doubtful, error from group_retry"
            " where topic = ? and name = ?",
            topic,
            name,
        )
        copies = _rows(db, "select row from group_copy where topic = ? and name = ?", topic, name)
        found = [msgspec.json.decode(row, type=CopyRow) for (row,) in copies]
        found.sort(key=lambda row: (row.died, row.log, row.offset))
        groups[name] = Group(
            name,
            msgspec.json.decode(text, type=GroupRow),
            {(client, store): member_of(msgspec.json.decode(row, type=MemberRow)) for client, store, row in members},
            Facts(msgspec.convert([*row[:-2], bool(row[-2]), row[-1]], RetryRow) for row in retries),
            {(row.log, row.offset): row for row in found},
        )
    return groups


def _rows(db: apsw.Connection, statement: str, *bind: int | str) -> list[Any]:
    return db.execute(statement, bind).fetchall()


def orphans(db: apsw.Connection) -> list[int]:
    """Return the numbers of copies without a topic, which a transfer has left."""
    owned = "select id from topic union select id from quarantined_topic"
    rows: list[Any] = db.execute(f"select distinct topic from group_copy where topic not in ({owned})").fetchall()  # noqa: S608
    return [number for (number,) in rows]


def body_of(db: apsw.Connection, topic: int, group: str, log: str, offset: int) -> bytes | None:
    """Return the batch with a copied record; None if it is not in the store."""
    found = db.execute(f"select body from group_copy where {_COPY}", (topic, group, log, offset)).fetchall()  # noqa: S608
    return found[0][0] if found and type(found[0][0]) is bytes else None


def drop(db: apsw.Connection, topic: int, group: str | None = None) -> None:
    """Delete the members, retries and copies of a group; None: all rows of the topic's groups."""
    for table in TABLES if group is None else TABLES[1:]:
        if group is None:
            db.execute(f"delete from {table} where topic = ?", (topic,))  # noqa: S608 - our own names
        else:
            db.execute(f"delete from {table} where topic = ? and name = ?", (topic, group))  # noqa: S608


def _retries(db: apsw.Connection, change: c.RetriesChanged) -> None:
    gone = [(change.topic, change.group, row.part, row.log, row.low) for row in change.rows if not row.high]
    db.executemany("delete from group_retry where topic = ? and name = ? and part = ? and log = ? and low = ?", gone)
    kept = [(change.topic, change.group, *astuple(row)) for row in change.rows if row.high]
    db.executemany("insert or replace into group_retry values (?,?,?,?,?,?,?,?,?,?,?,?)", kept)


def _copy(db: apsw.Connection, change: c.CopyKept) -> None:
    key = change.topic, change.group, change.row.log, change.row.offset
    db.execute("insert or replace into group_copy values (?,?,?,?,?,?)", (*key, _text(change.row), change.body))


def _change_copy(db: apsw.Connection, change: c.CopyChanged) -> None:
    key = change.topic, change.group, change.row.log, change.row.offset
    db.execute(f"update group_copy set row = ? where {_COPY}", (_text(change.row), *key))  # noqa: S608


APPLY: Final[dict[type[Any], Callable[[apsw.Connection, Any], object]]] = {
    c.GroupChanged: lambda db, x: db.execute(
        "insert or replace into consumer_group values (?,?,?)", (x.topic, x.group, _text(x.row))
    ),
    c.MemberChanged: lambda db, x: db.execute(
        "insert or replace into group_member values (?,?,?,?,?)", (x.topic, x.group, x.client, x.store, _text(x.row))
    ),
    c.MemberGone: lambda db, x: db.execute(
        "delete from group_member where topic = ? and name = ? and client = ? and store = ?",
        (x.topic, x.group, x.client, x.store),
    ),
    c.RetriesChanged: _retries,
    c.CopyKept: _copy,
    c.CopyChanged: _change_copy,
    c.CopyGone: lambda db, x: db.execute(
        f"delete from group_copy where {_COPY}",  # noqa: S608 - our own words
        (x.topic, x.group, x.log, x.offset),
    ),
    c.CopiesMerged: lambda db, x: db.execute(
        "update group_copy set topic = ? where topic = ? and name = ?", (x.topic, x.shelf, x.group)
    ),
    c.CopiesDropped: lambda db, x: db.execute("delete from group_copy where topic = ?", (x.shelf,)),
    c.GroupEmptied: lambda db, x: drop(db, x.topic, x.group),
}
