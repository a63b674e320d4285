"""GETs that wait for records: at most one for each subscriber of a topic."""

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
        expires: until when it waits (monotonic seconds).
        walked: the subscription's spans, and what of them is still to be looked at, where all before it is left out.
        sole_owner: every proxy has answered, for this very request, that no other server holds the topic.
    """

    origin: Origin
    get: Get
    expires: float
    walked: tuple[tuple[Span, ...], tuple[Span, ...]] | None = None
    sole_owner: bool = False


class LongPolls:
    """All that wait, and the topics that are to be looked at.

    Args:
        replies: where those are answered that wait no more.
    """

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._waiting: dict[str, dict[str, Poll]] = {}
        self._count = 0
        self._expiries: list[tuple[float, str, str]] = []
        self._ready: dict[str, None] = {}

    def __len__(self) -> int:
        return self._count

    def park(self, poll: Poll) -> None:
        """Let a GET wait, in place of an earlier one of the same subscriber; it is looked at in this loop."""
        topic, subscriber = poll.get.topic, poll.get.sender
        polls = self._waiting.setdefault(topic, {})
        self._count += subscriber not in polls
        polls[subscriber] = poll
        if poll.get.wait_ms:
            heapq.heappush(self._expiries, (poll.expires, topic, subscriber))
            if len(self._expiries) > 64 + 4 * self._count:
                self._sweep()
        self._ready[topic] = None

    def _sweep(self) -> None:
        """Forget the times of those that wait no more."""
        self._expiries = [
            (poll.expires, topic, subscriber)
            for topic, polls in self._waiting.items()
            for subscriber, poll in polls.items()
        ]
        heapq.heapify(self._expiries)

    def take(self, topic: str, subscriber: str) -> Poll | None:
        """The waiting GET of a subscriber, which then waits no more."""
        polls = self._waiting.get(topic)
        poll = polls.pop(subscriber, None) if polls else None
        self._count -= poll is not None
        if polls is not None and not polls:
            del self._waiting[topic]
        return poll

    def end(self, poll: Poll, outcome: Outcome, **facts: object) -> None:
        """Answer one that waits."""
        self.take(poll.get.topic, poll.get.sender)
        self._replies.answer(poll.origin, outcome, **facts)

    def end_all(self, topic: str, outcome: Outcome) -> None:
        """Answer all that wait on a topic."""
        for poll in list(self._waiting.get(topic, {}).values()):
            self.end(poll, outcome)

    def end_outdated(self, topic: str, subscriber: str, subscription: Subscription) -> None:
        """Answer a subscriber that waits under a number or an epoch that is not the subscription's any more."""
        poll = self._waiting.get(topic, {}).get(subscriber)
        if poll is not None and subscription.outdates(poll.get.number, poll.get.opening):
            self.end(poll, Outcome.SUPERSEDED, **newer(subscription))

    def waits(self, topic: str, subscriber: str) -> bool:
        """Whether a subscriber waits."""
        return subscriber in self._waiting.get(topic, {})

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
            _, topic, subscriber = heapq.heappop(self._expiries)
            poll = self._waiting.get(topic, {}).get(subscriber)
            if poll is not None and poll.expires <= now:
                self._ready[topic] = None

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
            yield topic, list(self._waiting.get(topic, {}).values())


def newer(subscription: Subscription) -> dict[str, object]:
    """What one is told whose GET is outdated."""
    return {
        "number": subscription.number,
        "opening": subscription.opening,
        "reason": "" if subscription.on else "the_subscription_was_ended_elsewhere",
    }
