"""Recognizes addresses that only this host reaches: a socket that listens there needs no keys."""

from __future__ import annotations

from typing import Final

from pubsub.base.addresses import is_loopback, split_place

_LOCAL: Final = ("inproc://", "ipc://")
_INTERFACE: Final = "lo"
"""The loopback interface; ZeroMQ accepts its name as an address."""


def reaches_out(address: str) -> bool:
    """Return whether other hosts may connect to a socket that listens there; True if that is unknown."""
    if address.startswith(_LOCAL):
        return False
    scheme, _, place = address.partition("://")
    try:
        host, _ = split_place(place.removesuffix("*") + "0" if place.endswith(":*") else place)
    except ValueError:
        return True
    return scheme != "tcp" or not (is_loopback(host) or host.lower() == _INTERFACE)
