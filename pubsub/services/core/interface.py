"""The interface between the core of a pattern and its shell.

The shell passes messages and `now`, seconds on the monotonic clock, to the core. `take_sends` returns the acts for the
sockets, in order. `take_events` returns events for the user, and `timer` the time of the next call. The core names
sockets by *ports*: those that the shell opens for it (`Port`), and DEALERs that it has the shell connect (`Dial`).

A message has at most FRAMES_MAX frames of bytes. No incoming message may raise: an invalid message of the protocol is
counted and dropped.

The rule is docs/explanation/services-engine.md, E3.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

FRAMES_MAX: Final = 64
"""Frames of one message at the sockets of services, envelope included. A longer message is dropped."""

NEVER: Final = float("inf")

Frames = tuple[bytes, ...]


# Acts at the sockets


class Send(NamedTuple):
    """Send a message.

    Attributes:
        peer: routing ID for a ROUTER; b"" at every other socket.
        frames: the frames without `peer`, at least one.
    """

    port: str
    peer: bytes
    frames: Frames


class Dial(NamedTuple):
    """Connect a new DEALER to an address. An open one with this port name is closed first, with its messages.

    Attributes:
        port: the core's name for it.
        lasting: keep one routing ID over reconnects, so that a reply finds the connection that ZeroMQ makes anew.
            Clients of RFC 10 and REQ sockets have no routing ID. False: no routing ID
            (docs/explanation/services-engine.md, E6).
    """

    port: str
    address: str
    lasting: bool = False


class HangUp(NamedTuple):
    """Close a dialled port; its unread messages are dropped."""

    port: str


Act = Send | Dial | HangUp


class PortKind(StrEnum):
    """The type of a socket that the shell opens."""

    ROUTER = "router"  # binds
    PUBLISHER = "publisher"  # binds
    SUBSCRIBER = "subscriber"  # connects, to everything


class Port(NamedTuple):
    """A socket that stays open as long as the core.

    Attributes:
        name: the core's name for it.
        address: address to listen on, or of a SUBSCRIBER to connect to.
        gated: the socket is read only while `core.reads(name)` is true, asked before each message.
        identity: routing ID of a ROUTER for ROUTERs that connect; b"": none.
    """

    name: str
    address: str
    kind: PortKind = PortKind.ROUTER
    gated: bool = False
    identity: bytes = b""


class Asked(NamedTuple):
    """The right that a message needs, if its port has keys.

    Attributes:
        right: "call" or "serve".
        service: name of the service.
    """

    right: str
    service: str


# Events for callers, workers and the shell


@dataclass(frozen=True, slots=True)
class Answered:
    """The reply to a call, or its last part."""

    token: int
    body: Frames


@dataclass(frozen=True, slots=True)
class PartlyAnswered:
    """A part of the reply to a call; more parts follow."""

    token: int
    body: Frames


@dataclass(frozen=True, slots=True)
class GivenUp:
    """No reply came in time.

    Attributes:
        tries: number of tries.
        seconds: time since the call began.
        addresses: addresses of the tries.
    """

    token: int
    tries: int
    seconds: float
    addresses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rejected:
    """The service refused a call, and would refuse it again.

    Attributes:
        code: code of the protocol, such as "501".
        reason: explanation of the code.
    """

    token: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class AccessRefused:
    """A call was not made, since the other side refuses the key of this process."""

    token: int
    reason: str


class Requested(NamedTuple):
    """A request for a worker or server. `reply` or `fail` ends it.

    Attributes:
        service: name of the called service, "" if the protocol names none.
    """

    token: int
    body: Frames
    service: str = ""


@dataclass(frozen=True, slots=True)
class Noticed:
    """A line for the operator's log."""

    text: str
    warning: bool = False


Event = Answered | PartlyAnswered | GivenUp | Rejected | AccessRefused | Requested | Noticed


@dataclass(frozen=True, slots=True)
class Patience:
    """The time limits of a caller.

    Attributes:
        try_seconds: time for the reply to one try.
        tries: tries of one call, the first included.
    """

    try_seconds: float = 2.5
    tries: int = 3


class Core(Protocol):
    """The interface of every core. `BaseCore` has the common parts."""

    counters: Counter[str]

    def start(self, now: float) -> None:
        """Begin: dial, send READY. Called once, before anything else."""

    def receive(self, port: str, peer: bytes, frames: Sequence[bytes], now: float) -> None:
        """Receive a message; `peer` is its routing ID at a ROUTER, b"" elsewhere. Never raises."""

    def tick(self, now: float) -> None:
        """Do everything that is due."""

    def timer(self) -> float | None:
        """Time of the next `tick`; None: no time is set."""

    def take_sends(self) -> list[Act]:
        """Return the acts for the sockets, in order, each once."""

    def take_events(self) -> list[Event]:
        """Return the events, in order, each once."""

    def reads(self, port: str) -> bool:
        """Return whether to read a gated port now."""

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        """Note that a message was not sent: its peer is `gone`, or its queue is full."""

    def refused(self, port: str, reason: str, now: float) -> None:
        """Note that the other side of a dialled port refuses this process, each time; "": it accepts again."""

    def ended(self, port: str, now: float) -> None:
        """Note that the connection of a dialled port has ended. ZeroMQ reconnects, perhaps to a new process."""

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        """Return the right that a message needs at a port with keys; None: any authorized key. Never raises."""

    def leave(self, now: float) -> None:
        """End in order. The goodbye messages are still sent, and nothing is called after this."""


class BaseCore:
    """The common parts of cores.

    Attributes:
        counters: number of events by name.
    """

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._sends: list[Act] = []
        self._events: list[Event] = []

    def start(self, now: float) -> None: ...

    def tick(self, now: float) -> None: ...

    def timer(self) -> float | None:
        return None

    def take_sends(self) -> list[Act]:
        taken, self._sends = self._sends, []
        return taken

    def take_events(self) -> list[Event]:
        taken, self._events = self._events, []
        return taken

    def reads(self, port: str) -> bool:
        return True

    def undelivered(self, send: Send, now: float, *, gone: bool) -> None:
        self.counters["undelivered"] += 1

    def refused(self, port: str, reason: str, now: float) -> None:
        if reason:
            self.counters["refused"] += 1

    def ended(self, port: str, now: float) -> None: ...

    def asked(self, port: str, frames: Sequence[bytes]) -> Asked | None:
        return None

    def leave(self, now: float) -> None: ...


class CallerCore(Core, Protocol):
    """The calling side. The shell uses each token once. A call ends with one event, and with none after `cancel`."""

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call a service. The call ends with Answered, GivenUp, Rejected or AccessRefused."""

    def cancel(self, token: int, now: float) -> None:
        """Withdraw a call, unless it has ended."""


class WorkerCore(Core, Protocol):
    """The working side: a worker of a queue or broker, or a server. Its requests are events `Requested`.

    An unknown token is ignored: the queue may have been counted as dead meanwhile.
    """

    def reply(self, token: int, body: Frames, now: float) -> None:
        """Answer a request."""

    def reply_part(self, token: int, body: Frames, now: float) -> None:
        """Send a part of the reply. Protocols without parts keep it until `reply`."""

    def fail(self, token: int, reason: str, now: float) -> None:
        """Report a failed handler: send an error reply if the protocol has one. The worker is free again."""
