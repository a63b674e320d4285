"""The address on which a server listens; a port chosen by the system stays the same at the next start."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import zmq

from pubsub.errors import ConfigurationError, StoreFull
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.storage.local import keep_port, kept_port
from pubsub.server.storage.store import Store

Bound = Callable[[str], tuple[zmq.Socket[bytes], str]]
"""Binds to an address; returns the socket, and the address with its port."""


def listen(bind: str, bound: Bound, store: Store | None, local: LocalFile) -> tuple[zmq.Socket[bytes], str]:
    """Bind to an address; if the system chooses the port, prefer the port of the last start if it is free.

    A server that was giving a topic to this one when this one died knows no other address to continue with.

    Args:
        bound: binds to an address.
        store: keeps the port of a server without a standby. None: `local` keeps the member's port.
    """
    if not bind.startswith("tcp://") or bind[-2:] not in {":0", ":*"}:
        return bound(bind)
    before = kept_port(store) if store is not None else local.local.port or None if local.local is not None else None
    if before is not None:
        with contextlib.suppress(ConfigurationError):
            return bound(f"{bind[:-1]}{before}")
    listener, address = bound(bind)
    try:
        port = int(address.rpartition(":")[2])
        if store is not None:
            keep_port(store, port)
        else:
            with contextlib.suppress(StoreFull):  # As in `keep_port`.
                local.keep(port=port)
    except BaseException:
        listener.close(0)
        raise
    return listener, address
