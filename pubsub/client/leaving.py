"""Clients and publishers that nobody closes: said as a ResourceWarning, and nothing that was put is lost by it.

A client that is collected is closed, so that its state is free for the next one. One that is still there when the
program ends keeps what it has until the process is gone; only the open batches of its publishers are put into the
outbox, from where they go out at the next start.
"""

from __future__ import annotations

import atexit
import logging
import sys
import warnings
from contextlib import suppress
from threading import Thread
from typing import Final
from weakref import WeakSet

from pubsub.client.flows.calls import Calls
from pubsub.client.mending import mend
from pubsub.errors import PubsubError

LOCK_SECONDS: Final = 1.0
"""At the program's end a client is waited for so long that another thread is busy with."""

_open: Final[WeakSet[Calls]] = WeakSet()
_log: Final = logging.getLogger("pubsub.client")


def opened(calls: Calls) -> None:
    """A client was opened: it is looked after at the program's end."""
    _open.add(calls)


def collected(calls: Calls | None) -> None:
    """A client is collected. Where it is not closed, say so and close it."""
    if calls is None or calls.session.closed or sys.is_finalizing():
        return
    session = calls.session
    try:
        _warn(session.name, calls)
    finally:
        if session.busy_here:  # The garbage collection strikes anywhere, within a commit of this very client too.
            Thread(target=_close, args=(calls,), name=f"close {session.name}", daemon=True).start()
        else:
            _close(calls)


def _warn(name: str, source: object) -> None:
    message = f"client {name} was not closed: use it in a with block, or call close()"
    warnings.warn(message, ResourceWarning, stacklevel=3, source=source)


def _close(calls: Calls) -> None:
    try:
        calls.close(0.0)
    except PubsubError as error:
        _log.warning("client %s: %s", calls.session.name, error)


def _at_exit() -> None:
    for calls in tuple(_open):
        session = calls.session
        if session.closed:
            continue
        # With -W error the warning is raised, and no caller is left who could catch it.
        with suppress(ResourceWarning):
            _warn(session.name, calls)
        if not session.lock.acquire(timeout=LOCK_SECONDS):
            _log.warning("client %s: it is in use, and what its publishers hold is not put", session.name)
            continue
        session.lock.release()
        if session.closed:
            continue
        if session.cut_off():
            mend(session)
        calls.close_batches()


atexit.register(_at_exit)
