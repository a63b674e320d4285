"""The requests of Titanic without their bodies, and the changes to them that must be durable."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from pubsub.services.core.interface import Frames


class State(IntEnum):
    """The stored state of a request."""

    PENDING = 0  # stored; it may be under way
    REPLIED = 1
    CLOSED = 2  # nothing is kept but its key


@dataclass(slots=True)
class Entry:
    """A request.

    Attributes:
        id: 32 hexadecimal digits.
        state: the stored state, once `stored` is true.
        age: Titanic's age when it was accepted, in seconds; see `Titanic`.
        stored: whether it is in the store.
        closing: whether its close is not on disk yet.
        token: token of its present run; 0: it is not running.
        tries: runs without a reply.
        due: monotonic time of the next run.
        answered: whether its reply came; it may not be in the store yet.
        late: tokens of earlier runs with an unknown result, at brokers without `mmi.pending`.
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
    entry: Entry
    body: Frames


class Replied(NamedTuple):
    """Store the reply to a request. It replaces the body of the request."""

    entry: Entry
    body: Frames


class Closed(NamedTuple):
    """Forget a request and its reply, but not its key."""

    entry: Entry


class Expired(NamedTuple):
    """Forget these requests and their keys."""

    entries: tuple[Entry, ...]


class Aged(NamedTuple):
    """Store the age only."""


Change = Accepted | Replied | Closed | Expired | Aged


class Load(NamedTuple):
    """A body to read from the store.

    Attributes:
        entry: its request; the body is the reply's if there is one, otherwise the request's.
        token: receiver of the body.
    """

    entry: Entry
    token: int


@dataclass(slots=True)
class Requests:
    """All requests, by ID and by key, the oldest first."""

    by_id: OrderedDict[bytes, Entry] = field(default_factory=OrderedDict)
    by_key: dict[bytes, Entry] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        self.by_id[entry.id] = entry
        if entry.key:
            self.by_key[entry.key] = entry

    def remove(self, entry: Entry) -> None:
        self.by_id.pop(entry.id, None)
        if entry.key:
            self.by_key.pop(entry.key, None)

    def oldest(self) -> Entry | None:
        return next(iter(self.by_id.values()), None)
