"""Restore a client after an interrupted step, before it is closed or opened again (see `steps`)."""

from __future__ import annotations

from random import SystemRandom

from pubsub.client.core.changes import Tried, WaitingTried
from pubsub.client.session import Session
from pubsub.client.session_parts import load_core


def repair(session: Session) -> None:
    """Replace the memory by the state on disk after an interrupted step, before the client closes.

    Nothing is sent any more. Only this thread may use the session, to move the messages of publishers to the outbox.
    """
    with session.lock:
        session.enter_alone()
        settle(session)
        session.core = load_core(session.name, session.settings, session.store, session.clock, SystemRandom())


def settle(session: Session) -> None:
    """Roll back an open transaction, give back the messages of an iteration, and uncount interrupted attempts.

    The session's lock is held.

    Raises:
        StorageError: the disk refused.
    """
    session.store.rollback()
    positions = {topic: position for topic, _, _, _, _, _, position, _, _ in session.store.subscriptions()}
    for sub in session.core.subscriptions.values():
        chunk = sub.chunk
        if chunk is not None:
            chunk.stop()
            # The commit took the whole chunk, so the messages that were not yielded must be given back.
            if positions.get(sub.topic) == chunk.after:
                session.store.commit([chunk.return_taken(sub.topic)])
    for topic, _, _, _, _, _, _, tried, attempts in session.store.subscriptions():
        # The attempt was not the handler's fault, so it does not count.
        if tried is not None and (tried, attempts) in session.trying.get(topic, ()):
            session.store.commit([Tried(topic, tried, attempts - 1)])
    for number, _, _, _, attempts, *_ in list(session.store.waiting()):
        if session.core.waiting.trying.get(number) == attempts:
            session.store.commit([WaitingTried(number, attempts - 1)])
