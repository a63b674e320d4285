"""What was received of a topic and not taken yet, in memory only: the end of the stream that a client holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pubsub.client.core.changes import Change, Taken
from pubsub.client.core.message import RunSlice
from pubsub.protocol import Position, Records


@dataclass(slots=True)
class Loss:
    """A place in the stream where records cannot be handed out any more."""

    first: Position
    last: Position


@dataclass(slots=True)
class Taking:
    """What a call takes off the prefetch once its commit has succeeded.

    Attributes:
        pieces: what it hands out.
        position: where the application is then; None: nothing moved.
        counters: the last counters taken, of the publishers concerned.
        items: how many items leave the prefetch; rest: what is left of the last of them.
        records: how many records leave it, the dropped ones included.
    """

    pieces: list[RunSlice]
    position: Position | None
    counters: dict[str, int]
    items: int
    rest: RunSlice | None
    records: int
    size: int

    def change(self, topic: str) -> list[Change]:
        """What makes it durable."""
        return [] if self.position is None else [Taken(topic, self.position, self.counters)]


class Prefetch:
    """Records, and places where some are lost, in order.

    Attributes:
        records, size: how many records are here, and their bytes.
    """

    def __init__(self) -> None:
        self._items: deque[RunSlice | Loss] = deque()
        self.records = self.size = 0

    def __bool__(self) -> bool:
        return bool(self._items)

    @property
    def last(self) -> Position:
        """The position of the last one; only where there is one."""
        return self._items[-1].last

    def add(self, records: Records, *, doubtful: bool = False) -> None:
        """An answer brought these. `doubtful`: all of them were handed out before, to another state directory."""
        for run in records.runs:
            self._items.append(RunSlice(run, records.data, 0, len(run.ends), doubtful))
        self.records += records.count
        self.size += records.size

    def lose(self, loss: Loss) -> None:
        """An answer said that records are lost here."""
        self._items.append(loss)

    def clear(self) -> None:
        """Forget all of it."""
        self._items.clear()
        self.records = self.size = 0

    def take(self, records_max: int, before: Mapping[str, int]) -> Taking | Loss:
        """What the next `records_max` records are, without those taken before; nothing changes until `took`.

        Args:
            records_max: how many.
            before: the last counter taken of each publisher.
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
        """It left."""
        for _ in range(taking.items):
            self._items.popleft()
        if taking.rest is not None:
            self._items.appendleft(taking.rest)
        self.records -= taking.records
        self.size -= taking.size

    def pass_loss(self) -> None:
        """The loss in front was told of."""
        self._items.popleft()

    def give_back(self, pieces: Sequence[RunSlice]) -> None:
        """These are in front again, in order."""
        for piece in reversed(pieces):
            self._items.appendleft(piece)
            self.records += piece.stop - piece.start
            self.size += piece.size

    def following(self, taking: Taking) -> Position | None:
        """The position of the record behind what is about to be taken, where it is here already."""
        if taking.rest is not None:
            return taking.rest.run.log, taking.rest.run.offset + taking.rest.start
        for index, item in enumerate(self._items):
            if index == taking.items:
                return (item.run.log, item.run.offset + item.start) if isinstance(item, RunSlice) else None
        return None
