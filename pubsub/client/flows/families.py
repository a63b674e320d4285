"""Subscribe to patterns of topics, and take messages from all topics that match (docs/explanation/families.md).

A call that names a pattern waits for messages of the topics that the client has joined by it. A topic that is joined
during the call counts from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from pubsub.client.core.changes import Intended
from pubsub.client.core.families import LIST_SECONDS, Family
from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.flows.gets import Gets
from pubsub.client.session import Session
from pubsub.client.told_losses import forget_told
from pubsub.errors import CallerError, NotAllowed, NotSubscribed, Superseded, Unavailable
from pubsub.protocol.names import EARLIEST, LATEST, Start
from pubsub.protocol.pattern_table import CLIENT_PATTERNS_MAX
from pubsub.protocol.patterns import check_new_pattern, check_pattern, is_pattern


def stands_for_several(session: Session, name: str) -> bool:
    """Return whether a name is a pattern. An old topic with such a name, once subscribed to, stays a topic."""
    return isinstance(name, str) and name not in session.core.subscriptions and is_pattern(name)


def stamp_of(start: Start | None) -> int:
    """Return the timestamp at which a subscription to a pattern begins; 0: now.

    Raises:
        CallerError: the start is a place in one topic.
    """
    if start is None or start == LATEST:
        return 0
    if start == EARLIEST:
        return 1  # Before every message.
    if not isinstance(start, int):
        raise CallerError("a pattern begins at earliest, latest or a datetime, not at a place in one topic")
    return max(1, start)


class SubscribingToFamilies:
    """The calls that subscribe to patterns, on one session."""

    def __init__(self, session: Session) -> None:
        self.session, self.core = session, session.core

    def intend(
        self, pattern: str, on: bool, timeout: float | None, *, fresh: bool = False, start: Start | None = None
    ) -> Flow[None]:
        """Subscribe to a pattern, or end that, and wait until every proxy has confirmed it.

        Args:
            fresh: begin anew, and drop the messages that wait.
            start: where a new subscription begins; None: now.
        """
        session, families = self.session, self.core.families
        check_new_pattern(pattern)
        until, stamp = session.until(timeout), stamp_of(start)
        with session.entered():
            session.check_may_wait()
            session.check_disk()
            family = families.get(pattern)
            if family is None and not on:
                raise NotSubscribed(session.name, pattern, never=True)
            made = family is None or family.on != on or fresh or isinstance(family.failure, Superseded)
            if made or family is None:
                family = self._plan(pattern, on, family, until, fresh=fresh, stamp=stamp)
            family.failure = None
            families.settle(family, until)
            session.turn()
        yield from self._wait(family, on, until)
        if isinstance(family.failure, Superseded) and not made:  # One call may go above the higher number, once.
            with session.entered():
                family = self._plan(pattern, on, family, until, fresh=fresh, stamp=stamp)
                families.settle(family, until)
                session.turn()
            yield from self._wait(family, on, until)
        self._check(family, on, timeout)

    def _plan(self, pattern: str, on: bool, family: Family | None, until: float, *, fresh: bool, stamp: int) -> Family:
        """Make a new wish durable.

        After the end of the pattern elsewhere, the topics are left and joined anew. What waited in them was given up:
        each tells that as a loss, unless a call has raised the error before.
        """
        session, families = self.session, self.core.families
        failure = family.failure if family is not None else None
        ended = isinstance(failure, Superseded)
        if on and len([one for one in families.live() if one.pattern != pattern]) >= CLIENT_PATTERNS_MAX:
            raise CallerError(
                f"client {session.name} has {CLIENT_PATTERNS_MAX} patterns, the most that one client may have;"
                " unsubscribe from one first"
            )
        if family is not None and family.higher:
            self.core.numbers.reopen(family.higher)
        change, left = families.plan(pattern, on, fresh=fresh or ended, stamp=stamp)
        untold = on and not fresh and ended and failure is not None and failure.__traceback__ is None
        letters, losses = families.losses(left) if untold else ([], [])
        given_up = [dropped for topic in left for dropped in self.core.waiting.dropping(topic)]
        session.commit([change, *(Intended(topic, False) for topic in left), *given_up, *letters])
        for dropped in given_up:
            self.core.waiting.drop(dropped.topic)
        planned = families.planned(change, left, until)
        for loss in losses:
            self.core.subscriptions[loss.topic].losses.add(loss)
        return planned

    def _wait(self, family: Family, on: bool, until: float) -> Flow[None]:
        session, refusing = self.session, self.core.refusing

        def done() -> bool:
            return _is_confirmed(family, self.core.settings.proxies) or family.failure is not None or family.on != on

        while not (done() or session.over):
            refusing.check()
            if not (yield Wait(lambda: done() or session.over or refusing.closed, until)):
                return

    def _check(self, family: Family, on: bool, timeout: float | None) -> None:
        session = self.session
        if family.failure is not None:
            raise family.failure
        session.check_usable()
        if family.on != on:
            raise CallerError(f"{family.pattern}: another thread changed the subscription during the call")
        proxies = self.core.settings.proxies
        if not _is_confirmed(family, proxies):
            seconds = session.settings.timeout_seconds if timeout is None else timeout
            silent = ", ".join(one for n, one in enumerate(session.settings.proxies) if n not in family.have)
            reason = family.trouble or session.silence
            text = f"every proxy must confirm a pattern; no confirmation of {silent}: {reason}"
            raise Unavailable("subscribe" if on else "unsubscribe", family.pattern, seconds, text)

    def check_not_joined(self, topic: str) -> None:
        """Check that a call about one topic does not concern a topic that a pattern brings.

        Raises:
            CallerError: it does.
        """
        sub = self.core.subscriptions.get(topic)
        if sub is not None and sub.joined and sub.intent.on and (found := self.core.families.matching(topic)):
            raise CallerError(
                f"client {self.session.name} receives {topic} by its pattern {found[0].pattern}; take from the topic or"
                " from the pattern, or unsubscribe from the pattern"
            )


def _is_confirmed(family: Family, proxies: int) -> bool:
    """Return True if each proxy has answered since the call, and that is durable."""
    return family.settled and len(family.have) == proxies


class FamilyGets(Gets):
    """The receiving calls, of topics and of patterns."""

    def available(
        self, topic: str, timeout: float | None, also: Callable[[], bool] | None = None, started: float | None = None
    ) -> Flow[Subscription | None]:
        """Wait until there is something to take on a topic, or on one that matches a pattern."""
        known = isinstance(topic, str) and topic in self.core.subscriptions
        if known or also is not None or not stands_for_several(self.session, topic):
            return super().available(topic, timeout, also, started)
        return self._available_of_family(topic, timeout, started)

    def _available_of_family(
        self, topic: str, timeout: float | None, started: float | None
    ) -> Flow[Subscription | None]:
        began = self.session.now if started is None else started
        until = began + (self.session.settings.timeout_seconds if timeout is None else timeout)
        ready = yield from self.first_of((topic,), began, until, "")
        if not ready:
            return None
        self.served = ready[0].topic
        return ready[0]

    def ready(self, topics: Sequence[str], hold: str) -> list[Subscription]:
        """Return the topics with something to take, in the order of their turns."""
        return super().ready(self._expanded(topics), hold)

    def first_of(self, topics: Sequence[str], started: float, until: float, hold: str) -> Flow[list[Subscription]]:
        """Wait until there is something to take on some of the topics, or of those that match patterns.

        Args:
            hold: as for `Waits.first_of`; "": the call takes only from the service.
        """
        if not any(stands_for_several(self.session, topic) for topic in topics):
            return super().first_of(topics, started, until, hold)
        return self._first_of_families(topics, started, until, hold)

    def _first_of_families(
        self, topics: Sequence[str], started: float, until: float, hold: str
    ) -> Flow[list[Subscription]]:
        session = self.session
        families = [self._family(topic) for topic in topics if stands_for_several(session, topic)]
        next_look = self._look() if hold else inf
        if (ready := self._ready_now(topics, hold)) is not None:
            return ready
        wanted: dict[str, Subscription] = {}
        try:
            while True:
                with session.entered():
                    subs = [self._brought(topic) for topic in self._expanded(topics)]
                    seen = [family.version for family in families]
                    self._want_all(families, [sub for sub in subs if sub.topic not in wanted], wanted, started, until)

                def done(subs: Sequence[Subscription] = subs, seen: Sequence[int] = seen) -> bool:
                    joined = seen != [family.version for family in families]
                    ended = any(family.failure is not None or not family.on for family in families)
                    return joined or ended or self.core.refusing.closed or any(self._stops(sub, hold) for sub in subs)

                if not (done() or session.over):
                    next_due = self._next_due(subs) if hold else inf
                    yield Wait(lambda: done() or session.over, min(until, next_due, next_look))
                    next_look = self._look() if hold else inf
                over = session.now >= until
                self._check(families)
                stopping = [sub for sub in subs if self._stops(sub, hold)]
                found = [sub for sub in stopping if self._found(sub, started, until, over=False, hold=hold)]
                if found:
                    return self._in_turn(found)
                session.check_usable()
                self.core.refusing.check()
                if over:
                    self._check_answers(families, subs, started, until)
                    return []
        finally:
            with session.lock:
                for sub in wanted.values():
                    sub.waiting -= 1

    def _ready_now(self, topics: Sequence[str], hold: str) -> list[Subscription] | None:
        """Return what a call can take without a question to the service; None: it asks."""
        with self.session.entered():
            subs = [self.core.subscriptions.get(topic) for topic in self._expanded(topics)]
            found = [sub for sub in subs if sub is not None and self._stops(sub, hold)]
            if not found or any(sub.has_news or sub.failure or sub.losses.told for sub in found):
                return None
            for sub in found:
                self.close_chunk(sub)
            return self._in_turn(found)

    def _brought(self, topic: str) -> Subscription:
        """As `_subscription`; also for a topic that was left with a loss to tell. The lock is held."""
        sub = self.core.subscriptions.get(topic)
        if sub is None or sub.intent.on or not sub.has_news:
            return self._subscription(topic)
        self.session.check_disk()
        if sub.losses.told:
            forget_told(self.session, [sub])
        return sub

    def _family(self, pattern: str) -> Family:
        family = self.core.families.get(pattern)
        if family is None or not family.on:
            check_pattern(pattern)
            raise NotSubscribed(self.session.name, pattern)
        return family

    def _expanded(self, topics: Sequence[str]) -> list[str]:
        """Return the topics, with the joined ones in the place of each pattern."""
        out: dict[str, None] = {}
        for topic in topics:
            if stands_for_several(self.session, topic):
                out |= dict.fromkeys(self.core.families.topics(self._family(topic)))
            else:
                out[topic] = None
        return list(out)

    def _want_all(
        self,
        families: Sequence[Family],
        subs: Sequence[Subscription],
        wanted: dict[str, Subscription],
        started: float,
        until: float,
    ) -> None:
        """Ask for the messages of topics and for new topics that match. The lock is held."""
        for family in families:
            self.core.families.want(family, until)
        for sub in subs:
            if sub.intent.on:
                self.core.want(sub, until, started)
                wanted[sub.topic] = sub
            if not sub.intent.settled:
                self.core.settle(sub, started + self.session.settings.timeout_seconds)
        self.session.turn()

    def _check(self, families: Sequence[Family]) -> None:
        for family in families:
            if family.failure is not None:
                raise family.failure
            if not family.on:
                raise NotSubscribed(self.session.name, family.pattern)

    def _check_answers(
        self, families: Sequence[Family], subs: Sequence[Subscription], started: float, until: float
    ) -> None:
        """Check, at the end of a wait, that the service has answered."""
        patience = self.session.settings.timeout_seconds
        for family in families:
            silent = family.answered_at < started - LIST_SECONDS and round(until - started, 3) >= patience
            if silent or (not family.settled and until > started):
                reason = family.trouble or self.session.silence
                raise Unavailable("get", family.pattern, round(until - started, 3), reason)
        for sub in subs:
            if not isinstance(sub.failure, NotAllowed) and self._was_answered(sub, started, until):
                self._record_idle(sub)

    def _stops(self, sub: Subscription, hold: str) -> bool:
        """Return True if a wait for several topics ends by this one.

        A topic that the client may not get from at present waits. One that was left meanwhile counts no more.
        """
        if not sub.intent.on or isinstance(sub.failure, NotAllowed):
            return not sub.intent.on and sub.has_news  # Its topic was deleted.
        ready = self.is_ready(sub, hold) if hold else sub.available and not sub.busy
        return ready or sub.has_news or sub.failure is not None
