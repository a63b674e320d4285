"""What the client makes durable, as values: the core says what changes, the store applies it in one transaction.

`FSYNC` names those that must be on the disk, not only in the kernel, before anything that follows from them is sent
(docs/architecture.md, *Put: the chain*). All others survive the process; an fsync that comes later covers them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.protocol import Position
from pubsub.protocol.names import LATEST, Start


@dataclass(slots=True)
class RowAdded:
    """A put batch enters the outbox."""

    topic: str
    counter: int
    previous: int
    count: int
    whole: int
    checksum: int
    body: bytes


@dataclass(slots=True)
class RowsRemoved:
    """Batches leave the outbox: the service has them, or they were discarded."""

    counters: Sequence[int]


@dataclass(slots=True)
class RowUnchained:
    """The oldest unfinished batch of a topic whose log was given up begins the chain anew."""

    counter: int


@dataclass(slots=True)
class ChainMoved:
    """What a topic's chain is when no row of it is left in the outbox.

    Attributes:
        previous: the last counter that was not discarded.
        cleared: the power cut up to which a marked put has succeeded.
        log: the log that answered last.
    """

    topic: str
    previous: int
    cleared: int
    log: str


@dataclass(slots=True)
class Intended:
    """The user wants to be subscribed to a topic, or not to be; the service has not confirmed it.

    Attributes:
        fresh: a new subscription is to begin at `start`, whatever the service has under the client's ID.
        start: anywhere but at the end: what was taken before is to come again, so no counter of it is kept.
    """

    topic: str
    on: bool
    fresh: bool = False
    start: Start = LATEST


@dataclass(slots=True)
class Confirmed:
    """The service answered the last transmission of an intent: the subscription is settled."""

    topic: str
    number: int
    position: Position | None
    log: str


@dataclass(slots=True)
class Taken:
    """The application has everything up to this position; `counters` are the last ones by publisher."""

    topic: str
    position: Position
    counters: Mapping[str, int]


@dataclass(slots=True)
class Tried:
    """A handler is about to see this message for the n-th time."""

    topic: str
    position: Position
    attempts: int


@dataclass(slots=True)
class CallsDiscarded:
    """Calls whose requests leave the outbox undone. Those that have a reply keep it."""

    calls: Sequence[str]


@dataclass(slots=True)
class Buried:
    """A message, or a range that is lost, goes to the dead letters. Of a range the user is still to be told.

    Attributes:
        first, last: positions as text, `log.offset`.
        at: seconds since 1970.
        key, headers: of the message, these as its batch has them.
    """

    topic: str
    first: str
    last: str
    publisher: str
    counter: int
    stamp: int
    body: bytes | None
    error: str
    attempts: int
    at: float
    key: bytes = b""
    headers: bytes = b""


@dataclass(slots=True)
class Told:
    """The user was told of the oldest losses on a topic, so many of them."""

    topic: str
    count: int


@dataclass(slots=True)
class Renewed:
    """The state directory becomes another publisher: a new store ID, and every chain begins anew."""

    store: str


Change = (
    RowAdded
    | RowsRemoved
    | RowUnchained
    | ChainMoved
    | CallsDiscarded
    | Intended
    | Confirmed
    | Taken
    | Tried
    | Buried
    | Told
    | Renewed
)

FSYNC: Final = frozenset({Intended, Confirmed, Buried, Renewed, RowUnchained})
"""Changes whose commit is fsynced whatever the client's settings are."""
