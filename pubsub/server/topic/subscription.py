"""A subscription of a topic: the cursor holds the spans to receive, the consumer admits the requests for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from pubsub.protocol.names import Position
from pubsub.server.topic.consumers import Consumer, Readers, consumer_of
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.spans import Span

_COUNT: Final = (1 << 22) - 1
"""The counting part of a client's number, below its milliseconds (docs/explanation/numbers.md, *One allocator*)."""


class SubscriptionRow(NamedTuple):
    """A subscription as a store, a chunk and an export have it; `epoch` encodes the consumer."""

    number: int
    epoch: int
    on: bool
    since: int
    acknowledged: Position
    backlog: tuple[Span, ...]


@dataclass(slots=True)
class Subscription:
    """The subscription of one subscriber, which may have left.

    Attributes:
        number: the highest number ever requested.
        on: True while it is subscribed.
        cursor: the spans that it is still to receive.
        consumer: admits the requests that may read it.
    """

    number: int
    on: bool
    cursor: Cursor
    consumer: Consumer

    @property
    def epoch(self) -> int:
        """The number that encodes the consumer: a session's epoch."""
        return self.consumer.stored_epoch(self.number)

    def admits(self, epoch: int) -> bool:
        return self.consumer.admits(epoch, self.number)

    def outdates(self, number: int, epoch: int) -> bool:
        """Return True if these belong to an earlier subscription, or to an earlier session of its client."""
        return number < self.number or not self.admits(epoch)

    def end(self) -> None:
        """End permanently, under a number that its client has not used yet and will not use.

        The number is the last of the same millisecond. So a GET with the old number is answered `superseded`, and a
        later subscription has a higher number.
        """
        self.number = max(self.number + 1, self.number | _COUNT)
        if isinstance(self.consumer, Readers):
            self.consumer = Readers()
        self.on, self.cursor.backlog = False, ()

    def row(self) -> SubscriptionRow:
        """Return the durable fields."""
        cursor = self.cursor
        return SubscriptionRow(self.number, self.epoch, self.on, cursor.since, cursor.acknowledged, cursor.backlog)


def subscription_of(key: str, row: SubscriptionRow) -> Subscription:
    cursor = Cursor(row.since, row.acknowledged, row.backlog)
    return Subscription(row.number, row.on, cursor, consumer_of(key, row.number, row.epoch))
