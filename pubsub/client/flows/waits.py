"""Wait for messages: those of one topic, or of the first of several that has something to take.

`process` also waits for messages that were put off, and for the end of a failed message's wait.

The rules are docs/explanation/get.md, G10, and docs/explanation/retries.md, J1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol

from pubsub.client.arguments import check_not_of_calls
from pubsub.client.core.subscription import Subscription
from pubsub.client.core.waiting import ALL
from pubsub.client.flows.flow import Flow, Wait
from pubsub.client.session import Session
from pubsub.client.told_losses import forget_told
from pubsub.errors import CallerError, NotSubscribed, Unavailable
from pubsub.protocol import check_new_topic, check_topic


def _ended(sub: Subscription) -> bool:
    """Return True if a wait for messages must end without any."""
    return sub.failure is not None or sub.has_news or not sub.intent.on


class Requests(Protocol):
    """Work for which commands beside this client ask.

    Attributes:
        at: time of the next look for it.
    """

    at: float

    def take_up(self, now: float) -> None:
        """Do it, unless it is too early to look. The lock is not held."""


class Waits:
    """The waits of the receiving calls on one session.

    Attributes:
        requests: work for which `process` looks now and then.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.core, self.store = session.core, session.store
        self.served = ""
        """The topic that had the last turn, of several; the next turn goes to the topic after it."""
        self.requests: Requests | None = None
        self._silence: dict[str, tuple[float, float]] = {}
        """By topic: the seconds for which calls of `first_of` waited without an answer, and the end of that wait."""

    def available(
        self, topic: str, timeout: float | None, also: Callable[[], bool] | None = None, started: float | None = None
    ) -> Flow[Subscription | None]:
        """Wait until there is something to take on a topic; None if nothing came.

        Args:
            also: a further condition that ends the wait; only the calls of services, which take from their own topics,
                give it.
            started: time at which the call began, if that was earlier. A call that could not ask before its deadline
                still needs an answer to report an empty topic.

        Raises:
            NotSubscribed, Unavailable, Superseded, StateCopied, DataLoss, NotAllowed, KeyRefused, StorageError: see
                `Client.get`.
        """
        session, core = self.session, self.core
        now = session.now
        started = now if started is None else started
        until = started + (session.settings.timeout_seconds if timeout is None else timeout)
        if also is None:
            check_not_of_calls(topic)
        with session.entered():
            ready = self._subscription(topic)
            if ready.available and not ready.busy and not ready.has_news:
                return ready
            self._want(ready, until, now)

        def done() -> bool:
            ended = ready.failure is not None or ready.has_news or not ready.intent.on or core.refusing.closed
            return (ready.available and not ready.busy) or ended or (also is not None and also())

        try:
            while True:
                if not (done() or session.over):
                    yield Wait(lambda: done() or session.over, until)
                if also is not None and also():
                    return None
                over = session.now >= until  # Read once, so that both uses below agree.
                found = self._found(ready, started, until, over=over)
                # Special case: another call took the messages that ended this wait. Wait again.
                if found is not None or over:
                    if found is None and session.recorder is not None:
                        self._record_idle(ready)
                    return found
        finally:
            with session.lock:
                ready.waiting -= 1

    def _subscription(self, topic: str) -> Subscription:
        """Return the subscription of a topic and prepare it for a taking call. The lock is held."""
        session = self.session
        sub = self.core.subscriptions.get(check_topic(topic))
        if sub is None or not sub.intent.on:
            if sub is None:
                # The error advises to subscribe, which a topic with a bad name does not allow.
                check_new_topic(topic)
            raise NotSubscribed(session.name, topic)
        session.check_disk()
        self.close_chunk(sub)
        if sub.losses.told:
            forget_told(session, [sub])
        return sub

    def _want(self, sub: Subscription, until: float, started: float) -> None:
        """Ask for a topic's messages until `until`. The lock is held."""
        self.core.want(sub, until, started)
        if not sub.intent.settled:  # Also for a call that does not wait: the next one may find it settled.
            self.core.settle(sub, started + self.session.settings.timeout_seconds)
        try:
            self.session.turn()
        except BaseException:
            sub.waiting -= 1
            raise

    def is_ready(self, sub: Subscription, hold: str) -> bool:
        """Return True if `process` can take something of a topic now. Takes no lock and changes nothing.

        Args:
            hold: what waits behind a message that waits.
        """
        if not sub.intent.on or sub.busy:
            return False
        waiting = self.core.waiting
        if not waiting and sub.cursor.retry is None:
            return sub.available
        now = self.session.now
        if waiting.due(sub.topic) <= now and sub.may_retry:
            return True
        return sub.available and self.is_free(sub, hold, now)

    def is_free(self, sub: Subscription, hold: str, now: float) -> bool:
        """Return True if no message that waits holds up those of the service. Changes nothing."""
        waiting = self.core.waiting
        if sub.cursor.gated(now) or waiting.is_blocked(sub.topic):
            return False
        return hold != ALL or sub.topic not in waiting

    def _next_due(self, subs: Sequence[Subscription]) -> float:
        """Return the time at which the next of the messages that wait is due.

        A topic with a message in hand has none: the end of its handler wakes the call.
        """
        now, waiting = self.session.now, self.core.waiting
        subs = [sub for sub in subs if not sub.busy]
        gates = [sub.cursor.retry.due for sub in subs if sub.cursor.retry is not None and sub.cursor.gated(now)]
        dues = [waiting.due(sub.topic) for sub in subs if sub.may_retry] if waiting else []
        return min([*gates, *dues], default=inf)

    def _look(self) -> float:
        """Do what commands beside this client ask for, and return the time of the next look."""
        if self.requests is None:
            return inf
        self.requests.take_up(self.session.now)
        return self.requests.at

    def first_of(self, topics: Sequence[str], started: float, until: float, hold: str) -> Flow[list[Subscription]]:
        """Wait until there is something to take on some topics; return the topics that have something, or none.

        A wait without an answer is not an error by itself, because the machine may be busy. It is an error if an answer
        said that a topic is not served, or if none came for the client's time-out, in however many calls.

        Args:
            started, until: start and deadline of the call, on the monotonic clock.

        Raises:
            PubsubError: as `available`.
        """
        session = self.session
        for topic in topics:
            check_not_of_calls(topic)
        wanted: list[Subscription] = []
        next_look = self._look()
        try:
            with session.entered():
                subs = [self._subscription(topic) for topic in topics]
                if not any(sub.has_news or sub.failure for sub in subs) and (ready := self.ready(topics, hold)):
                    return ready
                for sub in subs:
                    self._want(sub, until, started)
                    wanted.append(sub)

            def done() -> bool:
                return self.core.refusing.closed or any(self.is_ready(sub, hold) or _ended(sub) for sub in subs)

            while True:
                if not (done() or session.over):
                    yield Wait(lambda: done() or session.over, min(until, self._next_due(subs), next_look))
                    next_look = self._look()
                over = session.now >= until
                found = [sub for sub in subs if self._found(sub, started, until, over=False, hold=hold) is not None]
                if found:
                    return self._in_turn(found)
                if over:
                    for sub in subs:
                        if self._was_answered(sub, started, until) and session.recorder is not None:
                            self._record_idle(sub)
                    return []
        finally:
            if wanted:
                with session.lock:
                    for sub in wanted:
                        sub.waiting -= 1

    def ready(self, topics: Sequence[str], hold: str) -> list[Subscription]:
        """Return the topics with something to take, in the order of their turns."""
        subs = [self.core.subscriptions[topic] for topic in topics]
        return self._in_turn([sub for sub in subs if self.is_ready(sub, hold)])

    def _in_turn(self, subs: list[Subscription]) -> list[Subscription]:
        """Sort by name, beginning after the topic that was served last."""
        return sorted(subs, key=lambda sub: (sub.topic <= self.served, sub.topic))

    def _was_answered(self, sub: Subscription, started: float, until: float) -> bool:
        """Return True if a call that waited from `started` to `until` knows that a topic is empty.

        Raises:
            Unavailable: an answer said that the topic is not served, or no answer came for too long.
        """
        if until <= started or sub.busy or (sub.intent.settled and not sub.unconfirmed_since(started)):
            return True
        seconds, known = self._silence.get(sub.topic, (0.0, float("-inf")))
        seconds = until - started + (seconds if sub.answered_at <= known else 0.0)
        self._silence[sub.topic] = seconds, until
        if sub.trouble or round(seconds, 3) >= self.session.settings.timeout_seconds:
            raise Unavailable("get", sub.topic, round(until - started, 3), sub.trouble or self.session.silence)
        return False

    def _record_idle(self, sub: Subscription) -> None:
        session = self.session
        with session.lock:
            if session.recorder is not None and not session.over:
                session.recorder.idle(sub)

    def _found(
        self, sub: Subscription, started: float, until: float, *, over: bool, hold: str = ""
    ) -> Subscription | None:
        """Return or raise the result of a call that waits from `started` to `until`; None: it waits on.

        Args:
            hold: what waits behind a message that waits; "": a call that takes only from the service.
        """
        if sub.has_news:
            self._tell(sub)
        if self.is_ready(sub, hold) if hold else sub.available and not sub.busy:
            return sub
        if sub.failure is not None:
            raise sub.failure
        self.core.refusing.check()
        self.session.check_usable()
        if self.session.closed:
            raise CallerError(f"client {self.session.name} was closed during the call")
        if not sub.intent.on:
            raise NotSubscribed(self.session.name, sub.topic)
        if sub.busy:
            return None
        if hold:  # An answer since the first check may have brought messages.
            return sub if self.is_ready(sub, hold) else None
        if over and until > started and (not sub.intent.settled or sub.unconfirmed_since(started)):
            raise Unavailable("get", sub.topic, round(until - started, 3), sub.trouble or self.session.silence)
        return sub if sub.available and not sub.busy else None

    def _tell(self, sub: Subscription) -> None:
        with self.session.entered():
            if sub.has_news:  # Another thread may have raised the loss meanwhile.
                raise sub.losses.tell()

    def close_chunk(self, sub: Subscription) -> None:
        """Give back the messages that an open iteration has not yielded, at its end or for another call."""
        chunk = sub.chunk
        if chunk is None:
            return
        chunk.stop()
        if chunk.handed < chunk.total:
            change = chunk.return_taken(sub.topic)
            self.session.commit([change])
            sub.taken_returned(chunk, change)
        else:
            sub.end_chunk()
        if self.session.recorder is not None:
            self.session.recorder.handed_out(chunk)
        self.core.moved(sub, self.session.now, fsynced=False)
