"""Which addresses only this host reaches: a socket that listens there needs no keys to be its owner's."""

from __future__ import annotations

from typing import Final

from pubsub.base.addresses import is_loopback, split_place

_LOCAL: Final = ("inproc://", "ipc://")
_INTERFACE: Final = "lo"
"""The loopback interface, by which ZeroMQ knows it too."""


def reaches_out(address: str) -> bool:
    """Whether others than this host may connect to a socket that listens there; of what is not known, yes."""
    if address.startswith(_LOCAL):
        return False
    scheme, _, place = address.partition("://")
    try:
        host, _ = split_place(place.removesuffix("*") + "0" if place.endswith(":*") else place)
    except ValueError:
        return True
    return scheme != "tcp" or not (is_loopback(host) or host.lower() == _INTERFACE)
