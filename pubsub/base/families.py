"""Which of IPv4 and IPv6 a host is reached by: a ZeroMQ socket speaks one of them, and is told before it connects."""

from __future__ import annotations

import socket
import threading
from typing import Final

from pubsub.base.addresses import is_ipv6, is_name, split_place

LOOKUP_SECONDS: Final = 0.5
"""Patience with the look-up of a name. One that takes longer is taken for a name of IPv4 until the next look-up."""

_UNSURE: Final = frozenset({"", "*", "localhost", "lo"})
"""Hosts that are IPv4 without a look-up: `localhost` has addresses of both kinds nearly everywhere."""

_pending: Final[set[str]] = set()
"""Names whose look-up takes longer than LOOKUP_SECONDS: it is waited for once."""


def speaks_ipv6(endpoint: str) -> bool:
    """Whether a socket reaches an endpoint by IPv6: its host is such an address, or a name that has no other.

    A name that has addresses of both kinds is reached by IPv4, as ZeroMQ tries one address of a name and no second.
    """
    scheme, _, place = endpoint.partition("://")
    if scheme != "tcp":
        return False
    try:
        host, _ = split_place(place.removesuffix("*") + "0" if place.endswith(":*") else place)
    except ValueError:
        return False
    if not is_name(host):
        return is_ipv6(host)
    return host.lower() not in _UNSURE and _only_ipv6(host)


def _only_ipv6(host: str) -> bool:
    """Whether a name has addresses of IPv6 alone; False where that is not known in time."""
    if host in _pending:
        return False
    found: list[int] = []
    done = threading.Event()

    def look_up() -> None:
        try:
            found.extend(family for family, *_ in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError):
            found.clear()
        finally:
            done.set()
            _pending.discard(host)

    _pending.add(host)
    try:
        threading.Thread(target=look_up, name=f"look-up of {host}"[:64], daemon=True).start()
    except RuntimeError:  # No more threads.
        _pending.discard(host)
        return False
    return done.wait(LOOKUP_SECONDS) and socket.AF_INET not in found and socket.AF_INET6 in found
