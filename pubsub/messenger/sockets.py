"""ZeroMQ sockets with the options that the whole service needs, set in one place.

* Every ROUTER uses ROUTER_HANDOVER. Without it, a peer that reconnects behind a half-open connection is ignored
  permanently, although it believes that it is connected.
* Every ROUTER uses ROUTER_MANDATORY. Without it, a ROUTER drops messages silently; with it, each message without a
  route is reported.
* No socket lingers at close, because reliability is end to end and never in a socket's queue.
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
"""Messages that a socket queues per peer and direction. The windows of clients and servers stay below it."""

BACKLOG: Final = 1_024
"""TCP connections that may wait to be accepted by a listening socket."""

HANDSHAKE_SECONDS: Final = 5.0
"""Time for a new connection to complete ZeroMQ's greeting; after it the connection is closed."""

SILENT_SECONDS: Final = 30.0
"""Time after which a listening socket closes a dead connection. A connection counts as dead if the peer accepts no
data, or if its host is gone. It also counts as dead if the peer announced ZeroMQ's own pings, as `make_dealer` does,
and sends none.
"""

KEEPALIVE_PROBES: Final = 2
"""TCP keep-alive probes on a silent connection before it counts as dead."""

RECONNECT_MS: Final = 50
"""Milliseconds before the first reconnection; the delay doubles up to RECONNECT_MS_MAX."""

RECONNECT_MS_MAX: Final = 1_000

FRAMES_MAX: Final = 8
"""Frames of one message; a message with more is dropped."""

ROUTING_ID_BYTES: Final = 16

ROUTING_ID_LEAD: Final = b"P"
"""First byte of our routing IDs. ZeroMQ reserves a zero byte. The bytes 1 to 6 are commands (READY …) in the protocols
of the ZeroMQ Guide. The Guide's C queues take a routing ID that begins with such a byte for a command.
"""

Frames = list[bytes | memoryview]


def _open(context: zmq.Context[Any], kind: int, endpoint: str) -> zmq.Socket[bytes]:
    check_files()
    try:
        sock: zmq.Socket[bytes] = context.socket(kind)
    except zmq.ZMQError as error:  # The process or the context has reached its limit of sockets.
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
"""Context -> the `inproc://` addresses that were bound in it."""


def other_context(endpoint: str) -> str:
    """Return the error text for a connection to an `inproc://` address of another context."""
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
    """Open a ROUTER bound to `endpoint`.

    Args:
        endpoint: address to bind to.
        received_max: unread messages of one peer after which no more are read from it.
        curve: require keys from clients; None accepts any client.
        identity: routing ID by which other ROUTERs address this socket; b"" for none.

    Returns:
        The socket and its endpoint, with the real port if `endpoint` ends in `:0` or `:*`.

    Raises:
        ConfigurationError: the address is in use or not valid.
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
    """Open a PUB bound to `endpoint`, as `open_router`. A slow subscriber loses messages."""
    return _bind(context, _open(context, zmq.PUB, endpoint), endpoint, curve)


def _bind(
    context: zmq.Context[Any], sock: zmq.Socket[bytes], endpoint: str, curve: CurveServer | None
) -> tuple[zmq.Socket[bytes], str]:
    sock.backlog = BACKLOG
    # ZeroMQ cannot tell a peer with a protocol before version 3 from a peer with another protocol: an HTTP request
    # looks like such a message. Such a peer is never pinged. With a domain ZeroMQ refuses it; no password is asked.
    sock.zap_domain = b"pubsub"
    # This socket sends no pings. libzmq 4.3.5 aborts the process (`!_io_error`) when it pings a connection that ended
    # while its queue was full and nothing was read from it (github.com/zeromq/libzmq/issues/4841).
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
    """Open a DEALER that connects to `endpoint` under a new random routing ID, and reconnects with back-off.

    Args:
        endpoint: address to connect to.
        heartbeat_seconds: interval of ZeroMQ's own pings; after three intervals of silence the connection is made
            again. 0 sends none, for messages that carry heartbeats themselves.
        curve: prove our identity and check the other side's; None does neither.
        turn: index of the expected key.

    Raises:
        ConfigurationError: `endpoint` is not an address, or is an `inproc://` address of another context.
    """
    sock = make_dealer(context, endpoint, heartbeat_seconds)
    lock_dealer(sock, endpoint, curve, turn)
    connect(sock, endpoint)
    return sock


def open_subscriber(
    context: zmq.Context[Any], endpoint: str, *, curve: CurveClient | None = None, turn: int = 0
) -> zmq.Socket[bytes]:
    """Open a SUB that connects to `endpoint`, as `open_dealer`, and receives everything published there."""
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
    """Make a DEALER for `endpoint` without connecting it; see `open_dealer`.

    Args:
        identified: keep one routing ID over reconnections. With False the other side gives each connection a new one.

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
        # Always read this socket; otherwise its pings could abort the process (`open_router`). It gets answers only.
        sock.rcvhwm = 0
    sock.reconnect_ivl = RECONNECT_MS
    sock.reconnect_ivl_max = RECONNECT_MS_MAX
    return sock


