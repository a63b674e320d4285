"""GETs that wait for records: at most one for each consumer of a topic's subscription."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from pubsub.protocol.messages import Get, Outcome
from pubsub.server.state.replies import Origin, Replies
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import Subscription


@dataclass(slots=True)
class Poll:
    """A GET that waits.

    Attributes:
        origin: where its answer goes.
        subscription: key of the subscription that it reads.
        expires: until when it waits (monotonic seconds).
        walked: the subscription's spans, and what of them is still to be looked at, where all before it is left out.
        sole_owner: every proxy has answered, for this very request, that no other server holds the topic.
    """

    origin: Origin
    get: Get
    subscription: str
    expires: float
    walked: tuple[tuple[Span, ...], tuple[Span, ...]] | None = None
    sole_owner: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Its topic, its subscription, and the consumer that reads: the sender."""
        return self.get.topic, self.subscription, self.get.sender


class LongPolls:
    """All that wait, and the topics that are to be looked at.

    Args:
        replies: where those are answered that wait no more.
    """

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._waiting: dict[str, dict[str, dict[str, Poll]]] = {}
        """By topic, subscription and consumer."""
        self._count = 0
        self._expiries: list[tuple[float, tuple[str, str, str]]] = []
        self._ready: dict[str, None] = {}

    def __len__(self) -> int:
        return self._count

    def park(self, poll: Poll) -> None:
        """Let a GET wait, in place of an earlier one of the same consumer; it is looked at in this loop."""
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
        """Forget the times of those that wait no more."""
        self._expiries = [(poll.expires, poll.key) for topic in self._waiting for poll in self._of(topic)]
        heapq.heapify(self._expiries)

    def _of(self, topic: str) -> list[Poll]:
        return [poll for polls in self._waiting.get(topic, {}).values() for poll in polls.values()]

    def _find(self, key: tuple[str, str, str]) -> Poll | None:
        topic, subscription, consumer = key
        return self._waiting.get(topic, {}).get(subscription, {}).get(consumer)

    def take(self, poll: Poll) -> None:
        """Have a GET wait no more."""
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
        """Answer one that waits."""
        self.take(poll)
        self._replies.answer(poll.origin, outcome, **facts)

    def end_all(self, topic: str, outcome: Outcome) -> None:
        """Answer all that wait on a topic."""
        for poll in self._of(topic):
            self.end(poll, outcome)

    def end_outdated(self, topic: str, key: str, subscription: Subscription) -> None:
        """Answer GETs that wait under a number or an epoch that is not the subscription's any more.

        Args:
            key: the subscription's.
        """
        for poll in list(self._waiting.get(topic, {}).get(key, {}).values()):
            if subscription.outdates(poll.get.number, poll.get.opening):
                self.end(poll, Outcome.SUPERSEDED, **newer(subscription))

    def waits(self, topic: str, key: str) -> bool:
        """Whether a consumer of the subscription with this key waits."""
        return key in self._waiting.get(topic, {})

    def appended(self, topic: str) -> None:
        """There is something new on a topic."""
        if topic in self._waiting:
            self._ready[topic] = None

    def look_again(self, topic: str) -> None:
        """Not all that wait on a topic were served yet: the next loop goes on."""
        self._ready[topic] = None

    def tick(self, now: float) -> None:
        """Have those looked at whose wait is over."""
        while self._expiries and self._expiries[0][0] <= now:
            poll = self._find(heapq.heappop(self._expiries)[1])
            if poll is not None and poll.expires <= now:
                self._ready[poll.get.topic] = None

    def deadline(self) -> float:
        """When `tick` has something to do, or `ready` gives something at once."""
        if self._ready:
            return float("-inf")
        return self._expiries[0][0] if self._expiries else float("inf")

    def has_ready(self) -> bool:
        """Whether `ready` gives anything."""
        return bool(self._ready)

    def ready(self) -> Iterator[tuple[str, list[Poll]]]:
        """The topics to be looked at, each with those that wait there."""
        ready, self._ready = self._ready, {}
        for topic in ready:
            yield topic, self._of(topic)


def newer(subscription: Subscription) -> dict[str, object]:
    """What one is told whose GET is outdated."""
    return {
        "number": subscription.number,
        "opening": subscription.opening,
        "reason": "" if subscription.on else "the_subscription_was_ended_elsewhere",
    }
