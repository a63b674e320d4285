"""Batches that cannot be deleted, because a damaged page is in the way.

SQLite refuses the COMMIT of every transaction that met a damaged page, even after a rollback to a savepoint. A
statement that may meet such a page is therefore tried first. If it fails, the transaction is rolled back and tried
again without that statement (`Store.write`). Between the two tries, this module finds the part of the statement's range
that must be left out:

    [low, high) fails → read its keys from both ends → leave out the part between, which cannot be read
                      → if all keys can be read: try them one by one, and leave out those that fail

The batches that are left out stay in the file. They are remembered while the store is open, so that they fail only
once.

The rule is docs/explanation/stores.md, S5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import apsw

from pubsub.base.database import forget_pages

SINGLY_MAX: Final = 64
"""Failures of one transaction after which the rest of a range stays in the file. Each failure costs a transaction."""


class InTheWay(apsw.CorruptError):
    """A damaged page prevents a statement that may be left out.

    Attributes:
        what: the statement, or the range of keys [low, high), that failed.
        high: for a range, the end of the larger range of which it is a piece.
    """

    def __init__(self, what: object, high: int = 0) -> None:
        super().__init__("a damaged page prevents a statement")
        self.what, self.high = what, high


class Barred:
    """The ranges of keys that are left out.

    Args:
        db: the writing connection, read only outside of transactions.
    """

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._ranges: list[tuple[int, int]] = []
        self._singly: list[int] = []
        """Sorted keys that are tried one by one in the current transaction."""

    def committed(self) -> None:
        """Record that the transaction is durable. The next one tries ranges again."""
        self._singly.clear()

    def pieces(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of [low, high) to try."""
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
        """Find the obstacle in [low, high), a piece that failed. The next try covers less of it."""
        between = "select key from batch where key >= ? and key < ? order by key"
        keys, torn = self._keys(between, low, high)
        if torn:
            behind, torn = self._keys(f"{between} desc", low, high)
            first = keys[-1] + 1 if keys else low
            last = behind[-1] if behind else high
            if torn and first < last:
                self.bar(first, last)
                return
            keys += behind  # All keys can be read. Only the page after the range is damaged, and a scan meets it.
        if high - low < 2 or not keys:
            self.bar(low, high)
        else:
            self._singly = sorted({*self._singly, *keys})

    def bar(self, low: int, high: int) -> None:
        """Leave [low, high) out from now on, at least one key, so that the tries end."""
        merged: list[tuple[int, int]] = []
        for start, stop in sorted([*self._ranges, (low, max(high, low + 1))]):
            if merged and start <= merged[-1][1]:
                merged[-1] = merged[-1][0], max(stop, merged[-1][1])
            else:
                merged.append((start, stop))
        self._ranges = merged

    def _keys(self, statement: str, low: int, high: int) -> tuple[list[int], bool]:
        """Return the readable keys, and True if a damaged page ended the read."""
        keys: list[int] = []
        with contextlib.suppress(apsw.CorruptError):
            for (key,) in self._db.execute(statement, (low, high)):
                if not low <= key < high:
                    return keys, True
                keys.append(key)
            return keys, False
        forget_pages(self._db)
        return keys, True
