"""The requests that Titanic has, without their bodies, and the changes to them that are to be durable."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from pubsub.services.core.interface import Frames


class State(IntEnum):
    """What has become of a request, as the store has it."""

    PENDING = 0  # stored; it may be under way
    REPLIED = 1
    CLOSED = 2  # nothing is kept but its key


@dataclass(slots=True)
class Entry:
    """A request.

    Attributes:
        id: 32 hexadecimal digits.
        service, key, digest: as of the request.
        state: as it is in the store, once `stored`.
        age: of Titanic when it was accepted, in seconds; see `Titanic`.
        stored: whether it is in the store.
        closing: whether it is about to be closed.
        token: by which it is under way; 0: it is not.
        tries: how often it was run without a reply.
        due: when it may be run again, on the monotonic clock in seconds.
        answered: whether its reply came; it may not be in the store yet.
        late: tokens by which it was run before, of brokers that could not tell what became of it.
    """

    id: bytes
    service: bytes
    key: bytes
    digest: bytes
    state: State
    age: float
    stored: bool = True
    closing: bool = False
    token: int = 0
    tries: int = 0
    due: float = 0.0
    answered: bool = False
    late: list[int] = field(default_factory=list)


# Changes, in the order in which they are to be made


class Accepted(NamedTuple):
    """Store a request."""

    entry: Entry
    body: Frames


class Replied(NamedTuple):
    """Store the reply to a request, whose own body is not needed any more."""

    entry: Entry
    body: Frames


class Closed(NamedTuple):
    """Forget a request and its reply; its key, where it has one, is remembered."""

    entry: Entry


class Expired(NamedTuple):
    """Forget these requests altogether."""

    entries: tuple[Entry, ...]


class Aged(NamedTuple):
    """Store no more than the age."""


Change = Accepted | Replied | Closed | Expired | Aged


class Load(NamedTuple):
    """A body that is to be read.

    Attributes:
        entry: whose: the reply where that is there, else the request.
        token: for whom it is.
    """

    entry: Entry
    token: int


@dataclass(slots=True)
class Requests:
    """All requests, by ID and by key, the oldest first."""

    by_id: OrderedDict[bytes, Entry] = field(default_factory=OrderedDict)
    by_key: dict[bytes, Entry] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        """Know a request."""
        self.by_id[entry.id] = entry
        if entry.key:
            self.by_key[entry.key] = entry

    def remove(self, entry: Entry) -> None:
        """Know it no more."""
        self.by_id.pop(entry.id, None)
        if entry.key:
            self.by_key.pop(entry.key, None)

    def oldest(self) -> Entry | None:
        """The one that was accepted first."""
        return next(iter(self.by_id.values()), None)
