"""GETs that wait for records: at most one for each subscriber of a topic."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from pubsub.protocol.messages import Get
from pubsub.server.state.replies import Origin
from pubsub.server.topic.spans import Leg


@dataclass(slots=True)
class Poll:
    """A GET that waits.

    Attributes:
        origin: where its answer goes.
        expires: until when it waits (monotonic seconds).
        walked: the entry's legs, and what of them is still to be looked at, where all before it is left out.
        whole: every proxy has answered, for this very request, that no other server holds the topic.
    """

    origin: Origin
    get: Get
    expires: float
    walked: tuple[tuple[Leg, ...], tuple[Leg, ...]] | None = None
    whole: bool = False


class Polls:
    """All that wait, and the topics that are to be looked at."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Poll]] = {}
        self._count = 0
        self._expiries: list[tuple[float, str, str]] = []
        self._ready: dict[str, None] = {}

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

    def waiting(self, topic: str) -> list[Poll]:
        """All that wait on a topic."""
        return list(self._waiting.get(topic, {}).values())

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
