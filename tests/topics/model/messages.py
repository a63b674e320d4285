"""The messages between clients and servers of the model."""

from __future__ import annotations

from typing import NamedTuple

from tests.topics.model.topic import Content, Item, Position


class Put(NamedTuple):
    """A batch of a publisher.

    Attributes:
        previous: the publisher's counter before the batch.
        marked: only the sole owner may take it.
        due: the step at which it is delivered; 0: at once.
    """

    publisher: str
    counter: int
    previous: int
    marked: bool
    contents: tuple[Content, ...]
    due: int = 0


class Publish(NamedTuple):
    """A batch of a sink; batches without rows for this topic are not sent."""

    publisher: str
    batch: int
    rows: tuple[Content, ...]


class Start(NamedTuple):
    """The start of a subscription: `latest`, `earliest`, `stamp`, `position` or `last`.

    Attributes:
        value: the stamp, or the number of records.
    """

    kind: str = "latest"
    value: int = 0
    position: Position = ("", 0)


class Subscribe(NamedTuple):
    """SUBSCRIBE with a start, or UNSUBSCRIBE (not `on`)."""

    name: str
    number: int
    on: bool
    start: Start


class Get(NamedTuple):
    """GET of up to `limit` records after `after`; all up to `last` is acknowledged."""

    name: str
    number: int
    last: Position
    after: Position
    limit: int


class Read(NamedTuple):
    """READ along the history, without a subscription.

    Attributes:
        token: of the history that the reader's position is from.
        began: number of tombstones that had gone when the reader began.
    """

    token: str
    began: int
    position: Position | None
    limit: int


class Answer(NamedTuple):
    """A server's answer.

    Attributes:
        number: the highest counter stored, or the number of tombstones that have gone.
        begins: the messages that a start `last` shows; only the check uses them.
    """

    outcome: str
    position: Position = ("", 0)
    number: int = 0
    items: tuple[Item, ...] = ()
    token: str = ""
    begins: frozenset[Content] = frozenset()


Message = Put | Publish | Subscribe | Get | Read
