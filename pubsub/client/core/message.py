"""Represent received messages, and batches that build a message only at its first use.

An answer of the service is one body with runs of records in it (`pubsub.protocol.records`). A `RunSlice` is a part of
one run, and a batch is a list of slices. A `Message` is built when the application reads it, so counting ten thousand
received records builds none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from operator import eq
from typing import NamedTuple, overload

from pubsub.protocol import Position, Run, decode_headers, format_position
from pubsub.protocol.group_bodies import part_of


class RunSlice(NamedTuple):
    """Records [start, stop) of a run, as indexes within the run.

    Attributes:
        doubtful: the records were delivered before, to a state directory that did not acknowledge them.
        replay: number of the replay that brought them; 0: none.
        attempts: number of the attempt at them, of `get` of a consumer group; 0: nobody counts them.
    """

    run: Run
    data: bytes
    start: int
    stop: int
    doubtful: bool = False
    replay: int = 0
    attempts: int = 0

    @property
    def last(self) -> Position:
        """The position of its last record."""
        return self.run.log, self.run.offset + self.stop - 1

    @property
    def put_by(self) -> str:
        """The publisher that put its records."""
        return self.run.put_by or self.run.publisher

    @property
    def put_as(self) -> int:
        """The counter under which its first record was put."""
        return (self.run.put_as if self.run.put_by else self.run.counter) + self.start

    @property
    def size(self) -> int:
        """Bytes of its records."""
        return self.run.ends[self.stop - 1] - (self.run.ends[self.start - 1] if self.start else self.run.begin)

    def bodies(self) -> Iterator[bytes]:
        """Yield the body of each record, in order."""
        run, data = self.run, self.data
        begin = run.ends[self.start - 1] if self.start else run.begin
        for end in run.ends[self.start : self.stop]:
            yield data[begin:end]
            begin = end


class Message:
    """A message as it was put.

    Attributes:
        topic: its topic.
        body: its content.
        doubtful: True if it was delivered before to a state directory of this client ID that did not acknowledge it, or
            was given up while another member of the group had it. It may have been processed already, so a handler with
            external effects checks those first.
        replay: number of the `seek` that brought it; 0 before the first. A message comes once in each replay.
    """

    _attempts: int
    _part: int | None

    __slots__ = ("_attempts", "_index", "_part", "_run", "body", "doubtful", "replay", "topic")

    def __init__(self, topic: str, body: bytes, run: Run, index: int, doubtful: bool = False, replay: int = 0) -> None:
        self.topic, self.body, self._run, self._index, self.doubtful = topic, body, run, index, doubtful
        self.replay = replay

    @property
    def position(self) -> Position:
        """Its place in the topic: (log, offset)."""
        return self._run.log, self._run.offset + self._index

    @property
    def id(self) -> str:
        """Its permanent ID, `log.offset`."""
        return f"{self._run.log}.{self._run.offset + self._index}"

    @property
    def publisher(self) -> str:
        """Its sender, `client ID/store ID`."""
        return self._run.put_by or self._run.publisher

    @property
    def counter(self) -> int:
        """The publisher's number for it, as returned by `put`."""
        run = self._run
        return (run.put_as if run.put_by else run.counter) + self._index

    @property
    def attempts(self) -> int:
        """In a handler, or of a group: the number of this attempt, from 1, also over restarts. Otherwise 0."""
        try:
            return self._attempts
        except AttributeError:  # Most messages need no such field, and are built faster without it.
            return 0

    def in_attempt(self, number: int) -> None:
        """Set the number of the present attempt."""
        self._attempts = number

    @property
    def part(self) -> int | None:
        """In a keyed consumer group: the part that it belongs to. Otherwise None."""
        try:
            return self._part
        except AttributeError:
            return None

    def in_part(self, part: int | None) -> None:
        """Set the part of its group."""
        self._part = part

    @property
    def key(self) -> bytes:
        """Its message key; b"" if it was put without one."""
        return self._run.keys[self._index] if self._run.keys else b""

    @property
    def headers(self) -> dict[str, bytes]:
        """Its headers in the order of the put; empty if it was put without any."""
        return decode_headers(self.header_bytes)

    @property
    def header_bytes(self) -> bytes:
        """Its headers as encoded in its batch."""
        return self._run.headers[self._index] if self._run.headers else b""

    @property
    def stamp(self) -> int:
        """Its timestamp: the time at which the server accepted or, after a delay, delivered it.

        Microseconds since 1970.
        """
        return self._run.stamp

    def __eq__(self, other: object) -> bool:
        """Compare place and contents, whenever each message was received."""
        if not isinstance(other, Message):
            return NotImplemented
        return self._value() == other._value()

    def __hash__(self) -> int:
        return hash((self.topic, self.position))

    def _value(self) -> tuple[object, ...]:
        run = self._run
        return (
            self.topic, self.position, self.body, self.publisher, self.counter, run.stamp, self.key, self.header_bytes,
        )  # fmt: skip

    def __repr__(self) -> str:
        body = self.body if len(self.body) <= 40 else self.body[:37] + b"..."
        return f"Message({self.topic!r}, {self.id}, {body!r})"


class Batch(Sequence[Message]):
    """Messages received together, in order, each built at its use.

    Args:
        topic: topic of all of them.
        pieces: their records.
        parts: of the keyed group that they were taken from; 0: of none.
    """

    __slots__ = ("_length", "_parts", "pieces", "topic")

    def __init__(self, topic: str, pieces: Sequence[RunSlice] = (), parts: int = 0) -> None:
        self.topic, self.pieces, self._parts = topic, pieces, parts
        self._length = sum([piece.stop - piece.start for piece in pieces])

    def __len__(self) -> int:
        return self._length

    def __eq__(self, other: object) -> bool:
        """Compare topic, order and messages."""
        if not isinstance(other, Batch):
            return NotImplemented
        return self.topic == other.topic and len(self) == len(other) and all(map(eq, self, other))

    def __hash__(self) -> int:
        return hash((self.topic, self._length))

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> list[Message]: ...
    def __getitem__(self, index: int | slice) -> Message | list[Message]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(self._length))]
        place = index + self._length if index < 0 else index
        if not 0 <= place < self._length:
            raise IndexError(f"message {index} of {self._length}")
        ends = list(accumulate(piece.stop - piece.start for piece in self.pieces))
        which = bisect_right(ends, place)
        piece = self.pieces[which]
        run, at = piece.run, piece.stop - (ends[which] - place)
        begin = run.ends[at - 1] if at else run.begin
        return self._counted(
            Message(self.topic, piece.data[begin : run.ends[at]], run, at, piece.doubtful, piece.replay), piece
        )

    def _counted(self, message: Message, piece: RunSlice) -> Message:
        """Give a message of a group the number of its attempt, and one of a keyed group its part."""
        if piece.attempts:
            message.in_attempt(piece.attempts)
        if self._parts:
            message.in_part(part_of(message.key, message.publisher, self._parts))
        return message

    def __iter__(self) -> Iterator[Message]:
        topic = self.topic
        for piece in self.pieces:
            run, counted = piece.run, piece.attempts or self._parts
            for index, body in enumerate(piece.bodies(), piece.start):
                message = Message(topic, body, run, index, piece.doubtful, piece.replay)
                yield self._counted(message, piece) if counted else message

    def bodies(self) -> list[bytes]:
        """Return only the bytes of all messages, which is faster than building the messages."""
        return [body for piece in self.pieces for body in piece.bodies()]

    def __repr__(self) -> str:
        last = f", last {format_position(self.pieces[-1].last)}" if self.pieces else ""
        return f"Batch({self.topic!r}, {self._length} messages{last})"
