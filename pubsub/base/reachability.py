"""Why nobody answers at an address: what an attempt to connect says, which ZeroMQ keeps to itself."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

TELL_SECONDS: Final = 2.0
"""After so long a person begins to wonder."""

AGAIN_SECONDS: Final = 0.5


def obstacle(address: str, seconds: float = 1.0) -> str:
    """What keeps a connection from being made.

    Args:
        address: as sockets connect to it, `tcp://host:port` or `ipc://path`.
        seconds: patience.

    Returns:
        The system's own words; "" where somebody listens there, or where that cannot be known.
    """
    scheme, _, place = address.partition("://")
    host, _, port = place.rpartition(":")
    try:
        if scheme == "tcp":
            socket.create_connection((host.strip("[]"), int(port)), seconds).close()
        elif scheme == "ipc":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(seconds)
                probe.connect("\0" + place[1:] if place.startswith("@") else place)
    except TimeoutError:
        return f"no connection within {seconds:g} s"
    except OSError as error:
        return error.strerror or str(error)
    return ""


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
