"""Close a session in good order: acknowledge taken messages, then release everything."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pubsub.client.core.changes import Tried, WaitingTried
from pubsub.client.core.group_member import GroupMember
from pubsub.client.core.subscription import Subscription
from pubsub.client.session import Session
from pubsub.client.told_losses import forget_told
from pubsub.errors import Interrupted, StorageError
from pubsub.protocol import Position

LEAVE_SECONDS: Final = 5.0
"""Longest wait of a close until groups know the finished and the returned messages, if they were heard lately."""

NOT_LEFT: Final = (
    "group %s of %s did not confirm the messages that this client gives back: its next start does, and until then they"
    " may count as in doubt"
)

_log: Final = logging.getLogger("pubsub.client")


def close(session: Session, acknowledge_seconds: float, return_taken: Callable[[], None]) -> None:
    """Fsync, acknowledge taken messages, and release everything; unfinished puts are kept.

    Args:
        session: the session.
        acknowledge_seconds: longest wait for answers to the last acknowledgements.
        return_taken: commits that messages taken but not returned are for the next start.

    Raises:
        StorageError: the last commit failed; everything is released all the same.
    """
    try:
        with suppress(Interrupted):
            if not session.over:
                _take_leave(session, acknowledge_seconds)
                _shut(session, return_taken)
    finally:
        session.release()


def _take_leave(session: Session, acknowledge_seconds: float) -> None:
    flying: list[Subscription] = []
    leaving: list[GroupMember] = []
    with session.entered():
        try:
            leaving = _leave_groups(session)
            forget_told(session, list(session.core.subscriptions.values()), fsync=True)
            flying = session.core.acknowledge(session.now)
            session.send()
        except StorageError as error:
            _log.warning("client %s: %s", session.name, error)
    if flying:
        session.wait(lambda: not any(sub.deadline is not None for sub in flying), session.now + acknowledge_seconds)
    if leaving:
        seconds = LEAVE_SECONDS if any(member.is_heard(session.now) for member in leaving) else acknowledge_seconds
        session.wait(
            lambda: all(member.left or member.failure is not None for member in leaving), session.now + seconds
        )
        for member in leaving:
            if not member.left and member.failure is None:
                _log.warning("client %s: %s", session.name, NOT_LEFT % (member.name, member.topic))


def _leave_groups(session: Session) -> list[GroupMember]:
    """Give back the records of groups' members, and let them tell all that is done; return these members."""
    found = [member for member in session.core.all_members() if not member.left and member.failure is None]
    for member in found:
        member.stop_calls()
        for hand in tuple(member.holdings.hands.values()):
            if (
                member.before
            ):  # Its handler may have done things outside, and the next one must not be the first (GR23).
                member.return_hand(hand)
            else:
                member.uncounted(hand)  # This close ends its handler.
    if found:
        session.commit([change for member in found for change in member.attempts_told()], fsync=True)
    for member in found:
        member.leave()
    return found


def _shut(session: Session, return_taken: Callable[[], None]) -> None:
    """Reject new calls. Other calls ran until now: their messages in hand are for the next start too."""
    with session.lock:
        if session.over:
            return
        try:
            with session.entered():
                _uncount(session)
        except StorageError as error:
            _log.warning("client %s: %s", session.name, error)
        try:
            return_taken()
        finally:
            session.closed = True


def _uncount(session: Session) -> None:
    """Take back attempts counted ahead, and attempts that this close ends. The lock is held."""
    found: list[tuple[Subscription, Position]] = []
    for row in session.core.waiting.in_hand():
        session.commit([WaitingTried(row.number, row.attempts - 1)])
        row.attempts -= 1
    for sub in session.core.subscriptions.values():
        cursor = sub.cursor
        if sub.busy is not None and sub.row is not None:
            session.commit([WaitingTried(sub.row.number, sub.row.attempts - 1)])
            sub.row.attempts -= 1
        # This close ends a handler that awaits.
        unmade = cursor.counted_ahead or (sub.busy is not None and sub.row is None and not sub.side_by_side)
        log, offset = cursor.tried if unmade and cursor.attempts and cursor.tried is not None else (None, None)
        if log is not None and offset is not None:
            found.append((sub, (log, offset)))
    if found:
        session.commit([Tried(sub.topic, position, sub.cursor.attempts - 1) for sub, position in found])
    for sub, position in found:
        sub.cursor.attempted(position, sub.cursor.attempts - 1)


def disconnect(session: Session) -> None:
    """Close only the sockets, because their context is about to end. A second call does nothing."""
    session._messenger.close()
