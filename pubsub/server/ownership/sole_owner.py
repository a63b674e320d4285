"""Whether topics are whole: that no other server holds any of them (docs/architecture.md, *Sole ownership*).

It is asked when it is needed and never remembered (that it is not, is: see `disputes`). Every proxy of the
configuration is asked that very question, and the operation that needs it waits; only if all of them answer "no other
holder" is it done. What is asked within one loop goes out as one question.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.messenger.framing import FIRST_CALLBACK
from pubsub.protocol.codec import split_topics
from pubsub.protocol.messages import Outcome, Status
from pubsub.server.ownership.proxies import Links

QUESTION_SECONDS: Final = 1.0
"""How long all proxies have to answer."""

WAITING_MAX: Final = 1_000
"""Operations that wait for an answer."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes that these operations hold."""

Then = Callable[[bool, float], None]
"""Told whether the topic is whole, and `now`."""


@dataclass(slots=True)
class _Question:
    waiting: set[int]
    expires: float
    then: list[tuple[str, Then]]
    size: int
    others: dict[str, set[str]] = field(default_factory=dict)
    since: int = NUMBER_MAX
    """Every store that these proxies know has said all it holds since then (a stamp)."""


class Wholeness:
    """The questions that are open.

    Args:
        links: to the proxies.
        disputed: tells of a topic whether it is known not to be whole, whatever proxies say.
        unclaimed: told of a topic that no proxy knows another holder of, and the stamp since which every store that
            they know has said all it holds.
    """

    def __init__(
        self,
        links: Links,
        disputed: Callable[[str], bool] = lambda _: False,
        unclaimed: Callable[[str, int], None] = lambda topic, since: None,
    ) -> None:
        self._links, self._disputed, self._unclaimed = links, disputed, unclaimed
        self._token = FIRST_CALLBACK
        self._open: dict[int, _Question] = {}
        self._unasked: list[tuple[str, Then]] = []
        self._unasked_bytes = 0
        self._waiting = self._waiting_bytes = 0

    def ask(self, topic: str, then: Then, size: int = 0) -> bool:
        """Have it asked at the end of this loop.

        Args:
            topic: of which it is to be known.
            then: told the answer.
            size: bytes that `then` holds until it is told.

        Returns:
            False where too many, or too many bytes, wait already; `then` is not told anything.
        """
        if self._waiting >= WAITING_MAX or (size and self._waiting_bytes + size > WAITING_BYTES_MAX):
            return False
        self._unasked.append((topic, then))
        self._unasked_bytes += size
        self._waiting += 1
        self._waiting_bytes += size
        return True

    def send(self, now: float) -> None:
        """Ask what was put together since the last call."""
        if not self._unasked:
            return
        self._token += 1
        topics = {topic: "" for topic, _ in self._unasked}
        asked = self._links.ask_whole(topics, self._token, now)
        self._open[self._token] = _Question(set(asked), now + QUESTION_SECONDS, self._unasked, self._unasked_bytes)
        self._unasked, self._unasked_bytes = [], 0

    def answered(self, token: int, proxy: int, status: Status, now: float) -> dict[str, frozenset[str]]:
        """One proxy's answer.

        Returns:
            Other holders that it named, by topic, as the proxy names them.
        """
        question = self._open.get(token)
        if question is None or proxy not in question.waiting:
            return {}
        if status.outcome is not Outcome.SUCCESS:
            self._settle(token, now)  # One that cannot say makes it unknown.
            return {}
        try:
            told = split_topics(status.body)
        except DecodeError:
            self._settle(token, now)
            return {}
        question.waiting.discard(proxy)
        question.since = min(question.since, status.since)
        named = {topic: frozenset(filter(None, others.split(","))) for topic, others in told.items()}
        for topic, _ in question.then:
            # A topic that was left out of the answer was not answered.
            question.others.setdefault(topic, set()).update(named.get(topic, {"?"}))
        if not question.waiting:
            self._settle(token, now)
        return {topic: others for topic, others in named.items() if others}

    def tick(self, now: float) -> None:
        """Give up on questions that not every proxy has answered in time."""
        for token in [token for token, question in self._open.items() if question.expires <= now]:
            self._settle(token, now)

    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min((question.expires for question in self._open.values()), default=float("inf"))

    def _settle(self, token: int, now: float) -> None:
        question = self._open.pop(token)
        self._waiting -= len(question.then)
        self._waiting_bytes -= question.size
        known = not question.waiting
        for topic in {topic: None for topic, _ in question.then} if known else ():
            if not question.others.get(topic):
                self._unclaimed(topic, question.since)
        for topic, then in question.then:
            then(known and not question.others.get(topic) and not self._disputed(topic), now)
