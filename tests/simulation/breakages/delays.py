"""Breakages of the rules of delayed messages, by the names of their model (tests/topics/model/delay.py)."""

from __future__ import annotations

import contextlib
from typing import Any
from zlib import crc32

import pubsub.server.upkeep.delays
from pubsub.protocol.batch import with_origin
from pubsub.server.moves.chunks import DelayedRows
from pubsub.server.topic import changes as c
from pubsub.server.upkeep.delays import Delays
from tests.simulation.breakages.moves import leave_out
from tests.simulation.breakages.room import Room, substitute

breakage = Room("delay: ")

DELAYS = pubsub.server.upkeep.delays


@breakage("sole_owner")
def _(stack: contextlib.ExitStack) -> None:
    original = Delays.decided
    substitute(stack, Delays, "decided", lambda self, name, sole_owner, now: original(self, name, True, now))


@breakage("always")
def _(stack: contextlib.ExitStack) -> None:
    original = Delays.keep

    def keep(self: Any, topic: Any, publisher: int, put: Any, due: int, now: float) -> None:
        if due > self._state.stamps.clock(now):
            original(self, topic, publisher, put, due, now)
            return
        body = with_origin(put.body, self._state.publishers.names[publisher], put.counter)
        offset, total = topic.append(publisher, put.counter, put.count, len(body))
        facts = topic.open.number, offset, put.count, publisher, put.counter, self._state.stamps.next(now)
        self._state.uncommitted.rows.append(c.BatchAppended(*facts, crc32(body), total, body))
        self._state.long_polls.appended(topic.name)

    substitute(stack, Delays, "keep", keep)


@breakage("publisher")
def _(stack: contextlib.ExitStack) -> None:
    def append_row(self: Any, topic: Any, publisher: int, row: Any, now: float) -> None:
        state = self._state
        body = with_origin(self._body(row), state.publishers.names[row.publisher], row.counter)
        last = topic.last[row.publisher]
        offset, total = topic.append(row.publisher, row.counter, row.records, len(body))
        topic.reach(row.publisher, max(last, row.last))
        DELAYS._release(topic, row)
        facts = topic.open.number, offset, row.records, row.publisher, row.counter, state.stamps.next(now)
        state.uncommitted.rows += [
            c.DelayedGone(row.shelf, row.due, row.publisher, row.counter),
            c.BatchAppended(*facts, crc32(body), total, body),
        ]
        state.long_polls.appended(topic.name)

    substitute(stack, Delays, "_append_row", append_row)


@breakage("last")
def _(stack: contextlib.ExitStack) -> None:
    def hold(topic: Any, row: Any) -> None:
        topic.delayed.hold(row)
        topic.dirty.touched.add(topic.name)

    substitute(stack, Delays, "_hold", staticmethod(hold))


@breakage("commit")
def _(stack: contextlib.ExitStack) -> None:
    original = Delays._append_row

    def append_row(self: Any, topic: Any, publisher: int, row: Any, now: float) -> None:
        original(self, topic, publisher, row, now)
        rows = self._state.uncommitted.rows
        rows[:] = [change for change in rows if not isinstance(change, c.DelayedGone)]

    substitute(stack, Delays, "_append_row", append_row)


@breakage("travels")
def _(stack: contextlib.ExitStack) -> None:
    leave_out(stack, DelayedRows)


@breakage("both")
def _(stack: contextlib.ExitStack) -> None:
    original = DELAYS.gone

    def gone(mine: Any, last: Any, its: Any, its_last: Any) -> Any:
        ours, theirs = original(mine, last, its, its_last)
        return [*ours, *(row for row in mine.rows.values() if row.key in its.rows)], theirs

    substitute(stack, DELAYS, "gone", gone)


@breakage("delivered")
def _(stack: contextlib.ExitStack) -> None:
    def gone(mine: Any, last: Any, its: Any, its_last: Any) -> Any:
        return [], [row for row in its.rows.values() if row.key in mine.rows]

    substitute(stack, DELAYS, "gone", gone)


@breakage("before it is due")
def _(stack: contextlib.ExitStack) -> None:
    original = Delays.decided

    def decided(self: Any, name: str, sole_owner: bool, now: float) -> None:
        stamps = self._state.stamps
        with contextlib.ExitStack() as inner:
            substitute(inner, type(stamps), "clock", lambda one, at: int((at + one._offset + 0.2) * 1_000_000))
            original(self, name, sole_owner, now)

    substitute(stack, Delays, "decided", decided)
