"""The facts of records that are not new: attempts, losses, a time before which they wait, and the mark.

Facts belong to ranges of a part of a log, so a member with ten thousand records that is given up makes one row. Records
without a fact are new. A changed row is noted, and the next commit writes it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from pubsub.server.topic.group_rows import RetryRow


class Fact(NamedTuple):
    """The facts of a record, as in `RetryRow`."""

    attempts: int = 0
    forgiven: int = 0
    losses: int = 0
    due: int = 0
    doubtful: bool = False
    error: str = ""

    @property
    def counted(self) -> int:
        """The attempts that count towards the dead letters."""
        return self.attempts - self.forgiven


NEW: Final = Fact()

Piece = tuple[int, int, Fact]
"""Offsets [low, high), and the facts of each."""


def _row(part: int, log: str, low: int, high: int, fact: Fact) -> RetryRow:
    return RetryRow(part, log, low, high, *fact)


class Facts:
    """The facts of one group.

    Args:
        rows: as stored.

    Attributes:
        version: rises with each change.
    """

    def __init__(self, rows: Iterable[RetryRow] = ()) -> None:
        self._pieces: dict[tuple[int, str], list[Piece]] = {}
        self._changed: dict[tuple[int, str, int], None] = {}
        self.version = 0
        for row in sorted(rows, key=lambda row: (row.part, row.log, row.low)):
            fact = Fact(row.attempts, row.forgiven, row.losses, row.due, row.doubtful, row.error)
            self._pieces.setdefault((row.part, row.log), []).append((row.low, row.high, fact))

    def __len__(self) -> int:
        """Return the number of rows."""
        return sum(map(len, self._pieces.values()))

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and self._pieces == other._pieces

    __hash__ = None  # type: ignore[assignment]

    def at(self, part: int, log: str, offset: int) -> Fact:
        """Return the facts of one record."""
        if not self._pieces:
            return NEW
        pieces = self._pieces.get((part, log))
        if pieces is None:
            return NEW
        index = bisect_right(pieces, offset, key=lambda piece: piece[0]) - 1
        return pieces[index][2] if index >= 0 and offset < pieces[index][1] else NEW

    def pieces(self, part: int, log: str, low: int, high: int) -> Iterator[Piece]:
        """Yield [low, high) in pieces with the same facts."""
        pieces = self._pieces.get((part, log), ()) if self._pieces else ()
        index = bisect_right(pieces, low, key=lambda piece: piece[1])
        while low < high:
            if index >= len(pieces) or pieces[index][0] >= high:
                yield low, high, NEW
                return
            first, stop, fact = pieces[index]
            if low < first:
                yield low, first, NEW
            yield max(low, first), min(stop, high), fact
            low, index = stop, index + 1

    def change(self, part: int, log: str, low: int, high: int, fact: Callable[[Fact], Fact]) -> None:
        """Replace the facts of each record of [low, high)."""
        self._replace(part, log, low, high, [(a, b, fact(old)) for a, b, old in self.pieces(part, log, low, high)])

    def forget(self, part: int, log: str, low: int, high: int) -> None:
        """Forget the facts of [low, high), because these records are done."""
        if self._pieces and (part, log) in self._pieces:
            self._replace(part, log, low, high, [])

    def _replace(self, part: int, log: str, low: int, high: int, new: list[Piece]) -> None:
        pieces = self._pieces.setdefault((part, log), [])
        first = bisect_right(pieces, low, key=lambda piece: piece[1])
        last = bisect_left(pieces, high, key=lambda piece: piece[0])
        old = pieces[first:last]
        left = [(a, low, fact) for a, _, fact in old[:1] if a < low]
        right = [(high, b, fact) for _, b, fact in old[-1:] if b > high]
        merged: list[Piece] = []
        for piece in (*left, *new, *right):
            if piece[2] == NEW:
                continue
            if merged and merged[-1][1] == piece[0] and merged[-1][2] == piece[2]:
                merged[-1] = merged[-1][0], piece[1], piece[2]
            else:
                merged.append(piece)
        if merged != old:
            self.version += 1
            pieces[first:last] = merged
            for a, _, _ in (*old, *merged):
                self._changed[part, log, a] = None
        if not pieces:
            del self._pieces[part, log]

    def delayed(self, stamp: int) -> Iterator[tuple[int, str, int, int, int]]:
        """Yield (part, log, low, high, due) of the records that wait for a time after this one."""
        for (part, log), pieces in self._pieces.items():
            for low, high, fact in pieces:
                if fact.due > stamp:
                    yield part, log, low, high, fact.due

    def touch(self) -> None:
        """Note all rows as changed, because another store is to write them."""
        self.version += 1
        self._changed |= {(part, log, low): None for (part, log), some in self._pieces.items() for low, _, _ in some}

    def rows(self) -> list[RetryRow]:
        """Return all rows."""
        return [
            _row(part, log, low, high, fact)
            for (part, log), pieces in self._pieces.items()
            for low, high, fact in pieces
        ]

    def take_changed(self) -> tuple[RetryRow, ...]:
        """Return the rows that changed since the last call."""
        changed, self._changed = self._changed, {}
        rows = []
        for part, log, low in changed:
            pieces = self._pieces.get((part, log), ())
            index = bisect_left(pieces, low, key=lambda piece: piece[0])
            if index < len(pieces) and pieces[index][0] == low:
                rows.append(_row(part, log, *pieces[index]))
            else:
                rows.append(RetryRow(part, log, low, 0))
        return tuple(rows)
