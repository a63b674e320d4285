"""GETs that wait for records: at most one for each consumer of a topic's subscription."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pubsub.protocol.messages import Get, Outcome
from pubsub.server.state.replies import Origin, Replies
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import Subscription


@dataclass(slots=True)
class Poll:
    """A GET that waits.

    Attributes:
        origin: destination of the answer.
        subscription: key of the subscription that it reads.
        expires: monotonic seconds at which the wait ends.
        walked: the subscription's spans, and the part of them that is still to be read. Everything before that part is
            left out.
        sole_owner: every proxy has answered, for this request, that no other server holds the topic.
    """

    origin: Origin
    get: Get
    subscription: str
    expires: float
    walked: tuple[tuple[Span, ...], tuple[Span, ...]] | None = None
    sole_owner: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Its topic, its subscription, and its consumer, which is the sender."""
        return self.get.topic, self.subscription, self.get.sender


class LongPolls:
    """All GETs that wait, and the topics that are due for a check.

    Args:
        replies: receives the answers.
    """

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._waiting: dict[str, dict[str, dict[str, Poll]]] = {}
        """By topic, subscription and consumer."""
        self._count = 0
        self._expiries: list[tuple[float, tuple[str, str, str]]] = []
        self._ready: dict[str, None] = {}
        self._later: dict[str, float] = {}
        """Topics that are due at a time (monotonic seconds)."""
        self.also_appended: Callable[[str], None] = lambda topic: None
        """Called with each topic that has something new."""
        self.also_merged: Callable[[str], None] = lambda topic: None
        """Called with each topic that was merged."""
        self.also_ended: Callable[[str, Outcome], None] = lambda topic, outcome: None
        """Called with each topic of which all polls end."""

    def __len__(self) -> int:
        return self._count

    def park(self, poll: Poll) -> None:
        """Let a GET wait, in place of an earlier one of the same consumer. It is checked in this loop."""
        topic, subscription, consumer = poll.key
        polls = self._waiting.setdefault(topic, {}).setdefault(subscription, {})
        self._count += consumer not in polls
        polls[consumer] = poll
        if poll.get.wait_ms:
            heapq.heappush(self._expiries, (poll.expires, poll.key))
            if len(self._expiries) > 64 + 4 * self._count:
                self._sweep()
        self._ready[topic] = None

    def _sweep(self) -> None:
        """Drop the expiry times of GETs that no longer wait."""
        self._expiries = [(poll.expires, poll.key) for topic in self._waiting for poll in self._of(topic)]
        heapq.heapify(self._expiries)

    def _of(self, topic: str) -> list[Poll]:
        return [poll for polls in self._waiting.get(topic, {}).values() for poll in polls.values()]

    def _find(self, key: tuple[str, str, str]) -> Poll | None:
        topic, subscription, consumer = key
        return self._waiting.get(topic, {}).get(subscription, {}).get(consumer)

    def take(self, poll: Poll) -> None:
        """Remove a GET from those that wait."""
        if self._find(poll.key) is not poll:
            return
        topic, subscription, consumer = poll.key
        self._count -= 1
        del self._waiting[topic][subscription][consumer]
        if not self._waiting[topic][subscription]:
            del self._waiting[topic][subscription]
        if not self._waiting[topic]:
            del self._waiting[topic]

    def end(self, poll: Poll, outcome: Outcome, **facts: object) -> None:
        """Remove a GET and answer it."""
        self.take(poll)
        self._replies.answer(poll.origin, outcome, **facts)

    def end_all(self, topic: str, outcome: Outcome) -> None:
        self.also_ended(topic, outcome)
        for poll in self._of(topic):
            self.end(poll, outcome)

    def end_outdated(self, topic: str, key: str, subscription: Subscription) -> None:
        """Answer the GETs that wait under an outdated number or epoch of the subscription.

        Args:
            topic: of the subscription.
            key: of the subscription.
            subscription: with its current number and epoch.
        """
        for poll in list(self._waiting.get(topic, {}).get(key, {}).values()):
            if subscription.outdates(poll.get.number, poll.get.epoch):
                self.end(poll, Outcome.SUPERSEDED, **newer(subscription))

    def waits(self, topic: str, key: str) -> bool:
        """Return True if a consumer of this subscription waits."""
        return key in self._waiting.get(topic, {})

    def appended(self, topic: str) -> None:
        """Mark a topic as due, because it has something new."""
        self.also_appended(topic)
        if topic in self._waiting:
            self._ready[topic] = None

    def look_again(self, topic: str) -> None:
        """Mark a topic as due in the next loop, because some of its GETs were not served yet."""
        self._ready[topic] = None

    def look_at(self, topic: str, at: float) -> None:
        """Mark a topic as due at a time (monotonic seconds)."""
        self._later[topic] = at

    def tick(self, now: float) -> None:
        """Mark the topics as due on which a wait has expired, or of which the time has come."""
        if self._later:
            for topic in [topic for topic, at in self._later.items() if at <= now]:
                del self._later[topic]
                self._ready[topic] = None
        while self._expiries and self._expiries[0][0] <= now:
            poll = self._find(heapq.heappop(self._expiries)[1])
            if poll is not None and poll.expires <= now:
                self._ready[poll.get.topic] = None

    def deadline(self) -> float:
        """Return the time at which `tick` has work, or minus infinity if `ready` has topics."""
        if self._ready:
            return float("-inf")
        later = min(self._later.values()) if self._later else float("inf")
        return min(self._expiries[0][0], later) if self._expiries else later

    def has_ready(self) -> bool:
        return bool(self._ready)

    def ready(self) -> Iterator[tuple[str, list[Poll]]]:
        """Yield the topics that are due, each with its waiting GETs."""
        ready, self._ready = self._ready, {}
        for topic in ready:
            yield topic, self._of(topic)


def newer(subscription: Subscription) -> dict[str, object]:
    """Return the fields of the answer to an outdated GET."""
    return {
        "number": subscription.number,
        "epoch": subscription.epoch,
        "reason": "" if subscription.on else "the_subscription_was_ended_elsewhere",
    }
