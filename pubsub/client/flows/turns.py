"""Alternate between several topics in one loop, so that a topic with a long backlog does not delay the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.gets import Gets
from pubsub.errors import CallerError
from pubsub.protocol import check_topic
from pubsub.protocol.patterns import is_pattern

TURN_MAX: Final = 10
"""Most messages of one topic before the next topic has its turn."""

TOPICS_MAX: Final = 1_000
"""Most topics in one call of `process`."""


def check_topics(topics: str | Sequence[str]) -> tuple[str, ...]:
    """Return the topics of a call as a tuple.

    Raises:
        CallerError: there are none or too many, or one is named twice.
        InvalidName: a name is not allowed.
    """
    if isinstance(topics, str):
        return (topics,)
    if isinstance(topics, bytes) or not isinstance(topics, Sequence):
        raise CallerError(f"topic is a string, or a list of strings, not {type(topics).__name__}")
    named = tuple(map(check_topic, topics))
    if not 0 < len(named) <= TOPICS_MAX:
        raise CallerError(f"1 to {TOPICS_MAX:,} topics can be taken from at once; {len(named):,} are named")
    if len(set(named)) < len(named):
        raise CallerError(f"a topic is named twice: {', '.join(named)}"[:200])
    return named


class Turns:
    """Yield topics in turn, each with its most messages, until no more messages are here or enough were taken.

    Args:
        gets: keeps the topic served last, from one call to the next.
        topics: all topics of the call.
        ready: those with something to take, in the order of their turns.
        most: most messages to take.
        hold: what waits behind a message that waits.
        turn: most messages of one topic in its turn, where there are several topics.

    Attributes:
        taken: number of messages taken; the caller adds to it in each turn.
    """

    def __init__(
        self,
        gets: Gets,
        topics: Sequence[str],
        ready: Sequence[Subscription],
        most: int,
        hold: str,
        turn: int = TURN_MAX,
    ) -> None:
        self._gets, self._topics, self._ready, self._most, self._hold = gets, topics, ready, most, hold
        self._turn = turn
        self.taken = 0

    def __iter__(self) -> Iterator[tuple[Subscription, int]]:
        several = len(self._topics) > 1 or is_pattern(self._topics[0])
        ready = self._ready
        while ready:
            before = self.taken
            for sub in ready:
                self._gets.served = sub.topic
                left = self._most - self.taken
                yield sub, min(self._turn, left) if several else left
                if self.taken >= self._most:
                    return
            if self.taken == before or not several:
                return
            ready = self._gets.ready(self._topics, self._hold)
