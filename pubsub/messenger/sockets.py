"""ZeroMQ sockets with the options that the whole service needs, set in one place.

Every ROUTER hands over: without that a peer that reconnects behind a half-open link is ignored for ever, while it
believes to be connected. Every ROUTER is mandatory-routed, because one that is not drops silently; what cannot be
routed is reported per message. Nothing lingers: reliability is end to end, never in a socket's queue.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import MutableMapping, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

import zmq
from zmq import backend

from pubsub.base.families import speaks_ipv6
from pubsub.base.limits import BODY_BYTES_MAX, HEADER_LENGTH_MAX
from pubsub.base.open_files import check_files
from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveClient, CurveServer, lock_dealer, lock_router

HIGH_WATER_MARK: Final = 10_000
"""Messages that a socket queues in each direction per peer. Windows of clients and servers stay below it."""

BACKLOG: Final = 1_024
"""TCP connections that wait to be accepted by a socket that is bound."""

HANDSHAKE_SECONDS: Final = 5.0
"""Whoever connects and has not said in this time that it is ZeroMQ is disconnected."""

SILENT_SECONDS: Final = 30.0
"""Whoever is connected to a socket that is bound, and for so long takes nothing of what is sent, or has no host any
more, is disconnected; and so is who said that it would send ZeroMQ's own pings and does not, as `make_dealer` does."""

KEEPALIVE_PROBES: Final = 2
"""TCP asks a connection on which nothing was said so many times whether its host is still there."""

RECONNECT_MS: Final = 50
"""Between two tries to connect, at first; it doubles up to RECONNECT_MS_MAX."""

RECONNECT_MS_MAX: Final = 1_000

FRAMES_MAX: Final = 8
"""Frames of one message; one with more is dropped."""

ROUTING_ID_BYTES: Final = 16

ROUTING_ID_LEAD: Final = b"P"
"""What our routing IDs begin with. A zero byte is ZeroMQ's own, and 1 to 6 are commands (READY …) of the protocols in
the ZeroMQ Guide: its C queues take a client's routing ID that begins with such a byte for the command."""

Frames = list[bytes | memoryview]


def _open(context: zmq.Context[Any], kind: int, endpoint: str) -> zmq.Socket[bytes]:
    check_files()
    try:
        sock: zmq.Socket[bytes] = context.socket(kind)
    except zmq.ZMQError as error:  # The process, or the context, has as many as it may.
        raise ConfigurationError(f"no socket for {endpoint!r}: {error}") from None
    sock.linger = 0
    sock.ipv6 = speaks_ipv6(endpoint)
    sock.copy_threshold = COPY_BYTES_MAX
    sock.sndhwm = sock.rcvhwm = HIGH_WATER_MARK
    sock.maxmsgsize = BODY_BYTES_MAX + HEADER_LENGTH_MAX
    sock.setsockopt(zmq.HANDSHAKE_IVL, int(HANDSHAKE_SECONDS * 1000))
    probe = max(1, int(SILENT_SECONDS / (KEEPALIVE_PROBES + 1)))
    for option, value in (
        (zmq.TCP_KEEPALIVE, 1),
        (zmq.TCP_KEEPALIVE_IDLE, probe),
        (zmq.TCP_KEEPALIVE_INTVL, probe),
        (zmq.TCP_KEEPALIVE_CNT, KEEPALIVE_PROBES),
    ):
        sock.setsockopt(option, value)
    return sock


_bound: Final[WeakKeyDictionary[zmq.Context[Any], set[str]]] = WeakKeyDictionary()
"""The `inproc://` addresses that were bound in each context."""


def other_context(endpoint: str) -> str:
    """What to tell who connects to an `inproc://` address from another context than that in which it is."""
    return (
        f"{endpoint} exists only in the ZeroMQ context in which it was opened: share that (context=…); "
        "of an embedded cluster, cluster.client(name) makes clients that do"
    )


