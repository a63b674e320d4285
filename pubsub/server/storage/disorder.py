"""Finds rows of `batch` or `staged` that are out of order, because a key on a damaged page changed.

The rest of such a page may be intact, and SQLite does not notice. If SQLite balances the page with its neighbours, it
uses the wrong key to find them later. Rows of intact topics are then unreachable. Therefore nothing is written beside
such a page. Before a transaction, this module checks the rows around each place that it writes to, two pages on each
side. It checks each place once.

The rule is docs/explanation/stores.md, S7.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterable
from typing import Any, Final

import apsw

from pubsub.base.database import PAGE_BYTES, forget_pages
from pubsub.base.limits import OFFSET_BITS
from pubsub.server.topic import changes as c

METADATA_BYTES: Final = 2 * PAGE_BYTES
"""Distance within which SQLite may balance pages with the page of a place."""

ROWS_MAX: Final = 10_000
"""Maximum number of rows checked for one place. A larger deletion must not delay the loop."""

_ROW_BYTES: Final = 25
"""Minimum size of a row without its body."""

_LOCAL_BYTES: Final = 2_000
"""Minimum part of a large body that is in the row itself."""

_PUBLISHED: Final = "select min(source), max(source) from published where key >= ? and key < ?"
_STAGED: Final = "select min(id), max(id) from staged where stage = ?"


class Disorder:
    """The places that were checked, and those that are out of order.

    Args:
        db: the writing connection, read only outside of transactions.

    Attributes:
        logs: numbers of the logs to which nothing can be appended.
        stages: numbers of the stages with pieces that must stay. None among them means that no piece can be added.
    """

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self._looked: set[int] = set()
        self._ordered: dict[int, int] = {}
        """By log number: the key up to which the log was checked, from its first key on."""
        self.logs: set[int] = set()
        self.stages: set[int | None] = set()
        self._looked_at_pieces = False

    def find(self, changes: Iterable[c.Change]) -> list[tuple[int, int]]:
        """Return the ranges of keys that these changes delete and that must stay. Set `logs` and `stages` as well."""
        found = []
        for change in changes:
            if isinstance(change, c.BatchAppended | c.BatchPublished | c.LogOpened):
                # All new logs begin at the end of the table, so one check is enough.
                number = -1 if isinstance(change, c.LogOpened) else change.log
                if number not in self._looked:
                    self._looked |= {number, change.log}
                    place = change.log << OFFSET_BITS | getattr(change, "offset", 0)
                    if not self._is_ordered(place, place):
                        self.logs.add(change.log)
                self._looked.add(change.log)
            elif isinstance(change, c.LogTrimmed | c.BatchesDiscarded | c.BodiesDropped):
                first = change.log << OFFSET_BITS
                high = first | (change.high if isinstance(change, c.BodiesDropped) else change.low)
                low = max(first, self._ordered.get(change.log, 0))
                if low < high:
                    self._ordered[change.log] = high
                    if not (self._is_ordered(low, high) and self._are_pieces_ordered(_PUBLISHED, (low, high))):
                        found.append((first, high))
            elif isinstance(change, c.LogCompacted) and change.gone:
                first = change.log << OFFSET_BITS
                low, high = first | change.gone[0], (first | change.gone[-1]) + 1
                if not (self._is_ordered(low, high) and self._are_pieces_ordered(_PUBLISHED, (low, high))):
                    found.append((low, high))
            elif isinstance(change, c.StagedDeleted):
                if not self._are_pieces_ordered(_STAGED, (change.stage,)):
                    self.stages.add(change.stage)
            elif isinstance(change, c.PieceStaged) and not self._looked_at_pieces:
                self._looked_at_pieces = True
                if not self._is_ordered(change.piece, change.piece, "staged", "id"):
                    self.stages.add(None)
        return found

    def _are_pieces_ordered(self, statement: str, bind: tuple[int, ...]) -> bool:
        """Return True if the staged rows to delete are in order."""
        try:
            rows: list[Any] = self._db.execute(statement, bind).fetchall()
        except apsw.CorruptError:
            forget_pages(self._db)
            return True
        ((low, high),) = rows
        return low is None or self._is_ordered(low, high + 1, "staged", "id")

    def _is_ordered(self, low: int, high: int, table: str = "batch", key: str = "key") -> bool:
        """Return True if the rows in [low, high) and those beside them are in order, as far as they can be read."""
        columns = f"select {key}, length(body) from {table}"  # noqa: S608 - our own words
        return self._walk(f"{columns} where {key} < ? order by {key} desc", low, low, -1) and self._walk(
            f"{columns} where {key} >= ? order by {key}", low, high, 1
        )

    def _walk(self, statement: str, start: int, stop: int, way: int) -> bool:
        size, last = 0, start - (way > 0)
        try:
            rows: Iterable[Any] = self._db.execute(statement, (start,))
            for key, length in itertools.islice(rows, ROWS_MAX):
                if (key - last) * way <= 0:
                    return False
                last = key
                if way < 0 or key >= stop:
                    size += _ROW_BYTES + min(length or 0, _LOCAL_BYTES)
                    if size > METADATA_BYTES:
                        break
        except (apsw.CorruptError, UnicodeDecodeError):  # SQLite cannot balance an unreadable page.
            with contextlib.suppress(apsw.Error):
                forget_pages(self._db)
        return True
