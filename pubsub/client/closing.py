"""The end of a session in good order: what was taken is acknowledged, and then everything is released."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pubsub.client.core.changes import Tried
from pubsub.client.core.subscription import Subscription
from pubsub.client.session import Session
from pubsub.errors import Interrupted, StorageError
from pubsub.protocol import Position

_log: Final = logging.getLogger("pubsub.client")


def close(session: Session, acknowledge_seconds: float, give_back: Callable[[], None]) -> None:
    """Fsync, acknowledge what was taken, and release everything; what is unfinished is kept.

    Args:
        session: which one.
        acknowledge_seconds: how long the last acknowledgements may take.
        give_back: commits that what was taken and not handed out is for the next start.

    Raises:
        StorageError: the last commit failed; everything is released all the same.
    """
    try:
        with suppress(Interrupted):
            if not session.over:
                _take_leave(session, acknowledge_seconds)
                _shut(session, give_back)
    finally:
        session.release()


def _take_leave(session: Session, acknowledge_seconds: float) -> None:
    flying: list[Subscription] = []
    with session.entered():
        try:
            session.forget_told(list(session.core.subscriptions.values()), fsync=True)
            flying = session.core.acknowledge(session.now)
            session.send()
        except StorageError as error:
            _log.warning("client %s: %s", session.name, error)
    if flying:
        session.wait(lambda: not any(sub.deadline is not None for sub in flying), session.now + acknowledge_seconds)


def _shut(session: Session, give_back: Callable[[], None]) -> None:
    """Let nobody in any more. Until now other calls went on: what they have in hand is for the next start too."""
    with session.lock:
        if session.over:
            return
        try:
            with session.entered():
                _uncount(session)
        except StorageError as error:
            _log.warning("client %s: %s", session.name, error)
        try:
            give_back()
        finally:
            session.closed = True


def _uncount(session: Session) -> None:
    """Attempts that were counted with the message before, or that this close ends, do not count. The lock is held."""
    found: list[tuple[Subscription, Position]] = []
    for sub in session.core.subscriptions.values():
        cursor = sub.cursor
        unmade = cursor.counted_ahead or sub.busy is not None  # A handler that awaits comes to nothing any more.
        log, offset = cursor.tried if unmade and cursor.attempts and cursor.tried is not None else (None, None)
        if log is not None and offset is not None:
            found.append((sub, (log, offset)))
    if found:
        session.commit([Tried(sub.topic, position, sub.cursor.attempts - 1) for sub, position in found])
    for sub, position in found:
        sub.cursor.attempted(position, sub.cursor.attempts - 1)


def disconnect(session: Session) -> None:
    """Close the sockets and leave the rest as it is: their context is about to end. More than once is fine."""
    session._messenger.close()