def open_router(
    context: zmq.Context[Any],
    endpoint: str,
    *,
    received_max: int = HIGH_WATER_MARK,
    curve: CurveServer | None = None,
    identity: bytes = b"",
) -> tuple[zmq.Socket[bytes], str]:
    """A ROUTER bound to `endpoint`.

    Args:
        context: to make it in.
        endpoint: to bind to.
        received_max: messages of one peer that wait to be taken; no more is read from it meanwhile.
        curve: newcomers prove who they are; None: anybody enters.
        identity: by which other ROUTERs address it, where they connect; b"": it has none.

    Returns:
        The socket and the endpoint it is bound to, with the port filled in where `endpoint` ends in `:0` or `:*`.

    Raises:
        ConfigurationError: the address is in use or is not one.
    """
    sock = _open(context, zmq.ROUTER, endpoint)
    sock.rcvhwm = received_max
    if identity:
        sock.setsockopt(zmq.ROUTING_ID, identity)
    sock.setsockopt(zmq.ROUTER_HANDOVER, 1)
    sock.setsockopt(zmq.ROUTER_MANDATORY, 1)
    return _bind(context, sock, endpoint, curve)


def open_publisher(
    context: zmq.Context[Any], endpoint: str, *, curve: CurveServer | None = None
) -> tuple[zmq.Socket[bytes], str]:
    """A PUB bound to `endpoint`; what a subscriber takes too slowly is lost to it. As `open_router`."""
    return _bind(context, _open(context, zmq.PUB, endpoint), endpoint, curve)


def _bind(
    context: zmq.Context[Any], sock: zmq.Socket[bytes], endpoint: str, curve: CurveServer | None
) -> tuple[zmq.Socket[bytes], str]:
    sock.backlog = BACKLOG
    # Who speaks a protocol from before version 3 is not told from one who speaks none (an HTTP request is such a
    # message), and is never pinged. With a domain ZeroMQ refuses them; nobody is asked for a password.
    sock.zap_domain = b"pubsub"
    # No pings of its own: libzmq 4.3.5 aborts the process (`!_io_error`) where it is to ping a connection that ended
    # while nothing was read from it for lack of room (github.com/zeromq/libzmq/issues/4841).
    sock.setsockopt(zmq.TCP_MAXRT, int(SILENT_SECONDS * 1000))
    lock_router(sock, endpoint, curve)
    try:
        sock.bind(endpoint[:-1] + "*" if endpoint.startswith("tcp://") and endpoint.endswith(":0") else endpoint)
    except zmq.ZMQError as error:
        sock.close(0)
        reason = "is in use by another process" if error.errno == zmq.EADDRINUSE else f"cannot be bound: {error}"
        raise ConfigurationError(f"address {endpoint} {reason}") from None
    if endpoint.startswith("inproc://"):
        _bound.setdefault(context, set()).add(endpoint)
    bound = sock.getsockopt(zmq.LAST_ENDPOINT)
    return sock, bound.decode().rstrip("\0") if isinstance(bound, bytes) else endpoint


def open_dealer(
    context: zmq.Context[Any],
    endpoint: str,
    *,
    heartbeat_seconds: float = 0.0,
    curve: CurveClient | None = None,
    turn: int = 0,
) -> zmq.Socket[bytes]:
    """A DEALER that connects to `endpoint`, under a fresh random routing ID, and reconnects with back-off.

    Args:
        context: to make it in.
        endpoint: to connect to.
        heartbeat_seconds: between ZeroMQ's own pings; a connection that is silent for three of them is made anew. 0:
            none, where the messages themselves carry heartbeats.
        curve: it proves who it is, and expects the other side to; None: neither.
        turn: which of the keys that it may expect.

    Raises:
        ConfigurationError: `endpoint` is not an address, or is an `inproc://` one of another context.
    """
    sock = make_dealer(context, endpoint, heartbeat_seconds)
    lock_dealer(sock, endpoint, curve, turn)
    connect(sock, endpoint)
    return sock


def open_subscriber(
    context: zmq.Context[Any], endpoint: str, *, curve: CurveClient | None = None, turn: int = 0
) -> zmq.Socket[bytes]:
    """A SUB that connects to `endpoint` and takes all that is published there. As `open_dealer`."""
    sock = _open(context, zmq.SUB, endpoint)
    sock.setsockopt(zmq.SUBSCRIBE, b"")
    sock.reconnect_ivl = RECONNECT_MS
    sock.reconnect_ivl_max = RECONNECT_MS_MAX
    lock_dealer(sock, endpoint, curve, turn)
    connect(sock, endpoint)
    return sock


