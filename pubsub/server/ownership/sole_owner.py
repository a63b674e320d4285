"""The question of sole ownership: whether no other server holds any part of a topic.

The rules are those of docs/explanation/sole-ownership.md, W1, W2, W3, W4 and W6.

The server asks when an operation needs it, and never remembers the answer. (It does remember other holders: see
`contested`.) The operation waits while every proxy in the settings is asked. It continues if a majority answers "no
other holder" and no earlier answer names one. Every majority includes a witness of every other holder (`unconfirmed`).
All questions of one loop go out as one message.

The answer of a proxy that may not know yet that a topic left this server does not count. That proxy may still take this
server for the holder, and so ask no other server. For a contested topic all proxies must answer, because only the
memory of all of them together shows that the other holder is gone.

An operation waits as a value, such as a `Parked` request. Once the question is decided, `decided` returns it with the
result, and `core` passes it back to its room.
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
from pubsub.protocol.messages import Get, Outcome, Put, Read, Status, Subscribe
from pubsub.protocol.topic_objects import Purge
from pubsub.server.ownership.contested import Contested
from pubsub.server.ownership.patterns import ServerPatterns
from pubsub.server.ownership.proxies import Proxies
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import Request, State

QUESTION_SECONDS: Final = 1.0
"""Time for proxies to answer."""

WAITING_MAX: Final = 1_000
"""Most operations that wait for an answer."""

WAITING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Most bytes that these operations hold."""


@dataclass(slots=True)
class Parked:
    """A request that waits for the question of sole ownership.

    Attributes:
        otherwise: the outcome it gets if this server is not the sole owner.
    """

    origin: Origin
    request: Request
    otherwise: Outcome = Outcome.BUSY


@dataclass(slots=True)
class Trimming:
    """The batches of a topic that may be deleted if this server is its sole owner.

    Attributes:
        generation: the topic's generation when they were determined.
        cuts: by log, the offset below which its batches may be deleted.
        drops: by log, the offset below which unacknowledged batches may lose their bytes.
        informed: True if a proxy has shown that this server knows its patterns.
        denied: subscribers of patterns that may not get from the topic.
        by_default: True if this server's default of the topic's settings allows it.
        others_with_other_defaults: the servers that have other defaults, once the question is decided; "" if none.
    """

    topic: str
    generation: int
    cuts: dict[str, int]
    drops: dict[str, int] = field(default_factory=dict)
    informed: bool = False
    denied: frozenset[str] = frozenset()
    by_default: bool = False
    others_with_other_defaults: str = ""


@dataclass(slots=True)
class Compacting:
    """A round of compaction of a topic, if this server is its sole owner.

    Attributes:
        generation: the number of the pass when the round was planned.
        denied: subscribers of patterns that may not get from the topic.
    """

    topic: str
    generation: int
    denied: frozenset[str] = frozenset()


@dataclass(slots=True)
class Delivering:
    """The due messages of a topic, which are appended if this server is its sole owner."""

    topic: str


Operation = Parked | Trimming | Delivering | Compacting


@dataclass(slots=True)
class _Question:
    waiting: set[int]
    expires: float
    operations: list[tuple[str, Operation]]
    size: int
    others: dict[str, set[str]] = field(default_factory=dict)
    counted: Counter[str] = field(default_factory=Counter)
    """Number of proxies with a counting answer, by topic."""
    informed: Counter[str] = field(default_factory=Counter)
    """Number of those with a counting answer that know the same patterns as this server, by topic."""
    denied: dict[str, Counter[str]] = field(default_factory=dict)
    """By topic the subscribers of patterns that may not get from it, with the number of answers that say so."""
    silent: int = 0
    """Number of proxies that answered without a result."""
    answers: int = 0
    """Number of proxies that answered with a result."""
    since: int = NUMBER_MAX
    """Every store that these proxies know has announced all its topics since then (a timestamp)."""
    others_with_other_defaults: set[str] = field(default_factory=set)

    def denied_by_all(self, topic: str) -> frozenset[str]:
        """Return the subscribers of patterns that no proxy with an answer allows to get from a topic."""
        found = self.denied.get(topic) or Counter[str]()
        return frozenset(who for who, count in found.items() if count >= self.answers)

    @property
    def topics(self) -> dict[str, None]:
        """The topics that it asks about, each once, in order."""
        return dict.fromkeys(topic for topic, _ in self.operations)


