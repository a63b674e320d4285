"""Range reads, by which Spark reads a topic (docs/explanation/spark-exchange.md, *Ranges*).

    READ    records of (after, until], or lost; no records left in it → empty; max=0 → the plan of the range

Any process may read ranges of a named subscription (`requests.subscriptions`), or of the topic itself, as often as it
likes. Like a GET, a range is read after the loop's own changes are in the store, because it may contain records of the
same loop.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Outcome, Read
from pubsub.protocol.names import Position
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.requests.admission import Admission
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import REPAIRING, State
from pubsub.server.topic import changes as c
from pubsub.server.topic.consumers import KEY
from pubsub.server.topic.delivery import Answer, collect
from pubsub.server.topic.ranges import behind, plan, start_of, up_to
from pubsub.server.topic.settings import BUILT_IN
from pubsub.server.topic.spans import Span
from pubsub.server.topic.start import with_bodies
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Topic, ends_unknown

READS_MAX: Final = 1_000
"""Most waiting range reads; a further one is answered `busy`."""

READS_PER_CLIENT_MAX: Final = 64
"""Most waiting range reads of one client, so that other clients get their turn."""

READ_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of ranges handed out in one loop."""


class Reads:
    """The range reads of one server.

    Args:
        sole_owner: asks if this server is a topic's sole owner.
        admission: checks if a topic is served.
    """

    def __init__(self, state: State, sole_owner: SoleOwner, admission: Admission) -> None:
        self._state, self._sole_owner, self._admission = state, sole_owner, admission
        self._reads: deque[tuple[Origin, Read, bool]] = deque()
        """Each with True if enough proxies have answered for it that no other server holds the topic."""
        self._waiting: Counter[tuple[int | str, bytes]] = Counter()
        """Number of waiting reads by client: link and origin."""

    def __len__(self) -> int:
        return len(self._reads)

    def read(self, origin: Origin, read: Read, now: float, sole_owner: bool = False) -> None:
        """Process READ: it waits until the loop's changes are in the store.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        whose = origin.link, origin.origin
        if len(self._reads) >= READS_MAX or self._waiting[whose] >= READS_PER_CLIENT_MAX:
            self._state.counters["reads_rejected"] += 1
            self._state.replies.answer(origin, Outcome.BUSY, reason="too_many_reads_wait")
        elif not sole_owner and self._ends_unknown(read):
            self._sole_owner.park_or_reject(origin, read)
        else:
            self._reads.append((origin, read, sole_owner))
            self._waiting[whose] += 1

    def _ends_unknown(self, read: Read) -> bool:
        """Return True if the spans include the end of a log that a restored copy lacks."""
        topic = self._state.topics.get(read.topic)
        if topic is None or not topic.ended:
            return False
        subscription = topic.subscriptions.get(KEY + read.name) if read.name else None
        spans = topic.history if subscription is None else subscription.cursor.backlog
        return any(span.high is not None and ends_unknown(topic, (span.log, span.high - 1)) for span in spans)

    def has_ready(self) -> bool:
        """Return True if `deliver` has something to do."""
        return bool(self._reads)

    def deadline(self) -> float:
        """Return the time of the next work: at once if a read waits."""
        return float("-inf") if self._reads else float("inf")

    def deliver(self) -> None:
        """Answer the waiting reads, up to the limit of one loop, after this loop's changes are in the store."""
        handed_out = 0
        while self._reads and handed_out < READ_BYTES_MAX:
            origin, read, sole_owner = self._reads.popleft()
            whose = origin.link, origin.origin
            self._waiting[whose] -= 1
            if not self._waiting[whose]:
                del self._waiting[whose]
            handed_out += self._serve(origin, read, sole_owner)

    def _serve(self, origin: Origin, read: Read, sole_owner: bool) -> int:
        """Answer a READ; return the number of bytes handed out."""
        state = self._state
        found = None
        if not self._admission.rejects(origin, read.topic):
            found = self._admission.named(origin, read.topic, read.name)
        if found is None:
            return 0
        topic, subscription = found
        # A merge may have brought a restored copy's log since this READ arrived.
        if not sole_owner and self._ends_unknown(read):
            self._sole_owner.park_or_reject(origin, read)
            return 0
        try:
            spans = self._spans(topic, subscription, read)
        except StoreDamaged:
            state.found_damaged(topic)
            state.replies.answer(origin, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here", log=topic.open.id)
            return 0
        start = start_of(spans) if subscription is None else subscription.cursor.acknowledged
        rest = behind(topic, spans, start, read.after)
        after = start if read.after is None else read.after
        cut = None if rest is None else up_to(topic, rest, after, read.until)
        if cut is None:
            state.counters["positions_behind"] += 1
            state.replies.answer(origin, Outcome.BEHIND, position=start, log=topic.open.id)
            return 0
        if subscription is not None:
            topic.use(KEY + read.name)
        try:
            if not read.records_max:
                named = subscription is not None
                body = plan(topic, cut, after, state.reader, read.bytes_max, named=named)
                state.replies.answer(origin, Outcome.SUCCESS, position=start, log=topic.open.id, body=body)
                return len(body)
            return self._hand_out(origin, read, topic, cut, after)
        except StoreDamaged:
            state.found_damaged(topic)
            state.replies.answer(origin, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here", log=topic.open.id)
            return 0

    def _spans(self, topic: Topic, subscription: Subscription | None, read: Read) -> tuple[Span, ...]:
        """Return the spans of a read; along the history without batches that were let go before the reader came."""
        if subscription is not None:
            return subscription.cursor.backlog
        if topic.in_force is BUILT_IN and not topic.purged:
            return topic.history
        return with_bodies(topic, topic.history, self._state.reader, but=read.after[0] if read.after else "")

    def _hand_out(self, origin: Origin, read: Read, topic: Topic, spans: tuple[Span, ...], after: Position) -> int:
        state, settings = self._state, self._state.settings
        records = min(read.records_max, settings.answer_records_max)
        size = min(read.bytes_max or settings.answer_bytes_max, settings.answer_bytes_max)
        answer = collect(topic, spans, state.reader, state.publishers.names, records, size)
        state.uncommitted.rows += [c.BatchQuarantined(log, offset) for log, offset in answer.damaged]
        state.counters["batches_damaged"] += len(answer.damaged)
        if answer.repairable is not None and state.ask_repair(*answer.repairable):
            state.replies.answer(origin, Outcome.UNAVAILABLE, reason=REPAIRING, log=topic.open.id)
            return 0
        state.counters["records_read_by_range"] += answer.records
        state.replies.answer(
            origin,
            answer.outcome,
            message=answer.last or _passed(answer, spans, after),
            first=answer.first,
            reason=answer.reason,
            records=answer.records,
            checksum=answer.checksum,
            log=topic.open.id,
            body=answer.body,
        )
        return len(answer.body)


def _passed(answer: Answer, spans: tuple[Span, ...], after: Position) -> Position:
    """Return the position from which the reader continues if all records read were left out."""
    rest = answer.rest or ()
    used = spans[: len(spans) - len(rest)]
    if rest and rest[0] != spans[len(used)]:
        return start_of(rest)
    # The position before an unread span may be outside the range, so use the end of the last span that was read.
    return (used[-1].log, (used[-1].high or 1) - 1) if used else after
