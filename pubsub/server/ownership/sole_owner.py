"""Whether this server is the sole owner of a topic: that no other server holds any of it.

The rules are those of docs/architecture.md, *Sole ownership*. It is asked when it is needed and never remembered (that
others hold it, is: see `contested`). Every proxy of the configuration is asked that very question, and the operation
that needs it waits; only if a majority of them answer "no other holder", and none that answered before names one, is it
done. A majority has a witness of every other holder in it (`unheard`). What is asked within one loop goes out as one
question.

The answer of a proxy that may not have heard that a topic left this server does not count: it may take this server for
the holder still, and so ask nobody else. Of a topic that is contested all must answer, since that no other server holds
it any more is found out from what all of them remember.

An operation waits as a value, such as a `Parked` request. Once it is decided `decided` hands it out again, with the
verdict, and `core` gives it back to the room that it came from.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError
from pubsub.messenger.framing import FIRST_CALLBACK
from pubsub.protocol.bodies import split_topics
from pubsub.protocol.messages import Get, Outcome, Put, Status
from pubsub.server.ownership.contested import Contested
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import Request, State

QUESTION_SECONDS: Final = 1.0
"""How long proxies have to answer."""

WAITING_MAX: Final = 1_000
"""Operations that wait for an answer."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes that these operations hold."""


@dataclass(slots=True)
class Parked:
    """A request that waits until it is known whether this server is its topic's sole owner.

    Attributes:
        otherwise: what it is answered where it is not.
    """

    origin: Origin
    request: Request
    otherwise: Outcome = Outcome.BUSY


@dataclass(slots=True)
class Trimming:
    """What may go of a topic, if this server is its sole owner.

    Attributes:
        generation: of the topic when that was found out.
        cuts: by log, the offset below which its batches may go.
    """

    topic: str
    generation: int
    cuts: dict[str, int]


Operation = Parked | Trimming


@dataclass(slots=True)
class _Question:
    waiting: set[int]
    expires: float
    operations: list[tuple[str, Operation]]
    size: int
    others: dict[str, set[str]] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    """Proxies whose answers about a topic count."""
    silent: int = 0
    """Proxies that answered that they cannot say."""
    since: int = NUMBER_MAX
    """Every store that these proxies know has said all it holds since then (a stamp)."""

    @property
    def topics(self) -> dict[str, None]:
        """The topics that it asks about, each once, in order."""
        return dict.fromkeys(topic for topic, _ in self.operations)


