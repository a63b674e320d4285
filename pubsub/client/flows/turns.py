"""Several topics in one loop: each has its turn, so that one with a long backlog keeps no other one waiting for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.gets import Gets
from pubsub.errors import CallerError
from pubsub.protocol import check_topic

TURN_MAX: Final = 10
"""Messages of one of several topics that are handled before the next topic has its turn."""

TOPICS_MAX: Final = 1_000
"""Topics that one call of `process` takes from at most."""


def check_topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    """The topics that a call names, one or several.

    Raises:
        CallerError: they are none, too many, or one is named twice.
        InvalidName: one is no topic.
    """
    if isinstance(topics, str):
        return (topics,)
    if isinstance(topics, bytes) or not isinstance(topics, Sequence):
        raise CallerError(f"topic is a text, or a list of texts, not {type(topics).__name__}")
    named = tuple(map(check_topic, topics))
    if not 0 < len(named) <= TOPICS_MAX:
        raise CallerError(f"1 to {TOPICS_MAX:,} topics can be taken from at once; {len(named):,} are named")
    if len(set(named)) < len(named):
        raise CallerError(f"a topic is named twice: {', '.join(named)}"[:200])
    return named


class Turns:
    """Whose turn it is, and for how many messages at most, until nothing is here or enough were taken.

    Args:
        gets: keeps which topic was served last, from one call to the next.
        topics: all that the call takes from.
        ready: those of them that have something, in the order of their turns.
        most: messages to take at most.

    Attributes:
        taken: how many were; the caller adds to it in each turn.
    """

    def __init__(self, gets: Gets, topics: Sequence[str], ready: Sequence[Subscription], most: int) -> None:
        self._gets, self._topics, self._ready, self._most = gets, topics, ready, most
        self.taken = 0

    def __iter__(self) -> Iterator[tuple[Subscription, int]]:
        several = len(self._topics) > 1
        ready = self._ready
        while ready:
            before = self.taken
            for sub in ready:
                self._gets.served = sub.topic
                left = self._most - self.taken
                yield sub, min(TURN_MAX, left) if several else left
                if self.taken >= self._most:
                    return
            if self.taken == before or not several:
                return
            ready = self._gets.ready(self._topics)
