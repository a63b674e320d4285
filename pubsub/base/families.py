"""The choice between IPv4 and IPv6 for a host: a ZeroMQ socket uses one of them, set before it connects."""

from __future__ import annotations

import socket
import threading
from typing import Final

from pubsub.base.addresses import is_ipv6, is_name, split_place
from pubsub.base.threads import start_thread

LOOKUP_SECONDS: Final = 0.5
"""Time limit for the look-up of a name. A slower name counts as IPv4 until the next look-up."""

_UNSURE: Final = frozenset({"", "*", "localhost", "lo"})
"""Hosts that are IPv4 without a look-up: `localhost` has addresses of both kinds nearly everywhere."""

_pending: Final[set[str]] = set()
"""Names with a look-up that takes longer than LOOKUP_SECONDS. No second look-up is started for them."""


def speaks_ipv6(endpoint: str) -> bool:
    """Return whether a socket reaches an endpoint by IPv6: the host is such an address, or a name with no other.

    A name with addresses of both kinds is reached by IPv4, because ZeroMQ tries only one address of a name.
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
    """Return whether a name has only IPv6 addresses; False if the look-up takes too long."""
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
    if not start_thread(threading.Thread(target=look_up, name=f"look-up of {host}"[:64], daemon=True)):
        _pending.discard(host)
        return False
    return done.wait(LOOKUP_SECONDS) and socket.AF_INET not in found and socket.AF_INET6 in found
