"""Reads stored batches, and keeps the recent ones in memory.

A subscriber that keeps up receives the batches as they were put, without a disk read and without a new checksum. A
subscriber that is behind reads ranges of the table.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import apsw

from pubsub.base.database import forget_pages
from pubsub.base.limits import BATCH_RECORDS_MAX, OFFSET_BITS
from pubsub.errors import StoreDamaged
from pubsub.protocol.batch import Buffer
from pubsub.server.storage import delayed, groups, repaired
from pubsub.server.storage.staged import body_of, staged_body
from pubsub.server.topic.changes import LogState
from pubsub.server.topic.delayed import Waiting
from pubsub.server.topic.delivery import Batch, Tally

CACHE_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum bytes of recent batches in memory."""

READ_BYTES_MAX: Final = 8 * 1024 * 1024
"""The part of them that batches read from the table may take, so that a reader of old ones leaves the recent ones."""

PIECE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of bodies after which reading ahead stops."""

_TALLY: Final = (
    "select publisher, min(counter), max(counter + count) - 1, count(*), sum(count), min(key), max(key + count),"
    " min(stamp), max(stamp), min(total) from (select key, count, publisher, counter, stamp, total from batch"
    " where key >= ? and key < ? order by key desc limit ?) group by publisher"
)
_RECORDS: Final = "select sum(min(key + count, ?) - max(key, ?)) from batch where key >= ? and key < ?"

_OFFSET: Final = (1 << OFFSET_BITS) - 1
BATCH: Final = "select key, count, publisher, counter, stamp, checksum, total, body from batch"

_NUMBERS: Final = {int}
_STATES: Final = {state.stored: state for state in LogState}


def is_batch(row: Sequence[Any], low: int, high: int) -> bool:
    """Return True if a row, as `BATCH` selects it, can be a batch. A damaged page may return any values.

    Args:
        row: as selected.
        low, high: the key must be in [low, high).
    """
    return (
        set(map(type, row[:-1])) == _NUMBERS
        and low <= row[0] < high
        and 0 < row[1] <= BATCH_RECORDS_MAX
        and (row[-1] is None or type(row[-1]) is bytes)
    )


class Reader:
    """Reads batches through the writing connection, so that it sees those of the open transaction.

    Args:
        db: the store's connection.

    The methods raise StoreDamaged if a page of the file is damaged. The result is incomplete then.
    """

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db
        self.damaged: set[int] = set()
        """Keys of damaged batches. They are returned as repaired, or without bytes."""
        self.nameless: set[int] = set()
        """Numbers without a publisher, because the store's table of publishers is damaged. Their batches are
        returned without bytes."""
        self.stuck: set[int] = set()
        """Shelves with delayed puts that a damaged page keeps in the file."""
        self.begin()

    def begin(self) -> None:
        """Forget everything that a new process would not know.

        The load of a store assigns the numbers of deleted logs to new ones. A standby that takes over has read and
        written the store before, and may have cached batches under such a number.
        """
        self._cache: OrderedDict[int, Batch] = OrderedDict()
        self._cache_bytes = 0
        self._read: OrderedDict[int, None] = OrderedDict()
        """Keys of the cached batches that were read from the table, in the order of reading."""
        self._read_bytes = 0
        self._bare: dict[int, tuple[int, int]] = {}
        """By log, offsets [low, high) in which no batch has its bytes. Such a batch never gets them back."""
        self.damaged.clear()
        with contextlib.suppress(apsw.Error):  # A new store has no table yet. Damage that is not known is found again.
            self.damaged.update(key for (key,) in self._db.execute("select key from quarantine"))
            self.damaged |= repaired.keys(self._db)  # Includes batches that have no row in `quarantine`.

    def _rows(self, statement: str, bind: tuple[Any, ...]) -> list[Any]:
        try:
            return self._db.execute(statement, bind).fetchall()
        except (apsw.CorruptError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def _unreadable(self, error: Exception) -> StoreDamaged:
        forget_pages(self._db)
        return StoreDamaged(self._db.filename, f"damaged: {error}")

    def _facts(self, statement: str, bind: tuple[Any, ...]) -> list[Any]:
        """Return rows of numbers: first a key between the first two parameters, then the count of records."""
        rows = self._rows(statement, bind)
        for row in rows:
            valid = set(map(type, row)) == _NUMBERS and bind[0] <= row[0] <= bind[1]
            if not (valid and 0 < row[1] <= BATCH_RECORDS_MAX):
                raise StoreDamaged(self._db.filename, "damaged: a row is not a valid batch")
        return rows

    def _row(self, statement: str, bind: tuple[Any, ...]) -> Any:
        rows = self._rows(statement, bind)
        return rows[0] if rows else None

    def batches(self, log: int, offset: int, high: int, *, cached: bool = True) -> Iterator[Batch]:
        """Yield the batches that contain offsets in [offset, high) of a log, in order.

        Args:
            cached: False: those that are read from the table are not cached, because they are not needed again.
        """
        base = log << OFFSET_BITS
        key = self._holding(base, offset)
        while key is not None and key & _OFFSET < high:
            batch = self._cache.get(key)
            if batch is None:
                break
            self._cache.move_to_end(key)
            yield batch
            key += batch.count
            if key & _OFFSET >= high:
                return
        yield from self._stored(base | offset if key is None else key, base | high, cached=cached)

    def _stored(self, key: int, high: int, *, cached: bool = True) -> Iterator[Batch]:
        """Yield the batches with keys in [key, high), read in pieces of growing size.

        An open cursor would keep the write-ahead log from starting over.
        """
        rows = 16
        while key < high:
            piece = self._piece(key, high, rows)
            # A damaged row of which compaction kept nothing has a batch without records in its place.
            left = [row for row in piece if row[1]]
            batches = [Batch(row[0] & _OFFSET, *row[1:]) for row in left]
            # Cache the complete piece: a subscriber that takes only a part asks for the rest with its next GET.
            for row, batch in zip(left, batches, strict=True):
                batch.damaged = batch.body is None and row[0] in self.damaged
                if cached:
                    self._remember_read(row[0], batch)
            yield from batches
            if not piece:
                return
            key, rows = piece[-1][0] + 1, min(rows * 4, 1024)

    def _piece(self, key: int, high: int, rows: int) -> list[Any]:
        """Read the next rows, at most `rows`, fewer if their bodies are large."""
        piece: list[Any] = []
        size = 0
        try:
            cursor = self._db.execute(f"{BATCH} where key >= ? and key < ? order by key limit ?", (key, high, rows))
            for row in cursor:
                if not is_batch(row, piece[-1][0] + 1 if piece else key, high):
                    raise apsw.CorruptError("a row is not a valid batch")
                if row[0] in self.damaged:
                    piece.append(repaired.find(self._db, row[0], row[0]) or (*row[:-1], None))
                    size += len(piece[-1][-1] or b"")
                    continue
                body = body_of(self._db, row[0]) if row[-1] is None else row[-1]
                body = None if row[2] in self.nameless else body
                piece.append((*row[:-1], body))
                size += len(body or b"")
                if size >= PIECE_BYTES_MAX:
                    cursor.close()
                    break
        except (apsw.CorruptError, UnicodeDecodeError) as error:
            unreadable = self._unreadable(error)
            if not piece:
                raise unreadable from None
        return piece

    def _holding(self, base: int, offset: int) -> int | None:
        """Return the key of the batch that contains an offset."""
        if base | offset in self._cache:
            return base | offset
        rows = self._facts(
            "select key, count from batch where key >= ? and key <= ? order by key desc limit 1", (base, base | offset)
        )
        if self.damaged and (found := repaired.find(self._db, base, base | offset)) is not None:
            rows = sorted([*rows, found[:2]], reverse=True)  # The count in the damaged row may be wrong.
        return next((key for key, count in rows if key + count > base | offset), None)

    def stamps(self, log: int, offset: int, rows: int) -> Sequence[tuple[int, int, int, int]]:
        """Return (offset, count, timestamp, total) of up to `rows` batches from `offset` on."""
        base = log << OFFSET_BITS
        return [
            (key & _OFFSET, count, stamp, total)
            for key, count, stamp, total in self._facts(
                "select key, count, stamp, total from batch where key >= ? and key < ? order by key limit ?",
                (base | offset, base | _OFFSET, rows),
            )
        ]

    def rows_before(self, log: int, low: int, high: int, rows: int) -> Sequence[tuple[int, int, int, int, int, int]]:
        """Return (offset, count, publisher, counter, stamp, total) of the last batches that begin in [low, high).

        The last batch comes first.
        """
        base = log << OFFSET_BITS
        return [
            (key & _OFFSET, count, publisher, counter, stamp, total)
            for key, count, publisher, counter, stamp, total in self._facts(
                "select key, count, publisher, counter, stamp, total from batch where key >= ? and key < ?"
                " order by key desc limit ?",
                (base | low, base | high, rows),
            )
        ]

    def tally(self, log: int, low: int, high: int, rows: int) -> Tally | None:
        """Count the last batches that begin in [low, high), at most `rows`; None if there are none."""
        base = log << OFFSET_BITS
        found = self._rows(_TALLY, (base | low, base | high, rows))
        for row in found:
            if set(map(type, row)) != _NUMBERS:
                raise StoreDamaged(self._db.filename, "damaged: a row is not a valid batch")
        if not found:
            return None
        counters, totals = [row[:3] for row in found], list(zip(*(row[3:] for row in found), strict=True))
        many, records, first, stop, oldest, newest, total = totals
        stop_at = max(stop) - base
        return Tally(
            sum(many), sum(records), min(first) - base, stop_at, min(oldest), max(newest), min(total), counters
        )

    def records(self, log: int, low: int, high: int) -> int:
        """Return the number of records of a log with offsets in [low, high)."""
        base = log << OFFSET_BITS
        holding = self._holding(base, low)
        bounds = base | high, base | low, base | low if holding is None else holding, base | high
        number: Any = self._row(_RECORDS, bounds)[0]
        if number is None:
            return 0
        if type(number) is not int or not 0 <= number <= high - low:
            raise StoreDamaged(self._db.filename, "damaged: a row is not a valid batch")
        return int(number)

    def log_state(self, log: str) -> LogState:
        ordered = "select state from log where name = ? order by state = ? limit 1"
        row = self._row(ordered, (log, LogState.INCOMING.stored))
        return _STATES.get(row[0], LogState.UNREADABLE) if row else LogState.UNKNOWN

    def newest(self, log: int, low: int, offset: int) -> tuple[int, int, int, int] | None:
        """Return the same for the last batch that begins in [low, offset]."""
        base = log << OFFSET_BITS
        rows = self._facts(
            "select key, count, stamp, total from batch where key >= ? and key <= ? order by key desc limit 1",
            (base | low, base | offset),
        )
        return (rows[0][0] & _OFFSET, *rows[0][1:]) if rows else None

    def backwards(self, log: int, low: int, high: int, rows: int) -> Sequence[tuple[int, int, int]]:
        """Return (offset, count, bytes) of up to `rows` batches that begin in [low, high), the newest first."""
        base = log << OFFSET_BITS
        found = self._facts(
            "select key, count, coalesce(length(body), (select length(s.body) from published"
            " join staged s on s.id = published.source where published.key = batch.key), 0)"
            " from batch where key >= ? and key < ? order by key desc limit ?",
            (base | low, base | high, rows),
        )
        return [(key & _OFFSET, count, size) for key, count, size in found]

    def first_with_body(self, log: int, low: int, high: int) -> int:
        """Return the offset of the first batch in [low, high) with its bytes, or with damaged ones; `high` for none."""
        base = log << OFFSET_BITS
        known_low, known_high = self._bare.get(log, (0, 0))
        known = known_low <= low < known_high
        begin = known_high if known else low
        row = self._row(
            "select key from batch b where key >= ? and key < ? and (body is not null"
            " or exists (select 1 from published where published.key = b.key)) order by key limit 1",
            (base | begin, base | high),
        )
        damaged = (key for key in self.damaged if base | low <= key < base | high)
        found: int | None = min([*(row or ()), *damaged], default=None)
        if found is None:
            return high
        if found - base > low:
            self._bare[log] = known_low if known else low, found - base
        return found - base

    def total_before(self, log: int, offset: int) -> int | None:
        """Return the bytes of the log before the batch that contains `offset`; None if there is no such batch."""
        key = self._holding(log << OFFSET_BITS, offset)
        if key is None:
            return None
        cached = self._cache.get(key)
        if cached is not None:
            return cached.total
        return int(self._facts("select key, count, total from batch where key >= ? and key <= ?", (key, key))[0][2])

    def staged(self, piece: int) -> bytes:
        """Return the bytes of a staged piece."""
        try:
            return staged_body(self._db, piece)
        except (apsw.CorruptError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def delayed(self, row: Waiting) -> bytes | None:
        """Return the body of a delayed put; None if it is not in the store."""
        try:
            return delayed.body_of(self._db, row)
        except (apsw.CorruptError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def copied(self, topic: int, group: str, log: str, offset: int) -> bytes | None:
        """Return the batch with a record that a group copied out of its log; None if it is not in the store."""
        try:
            return groups.body_of(self._db, topic, group, log, offset)
        except (apsw.CorruptError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from None

    def has_delayed(self, shelf: int) -> bool:
        """Return True if a shelf has delayed puts that can be deleted."""
        statement = "select 1 from delayed where shelf = ? limit 1"
        return shelf not in self.stuck and self._row(statement, (shelf,)) is not None

    def remember(self, key: int, batch: Batch) -> None:
        """Cache a batch, and drop the oldest ones if there are too many bytes."""
        if batch.body is None:
            return
        self.drop(key)
        self._cache[key] = batch
        self._cache_bytes += _weight(batch.body)
        while self._cache_bytes > CACHE_BYTES_MAX:
            self.drop(next(iter(self._cache)))

    def _remember_read(self, key: int, batch: Batch) -> None:
        """Cache a batch that was read from the table, in place of those read before it."""
        self.remember(key, batch)
        if key not in self._cache:
            return
        self._read[key] = None
        self._read_bytes += _weight(batch.body)
        while self._read_bytes > READ_BYTES_MAX:
            self.drop(next(iter(self._read)))

    def drop_range(self, low: int, high: int) -> None:
        """Drop all cached batches with keys in [low, high)."""
        for key in [key for key in self._cache if low <= key < high]:
            self.drop(key)

    def drop(self, key: int) -> None:
        """Drop a cached batch that is not stored in this form, or no longer."""
        batch = self._cache.pop(key, None)
        if batch is None:
            return
        self._cache_bytes -= _weight(batch.body)
        if key in self._read:
            del self._read[key]
            self._read_bytes -= _weight(batch.body)


def _weight(body: Buffer | None) -> int:
    return 300 + (len(body) if body is not None else 0)
