"""A subscription of a topic: the cursor holds the spans to be received, the consumer admits the requests for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pubsub.protocol.names import Position
from pubsub.server.topic.consumers import Consumer, Readers, consumer_of
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.spans import Span

_COUNT: Final = (1 << 22) - 1
"""The part of a client's number that counts, below the milliseconds (docs/architecture.md, *Numbers*)."""


class SubscriptionRow(NamedTuple):
    """A subscription as a store, a chunk and an export have it; `opening` stands for the consumer."""

    number: int
    opening: int
    on: bool
    since: int
    acknowledged: Position
    backlog: tuple[Span, ...]


@dataclass(slots=True)
class Subscription:
    """A subscriber of a topic, or one that left.

    Attributes:
        number: the highest number ever asked for.
        on: whether it is subscribed.
        cursor: the spans that it is still to receive.
        consumer: which requests may read it.
    """

    number: int
    on: bool
    cursor: Cursor
    consumer: Consumer

    @property
    def opening(self) -> int:
        """The number that stands for the consumer: a session's epoch."""
        return self.consumer.opening(self.number)

    def admits(self, opening: int) -> bool:
        """Whether the consumer admits a request with this `opening`."""
        return self.consumer.admits(opening, self.number)

    def outdates(self, number: int, opening: int) -> bool:
        """Whether these are of an earlier subscription, or of an earlier session of its client."""
        return number < self.number or not self.admits(opening)

    def end(self) -> None:
        """End permanently, under a number that its client has not used yet and will not use.

        It is the last of the same millisecond. So a GET that names the old number is answered `superseded`, and a
        subscription made later is higher.
        """
        self.number = max(self.number + 1, self.number | _COUNT)
        if isinstance(self.consumer, Readers):
            self.consumer = Readers()
        self.on, self.cursor.backlog = False, ()

    def row(self) -> SubscriptionRow:
        """All of it that is durable."""
        cursor = self.cursor
        return SubscriptionRow(self.number, self.opening, self.on, cursor.since, cursor.acknowledged, cursor.backlog)


def subscription_of(key: str, row: SubscriptionRow) -> Subscription:
    """The subscription with this key of which all that is durable is in a row."""
    cursor = Cursor(row.since, row.acknowledged, row.backlog)
    return Subscription(row.number, row.on, cursor, consumer_of(key, row.number, row.opening))
