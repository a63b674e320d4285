"""Which batches cannot be deleted, because a damaged page is in the way.

SQLite refuses the COMMIT of every transaction that met a damaged page, also where a savepoint was rolled back since. So
a statement that may meet one is tried, the transaction is rolled back, and it is carried out again without that
statement (`Store.write`). Here it is found out, between the two, which part of the statement's range must be left out:

    [low, high) fails → the keys in it are read from both ends → what lies between cannot be read, and is left out
                      → where all can be read, one is tried after the other, and those that fail are left out

What is left out stays in the file. It is remembered while the store is open, so that it is met once.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import apsw

from pubsub.base.database import forget_pages

SINGLY_MAX: Final = 64
"""Failures of one transaction after which all that is left of a range stays in the file: each costs a transaction."""


class InTheWay(apsw.CorruptError):
    """A damaged page is in the way of a statement that may be left out.

    Attributes:
        what: the statement, or the range of keys [low, high), that failed.
        high: of a range: where the range ends that it is a piece of.
    """

    def __init__(self, what: object, high: int = 0) -> None:
        super().__init__("a damaged page is in the way")
        self.what, self.high = what, high


class Barred:
    """The ranges of keys that are left out.

    Args:
        db: the writing connection; it is read outside of transactions only.
    """

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._ranges: list[tuple[int, int]] = []
        self._singly: list[int] = []
        """Keys in order that are tried one by one in the transaction under way."""

    def committed(self) -> None:
        """The transaction is durable: the next one tries ranges again."""
        self._singly.clear()

    def pieces(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """What of [low, high) is to be tried, piece by piece."""
        for barred_low, barred_high in self._ranges:
            if low < barred_low and low < high:
                yield from self._cut(low, min(high, barred_low))
            low = max(low, barred_high)
        if low < high:
            yield from self._cut(low, high)

    def _cut(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        for key in self._singly:
            if low <= key < high:
                if low < key:
                    yield low, key
                yield key, key + 1
                low = key + 1
        if low < high:
            yield low, high

    def look(self, low: int, high: int) -> None:
        """See what is in the way in [low, high), a piece that failed; less of it is tried next time."""
        between = "select key from batch where key >= ? and key < ? order by key"
        keys, torn = self._keys(between, low, high)
        if torn:
            behind, torn = self._keys(f"{between} desc", low, high)
            first = keys[-1] + 1 if keys else low
            last = behind[-1] if behind else high
            if torn and first < last:
                self.bar(first, last)
                return
            keys += behind  # All of it can be read; the page behind it cannot, and a scan comes upon that.
        if high - low < 2 or not keys:
            self.bar(low, high)
        else:
            self._singly = sorted({*self._singly, *keys})

    def bar(self, low: int, high: int) -> None:
        """Leave [low, high) out from now on; more than nothing, so that it ends."""
        merged: list[tuple[int, int]] = []
        for start, stop in sorted([*self._ranges, (low, max(high, low + 1))]):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        self._ranges = merged

    def _keys(self, statement: str, low: int, high: int) -> tuple[list[int], bool]:
        """The keys that can be read, and whether a damaged page ended that."""
        keys: list[int] = []
        with contextlib.suppress(apsw.CorruptError):
            for (key,) in self._db.execute(statement, (low, high)):
                if not low <= key < high:
                    return keys, True
                keys.append(key)
            return keys, False
        forget_pages(self._db)
        return keys, True
