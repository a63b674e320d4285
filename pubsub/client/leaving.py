"""Close clients and publishers that the application did not close, with a ResourceWarning; no put message is lost.

A client that is garbage-collected is closed, so that its state is free for the next one. A client that still exists at
the end of the program keeps its state open until the process ends. Only the open batches of its publishers go to the
outbox, and are sent at the next start.
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
from pubsub.client.repair import repair
from pubsub.errors import PubsubError

LOCK_SECONDS: Final = 1.0
"""Longest wait, at the end of the program, for a client in use by another thread."""

_open: Final[WeakSet[Calls]] = WeakSet()
_log: Final = logging.getLogger("pubsub.client")


def opened(calls: Calls) -> None:
    """Register an opened client for the end of the program."""
    _open.add(calls)


def collected(calls: Calls | None) -> None:
    """Warn about a collected client that is not closed, and close it."""
    if calls is None or calls.session.closed or sys.is_finalizing():
        return
    session = calls.session
    try:
        _warn(session.name, calls)
    finally:
        if session.busy_here:  # Garbage collection may run at any point, also within a commit of this client.
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
        # With -W error the warning is raised, and no caller is left to catch it.
        with suppress(ResourceWarning):
            _warn(session.name, calls)
        if not session.lock.acquire(timeout=LOCK_SECONDS):
            _log.warning("client %s is in use at exit: messages in its publishers' open batches are lost", session.name)
            continue
        session.lock.release()
        if session.closed:
            continue
        if session.cut_off():
            repair(session)
        calls.close_batches()


atexit.register(_at_exit)
