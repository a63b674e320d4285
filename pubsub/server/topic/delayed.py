"""The batches of one topic that wait for their due time (docs/explanation/delay.md, DM7).

The bodies are in the store, and memory has the rest of each row. A row is identified by its publisher and the counter
of its first record, because the publisher's chain has judged the put. Its shelf is a number in the store. Rows that
arrive with a transfer come on a shelf of their own, which the merge gives to the topic without copying a row.

In a merge (DM7), a row that waits at both sides stays once. A row that one side lacks, although its `last` covers
the row, was delivered there, so it goes. All other rows stay.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


class Waiting(NamedTuple):
    """A put that waits; rows are ordered by due time, publisher and counter.

    Attributes:
        due: the time of its delivery (microseconds since 1970).
        publisher: its number in this store.
        counter, records: counter of its first record, and their number.
        checksum: CRC-32 of its body.
        size: bytes of its body.
        shelf: the number of the shelf that has the row in the store.
    """

    due: int
    publisher: int
    counter: int
    records: int
    checksum: int
    size: int
    shelf: int

    @property
    def key(self) -> tuple[int, int]:
        return self.publisher, self.counter

    @property
    def last(self) -> int:
        return self.counter + self.records - 1


@dataclass(slots=True)
class Delayed:
    """The rows of one topic.

    Attributes:
        rows: by publisher and counter.
        shelves: shelves that merges gave to the topic, besides its own, which has the topic's number.
        size: bytes of the bodies.
        records: number of messages.
    """

    rows: dict[tuple[int, int], Waiting] = field(default_factory=dict)
    shelves: tuple[int, ...] = ()
    size: int = 0
    records: int = 0
    _order: list[Waiting] = field(default_factory=list, compare=False)
    """The rows as a heap. Rows that have gone are skipped."""

    def __len__(self) -> int:
        return len(self.rows)

    def hold(self, row: Waiting) -> None:
        self.rows[row.key] = row
        self.size += row.size
        self.records += row.records
        heapq.heappush(self._order, row)

    def drop(self, row: Waiting) -> None:
        """Remove a row, because it is appended or was delivered elsewhere."""
        del self.rows[row.key]
        self.size -= row.size
        self.records -= row.records

    def take(self, its: Delayed) -> None:
        """Add rows that stay on their own shelves."""
        self.rows |= its.rows
        self.size += its.size
        self.records += its.records
        self._order += its.rows.values()
        heapq.heapify(self._order)
        self.shelves += its.shelves

    def first(self) -> Waiting | None:
        """Return the row that is due first; None if no row waits."""
        while self._order:
            row = self._order[0]
            if self.rows.get(row.key) is row:
                return row
            heapq.heappop(self._order)
        return None


def gone(
    mine: Delayed, last: Mapping[int, int], its: Delayed, its_last: Mapping[int, int]
) -> tuple[list[Waiting], list[Waiting]]:
    """Return the rows of each side that go in a merge, in order (DM7).

    Args:
        mine, its: the rows of the two sides.
        last, its_last: the last counters of each side before the merge.
    """
    ours = [
        row
        for key, row in mine.rows.items()
        if row.counter + row.records <= its_last.get(row.publisher, 0) + 1 and key not in its.rows
    ]
    both = [row for key, row in its.rows.items() if key in mine.rows]
    theirs = [
        row
        for key, row in its.rows.items()
        if row.counter + row.records <= last.get(row.publisher, 0) + 1 and key not in mine.rows
    ]
    return sorted(ours), both + sorted(theirs)


def delayed_of(rows: Iterable[Waiting], shelves: tuple[int, ...] = ()) -> Delayed:
    """Return the rows of a topic as loaded."""
    delayed = Delayed(shelves=shelves)
    for row in rows:
        delayed.hold(row)
    return delayed
