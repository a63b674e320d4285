"""Keep in the store which losses a call has raised, so that no later process raises them again."""

from __future__ import annotations

from collections.abc import Sequence

from pubsub.client.core.subscription import Subscription
from pubsub.client.session import Session


def forget_told(session: Session, subs: Sequence[Subscription], *, fsync: bool = False) -> None:
    """Make durable that losses were raised. The lock is held.

    Args:
        session: of the client.
        subs: the subscriptions concerned.
        fsync: commit in any case.

    Raises:
        StorageError: the commit failed.
    """
    if fsync or any(sub.losses.told for sub in subs):
        session.commit([change for sub in subs for change in sub.losses.forget(sub.topic)], fsync=fsync)
        for sub in subs:
            sub.losses.forgot()
