"""Apply each change of a client to the tables of its state file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final

import apsw

from pubsub.client.core import changes as c
from pubsub.client.storage.tables import FORMAT_WAITING
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
    db.execute("delete from pubsub_retries where topic = ?", (change.topic,))
    if change.start != LATEST:
        db.execute("insert into pubsub_starts values (?, ?)", (change.topic, format_start(change.start)))
    if change.fresh and change.start != LATEST:
        db.execute("delete from pubsub_taken where topic = ?", (change.topic,))
    if change.replay:
        db.execute("insert or replace into pubsub_replays values (?, ?)", (change.topic, change.replay))
    db.execute("delete from pubsub_joined where topic = ?", (change.topic,))
    if change.pattern:
        db.execute("insert into pubsub_joined values (?, ?)", (change.topic, change.pattern))


def _intend_pattern(db: apsw.Connection, change: c.PatternIntended) -> None:
    db.execute(
        "insert or replace into pubsub_patterns values (?, ?, 0, ?, ?)",
        (change.pattern, int(change.on), change.number, change.stamp),
    )


def _confirm_pattern(db: apsw.Connection, change: c.PatternConfirmed) -> None:
    db.execute("update pubsub_patterns set settled = 1, stamp = ? where pattern = ?", (change.stamp, change.pattern))


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


def _put_off(db: apsw.Connection, change: c.PutOff) -> None:
    db.execute(
        "insert or replace into pubsub_retries values (?, ?, ?, ?, ?, ?)",
        (change.topic, *change.position, change.due, change.seconds, change.later),
    )


def _put_aside(db: apsw.Connection, change: c.PutAside) -> None:
    values = [getattr(change, one.name) for one in fields(change)]
    db.execute(f"insert into pubsub_later values ({', '.join('?' * len(values))})", values)  # noqa: S608
    _refuse_older(db)


def _refuse_older(db: apsw.Connection) -> None:
    """Keep out releases that would not handle the waiting messages."""
    if db.pragma("user_version") != FORMAT_WAITING:
        db.pragma("user_version", FORMAT_WAITING)


def _change_waiting(db: apsw.Connection, change: c.WaitingChanged) -> None:
    db.execute(
        "update pubsub_later set attempts = ?, later = ?, due = ?, seconds = ? where number = ?",
        (change.attempts, change.later, change.due, change.seconds, change.number),
    )


def _try_waiting(db: apsw.Connection, change: c.WaitingTried) -> None:
    db.execute("update pubsub_later set attempts = ? where number = ?", (change.attempts, change.number))


def _end_waiting(db: apsw.Connection, change: c.WaitingEnded) -> None:
    db.execute("delete from pubsub_later where number = ?", (change.number,))


def _drop_waiting(db: apsw.Connection, change: c.WaitingDropped) -> None:
    db.execute("delete from pubsub_later where topic = ?", (change.topic,))


def _redrive(db: apsw.Connection, change: c.Redriven) -> None:
    db.execute(
        "insert into pubsub_later select ?2, topic, first, publisher, counter, stamp, body, coalesce(key, x''),"
        " coalesce(headers, x''), 0, coalesce(key, x''), 0, 0, 0, 0"
        " from pubsub_dead_letters left join pubsub_letters_beside using (id) where id = ?1",
        (change.letter, change.number),
    )
    _refuse_older(db)
    _remove_letters(db, c.LettersRemoved([change.letter]))


def _remove_letters(db: apsw.Connection, change: c.LettersRemoved) -> None:
    for table in ("pubsub_letters_beside", "pubsub_dead_letters", "pubsub_untold"):
        statement = f"delete from {table} where id = ?"  # noqa: S608
        db.executemany(statement, [(letter,) for letter in change.letters])


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
    if told.deletions:
        which = "select id from pubsub_deletions where topic = ? order by id limit ?"
        db.execute(f"delete from pubsub_deletions where id in ({which})", (told.topic, told.deletions))  # noqa: S608


def _note_deletion(db: apsw.Connection, noted: c.DeletionNoted) -> None:
    db.execute("insert into pubsub_deletions (topic, reason) values (?, ?)", (noted.topic, noted.reason))


def _raise_loss(db: apsw.Connection, change: c.LossRaised) -> None:
    newest = "select max(id) from pubsub_untold where topic = ?"
    db.execute(f"delete from pubsub_untold where id = ({newest})", (change.topic,))  # noqa: S608


def _renew(db: apsw.Connection, change: c.Renewed) -> None:
    db.execute("update pubsub_state set value = ? where key = 'store'", (change.store,))
    db.execute("update pubsub_state set value = 0 where key = 'cuts'")
    db.execute("update pubsub_outbox set whole = 0")
    db.execute("delete from pubsub_chains")


def _join_group(db: apsw.Connection, change: c.GroupJoined) -> None:
    found = db.execute("select number from pubsub_groups where member = ?", (change.member,)).get
    if found is not None and found != change.number:
        _forget_group(db, c.GroupForgotten(change.member))
    db.execute(
        "insert into pubsub_groups (member, topic, name, store, number, log, told, wish)"
        " values (?, ?, ?, ?, ?, ?, ?, ?)"
        " on conflict (member) do update set number = excluded.number, log = excluded.log, told = excluded.told,"
        " wish = excluded.wish",
        (
            change.member,
            change.topic,
            change.name,
            change.store,
            change.number,
            change.log,
            change.values,
            change.wish,
        ),
    )


def _open_group(db: apsw.Connection, change: c.GroupOpened) -> None:
    db.execute(
        "update pubsub_groups set gone = ?, cuts = ? where member = ?", (int(change.left), change.cuts, change.member)
    )


def _do_of_group(db: apsw.Connection, change: c.GroupDone) -> None:
    key = change.member, change.log, change.part
    for low in change.replaced:
        db.execute("delete from pubsub_group_done where member = ? and log = ? and part = ? and low = ?", (*key, low))
    db.execute("insert or replace into pubsub_group_done values (?, ?, ?, ?, ?)", (*key, change.low, change.high))


def _tell_of_group(db: apsw.Connection, change: c.GroupTold) -> None:
    key = change.member, change.log, change.part
    db.execute("delete from pubsub_group_done where member = ? and log = ? and part = ?", key)
    for low, high in change.ranges:
        db.execute("insert into pubsub_group_done values (?, ?, ?, ?, ?)", (*key, low, high))


def _begin_of_group(db: apsw.Connection, change: c.GroupBegun) -> None:
    db.execute(
        "insert or replace into pubsub_group_begun values (?, ?, ?, ?)",
        (change.member, change.log, change.offset, change.attempts),
    )


def _tell_attempts(db: apsw.Connection, change: c.GroupAttemptsTold) -> None:
    for log, offset in change.places:
        db.execute(
            "delete from pubsub_group_begun where member = ? and log = ? and place = ?", (change.member, log, offset)
        )


def _forget_group(db: apsw.Connection, change: c.GroupForgotten) -> None:
    for table in ("pubsub_groups", "pubsub_group_done", "pubsub_group_begun"):
        db.execute(f"delete from {table} where member = ?", (change.member,))  # noqa: S608


APPLY: Final[dict[type, Callable[[apsw.Connection, Any], None]]] = {
    c.RowAdded: _add_row,
    c.RowsRemoved: _remove_rows,
    c.RowUnchained: _unchain,
    c.ChainMoved: _move_chain,
    c.CallsDiscarded: _discard_calls,
    c.Intended: _intend,
    c.PatternIntended: _intend_pattern,
    c.PatternConfirmed: _confirm_pattern,
    c.Confirmed: _confirm,
    c.Taken: _take,
    c.Tried: _try,
    c.PutOff: _put_off,
    c.PutAside: _put_aside,
    c.WaitingChanged: _change_waiting,
    c.WaitingTried: _try_waiting,
    c.WaitingEnded: _end_waiting,
    c.WaitingDropped: _drop_waiting,
    c.Redriven: _redrive,
    c.LettersRemoved: _remove_letters,
    c.DeadLettered: _dead_letter,
    c.DeletionNoted: _note_deletion,
    c.Told: _tell,
    c.LossRaised: _raise_loss,
    c.Renewed: _renew,
    c.GroupJoined: _join_group,
    c.GroupOpened: _open_group,
    c.GroupDone: _do_of_group,
    c.GroupTold: _tell_of_group,
    c.GroupBegun: _begin_of_group,
    c.GroupAttemptsTold: _tell_attempts,
    c.GroupForgotten: _forget_group,
}