def connect(sock: zmq.Socket[bytes], endpoint: str) -> None:
    """Connect a DEALER; close it if that fails.

    Raises:
        ConfigurationError: `endpoint` is not an address.
    """
    try:
        sock.connect(endpoint)
    except zmq.ZMQError as error:
        sock.close(0)
        raise ConfigurationError(f"cannot connect to {endpoint!r}: {error}") from None


def receive(sock: zmq.Socket[bytes], copy_below: int = 4096) -> Frames | None:
    """Return the frames of the next message, or None if none is waiting.

    Small frames are copied, which is cheaper; large ones are returned as views of the message.
    """
    if not _raw_get(sock, _EVENTS) & _POLLIN:
        return None
    frames: Frames = []
    try:
        # The first two frames are an envelope and a head. Copying them is cheaper than asking for their size.
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
    """Send one message without waiting; False if the peer is gone or its queue is full."""
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
"""Frames up to this size are copied, which is cheaper than sharing them."""

_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)
_EVENTS: Final = int(zmq.EVENTS)
_RCVMORE: Final = int(zmq.RCVMORE)
_POLLIN: Final = int(zmq.POLLIN)
_raw_send: Final[Any] = backend.Socket.send
_raw_receive: Final[Any] = backend.Socket.recv
_raw_get: Final[Any] = backend.Socket.get


def receive_frames(sock: zmq.Socket[bytes], *, known: bool = False) -> Frames | None:
    """Return the frames of the next message, or None if none is waiting: `receive` by ZeroMQ's raw calls.

    Args:
        known: a poll reported a message. If not known, ask the socket first, because the exception of an empty socket
            costs three times as much.

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
        routing: the receiver's routing ID on a ROUTER; b"" on a DEALER.
        head, parts: the frames.

    Returns:
        False if the peer is gone, its queue is full, or the context has ended.
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
    """Return a monitor socket: each event of `sock`'s connections is a message, and its first two bytes are the
    event's number.
    """
    endpoint = f"inproc://watch-{secrets.token_hex(8)}"
    sock.monitor(endpoint, events)
    watching: zmq.Socket[bytes] = context.socket(zmq.PAIR)
    watching.linger = 0
    watching.rcvhwm = 0  # ZeroMQ's own thread would wait if this queue were full.
    watching.connect(endpoint)
    return watching


class Connections:
    """Counts the connections to a listening socket: accepted ones, those that completed ZeroMQ's handshake, and ended
    ones.

    A peer that sends nothing, or another protocol, is counted as accepted and ended only.

    Args:
        sock: the listening socket.
        counters: counts by name.
        names: names of the three counts.
        failed: name of the count of handshakes that failed for another reason than a refused key; "" counts none.

    Attributes:
        sock: the monitor to poll for reading; `take` then counts.
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
        """Count the waiting events, at most EVENTS_MAX."""
        for _ in range(EVENTS_MAX):
            try:
                event = self.sock.recv_multipart(zmq.NOBLOCK)[0]
            except zmq.Again:
                return
            name = self._names.get(struct.unpack("=hi", event)[0])
            if name is not None:
                self._counters[name] = self._counters.get(name, 0) + 1

    def close(self) -> None:
        """Stop counting."""
        self._watched.disable_monitor()
        self.sock.close(0)


EVENTS_MAX: Final = 1_000
"""Connection events that are counted in one turn before messages are handled."""

_CONNECTION_EVENTS: Final = (int(zmq.EVENT_ACCEPTED), int(zmq.EVENT_HANDSHAKE_SUCCEEDED), int(zmq.EVENT_DISCONNECTED))

_FAILED_EVENTS: Final = (int(zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL), int(zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL))
