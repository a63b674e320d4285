"""Why nobody answers at an address: what an attempt to connect says, which ZeroMQ keeps to itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pubsub.base.addresses import split_place

TELL_SECONDS: Final = 2.0
"""After so long a person begins to wonder."""

AGAIN_SECONDS: Final = 0.5


GREETING_BYTES: Final = 32
"""Of the greeting with which a ZeroMQ socket begins: signature, version, and the mechanism by which it lets in."""

SIGNATURE_BYTES: Final = 10
"""Of a greeting: what a ZeroMQ socket says at once, before it has heard anything."""

GREETING_SECONDS: Final = 1.0
"""Patience with it: ZeroMQ's own thread says it, however busy its process is."""

SHOWN_BYTES: Final = 8
"""Of an answer that is none of ZeroMQ's."""

_OURS: Final = b"\xff" + b"\0" * 8 + b"\x7f\x03"
"""As much of a greeting as makes the other side say all of its own, and not yet how we would be let in."""


def obstacle(address: str, seconds: float = 1.0) -> str:
    """What keeps a connection from being made.

    Args:
        address: as sockets connect to it, `tcp://host:port` or `ipc://path`.
        seconds: patience.

    Returns:
        The system's own words, or that no ZeroMQ socket listens there; "" where one does, or where nobody knows.
    """
    try:
        connection = _connect(address, seconds)
    except TimeoutError:
        return f"no connection within {seconds:g} s"
    except socket.gaierror as error:
        return f"unknown host ({error.strerror})"
    except OSError as error:
        return error.strerror or str(error)
    if connection is None:
        return ""
    with connection:
        try:
            greeting = _greeting(connection, SIGNATURE_BYTES, min(seconds, GREETING_SECONDS))
        except TimeoutError:
            return "what listens there accepts connections and says nothing: it is stopped, or is no ZeroMQ socket"
        except OSError:  # It closed the connection: a balancer without a process behind it, or one that is full.
            return ""
    if not greeting or _is_zeromq(greeting):
        return ""
    return f"what listens there is no ZeroMQ socket: it answers {_shown(greeting)}"


def mechanism(address: str, seconds: float = 1.0) -> str:
    """How who listens at an address lets others in, as its greeting says (ZMTP, https://rfc.zeromq.org/spec/37/).

    Args:
        address: as for `obstacle`.
        seconds: patience, twice: for the connection, and for the greeting.

    Returns:
        "NULL" who lets everybody in, "CURVE" who asks for a key; "" who is not ZeroMQ, or says nothing in time.
    """
    try:
        if (connection := _connect(address, seconds)) is None:
            return ""
        with connection:
            greeting = _greeting(connection, GREETING_BYTES, seconds)
    except OSError:
        return ""
    if len(greeting) < GREETING_BYTES or not _is_zeromq(greeting):
        return ""
    return greeting[12:].rstrip(b"\0").decode("ascii", "replace")


def _greeting(connection: socket.socket, size: int, seconds: float) -> bytes:
    """What the other side begins with, as much of `size` bytes as it says before it closes. Raises OSError."""
    greeting = b""
    connection.settimeout(seconds)
    connection.sendall(_OURS)
    while len(greeting) < size and (more := connection.recv(size - len(greeting))):
        greeting += more
    return greeting


def _shown(answer: bytes) -> str:
    """An answer's beginning, on one line and without control characters."""
    return ascii(answer[:SHOWN_BYTES].decode("ascii", "replace"))


def _is_zeromq(greeting: bytes) -> bool:
    return len(greeting) >= SIGNATURE_BYTES and greeting[:1] == _OURS[:1] and greeting[9:10] == _OURS[9:10]


def _connect(address: str, seconds: float) -> socket.socket | None:
    """A connection; None where the address is of another kind. Raises OSError."""
    scheme, _, place = address.partition("://")
    if scheme == "tcp":
        try:
            where = split_place(place)
        except ValueError:
            return None
        return socket.create_connection(where, seconds)
    if scheme == "ipc":
        local = socket.socket(socket.AF_UNIX)
        try:
            local.settimeout(seconds)
            local.connect("\0" + place[1:] if place.startswith("@") else place)
        except OSError:
            local.close()
            raise
        return local
    return None


def obstacles(addresses: Sequence[str]) -> str:
    """What to say of addresses of which none answers."""
    return "; ".join(f"{address}: {obstacle(address) or 'no answer'}" for address in addresses)


@contextmanager
def telling_obstacles(addresses: Sequence[str], tell: Callable[[str], object]) -> Iterator[None]:
    """Where the block takes longer than TELL_SECONDS, tell once which of the addresses cannot be reached, and why."""
    done = threading.Event()

    def look() -> None:
        for address in addresses:
            # Asked twice: who is just being started, or ends together with us, is no news.
            if obstacle(address) and not done.wait(AGAIN_SECONDS) and (why := obstacle(address)) and not done.is_set():
                tell(f"{address} cannot be reached: {why}; it is tried again and again")

    timer = threading.Timer(TELL_SECONDS, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        done.set()
        timer.cancel()
