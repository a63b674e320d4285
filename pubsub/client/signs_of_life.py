"""Show that a member of a group is alive while one of its handlers has the client's lock for long.

A handler may write for hours, and its open transaction has the lock of the session. Nothing new can be said then. But a
member of a group that is not heard for a liveness counts as silent. So the thread that drives the sockets repeats the
last message of each member, without the lock (docs/explanation/client-session.md, D13).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from threading import RLock

    from pubsub.client.core.group_core import GroupCore
    from pubsub.client.wire import Wire

LOCK_SECONDS: Final = 0.25
"""Longest wait of the thread that drives the sockets for the lock, while the client is a member of a group."""


def may_enter(lock: RLock, core: GroupCore, wire: Wire, now: float) -> bool:
    """Return True if the lock is free. Otherwise a transaction is open for long, so only show signs of life."""
    if lock.acquire(timeout=LOCK_SECONDS):
        lock.release()
        return True
    for member in tuple(core.members.values()):
        sign = member.sign_of_life(now)
        if sign is not None:
            wire.send_unanswered(member.retries.proxy, sign)
    return False
