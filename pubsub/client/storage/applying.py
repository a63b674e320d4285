"""Turn each change of a client into statements for the tables of its state; a store runs them.

The statements are of the common subset of SQL that `interface` states, so that every store can run them. A few values
of the client itself, such as its store ID, are kept by each store in its own way (`Renewed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pubsub.client.core import changes as c
from pubsub.client.storage.interface import Statement
from pubsub.protocol.names import LATEST, format_start

Statements = Iterable[Statement]

_ADD_ROW: Final = (
    "insert into pubsub_outbox (counter, topic, previous, count, whole, checksum, body) values (?, ?, ?, ?, ?, ?, ?)"
)


def _add_row(row: c.RowAdded) -> Statements:
    return (
        (_ADD_ROW, (row.counter, row.topic, row.previous, row.count, row.sole_owner, row.checksum, row.body)),
    )  # fmt: skip


def _remove_rows(change: c.RowsRemoved) -> Statements:
    return (("delete from pubsub_outbox where counter = ?", [(counter,) for counter in change.counters]),)


def _unchain(change: c.RowUnchained) -> Statements:
    yield "update pubsub_outbox set previous = 0 where counter = ?", (change.counter,)


def _move_chain(chain: c.ChainMoved) -> Statements:
    yield (
        "insert into pubsub_chains (topic, previous, cleared, log) values (?, ?, ?, ?) on conflict (topic)"
        " do update set previous = excluded.previous, cleared = excluded.cleared, log = excluded.log",
        (chain.topic, chain.previous, chain.cleared, chain.log),
    )


def _discard_calls(change: c.CallsDiscarded) -> Statements:
    statement = "update pubsub_calls set outcome = 'discarded', told = 1 where id = ? and outcome = 'waiting'"
    yield statement, [(call,) for call in change.calls]


def _intend(change: c.Intended) -> Statements:
    topic = change.topic
    yield (
        "insert into pubsub_subscriptions (topic, wanted, settled, fresh, number, log) values (?, ?, 0, ?, 0, '')"
        " on conflict (topic) do update set wanted = excluded.wanted, settled = 0, fresh = excluded.fresh,"
        " last_log = null, last_offset = null, tried_log = null, tried_offset = null, attempts = 0",
        (topic, int(change.on), int(change.fresh)),
    )
    yield "delete from pubsub_starts where topic = ?", (topic,)
    yield "delete from pubsub_retries where topic = ?", (topic,)
    if change.start != LATEST:
        yield "insert into pubsub_starts (topic, start) values (?, ?)", (topic, format_start(change.start))
    if change.fresh and change.start != LATEST:
        yield "delete from pubsub_taken where topic = ?", (topic,)
    if change.replay:
        yield (
            "insert into pubsub_replays (topic, number) values (?, ?)"
            " on conflict (topic) do update set number = excluded.number",
            (topic, change.replay),
        )
    yield "delete from pubsub_joined where topic = ?", (topic,)
    if change.pattern:
        yield "insert into pubsub_joined (topic, pattern) values (?, ?)", (topic, change.pattern)


def _intend_pattern(change: c.PatternIntended) -> Statements:
    yield (
        "insert into pubsub_patterns (pattern, wanted, settled, number, stamp) values (?, ?, 0, ?, ?)"
        " on conflict (pattern) do update set wanted = excluded.wanted, settled = 0, number = excluded.number,"
        " stamp = excluded.stamp",
        (change.pattern, int(change.on), change.number, change.stamp),
    )


def _confirm_pattern(change: c.PatternConfirmed) -> Statements:
    yield "update pubsub_patterns set settled = 1, stamp = ? where pattern = ?", (change.stamp, change.pattern)


def _confirm(change: c.Confirmed) -> Statements:
    log, offset = change.position or (None, None)
    yield (
        "update pubsub_subscriptions set settled = 1, number = ?, last_log = ?, last_offset = ?, log = ?"
        " where topic = ?",
        (change.number, log, offset, change.log, change.topic),
    )


_TAKE: Final = "update pubsub_subscriptions set last_log = ?, last_offset = ? where topic = ?"
_TAKE_COUNTER: Final = (
    "insert into pubsub_taken (topic, publisher, counter) values (?, ?, ?)"
    " on conflict (topic, publisher) do update set counter = excluded.counter"
)


def _take(change: c.Taken) -> Statements:
    topic = change.topic
    yield _TAKE, (*change.position, topic)
    yield _TAKE_COUNTER, [(topic, publisher, counter) for publisher, counter in change.counters.items()]


def _try(change: c.Tried) -> Statements:
    yield (
        "update pubsub_subscriptions set tried_log = ?, tried_offset = ?, attempts = ? where topic = ?",
        (*change.position, change.attempts, change.topic),
    )


def _put_off(change: c.PutOff) -> Statements:
    yield (
        'insert into pubsub_retries (topic, log, "offset", due, seconds, later) values (?, ?, ?, ?, ?, ?)'
        ' on conflict (topic) do update set log = excluded.log, "offset" = excluded."offset", due = excluded.due,'
        " seconds = excluded.seconds, later = excluded.later",
        (change.topic, *change.position, change.due, change.seconds, change.later),
    )


_LATER: Final = (
    "insert into pubsub_later (number, topic, first, publisher, counter, stamp, body, key, headers, doubtful, lane,"
    " attempts, later, due, seconds)"
)


def _put_aside(change: c.PutAside) -> Statements:
    yield (
        f"{_LATER} values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            change.number,
            change.topic,
            change.first,
            change.publisher,
            change.counter,
            change.stamp,
            change.body,
            change.key,
            change.headers,
            int(change.doubtful),
            change.lane,
            change.attempts,
            change.later,
            change.due,
            change.seconds,
        ),
    )


def _change_waiting(change: c.WaitingChanged) -> Statements:
    yield (
        "update pubsub_later set attempts = ?, later = ?, due = ?, seconds = ? where number = ?",
        (change.attempts, change.later, change.due, change.seconds, change.number),
    )


def _try_waiting(change: c.WaitingTried) -> Statements:
    yield "update pubsub_later set attempts = ? where number = ?", (change.attempts, change.number)


def _end_waiting(change: c.WaitingEnded) -> Statements:
    yield "delete from pubsub_later where number = ?", (change.number,)


def _drop_waiting(change: c.WaitingDropped) -> Statements:
    yield "delete from pubsub_later where topic = ?", (change.topic,)


_REDRIVE: Final = _LATER + (  # noqa: S608
    " select ?, topic, first, publisher, counter, stamp, body, coalesce(key, ?), coalesce(headers, ?), 0,"
    " coalesce(key, ?), 0, 0, 0, 0 from pubsub_dead_letters left join pubsub_letters_beside using (id) where id = ?"
)


def _redrive(change: c.Redriven) -> Statements:
    yield _REDRIVE, (change.number, b"", b"", b"", change.letter)
    yield from _remove_letters(c.LettersRemoved([change.letter]))


def _remove_letters(change: c.LettersRemoved) -> Statements:
    for table in ("pubsub_letters_beside", "pubsub_dead_letters", "pubsub_untold"):
        yield f"delete from {table} where id = ?", [(letter,) for letter in change.letters]  # noqa: S608


def _dead_letter(letter: c.DeadLettered) -> Statements:
    yield (
        "insert into pubsub_dead_letters"
        " (id, topic, first, last, publisher, counter, stamp, body, error, attempts, at)"
        " select coalesce(max(id), 0) + 1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ? from pubsub_dead_letters",
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
        yield "insert into pubsub_untold (id, topic) select max(id), ? from pubsub_dead_letters", (letter.topic,)
    if letter.key or letter.headers:
        yield (
            "insert into pubsub_letters_beside (id, key, headers) select max(id), ?, ? from pubsub_dead_letters",
            (letter.key, letter.headers),
        )


def _tell(told: c.Told) -> Statements:
    for table, count in (("pubsub_untold", told.count), ("pubsub_deletions", told.deletions)):
        if count:
            which = f"select id from {table} where topic = ? order by id limit ?"  # noqa: S608
            yield f"delete from {table} where id in ({which})", (told.topic, count)  # noqa: S608


def _note_deletion(noted: c.DeletionNoted) -> Statements:
    yield (
        "insert into pubsub_deletions (id, topic, reason) select coalesce(max(id), 0) + 1, ?, ? from pubsub_deletions",
        (noted.topic, noted.reason),
    )


def _raise_loss(change: c.LossRaised) -> Statements:
    newest = "select max(id) from pubsub_untold where topic = ?"
    yield f"delete from pubsub_untold where id = ({newest})", (change.topic,)  # noqa: S608


def _renew(change: c.Renewed) -> Statements:
    yield "update pubsub_outbox set whole = 0", ()
    yield "delete from pubsub_chains", ()


_GROUP_TABLES: Final = ("pubsub_group_done", "pubsub_group_begun", "pubsub_groups")


def _join_group(change: c.GroupJoined) -> Statements:
    other = "select member from pubsub_groups where member = ? and number <> ?"
    for table in _GROUP_TABLES:
        yield f"delete from {table} where member in ({other})", (change.member, change.number)  # noqa: S608
    yield (
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


def _open_group(change: c.GroupOpened) -> Statements:
    yield (
        "update pubsub_groups set gone = ?, cuts = ? where member = ?", (int(change.left), change.cuts, change.member)
    )  # fmt: skip


def _do_of_group(change: c.GroupDone) -> Statements:
    key = change.member, change.log, change.part
    yield (
        "delete from pubsub_group_done where member = ? and log = ? and part = ? and low = ?",
        [(*key, low) for low in change.replaced],
    )
    yield (
        "insert into pubsub_group_done (member, log, part, low, high) values (?, ?, ?, ?, ?)"
        " on conflict (member, log, part, low) do update set high = excluded.high",
        (*key, change.low, change.high),
    )


def _tell_of_group(change: c.GroupTold) -> Statements:
    key = change.member, change.log, change.part
    yield "delete from pubsub_group_done where member = ? and log = ? and part = ?", key
    yield (
        "insert into pubsub_group_done (member, log, part, low, high) values (?, ?, ?, ?, ?)",
        [(*key, low, high) for low, high in change.ranges],
    )


def _begin_of_group(change: c.GroupBegun) -> Statements:
    yield (
        "insert into pubsub_group_begun (member, log, place, attempts) values (?, ?, ?, ?)"
        " on conflict (member, log, place) do update set attempts = excluded.attempts",
        (change.member, change.log, change.offset, change.attempts),
    )


def _tell_attempts(change: c.GroupAttemptsTold) -> Statements:
    yield (
        "delete from pubsub_group_begun where member = ? and log = ? and place = ?",
        [(change.member, *place) for place in change.places],
    )


def _forget_group(change: c.GroupForgotten) -> Statements:
    for table in _GROUP_TABLES:
        yield f"delete from {table} where member = ?", (change.member,)  # noqa: S608


APPLY: Final[dict[type, Callable[[Any], Statements]]] = {
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
