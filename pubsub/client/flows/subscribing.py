"""Subscribe and unsubscribe: make the intent durable, then ask the service until it has confirmed the intent.

An intent to be subscribed is of one of two kinds (docs/explanation/continuing.md, C2 and C3):

    continue   continue the service's subscription of this client ID, or make one if there is none
    fresh      make one that begins at the end, or at the start that the application names

    this directory has no intent for the topic, or one that is on, confirmed or superseded   → continue
    this directory has unsubscribed, confirmed or not; the log was given up; a renewal       → fresh
    the application asks for it, or seeks                                                    → fresh

A start counts only where a subscription begins. Each start that an application names after its first subscription
begins a replay, with the next number: the store then has no counters, so that messages come again.

The rules of a seek are those of docs/explanation/looking-back.md, Z1 and Z2.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from pubsub.client.arguments import check_not_of_calls, check_truth
from pubsub.client.core.calling import check_service
from pubsub.client.core.changes import Intended
from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.families import SubscribingToFamilies, stands_for_several
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.work import Work
from pubsub.client.session import Session
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, NotAllowed, NotSubscribed, PubsubError, StateCopied, Superseded, Unavailable
from pubsub.protocol import check_new_topic, check_topic, format_position
from pubsub.protocol.names import LATEST, Start, is_reply_topic, service_topic

NO_SOLE_OWNER: Final = "topic has no known sole owner"
"""A server's reason for rejecting a request that only the sole owner of a topic may accept."""

NO_SOLE_OWNER_SENT: Final = frozenset({"topic is not known to be whole", NO_SOLE_OWNER})
"""The texts of that reason: servers send the first one for one release."""

NOT_CONTINUED: Final = (
    "a first subscribe from a state directory needs answers from most proxies: too many are down or have just started,"
    " or the topic is split between servers; the next call continues. fresh=True (--fresh) does not wait, but drops"
    " the backlog of this client ID"
)
"""The meaning of that reason for a subscription that should continue."""


_log: Final = logging.getLogger("pubsub.client")


