"""What a pattern's core and its shell say to each other.

A core is fed messages and `now`, seconds on the monotonic clock. What it wants done at the sockets it leaves in order
in `take_sends`, what whoever uses it is to know in `take_events`, and when it wants to be called again in `timer`. It
names sockets by *ports*: those that the shell opened for it (`Port`), and DEALERs that it has the shell connect
(`Dial`).

Frames are bytes, and no more than FRAMES_MAX of them. Nothing that arrives may raise: what is not a message of the
protocol is counted and dropped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

FRAMES_MAX: Final = 64
"""Frames of one message at the sockets of services, envelope included; one with more is dropped."""

NEVER: Final = float("inf")

Frames = tuple[bytes, ...]


# What is done at the sockets


class Send(NamedTuple):
    """Send a message.

    Attributes:
        port: by which socket.
        peer: whom a ROUTER sends to; b"" at every other socket.
        frames: without `peer`, at least one.
    """

    port: str
    peer: bytes
    frames: Frames


class Dial(NamedTuple):
    """Connect a new DEALER to an address; one that is open under this port's name is closed first, unread.

    Attributes:
        port: what the core calls it.
        address: where to.
        lasting: a connection that ZeroMQ makes anew is the same peer as before, so that a reply finds it. It has a
            routing ID for that, which clients of RFC 10 and REQ sockets do not have; False: it has none.
    """

    port: str
    address: str
    lasting: bool = False


class HangUp(NamedTuple):
    """Close a port that was dialled, unread."""

    port: str


Act = Send | Dial | HangUp


class PortKind(StrEnum):
    """What a socket is that the shell opens."""

    ROUTER = "router"  # binds
    PUBLISHER = "publisher"  # binds
    SUBSCRIBER = "subscriber"  # connects, to everything


class Port(NamedTuple):
    """A socket that is open as long as the core is used.

    Attributes:
        name: what the core calls it.
        address: to listen on; of a SUBSCRIBER to connect to.
        kind: what it is.
        gated: it is read only while `core.reads(name)`; asked again before each message.
        identity: of a ROUTER, by which ROUTERs that connect address it; b"": it has none.
    """

    name: str
    address: str
    kind: PortKind = PortKind.ROUTER
    gated: bool = False
    identity: bytes = b""


class Asked(NamedTuple):
    """What right somebody needs for a message, where a port has keys.

    Attributes:
        right: "call" or "serve".
        service: the service's name.
    """

    right: str
    service: str


# What callers, workers and whoever runs a service are told


@dataclass(frozen=True, slots=True)
class Answered:
    """The reply to a call; it is the last word on it."""

    token: int
    body: Frames


@dataclass(frozen=True, slots=True)
class PartlyAnswered:
    """A part of the reply to a call; more comes."""

    token: int
    body: Frames


@dataclass(frozen=True, slots=True)
class GivenUp:
    """Nobody answered a call in time.

    Attributes:
        tries: how often it was sent.
        seconds: how long that took.
        addresses: where it was sent.
    """

    token: int
    tries: int
    seconds: float
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The service refused a call; a repeat would be refused again.

    Attributes:
        code: the protocol's, such as "501".
        reason: what it means.
    """

    token: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class ShutOut:
    """A call was not made, since whoever listens there does not let this process in."""

    token: int
    reason: str


class Requested(NamedTuple):
    """A worker, or a server, has something to do; `reply` or `fail` ends it.

    Attributes:
        service: the service asked for, "" where the protocol names none.
    """

    token: int
    body: Frames
    service: str = ""


@dataclass(frozen=True, slots=True)
class Noticed:
    """Something an operator may want to know, for the log."""

    text: str
    warning: bool = False


Event = Answered | PartlyAnswered | GivenUp | Rejected | ShutOut | Requested | Noticed


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a caller waits.

    Attributes:
        try_seconds: for the answer to one try.
        tries: of one call, the first included.
    """

    try_seconds: float = 2.5
    tries: int = 3


class Core(Protocol):
    """What every pattern is to its shell. `BaseCore` has what most of them do alike."""

    counters: Counter[str]

    def start(self, now: float) -> None:
        """Begin: dial, say READY. Called once, before anything else."""

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """A message came. `peer`: from whom, at a ROUTER; b"" elsewhere. It never raises."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def timer(self) -> float | None:
        """When `tick` is to be called next; None: not now."""

    def take_sends(self) -> list[Act]:
        """What is to be done at the sockets, in order, each once."""

    def take_events(self) -> list[Event]:
        """What happened, in order, each once."""

    def reads(self, port: str) -> bool:
        """Whether a gated port is to be read now."""

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """A message was not sent: its peer is `gone`, or its queue is full."""

    def refused(self, port: str, reason: str, now: float) -> None:
        """Who listens where a port was dialled does not let us in, told each time; "": it does again."""

    def ended(self, port: str, now: float) -> None:
        """The connection of a port that was dialled has ended; ZeroMQ makes it anew, and who is there may be new."""

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """What right a message needs, where its port has keys; None: to be let in is enough. It never raises."""

    def leave(self, now: float) -> None:
        """End in order: say good-bye. What it sends then still goes out; nothing is called after it."""


class BaseCore:
    """What most cores do alike.

    Attributes:
        counters: how often what happened.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._sends: list[Act] = []
        self._events: list[Event] = []

    def start(self, now: float) -> None:
        """Begin."""

    def tick(self, now: float) -> None:
        """Do what is due."""

    def timer(self) -> float | None:
        """When `tick` is to be called next; None: not now."""
        return None

    def take_sends(self) -> list[Act]:
        """What is to be done at the sockets, in order, each once."""
        taken, self._sends = self._sends, []
        return taken

    def take_events(self) -> list[Event]:
        """What happened, in order, each once."""
        taken, self._events = self._events, []
        return taken

    def reads(self, port: str) -> bool:
        """Whether a gated port is to be read now."""
        return True

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """A message was not sent: its peer is `gone`, or its queue is full."""
        self.counters["undelivered"] += 1

    def refused(self, port: str, reason: str, now: float) -> None:
        """Who listens where a port was dialled does not let us in; "": it does again."""
        if reason:
            self.counters["refused"] += 1

    def ended(self, port: str, now: float) -> None:
        """The connection of a port that was dialled has ended; ZeroMQ makes it anew."""

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """What right a message needs, where its port has keys; None: to be let in is enough."""
        return None

    def leave(self, now: float) -> None:
        """End in order."""


class CallerCore(Core, Protocol):
    """The side that calls. Tokens are the shell's, each once; each call ends by one event, and none after `cancel`."""

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call a service. Ends by Answered, GivenUp, Rejected or ShutOut."""

    def cancel(self, token: int, now: float) -> None:
        """Nobody waits for the answer any more; nothing where the call has ended."""


class WorkerCore(Core, Protocol):
    """The side that does the work: a worker of a queue or broker, or a server. `Requested` asks for it.

    A token that is not known any more, since the queue was taken for dead meanwhile, is ignored.
    """

    def reply(self, token: int, body: Frames, now: float) -> None:
        """Answer a request."""

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Send a part of the answer; where the protocol knows none, parts are kept and go out with `reply`."""

    def fail(self, token: int, reason: str, now: float) -> None:
        """The handler failed: an error reply where the protocol has one, else none; the worker is free again."""