class SoleOwner:
    """The questions that are open.

    Args:
        state: the server's.
        proxies: who are asked.
        contested: told where no proxy knows another holder.
    """

    def __init__(self, state: State, proxies: Proxies, contested: Contested) -> None:
        self._state, self._proxies, self._contested = state, proxies, contested
        self._token = FIRST_CALLBACK
        self._open: dict[int, _Question] = {}
        self._unasked: list[tuple[str, Operation]] = []
        self._unasked_bytes = 0
        self._waiting = self._waiting_bytes = 0
        self._decided: deque[tuple[str, Operation, bool]] = deque()
        """With its topic, and whether no proxy named another holder."""

    def __len__(self) -> int:
        return self._waiting

    def ask(self, topic: str, operation: Operation, size: int = 0) -> bool:
        """Have it asked at the end of this loop.

        Args:
            topic: of which it is to be known.
            operation: what waits for it.
            size: bytes that the operation holds until it is decided.

        Returns:
            False where too many, or too many bytes, wait already; the operation does not wait then.
        """
        if self._waiting >= WAITING_MAX or (size and self._waiting_bytes + size > WAITING_BYTES_MAX):
            return False
        self._unasked.append((topic, operation))
        self._unasked_bytes += size
        self._waiting += 1
        self._waiting_bytes += size
        return True

    def park(self, origin: Origin, request: Request, otherwise: Outcome = Outcome.BUSY) -> bool:
        """Have a request wait, to be dispatched again.

        Args:
            otherwise: what it is answered where this server is not the sole owner.

        Returns:
            False where too many wait.
        """
        size = len(request.body) if isinstance(request, Put) else 0
        return self.ask(request.topic, Parked(origin, request, otherwise), size)

    def park_or_turn_away(self, origin: Origin, request: Request) -> None:
        """The same; where too many wait it is answered so."""
        if not self.park(origin, request):
            reason = "too_many_operations_wait_for_a_whole_topic"
            self._state.replies.answer(origin, Outcome.BUSY, reason=reason)

    def decided(self) -> Iterator[tuple[Operation, bool]]:
        """What waits no more, each with whether this server is the sole owner of its topic: now, as it is taken."""
        while self._decided:
            topic, operation, sole = self._decided.popleft()
            yield operation, sole and not self._state.is_not_sole_owner(topic)

    def send(self, now: float) -> None:
        """Ask what was put together since the last call."""
        if not self._unasked:
            return
        self._token += 1
        topics = {topic: "" for topic, _ in self._unasked}
        asked = self._proxies.ask_whole(topics, self._token, now)
        self._open[self._token] = _Question(set(asked), now + QUESTION_SECONDS, self._unasked, self._unasked_bytes)
        self._unasked, self._unasked_bytes = [], 0

    def answered(self, token: int, proxy: int, status: Status) -> dict[str, frozenset[str]]:
        """One proxy's answer.

        Returns:
            Other holders that it named, by topic, as the proxy names them.
        """
        question = self._open.get(token)
        if question is None or proxy not in question.waiting:
            return {}
        question.waiting.discard(proxy)
        told: dict[str, str] | None = None
        with suppress(DecodeError):
            told = split_topics(status.body) if status.outcome is Outcome.SUCCESS else None
        if told is None:  # A proxy that cannot say.
            question.silent += 1
            if len(self._proxies.all) - question.silent < self._proxies.majority or self._is_settled(question):
                self._settle(token)
            return {}
        question.since = min(question.since, status.since)
        named = {topic: frozenset(filter(None, others.split(","))) for topic, others in told.items()}
        left = self._state.left
        for topic in question.topics:
            if topic not in named:  # A topic that was left out of the answer was not answered.
                continue
            question.others.setdefault(topic, set()).update(named[topic])
            question.counted[topic] += not self._proxies.may_take_for_holder(proxy, topic, left)
        if self._is_settled(question):
            self._settle(token)
        return {topic: others for topic, others in named.items() if others}

    def tick(self, now: float) -> None:
        """Give up on questions that too few proxies have answered in time."""
        for token in [token for token, question in self._open.items() if question.expires <= now]:
            self._settle(token)

    def deadline(self) -> float:
        """When `tick` has something to do."""
        return min((question.expires for question in self._open.values()), default=float("inf"))

    def _settle(self, token: int) -> None:
        question = self._open.pop(token)
        self._waiting -= len(question.operations)
        self._waiting_bytes -= question.size
        for topic in question.topics:
            if question.counted[topic] == len(self._proxies.all) and not question.others.get(topic):
                self._contested.unclaimed(topic, question.since)
        for topic, operation in question.operations:
            known = question.counted[topic] >= self._proxies.majority
            self._decided.append((topic, operation, known and not question.others.get(topic)))

    def _is_settled(self, question: _Question) -> bool:
        """Whether no further answer is waited for."""
        return not question.waiting or all(
            question.counted[topic] >= self._proxies.majority and not self._state.is_contested(topic)
            for topic in question.topics
        )

    def turn_away(self, parked: Parked) -> None:
        """Answer a request that this server is not known to be the sole owner for."""
        state, request = self._state, parked.request
        topic = state.topics.get(request.topic)
        facts: dict[str, object] = {"reason": "topic_is_not_known_to_be_whole"}
        if isinstance(request, Put):
            number = state.publishers.find(f"{request.sender}/{request.publisher}")
            facts |= {"last": topic.last.get(number or 0, 0) if topic else 0, "log": topic.open.id if topic else ""}
        elif isinstance(request, Get):
            facts = {"reason": "subscription", "log": topic.open.id if topic else ""}
        state.replies.answer(parked.origin, parked.otherwise, **facts)
