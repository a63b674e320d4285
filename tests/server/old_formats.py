"""A server's store of an earlier format, with the contents of a store of this format."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Final

import apsw

from pubsub.base.database import PAGE_BYTES, begin_file
from pubsub.server.storage.schema import APPLICATION_ID, FILE
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c

OLD_SCHEMA: Final = (
    "create table meta (name text primary key, value) without rowid",
    "create table topic (id integer primary key, name text not null unique, open_log integer not null,"
    " spine text not null, frozen text not null)",
    "create table log (id integer primary key, name text not null, topic integer not null, state text not null,"
    " low integer not null, end integer not null, total integer not null, receiver text not null default '')",
    "create index log_name on log (name)",
    "create index log_topic on log (topic)",
    "create table publisher (id integer primary key, name text not null unique)",
    "create table last (topic integer, publisher integer, last integer not null, primary key (topic, publisher))"
    " without rowid",
    "create table entry (topic integer, subscriber text, number integer not null, opening integer not null,"
    " subscribed integer not null, since integer not null, log text not null, acknowledged integer not null,"
    " legs text not null, primary key (topic, subscriber)) without rowid",
    "create table skip (id integer, publisher integer, counter integer not null, primary key (id, publisher))"
    " without rowid",
    "create table batch (key integer primary key, count integer not null, publisher integer not null,"
    " counter integer not null, stamp integer not null, checksum integer not null, total integer not null, body blob)",
    "create table quarantine (key integer primary key, checksum integer not null, body blob)",
    "create table stage (id integer primary key, topic integer not null, publisher integer not null,"
    " batch integer not null, attempt text not null, heard integer not null)",
    "create index stage_topic on stage (topic)",
    "create table staged (id integer primary key, stage integer not null, first integer not null,"
    " count integer not null, checksum integer not null, body blob)",
    "create index staged_stage on staged (stage, first)",
    "create table published (key integer primary key, source integer not null)",
)
LATER: Final = (
    "create table if not exists rival (topic integer, log text, server text not null, primary key (topic, log))"
    " without rowid",
    "create table if not exists aside (id integer primary key, name text not null, open_log integer not null,"
    " spine text not null, reason text not null, stamp integer not null)",
)
"""Tables that a store of these formats got from the first release that knew them."""

REPAIRED: Final = (
    "create table if not exists repaired (key integer primary key, count integer not null, publisher integer not null,"
    " counter integer not null, stamp integer not null, checksum integer not null, total integer not null,"
    " body blob not null)"
)

OLD_TABLES: Final = {"subscription": "entry", "watermark": "skip", "quarantined_topic": "aside"}
OLD_STATES: Final = {"merged": "absorbed", "abandoned": "dead", "quarantined": "aside"}
_STATE, _RECEIVER = 3, 7


def rows_of(db: apsw.Connection) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table."""
    tables = [name for (name,) in db.execute("select name from sqlite_schema where type = 'table' order by name")]
    return {table: list(db.execute(f"select * from {table}")) for table in tables}


def make_store(directory: Path, changes: list[c.Change]) -> None:
    with contextlib.closing(Store(directory)) as store, store.guarded():
        store.apply(changes)


def make_old_store(directory: Path, source: Path, version: int, *, later: bool = True) -> None:
    """Write the contents of the store in `source` in an earlier format.

    Args:
        later: False for a store that no release opened that knew the tables of `LATER`.
    """
    with contextlib.closing(Store(source)) as store:
        tables = rows_of(store.db)
    directory.mkdir()
    begin_file(directory / FILE, PAGE_BYTES)
    with contextlib.closing(apsw.Connection(str(directory / FILE))) as db:
        db.pragma("journal_mode", "wal")
        with db:
            for statement in (*OLD_SCHEMA, *(LATER if later else ()), *([REPAIRED] if "repaired" in tables else ())):
                db.execute(statement)
            for table, rows in tables.items():
                old = OLD_TABLES.get(table, table)
                if table in {"topic_settings", "delayed", "shelf"} or (
                    not later and not rows and old in {"rival", "aside"}
                ):
                    continue
                for row in rows:
                    values = _old_log(row) if table == "log" else row
                    db.execute(f"insert into {old} values ({','.join('?' * len(row))})", values)
            db.pragma("application_id", APPLICATION_ID)
            db.pragma("user_version", version)


def _old_log(row: tuple[Any, ...]) -> tuple[Any, ...]:
    state, receiver = row[_STATE], row[_RECEIVER]
    if state == "quarantined":  # Its receiver is the state before.
        receiver = OLD_STATES.get(receiver, receiver)
    return (*row[:_STATE], OLD_STATES.get(state, state), *row[_STATE + 1 : _RECEIVER], receiver)
