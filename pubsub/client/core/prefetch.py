"""Hold records that were received from a topic and not taken yet, in memory only."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pubsub.base.clock import MICROSECONDS
from pubsub.client.core.changes import Change, Taken
from pubsub.client.core.expired import separated
from pubsub.client.core.message import RunSlice
from pubsub.protocol import Position, Records


@dataclass(slots=True)
class Loss:
    """A place in the stream with lost records; `reason` is the service's word, "" if it has none."""

    first: Position
    last: Position
    reason: str = ""


@dataclass(slots=True)
class Taking:
    """A part of the prefetch that a call removes after its commit.

    Attributes:
        pieces: the records for the application.
        position: the application's position afterwards; None: unchanged.
        counters: the last taken counters of the publishers concerned.
        items: number of items that leave the prefetch.
        rest: remainder of the last of these items.
        records: number of records that leave, including skipped duplicates and expired records.
        expired: records that are passed over, because their time to live has ended.
    """

    pieces: list[RunSlice]
    position: Position | None
    counters: dict[str, int]
    items: int
    rest: RunSlice | None
    records: int
    size: int
    expired: list[RunSlice] = field(default_factory=list)

    def pass_expired(self, wall: float) -> None:
        """Pass over the records with a time to live that has ended at `wall` (seconds since 1970)."""
        for piece in self.pieces:
            if piece.run.headers:
                self.pieces, self.expired = separated(self.pieces, int(wall * MICROSECONDS))
                break

    def change(self, topic: str) -> list[Change]:
        return [] if self.position is None else [Taken(topic, self.position, self.counters)]


class Prefetch:
    """Received records and losses, in order.

    Attributes:
        records, size: number of records here, and their bytes.
        headed: True if a record with headers ever came.
    """

    def __init__(self) -> None:
        self._items: deque[RunSlice | Loss] = deque()
        self.records = self.size = 0
        self.headed = False

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def last(self) -> Position:
        """Position of the last item; there must be one."""
        return self._items[-1].last

    def add(self, records: Records, *, doubtful: bool = False, replay: int = 0) -> None:
        """Append records.

        Args:
            doubtful: all of them were delivered before, to another state directory.
            replay: number of the replay that brought them.
        """
        for run in records.runs:
            self._items.append(RunSlice(run, records.data, 0, len(run.ends), doubtful, replay))
            self.headed = self.headed or bool(run.headers)
        self.records += records.count
        self.size += records.size

    def lose(self, loss: Loss) -> None:
        self._items.append(loss)

    def clear(self) -> None:
        self._items.clear()
        self.records = self.size = 0

    def take(self, records_max: int, before: Mapping[str, int]) -> Taking | Loss:
        """Plan to take the next `records_max` records, or the loss in front; nothing changes until `took`.

        Args:
            records_max: most records to take.
            before: the last taken counter of each publisher; records up to it are skipped as duplicates.
        """
        pieces: list[RunSlice] = []
        counters: dict[str, int] = {}
        position, rest, items, left, gone, size = None, None, 0, records_max, 0, 0
        for item in self._items:
            if isinstance(item, Loss):
                if not items:
                    return item
                break
            if not left:
                break
            run, items = item.run, items + 1
            passed = counters.get(run.publisher) or before.get(run.publisher, 0)
            first = min(max(item.start, passed - run.counter + 1), item.stop)
            stop = min(item.stop, first + left)
            if first < stop:
                pieces.append(
                    item if first == item.start and stop == item.stop else item._replace(start=first, stop=stop)
                )
                counters[run.publisher] = run.counter + stop - 1
                left -= stop - first
            taken = item._replace(stop=stop)
            position = taken.last if stop > item.start else position
            gone, size = gone + stop - item.start, size + (taken.size if stop > item.start else 0)
            if stop < item.stop:
                rest = item._replace(start=stop)
                break
        return Taking(pieces, position, counters, items, rest, gone, size)

    def took(self, taking: Taking) -> None:
        """Remove the records of a committed taking."""
        for _ in range(taking.items):
            self._items.popleft()
        if taking.rest is not None:
            self._items.appendleft(taking.rest)
        self.records -= taking.records
        self.size -= taking.size

    def pass_loss(self) -> None:
        """Remove the loss in front."""
        self._items.popleft()

    def return_taken(self, pieces: Sequence[RunSlice]) -> None:
        """Put records back to the front, in order."""
        for piece in reversed(pieces):
            self._items.appendleft(piece)
            self.records += piece.stop - piece.start
            self.size += piece.size

    def following(self, taking: Taking) -> Position | None:
        """Return the position of the record after a planned taking, if it is here already."""
        if taking.rest is not None:
            return taking.rest.run.log, taking.rest.run.offset + taking.rest.start
        for index, item in enumerate(self._items):
            if index == taking.items:
                return (item.run.log, item.run.offset + item.start) if isinstance(item, RunSlice) else None
        return None