def make_dealer(
    context: zmq.Context[Any], endpoint: str, heartbeat_seconds: float, *, identified: bool = True
) -> zmq.Socket[bytes]:
    """A DEALER that is to be connected to `endpoint`; see `open_dealer`.

    Args:
        context, endpoint, heartbeat_seconds: as of `open_dealer`.
        identified: it has a routing ID of its own, which a connection that is made anew keeps; False: the other side
            gives each connection one.

    Raises:
        ConfigurationError: `endpoint` is an `inproc://` address of another context.
    """
    contexts = [one for one, names in tuple(_bound.items()) if endpoint in names and not one.closed]
    if contexts and context not in contexts:
        raise ConfigurationError(other_context(endpoint))
    sock = _open(context, zmq.DEALER, endpoint)
    if identified:
        random = secrets.token_bytes(ROUTING_ID_BYTES - len(ROUTING_ID_LEAD))
        sock.setsockopt(zmq.ROUTING_ID, ROUTING_ID_LEAD + random)
    if heartbeat_seconds:
        sock.setsockopt(zmq.HEARTBEAT_IVL, int(heartbeat_seconds * 1000))
        sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, int(heartbeat_seconds * 3000))
        sock.setsockopt(zmq.HEARTBEAT_TTL, int(max(SILENT_SECONDS, 3 * heartbeat_seconds) * 1000))
        # So that it is always read: else its pings could abort the process (`open_router`). Only answers come.
        sock.rcvhwm = 0
    sock.reconnect_ivl = RECONNECT_MS
    sock.reconnect_ivl_max = RECONNECT_MS_MAX
    return sock


def connect(sock: zmq.Socket[bytes], endpoint: str) -> None:
    """Connect a DEALER; where that cannot be, it is closed.

    Raises:
        ConfigurationError: `endpoint` is not an address.
    """
    try:
        sock.connect(endpoint)
    except zmq.ZMQError as error:
        sock.close(0)
        raise ConfigurationError(f"cannot connect to {endpoint!r}: {error}") from None


def receive(sock: zmq.Socket[bytes], copy_below: int = 4096) -> Frames | None:
    """The frames of the next message, or None where none is waiting.

    Small frames are copied, which is cheaper; large ones are handed on as they lie in the message.
    """
    if not _raw_get(sock, _EVENTS) & _POLLIN:
        return None
    frames: Frames = []
    try:
        # The first two are an envelope and a head: to copy them at once is cheaper than to ask how large they are.
        while len(frames) < 2:
            frames.append(_raw_receive(sock, _NOBLOCK))
            if not _raw_get(sock, _RCVMORE):
                return frames
        more = True
        while more:
            frame = _raw_receive(sock, _NOBLOCK, False)
            frames.append(frame.bytes if len(frame) <= copy_below else frame.buffer)
            more = frame.more
    except zmq.Again:
        return None
    return frames


def send(sock: zmq.Socket[bytes], frames: Sequence[bytes | memoryview | zmq.Frame]) -> bool:
    """Send one message without waiting; False where the peer is gone or its queue is at the high-water mark."""
    try:
        for frame in frames[:-1]:
            _raw_send(sock, frame, _MORE, len(frame) <= COPY_BYTES_MAX)
        _raw_send(sock, frames[-1], _NOBLOCK, len(frames[-1]) <= COPY_BYTES_MAX)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno == zmq.EHOSTUNREACH:
            return False
        raise
    return True


COPY_BYTES_MAX: Final = 16 * 1024
"""Frames of at most so many bytes are copied, which is cheaper than to share them."""

_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS: Final = int(zmq.EVENTS)
_RCVMORE: Final = int(zmq.RCVMORE)
_POLLIN: Final = int(zmq.POLLIN)
_raw_send: Final[Any] = backend.Socket.send
_raw_receive: Final[Any] = backend.Socket.recv
_raw_get: Final[Any] = backend.Socket.get


