"""Keep the messages that wait at the client for their next attempt.

A failed message, or one that its handler put off, waits in one of two places:

    at its place    the position does not pass it, so everything behind it waits (`Retry`, in the topic's `Cursor`)
    put aside       it is in a durable table with its body, and the position has passed it (`WaitingMessages`)

Messages that are put aside stand in lanes. The messages of a lane are handled in the order in which they came. A
message behind another one of its lane waits until that one is handled or is a dead letter. With `hold="key"` the lane
is the message key. A message without a lane waits for no other one. A message that is in a handler's hand is not handed
out again, and neither are those behind it in its lane.

Bodies stay on the disk. The due times here are those of the monotonic clock.

The rules are docs/explanation/retries.md, J3, J5 and J6.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Final, Literal

from pubsub.client.core.changes import WaitingDropped
from pubsub.errors import CallerError, TooLarge
from pubsub.protocol import Position

WAITING_MAX: Final = 10_000
"""Most messages of one client that are put aside; then the topic waits."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most bytes of their bodies, keys and headers."""

Hold = Literal["all", "key", "none"]
"""What waits behind a message that waits: all later ones of its topic, those of its key, or none."""

ALL: Final = "all"
KEY: Final = "key"
NONE: Final = "none"


def check_hold(hold: object) -> None:
    """Check the argument `hold` of `process`.

    Raises:
        CallerError: it is not allowed.
    """
    if hold not in (ALL, KEY, NONE):
        raise CallerError(f'hold is "all", "key" or "none", not {hold!r}'[:200])


def backoff(failures: int, first: float, longest: float) -> float:
    """Return the seconds until the next attempt after some failures: `first`, doubled by each further failure."""
    return min(longest, first * 2 ** min(failures - 1, 64)) if first else 0.0


def seconds_left(due: float, seconds: float, wall: float) -> float:
    """Return the rest of a wait of `seconds` that ends at `due` on the wall clock; a wrong clock prolongs no wait."""
    return min(max(0.0, due - wall), seconds)


@dataclass(slots=True)
class Retry:
    """The wait of the next message of a topic, which keeps its place.

    Attributes:
        position: its position.
        due: time of the next attempt, on the monotonic clock.
        later: number of its attempts that put it off, and are no failures.
        met: True if the message in front is known to be this one.
    """

    position: Position
    due: float
    later: int = 0
    met: bool = False


@dataclass(slots=True)
class Waiting:
    """A message that was put aside.

    Attributes:
        number: its place in the order of the table.
        lane: messages of one lane keep their order; b"": it has none.
        size: bytes of body, key and headers.
        attempts: number of attempts that have begun.
        later: number of these that put it off, and are no failures.
        due: time of the next attempt, on the monotonic clock.
    """

    number: int
    topic: str
    lane: bytes
    size: int
    attempts: int
    later: int
    due: float


@dataclass(slots=True)
class _Topic:
    rows: dict[int, Waiting] = field(default_factory=dict)
    lanes: dict[bytes, deque[int]] = field(default_factory=dict)
    heads: list[tuple[float, int]] = field(default_factory=list)
    in_hand: set[int] = field(default_factory=set)
    due: float = inf
    """Time at which the first of them is due, for readers without the lock."""

    def _is_head(self, row: Waiting) -> bool:
        return row.number not in self.in_hand and (not row.lane or self.lanes[row.lane][0] == row.number)

    def changed(self, row: Waiting) -> None:
        """Take account of a message that is new, is in front of its lane now, or has another due time."""
        if self._is_head(row):
            heappush(self.heads, (row.due, row.number))
        self.look()

    def look(self) -> None:
        """Find the message that is due first."""
        heads = self.heads
        while heads:
            due, number = heads[0]
            row = self.rows.get(number)
            if row is not None and row.due == due and self._is_head(row):
                self.due = due
                return
            heappop(heads)
        self.due = inf


