"""The reason why an address does not answer, found by a connection attempt. ZeroMQ does not report it."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from pubsub.base.addresses import split_place

TELL_SECONDS: Final = 2.0
"""Time after which a person is told the reason."""

AGAIN_SECONDS: Final = 0.5


GREETING_BYTES: Final = 32
"""Bytes of the greeting of a ZeroMQ socket: signature, version, and security mechanism."""

SIGNATURE_BYTES: Final = 10
"""Bytes of a greeting that a ZeroMQ socket sends at once, before it receives anything."""

GREETING_SECONDS: Final = 1.0
"""Time limit for the greeting. ZeroMQ's own thread sends it, even if the process is busy."""

SHOWN_BYTES: Final = 8
"""Bytes that are shown of an answer that is not ZeroMQ's."""

_OURS: Final = b"\xff" + b"\0" * 8 + b"\x7f\x03"
"""The part of a greeting that makes the other side send all of its own, without our security mechanism."""


def rejection(address: str, seconds: float = 1.0) -> str:
    """Return the reason why no connection can be made.

    Args:
        address: an address for sockets, `tcp://host:port` or `ipc://path`.
        seconds: time limit.

    Returns:
        The system's error text, or that no ZeroMQ socket listens there; "" if one does, or if the reason is unknown.
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
            return "the process there accepts connections and sends nothing: it is stopped, or is no ZeroMQ socket"
        except OSError:  # It closed the connection, like a balancer without a process behind it or with full queues.
            return ""
    if not greeting or _is_zeromq(greeting):
        return ""
    return f"the process there is no ZeroMQ socket: it answers {_shown(greeting)}"


def mechanism(address: str, seconds: float = 1.0) -> str:
    """Return the security mechanism that a socket announces in its greeting (ZMTP, https://rfc.zeromq.org/spec/37/).

    Args:
        address: as for `obstacle`.
        seconds: time limit for the connection, and again for the greeting.

    Returns:
        "NULL" if it accepts any client, "CURVE" if it requires a key; "" if it is not ZeroMQ, or sends nothing in time.
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
    """Return the first bytes of the other side, fewer than `size` if it closes the connection. Raises OSError."""
    greeting = b""
    connection.settimeout(seconds)
    connection.sendall(_OURS)
    while len(greeting) < size and (more := connection.recv(size - len(greeting))):
        greeting += more
    return greeting


def _shown(answer: bytes) -> str:
    """Return the beginning of an answer on one line, without control characters."""
    return ascii(answer[:SHOWN_BYTES].decode("ascii", "replace"))


def _is_zeromq(greeting: bytes) -> bool:
    return len(greeting) >= SIGNATURE_BYTES and greeting[:1] == _OURS[:1] and greeting[9:10] == _OURS[9:10]


def _connect(address: str, seconds: float) -> socket.socket | None:
    """Return a connection; None if the address is of another kind. Raises OSError."""
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
    """Return a text about addresses of which none answers."""
    return "; ".join(f"{address}: {rejection(address) or 'no answer'}" for address in addresses)


@contextmanager
def telling_obstacles(addresses: Sequence[str], tell: Callable[[str], object]) -> Iterator[None]:
    """If the block takes longer than TELL_SECONDS, report once the unreachable addresses with their reasons."""
    done = threading.Event()

    def look() -> None:
        for address in addresses:
            # Try twice. A process that is just starting, or ends together with this one, is not reported.
            if (
                rejection(address)
                and not done.wait(AGAIN_SECONDS)
                and (why := rejection(address))
                and not done.is_set()
            ):
                tell(f"{address} cannot be reached: {why}; the attempts go on")

    timer = threading.Timer(TELL_SECONDS, look)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        done.set()
        timer.cancel()