def receive_frames(sock: zmq.Socket[bytes], *, known: bool = False) -> Frames | None:
    """The frames of the next message, or None where none is waiting: `receive` by ZeroMQ's raw calls.

    Args:
        sock: the socket.
        known: a poll said that one is waiting. Where it is not known the socket is asked first, since to find out by
            the exception costs three times as much.

    Returns:
        The frames, small ones copied; [] for a message of more than FRAMES_MAX.
    """
    if not known and not _raw_get(sock, _EVENTS) & 1:
        return None
    try:
        frames: Frames = [_raw_receive(sock, _NOBLOCK)]
    except zmq.Again:
        return None
    more = _raw_get(sock, _RCVMORE)
    while more:
        frame = _raw_receive(sock, _NOBLOCK, False)
        if len(frames) <= FRAMES_MAX:
            frames.append(frame.bytes if len(frame) <= COPY_BYTES_MAX else frame.buffer)
        more = frame.more
    return frames if len(frames) <= FRAMES_MAX else []


def send_frames(sock: zmq.Socket[bytes], routing: bytes, head: bytes, parts: Sequence[bytes | memoryview]) -> bool:
    """Send one message without waiting, by ZeroMQ's raw calls.

    Args:
        sock: the socket.
        routing: whom a ROUTER sends to; b"" on a DEALER.
        head, parts: the frames.

    Returns:
        False where the peer is gone, its queue is at the high-water mark, or the context is.
    """
    try:
        if routing:
            _raw_send(sock, routing, _MORE)
        if not parts:
            _raw_send(sock, head, _NOBLOCK, len(head) <= COPY_BYTES_MAX)
            return True
        _raw_send(sock, head, _MORE, len(head) <= COPY_BYTES_MAX)
        for part in parts[:-1]:
            _raw_send(sock, part, _MORE, len(part) <= COPY_BYTES_MAX)
        _raw_send(sock, parts[-1], _NOBLOCK, len(parts[-1]) <= COPY_BYTES_MAX)
    except zmq.Again:
        return False
    except zmq.ZMQError as error:
        if error.errno in {zmq.EHOSTUNREACH, zmq.ETERM}:
            return False
        raise
    return True


def watch(context: zmq.Context[Any], sock: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    """What tells of a socket's connections: a message an event, whose number its first two bytes are."""
    endpoint = f"inproc://watch-{secrets.token_hex(8)}"
    sock.monitor(endpoint, events)
    watching: zmq.Socket[bytes] = context.socket(zmq.PAIR)
    watching.linger = 0
    watching.rcvhwm = 0  # ZeroMQ's own thread waits where there is no room.
    watching.connect(endpoint)
    return watching


class Connections:
    """Counts the connections to a socket that is bound: those it accepted, those that turned out to be ZeroMQ, and
    those that ended. Who sends nothing, or something else, is accepted and ends; it is never ZeroMQ.

    Args:
        context: the socket's.
        sock: the socket.
        counters: where it is counted.
        names: of the three counters.
        failed: of the counter of handshakes that failed for another reason than that somebody is not let in; "": they
            are not counted.

    Attributes:
        sock: to be polled for reading; `take` then counts.
    """

    def __init__(
        self,
        context: zmq.Context[Any],
        sock: zmq.Socket[bytes],
        counters: MutableMapping[str, int],
        names: tuple[str, str, str],
        failed: str = "",
    ) -> None:
        self._watched, self._counters = sock, counters
        self._names = dict(zip(_CONNECTION_EVENTS, names, strict=True))
        if failed:
            self._names |= dict.fromkeys(_FAILED_EVENTS, failed)
        self.sock = watch(context, sock, sum(self._names))

    def take(self) -> None:
        """Count what was noted since the last time; a part of it, where that is much."""
        for _ in range(EVENTS_MAX):
            try:
                event = self.sock.recv_multipart(zmq.NOBLOCK)[0]
            except zmq.Again:
                return
            name = self._names.get(struct.unpack("=hi", event)[0])
            if name is not None:
                self._counters[name] = self._counters.get(name, 0) + 1

    def close(self) -> None:
        """Count no more."""
        self._watched.disable_monitor()
        self.sock.close(0)


EVENTS_MAX: Final = 1_000
"""Events of connections that are counted before messages have their turn."""

_CONNECTION_EVENTS: Final = (int(zmq.EVENT_ACCEPTED), int(zmq.EVENT_HANDSHAKE_SUCCEEDED), int(zmq.EVENT_DISCONNECTED))

_FAILED_EVENTS: Final = (int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL), int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL))