class Subscribing:
    """The calls that subscribe, on one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.core, self.store = session.core, session.store
        self.families = SubscribingToFamilies(session)

    def intend(
        self, topic: str, on: bool, timeout: float | None, *, fresh: bool = False, start: Start | None = None
    ) -> Flow[None]:
        """Subscribe or unsubscribe, and wait until the service has confirmed it.

        Args:
            fresh: begin anew, at `start`.
            start: None: at the end, and an unconfirmed intent keeps the start that it has.
        """
        check_truth("fresh", fresh)
        check_not_of_calls(topic)
        if stands_for_several(self.session, topic):
            yield from self.families.intend(topic, on, timeout, fresh=fresh, start=start)
            return
        self.families.check_not_joined(topic)
        if check_topic(topic) not in self.core.subscriptions and on:
            check_new_topic(topic)
        until = self.session.until(timeout)
        if not on and topic not in self.core.subscriptions:
            raise NotSubscribed(self.session.name, topic, never=True)
        if on and not fresh and (yield from self._still_subscribed(topic, until, timeout)):
            return
        yield from self._intend(topic, on, until, timeout, fresh=fresh, start=start)

    def seek(
        self, topic: str, start: Start, timeout: float | None, also: Callable[[Transaction], object] | None = None
    ) -> Flow[int]:
        """Move a subscription to a start, and wait until the service has confirmed it; return the replay's number.

        A repeated call with the same start continues an unconfirmed seek.

        Args:
            also: changes rows in the commit that begins the seek.

        Raises:
            CallerError: the topic is a pattern.
            NotSubscribed: the client is not subscribed.
            Superseded, StateCopied: another directory has the subscription.
        """
        check_not_of_calls(topic)
        if stands_for_several(self.session, topic):
            raise CallerError(f"a pattern has no place to move: seek each topic of {topic} by its own name")
        check_topic(topic)
        until = self.session.until(timeout)
        with self.session.entered():
            sub = self.core.subscriptions.get(topic)
            if sub is None or not sub.intent.on:
                raise NotSubscribed(self.session.name, topic)
            if isinstance(sub.failure, Superseded | StateCopied):
                raise sub.failure
        yield from self._intend(topic, True, until, timeout, fresh=True, start=start, seeks=True, also=also)
        return sub.intent.replay

    def begin(self, topic: str, seconds: float) -> Flow[None]:
        """Subscribe to a topic of calls; do nothing if that is confirmed already.

        A confirmed subscription is never made anew, since its backlog would be lost.

        Raises:
            Superseded: this client was opened elsewhere later.
            PubsubError: otherwise as `Client.subscribe`.
        """
        # Calls made by a lost directory are lost with it, so no caller waits for their replies.
        fresh = is_reply_topic(topic)
        yield from self._intend(topic, True, self.session.until(seconds), seconds, anew=False, fresh=fresh)

    def withdraw(self, service: str, part: int, parts: int, timeout: float | None) -> Flow[None]:
        """Stop being a service's worker.

        Raises:
            NotSubscribed: this client never was.
        """
        check_service(service, part, parts)
        topic = service_topic(service, part, parts)
        with self.session.entered():
            known = topic in self.core.subscriptions
        if not known:
            raise NotSubscribed(self.session.name, topic, never=True)
        yield from self._intend(topic, False, self.session.until(timeout), timeout)

    def _still_subscribed(self, topic: str, until: float, timeout: float | None) -> Flow[bool]:
        """Ask the service whether it knows a confirmed subscription; False: the subscription must be made anew."""
        session = self.session
        with session.entered():
            session.check_may_wait()
            session.check_disk()
            sub = self.core.subscriptions.get(topic)
            if sub is None or not sub.intent.subscribed or not isinstance(sub.failure, NotAllowed | None):
                return False
            self.core.check(sub, until)
            session.turn()
        yield from self._wait(lambda: not sub.intent.unchecked, until)
        if isinstance(sub.failure, Superseded) or not sub.intent.settled:
            return False
        self._check_intent(sub, True, timeout)
        return True

    def _intend(
        self,
        topic: str,
        on: bool,
        until: float,
        timeout: float | None,
        *,
        anew: bool = True,
        fresh: bool = False,
        start: Start | None = None,
        seeks: bool = False,
        also: Callable[[Transaction], object] | None = None,
    ) -> Flow[None]:
        session, wish = self.session, object()
        with session.entered():
            if not anew and self._is_confirmed(topic):  # Under the lock: another call may subscribe at this moment.
                return
            session.check_may_wait()
            session.check_disk()
            known = topic in self.core.subscriptions
            sub = self.core.subscription(topic)
            if isinstance(sub.failure, StateCopied):
                raise sub.failure
            if not known or sub.intent.differs(on, fresh=fresh, start=start):
                fresh = on and (fresh or self._continues_nothing(sub, known=known))
                replays = known and fresh and (seeks or start not in {None, LATEST})
                begins = LATEST if start is None else start
                wanted = Intended(topic, on, fresh, begins, sub.intent.replay + 1 if replays else 0)
                self._change(sub, wanted, also, known=known)
            sub.failure = None
            sub.intent.insists.add(wish)
            self.core.settle(sub, until)
            session.turn()
        try:
            yield from self._wait(lambda: sub.intent.settled or sub.failure is not None or sub.intent.on != on, until)
        finally:  # After this call, later requests caused by other calls must not replace a higher number.
            sub.intent.insists.discard(wish)
        self._check_intent(sub, on, timeout)

    def _change(
        self, sub: Subscription, wanted: Intended, also: Callable[[Transaction], object] | None, *, known: bool
    ) -> None:
        """Make an intent durable. The lock is held. `known`: the directory had an intent before."""
        session, on, fresh, start, replay = self.session, wanted.on, wanted.fresh, wanted.start, wanted.replay
        left = sub.leave_chunk() if on and not fresh else []
        ended = sub.ended_elsewhere(self.core.wall()) if on and not fresh else None
        given_up = self.core.waiting.dropping(sub.topic) if fresh or not on else []
        changes = [
            *left,
            *given_up,
            sub.intend(on, fresh=fresh, start=start, replay=replay),
            *([] if ended is None else [ended[0]]),
        ]
        try:
            if also is None:
                session.commit(changes)
            else:
                with Work(session, lambda: changes, fsync=True) as transaction:
                    also(transaction)
        except PubsubError:
            if not known:
                del self.core.subscriptions[sub.topic]
            raise
        sub.intended(on, fresh=fresh, start=start, replay=replay, left=left)
        if given_up:
            self.core.waiting.drop(sub.topic)
        if ended is not None:
            sub.losses.add(ended[1])
            _log.warning("client %s: %s", session.name, ended[1])

    @staticmethod
    def _continues_nothing(sub: Subscription, *, known: bool) -> bool:
        """Return True if a new intent to be subscribed continues nothing. `known`: the directory has an intent."""
        return known and not sub.intent.on

    def _is_confirmed(self, topic: str) -> bool:
        """Return True if a topic is subscribed; raise the error of a failed subscription. The lock is held."""
        sub = self.core.subscriptions.get(topic)
        if sub is None or not sub.intent.subscribed:
            return False
        if not isinstance(sub.failure, NotAllowed | None):
            raise sub.failure
        return True

    def _wait(self, done: Callable[[], bool], until: float) -> Flow[None]:
        """Wait until `done()` is True, or the wait is useless.

        Raises:
            KeyRefused: all proxies refuse.
        """
        session, refusing = self.session, self.core.refusing
        while not (done() or session.over):
            refusing.check()
            if not (yield Wait(lambda: done() or session.over or refusing.closed, until)):
                return

    def _check_intent(self, sub: Subscription, on: bool, timeout: float | None) -> None:
        session = self.session
        if sub.failure is None and sub.intent.on == on and (not sub.intent.settled or sub.intent.unchecked):
            # The thread with the lock may be writing this answer to a slow disk: wait for it, so that it counts.
            with session.entered():
                session.check_disk()
        if sub.failure is not None:
            raise sub.failure
        session.check_usable()
        if sub.intent.on != on:
            raise CallerError(f"{sub.topic}: another thread changed the subscription during the call")
        if not sub.intent.settled or sub.intent.unchecked:
            seconds = session.settings.timeout_seconds if timeout is None else timeout
            reason = sub.trouble or session.silence
            if on and not sub.intent.settled and sub.trouble in NO_SOLE_OWNER_SENT:
                reason = f"{NO_SOLE_OWNER}; {NOT_CONTINUED}"
            raise Unavailable("subscribe" if on else "unsubscribe", sub.topic, seconds, reason)

    def subscriptions(self) -> dict[str, dict[str, Any]]:
        with self.session.entered():
            return {
                topic: {
                    "on": sub.intent.on,
                    "settled": sub.intent.settled,
                    "position": format_position(sub.cursor.position),
                }
                for topic, sub in self.core.subscriptions.items()
            }
