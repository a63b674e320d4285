"""Apply each change of a client to the tables of its state file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import apsw

from pubsub.client.core import changes as c
from pubsub.protocol.names import LATEST, format_start


def _add_row(db: apsw.Connection, row: c.RowAdded) -> None:
    db.execute(
        "insert into pubsub_outbox values (?, ?, ?, ?, ?, ?, ?)",
        (row.counter, row.topic, row.previous, row.count, row.sole_owner, row.checksum, row.body),
    )


def _remove_rows(db: apsw.Connection, change: c.RowsRemoved) -> None:
    db.executemany("delete from pubsub_outbox where counter = ?", [(counter,) for counter in change.counters])


def _unchain(db: apsw.Connection, change: c.RowUnchained) -> None:
    db.execute("update pubsub_outbox set previous = 0 where counter = ?", (change.counter,))


def _move_chain(db: apsw.Connection, chain: c.ChainMoved) -> None:
    db.execute(
        "insert or replace into pubsub_chains values (?, ?, ?, ?)",
        (chain.topic, chain.previous, chain.cleared, chain.log),
    )


def _discard_calls(db: apsw.Connection, change: c.CallsDiscarded) -> None:
    statement = "update pubsub_calls set outcome = 'discarded', told = 1 where id = ? and outcome = 'waiting'"
    db.executemany(statement, [(call,) for call in change.calls])


def _intend(db: apsw.Connection, change: c.Intended) -> None:
    db.execute(
        "insert into pubsub_subscriptions (topic, wanted, settled, fresh, number, log) values (?, ?, 0, ?, 0, '')"
        " on conflict (topic) do update set wanted = excluded.wanted, settled = 0, fresh = excluded.fresh,"
        " last_log = null, last_offset = null, tried_log = null, tried_offset = null, attempts = 0",
        (change.topic, int(change.on), int(change.fresh)),
    )
    db.execute("delete from pubsub_starts where topic = ?", (change.topic,))
    if change.start != LATEST:
        db.execute("insert into pubsub_starts values (?, ?)", (change.topic, format_start(change.start)))
    if change.fresh and change.start != LATEST:
        db.execute("delete from pubsub_taken where topic = ?", (change.topic,))
    if change.replay:
        db.execute("insert or replace into pubsub_replays values (?, ?)", (change.topic, change.replay))


def _confirm(db: apsw.Connection, change: c.Confirmed) -> None:
    log, offset = change.position or (None, None)
    db.execute(
        "update pubsub_subscriptions set settled = 1, number = ?, last_log = ?, last_offset = ?, log = ?"
        " where topic = ?",
        (change.number, log, offset, change.log, change.topic),
    )


def _take(db: apsw.Connection, change: c.Taken) -> None:
    log, offset = change.position
    db.execute(
        "update pubsub_subscriptions set last_log = ?, last_offset = ? where topic = ?", (log, offset, change.topic)
    )
    for publisher, counter in change.counters.items():
        db.execute("insert or replace into pubsub_taken values (?, ?, ?)", (change.topic, publisher, counter))


def _try(db: apsw.Connection, change: c.Tried) -> None:
    log, offset = change.position
    db.execute(
        "update pubsub_subscriptions set tried_log = ?, tried_offset = ?, attempts = ? where topic = ?",
        (log, offset, change.attempts, change.topic),
    )


def _dead_letter(db: apsw.Connection, letter: c.DeadLettered) -> None:
    db.execute(
        "insert into pubsub_dead_letters (topic, first, last, publisher, counter, stamp, body, error, attempts, at)"
        " values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            letter.topic,
            letter.first,
            letter.last,
            letter.publisher,
            letter.counter,
            letter.stamp,
            letter.body,
            letter.error,
            letter.attempts,
            letter.at,
        ),
    )
    if letter.body is None:
        db.execute("insert into pubsub_untold values (last_insert_rowid(), ?)", (letter.topic,))
    if letter.key or letter.headers:
        number = db.last_insert_rowid()
        db.execute("insert into pubsub_letters_beside values (?, ?, ?)", (number, letter.key, letter.headers))


def _tell(db: apsw.Connection, told: c.Told) -> None:
    db.execute(
        "delete from pubsub_untold where id in (select id from pubsub_untold where topic = ? order by id limit ?)",
        (told.topic, told.count),
    )


def _renew(db: apsw.Connection, change: c.Renewed) -> None:
    db.execute("update pubsub_state set value = ? where key = 'store'", (change.store,))
    db.execute("update pubsub_state set value = 0 where key = 'cuts'")
    db.execute("update pubsub_outbox set whole = 0")
    db.execute("delete from pubsub_chains")


APPLY: Final[dict[type, Callable[[apsw.Connection, Any], None]]] = {
    c.RowAdded: _add_row,
    c.RowsRemoved: _remove_rows,
    c.RowUnchained: _unchain,
    c.ChainMoved: _move_chain,
    c.CallsDiscarded: _discard_calls,
    c.Intended: _intend,
    c.Confirmed: _confirm,
    c.Taken: _take,
    c.Tried: _try,
    c.DeadLettered: _dead_letter,
    c.Told: _tell,
    c.Renewed: _renew,
}
