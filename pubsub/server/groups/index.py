"""The parts of the records of a log, in blocks: made once from the keys, and kept for the blocks used last.

A keyed group with many parts reads its log once. Without the index, each part would read the log by itself.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from pubsub.protocol.batch import DELAYED, Buffer, batch_tables, origin_of
from pubsub.protocol.group_bodies import lost_part, part_of
from pubsub.server.topic.compacted import outside
from pubsub.server.topic.delivery import Batch, BatchReader, is_sound
from pubsub.server.topic.topic import Log, Topic

BLOCK: Final = 4_096
"""Offsets in one block."""

BLOCKS_MAX: Final = 64
"""Blocks that a group keeps."""

_FLAGS_AT: Final = 1


@dataclass(slots=True)
class Block:
    """The records of a block.

    Attributes:
        end: the offset up to which it is made.
        offsets: the offsets of each part, in order.
    """

    end: int
    offsets: dict[int, list[int]] = field(default_factory=dict)


class Place(NamedTuple):
    """The number of a block of a log."""

    log: int
    number: int


def parts_in(batch: Batch, body: Buffer, publishers: Sequence[str], parts: int) -> list[int]:
    """Return the part of each record of a sound batch."""
    publisher = publishers[batch.publisher]
    if body[_FLAGS_AT] & DELAYED and (origin := origin_of(body)) is not None:
        publisher = origin[0]
    (ends, start), _ = batch_tables(body)
    plain = part_of(b"", publisher, parts)
    if not ends:
        return [plain] * batch.count
    begins = (0, *ends[:-1])
    return [
        part_of(body[start + a : start + b], publisher, parts) if a < b else plain
        for a, b in zip(begins, ends, strict=True)
    ]


class PartIndex:
    """The index of one keyed group.

    Args:
        parts: of the group.
    """

    def __init__(self, topic: Topic, parts: int, reader: BatchReader, publishers: Sequence[str]) -> None:
        self.topic, self.parts, self._reader, self._publishers = topic, parts, reader, publishers
        self._blocks: OrderedDict[Place, Block] = OrderedDict()

    def offsets(self, log: Log, part: int, low: int, high: int) -> Iterator[int]:
        """Yield the offsets of [low, high) with records of a part. Lost records belong to one part of the group.

        Raises:
            StoreDamaged: a row cannot be read.
        """
        low, high = max(low, log.low), min(high, log.end - log.unknown)
        while low < high:
            block = self._block(log, low // BLOCK)
            found = block.offsets.get(part, ())
            for index in range(bisect_left(found, low), len(found)):
                if found[index] >= high:
                    return
                yield found[index]
            low = (low // BLOCK + 1) * BLOCK

    def part_at(self, log: Log, offset: int) -> int | None:
        """Return the part of a record; None if the log does not hold it."""
        if not log.low <= offset < log.end - log.unknown:
            return None
        for part, found in self._block(log, offset // BLOCK).offsets.items():
            index = bisect_left(found, offset)
            if index < len(found) and found[index] == offset:
                return part
        return None

    def count(self, log: Log | None, part: int, low: int, high: int) -> int:
        """Return the number of records of a part in [low, high)."""
        return 0 if log is None else sum(1 for _ in self.offsets(log, part, low, high))

    def parts_between(self, log: Log, low: int, high: int) -> Iterator[int]:
        """Yield the parts with records in [low, high); some perhaps twice."""
        low, high = max(low, log.low), min(high, log.end - log.unknown)
        while low < high:
            for part, found in self._block(log, low // BLOCK).offsets.items():
                if found and found[-1] >= low:
                    yield part
            low = (low // BLOCK + 1) * BLOCK

    def forget(self, log: Log, offset: int) -> None:
        """Make the block with an offset anew, because records in it have gone."""
        self._blocks.pop(Place(log.number, offset // BLOCK), None)

    def _block(self, log: Log, number: int) -> Block:
        key, stop = Place(log.number, number), min((number + 1) * BLOCK, log.end - log.unknown)
        block = self._blocks.get(key)
        if block is None:
            block = self._blocks[key] = Block(max(number * BLOCK, log.low))
            if len(self._blocks) > BLOCKS_MAX:
                self._blocks.popitem(last=False)
        else:
            self._blocks.move_to_end(key)
        if block.end < stop:
            self._extend(block, log, stop)
        return block

    def _extend(self, block: Block, log: Log, stop: int) -> None:
        place = block.end
        for batch in self._reader.batches(log.number, place, stop):
            if batch.offset > place:
                self._lose(block, log, place, batch.offset)
            first, last = max(place, batch.offset), min(batch.offset + batch.count, stop)
            if batch.body is None or not is_sound(batch, batch.body, self._publishers):
                block.offsets.setdefault(lost_part(log.id, self.parts), []).extend(range(first, last))
            else:
                parts = parts_in(batch, batch.body, self._publishers, self.parts)
                for offset in range(first, last):
                    block.offsets.setdefault(parts[offset - batch.offset], []).append(offset)
            place = last
        if place < stop:
            self._lose(block, log, place, stop)
        block.end = stop

    def _lose(self, block: Block, log: Log, low: int, high: int) -> None:
        """Count offsets without a row as lost, unless compaction has removed them."""
        for first, last in outside(self.topic.compacted.get(log.id, ()), low, high):
            block.offsets.setdefault(lost_part(log.id, self.parts), []).extend(range(first, last))