class WaitingMessages:
    """The messages of one client that were put aside, by topic.

    Attributes:
        size: bytes of all of them.
        trying: by number, attempts that are counted on the disk, or about to be, and have not failed.
        served: topics with a message that was taken from here last, so that one of the service has the next turn.
    """

    def __init__(self) -> None:
        self._topics: dict[str, _Topic] = {}
        self._count = self.size = self._last = self._left = 0
        self._blocked: dict[str, int] = {}
        self.served: set[str] = set()
        self.trying: dict[int, int] = {}

    def __len__(self) -> int:
        return self._count

    def __contains__(self, topic: str) -> bool:
        return topic in self._topics

    def count(self, topic: str) -> int:
        """Return the number of messages of a topic."""
        found = self._topics.get(topic)
        return 0 if found is None else len(found.rows)

    def rows(self) -> list[Waiting]:
        """Return all messages, in order by topic and number."""
        return [row for topic in sorted(self._topics) for row in self._topics[topic].rows.values()]

    # Room

    def has_room(self, size: int, count: int = 1) -> bool:
        """Return True if `count` messages of `size` bytes may be put aside; one message alone always, however large."""
        if self._count + count == 1:
            return True
        return self._count + count <= WAITING_MAX and self.size + size <= WAITING_BYTES_MAX

    def no_room(self, size: int) -> TooLarge:
        """Return the error for a message of `size` bytes without room: which limit it would exceed."""
        if self._count >= WAITING_MAX:
            return TooLarge("number of waiting messages", self._count + 1, WAITING_MAX, "WAITING_MAX")
        return TooLarge("bytes of waiting messages", self.size + size, WAITING_BYTES_MAX, "WAITING_BYTES_MAX")

    def block(self, topic: str) -> None:
        """Mark a topic with a next message that needs room; it waits until a message leaves."""
        self._blocked[topic] = self._left

    def is_blocked(self, topic: str) -> bool:
        """Return True if a topic waits for room, and no message has left since."""
        return bool(self._blocked) and self._blocked.get(topic) == self._left

    # Changes; each follows its commit

    def next_number(self) -> int:
        """Return the number of the next message."""
        return self._last + 1

    def add(self, row: Waiting) -> None:
        """Put a message aside, behind all others of its lane."""
        topic = self._topics.setdefault(row.topic, _Topic())
        topic.rows[row.number] = row
        if row.lane:
            topic.lanes.setdefault(row.lane, deque()).append(row.number)
        topic.changed(row)
        self._count, self.size, self._last = self._count + 1, self.size + row.size, max(self._last, row.number)

    def begin(self, row: Waiting) -> None:
        """Take a message in hand, so that it is not handed out again before `put_off`, `ended` or `give_back`."""
        topic = self._topics[row.topic]
        topic.in_hand.add(row.number)
        topic.look()

    def give_back(self, row: Waiting) -> None:
        """Take a message out of the handler's hand; it is due as before."""
        topic = self._topics.get(row.topic)
        if topic is not None and row.number in topic.in_hand:
            topic.in_hand.discard(row.number)
            topic.changed(row)

    def in_hand(self) -> list[Waiting]:
        """Return the messages that handlers have in hand side by side."""
        return [topic.rows[number] for topic in self._topics.values() for number in sorted(topic.in_hand)]

    def put_off(self, row: Waiting, due: float, later: int) -> None:
        """Set the time of a message's next attempt."""
        row.due, row.later = due, later
        topic = self._topics[row.topic]
        topic.in_hand.discard(row.number)
        topic.changed(row)

    def ended(self, row: Waiting) -> None:
        """Remove a message that was handled or is a dead letter; the next one of its lane is in front."""
        topic = self._topics[row.topic]
        del topic.rows[row.number]
        topic.in_hand.discard(row.number)
        if row.lane:
            lane = topic.lanes[row.lane]
            lane.remove(row.number)
            if not lane:
                del topic.lanes[row.lane]
            else:
                topic.changed(topic.rows[lane[0]])
        topic.look()
        if not topic.rows:
            del self._topics[row.topic]
        self._count, self.size, self._left = self._count - 1, self.size - row.size, self._left + 1

    def dropping(self, topic: str) -> list[WaitingDropped]:
        """Return the change that gives up the messages of a topic; `drop` follows the commit."""
        return [WaitingDropped(topic)] if topic in self._topics else []

    def drop(self, topic: str) -> None:
        """Remove all messages of a topic."""
        found = self._topics.pop(topic, None)
        self.served.discard(topic)
        if found is not None:
            self._count, self._left = self._count - len(found.rows), self._left + 1
            self.size -= sum(row.size for row in found.rows.values())

    # Looking

    def holds(self, topic: str, lane: bytes) -> bool:
        """Return True if a message with this lane must wait behind another one."""
        found = self._topics.get(topic)
        return found is not None and bool(lane) and lane in found.lanes

    def due(self, topic: str) -> float:
        """Return the time at which the next message of a topic is due; infinity: none waits. Takes no lock."""
        found = self._topics.get(topic)
        return inf if found is None else found.due

    def next(self, topic: str, now: float) -> Waiting | None:
        """Return the message of a topic that is due first, if it is due."""
        found = self._topics.get(topic)
        return None if found is None or found.due > now else found.rows[found.heads[0][1]]