class SoleOwner:
    """The open questions.

    Args:
        proxies: asked.
        contested: called if no proxy knows another holder.
        patterns: the patterns of subscribers that this server knows.
    """

    def __init__(self, state: State, proxies: Proxies, contested: Contested, patterns: ServerPatterns) -> None:
        self._state, self._proxies, self._contested, self._patterns = state, proxies, contested, patterns
        self._token = FIRST_CALLBACK
        self._open: dict[int, _Question] = {}
        self._unasked: list[tuple[str, Operation]] = []
        self._unasked_bytes = 0
        self._waiting = self._waiting_bytes = 0
        self._decided: deque[tuple[str, Operation, bool]] = deque()
        """Topic, operation, and True if enough proxies answered and none named another holder."""

    def __len__(self) -> int:
        return self._waiting

    def ask(self, topic: str, operation: Operation, size: int = 0) -> bool:
        """Queue an ownership question; it is sent at the end of this turn.

        Args:
            topic: the topic in question.
            operation: waits for the answer.
            size: bytes that the operation holds until then.

        Returns:
            False if too many operations or bytes wait already; the operation does not wait then.
        """
        if self._waiting >= WAITING_MAX or (size and self._waiting_bytes + size > WAITING_BYTES_MAX):
            return False
        self._unasked.append((topic, operation))
        self._unasked_bytes += size
        self._waiting += 1
        self._waiting_bytes += size
        return True

    def park(self, origin: Origin, request: Request, otherwise: Outcome = Outcome.BUSY) -> bool:
        """Let a request wait for the answer; it is then dispatched again.

        Args:
            otherwise: the outcome it gets if this server is not the sole owner.

        Returns:
            False if too many requests wait.
        """
        size = len(request.body) if isinstance(request, Put) else 0
        return self.ask(request.topic, Parked(origin, request, otherwise), size)

    def park_or_reject(self, origin: Origin, request: Request, otherwise: Outcome = Outcome.BUSY) -> None:
        """Let a request wait as `park` does, or answer BUSY if too many wait."""
        if not self.park(origin, request, otherwise):
            reason = "too_many_operations_wait_for_sole_ownership"
            self._state.replies.answer(origin, Outcome.BUSY, reason=reason)

    def decided(self) -> Iterator[tuple[Operation, bool]]:
        """Yield the decided operations, each with True if this server is the sole owner of its topic at this moment."""
        while self._decided:
            topic, operation, sole = self._decided.popleft()
            yield operation, sole and not self._state.is_not_sole_owner(topic)

    def send(self, now: float) -> None:
        """Ask the questions queued since the last call."""
        if not self._unasked:
            return
        self._token += 1
        topics = {topic: "" for topic, _ in self._unasked}
        asked = self._proxies.ask_owners(topics, self._token, now)
        self._open[self._token] = _Question(set(asked), now + QUESTION_SECONDS, self._unasked, self._unasked_bytes)
        self._unasked, self._unasked_bytes = [], 0

    def answered(self, token: int, proxy: int, status: Status) -> dict[str, frozenset[str]]:
        """Process one proxy's answer.

        Returns:
            The other holders that the proxy named, by topic.
        """
        question = self._open.get(token)
        if question is None or proxy not in question.waiting:
            return {}
        question.waiting.discard(proxy)
        told: dict[str, str] | None = None
        holders, *denials = bytes(status.body).split(b"\n")
        with suppress(DecodeError):
            told = split_topics(holders) if status.outcome is Outcome.SUCCESS else None
        if told is None:  # This proxy cannot answer the question.
            question.silent += 1
            if len(self._proxies.all) - question.silent < self._proxies.majority or self._is_settled(question):
                self._settle(token)
            return {}
        question.since = min(question.since, status.since)
        question.answers += 1
        question.others_with_other_defaults |= set(filter(None, status.defaults.split(",")))
        named = {topic: frozenset(filter(None, others.split(","))) for topic, others in told.items()}
        left = self._state.left
        for topic in question.topics:
            if topic not in named:  # A topic missing in the answer counts as unanswered.
                continue
            question.others.setdefault(topic, set()).update(named[topic])
            counts = not self._proxies.may_take_for_holder(proxy, topic, left)
            question.counted[topic] += counts
            question.informed[topic] += counts and self._patterns.is_equal(status.patterns)
        _deny(question, denials)
        if self._is_settled(question):
            self._settle(token)
        return {topic: others for topic, others in named.items() if others}

    def tick(self, now: float) -> None:
        """Decide questions that too few proxies have answered in time."""
        for token in [token for token, question in self._open.items() if question.expires <= now]:
            self._settle(token)

    def deadline(self) -> float:
        """Return the time at which `tick` has something to do (monotonic seconds)."""
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
            if not isinstance(operation, Parked) or isinstance(operation.request, Purge):
                known = known and question.informed[topic] >= self._proxies.majority
            if isinstance(operation, Trimming | Compacting):
                operation.denied = question.denied_by_all(topic)
            if isinstance(operation, Trimming):
                operation.informed = question.informed[topic] > 0
                operation.others_with_other_defaults = ", ".join(sorted(question.others_with_other_defaults))
            self._decided.append((topic, operation, known and not question.others.get(topic)))

    def _is_settled(self, question: _Question) -> bool:
        """Return True if the question needs no further answer."""
        return not question.waiting or all(
            question.counted[topic] >= self._proxies.majority and not self._state.is_contested(topic)
            for topic in question.topics
        )

    def reject(self, parked: Parked) -> None:
        """Answer a request after its question was not decided in favour of this server."""
        state, request = self._state, parked.request
        topic = state.topics.get(request.topic)
        facts: dict[str, object] = {"reason": "topic_is_not_known_to_be_whole"}
        if isinstance(request, Put):
            number = state.publishers.find(f"{request.sender}/{request.publisher}")
            facts |= {"last": topic.last.get(number or 0, 0) if topic else 0, "log": topic.open.id if topic else ""}
        elif parked.otherwise is Outcome.UNKNOWN and isinstance(request, Subscribe | Read):
            facts = {"reason": "nothing_is_held_at_that_position_here", "log": topic.open.id if topic else ""}
        elif isinstance(request, Get):
            facts = {"reason": "subscription", "log": topic.open.id if topic else ""}
        state.replies.answer(parked.origin, parked.otherwise, **facts)


def _deny(question: _Question, lines: list[bytes]) -> None:
    """Note the subscribers that may not get topics, from the lines of an answer: `subscriber topic topic …`."""
    for line in lines:
        subscriber, *topics = line.decode("ascii", "replace").split(" ")
        for topic in topics:
            question.denied.setdefault(topic, Counter())[subscriber] += 1
