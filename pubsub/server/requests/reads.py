"""Range reads, by which Spark reads a topic (docs/explanation/spark-exchange.md, *Ranges*).

    READ    records of (after, until], or lost; no records left in it → empty; max=0 → the plan of the range;
            times=1 → what the range shows; another history → again; a start that is not held → gone, or unknown

Any process may read ranges of a named subscription (`requests.subscriptions`), or of the topic itself, as often as it
likes. Like a GET, a range is read after the loop's own changes are in the store, because it may contain records of the
same loop.

A range of the topic itself may have a start and a limit by timestamp.

The rules are those of docs/explanation/replay.md, I8; docs/explanation/replay.md, I10.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from dataclasses import asdict
from typing import Final

from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Outcome, Read
from pubsub.protocol.names import EARLIEST, FEWER, Position, format_position
from pubsub.server.ownership.sole_owner import SoleOwner
from pubsub.server.requests.admission import Admission
from pubsub.server.requests.replays import Replays, begins_far_behind
from pubsub.server.state.replies import Origin
from pubsub.server.state.state import REPAIRING, State
from pubsub.server.topic import changes as c
from pubsub.server.topic.consumers import KEY
from pubsub.server.topic.delivery import Answer, collect
from pubsub.server.topic.places import ended
from pubsub.server.topic.ranges import behind, misses_tombstones, plan, start_of, up_to
from pubsub.server.topic.settings import BUILT_IN
from pubsub.server.topic.shown import times
from pubsub.server.topic.spans import ALWAYS, Span, find
from pubsub.server.topic.start import NOT_HELD, begun_all, cursor_at, oldest, with_bodies
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
        replays: the pace of readers far behind.
    """

    def __init__(self, state: State, sole_owner: SoleOwner, admission: Admission, replays: Replays) -> None:
        self._state, self._sole_owner, self._admission, self._replays = state, sole_owner, admission, replays
        self._delayed: list[tuple[Origin, Read, bool]] = []
        self._delayed_until = float("inf")
        """READs of readers far behind that come back to the queue at this time."""
        self._reads: deque[tuple[Origin, Read, bool]] = deque()
        """Each with True if enough proxies have answered for it that no other server holds the topic."""
        self._waiting: Counter[tuple[int | str, bytes]] = Counter()
        """Number of waiting reads by client: link and origin."""

    def __len__(self) -> int:
        return len(self._reads) + len(self._delayed)

    def read(self, origin: Origin, read: Read, now: float, sole_owner: bool = False) -> None:
        """Process READ: it waits until the loop's changes are in the store.

        Args:
            sole_owner: True if enough proxies have answered, for this very request, that no other server holds the
                topic.
        """
        whose = origin.link, origin.origin
        if len(self) >= READS_MAX or self._waiting[whose] >= READS_PER_CLIENT_MAX:
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
        return float("-inf") if self._reads else self._delayed_until

    def tick(self, now: float) -> None:
        """Return the delayed READs to the queue when their time has come."""
        if now >= self._delayed_until:
            self._reads.extend(self._delayed)
            self._delayed, self._delayed_until = [], float("inf")

    def deliver(self, now: float) -> None:
        """Answer the waiting reads, up to the limit of one loop, after this loop's changes are in the store."""
        handed_out = 0
        while self._reads and handed_out < READ_BYTES_MAX:
            origin, read, sole_owner = waiting = self._reads.popleft()
            handed = self._serve(origin, read, sole_owner, now)
            if handed is None:
                self._delayed.append(waiting)
                continue
            whose = origin.link, origin.origin
            self._waiting[whose] -= 1
            if not self._waiting[whose]:
                del self._waiting[whose]
            handed_out += handed

    def _serve(self, origin: Origin, read: Read, sole_owner: bool, now: float) -> int | None:
        """Answer a READ; return the number of bytes handed out, or None if it waits for its turn."""
        state = self._state
        found = None
        if not self._admission.rejects(origin, read.topic):
            found = self._admission.named(origin, read.topic, read.name)
        if found is None:
            return 0
        topic, subscription = found
        if refusal := _refusal(read):
            state.replies.refuse(origin, refusal)
            return 0
        if read.history not in ("", topic.history_token) or misses_tombstones(topic, read.after, read.tombstones - 1):
            state.replies.answer(origin, Outcome.AGAIN, log=topic.open.id, history=topic.history_token)
            return 0
        # A merge may have brought a restored copy's log since this READ arrived.
        if not sole_owner and self._ends_unknown(read):
            self._sole_owner.park_or_reject(origin, read)
            return 0
        try:
            return self._serve_range(origin, read, topic, subscription, sole_owner, now)
        except StoreDamaged:
            state.found_damaged(topic)
            state.replies.answer(origin, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here", log=topic.open.id)
            return 0

    def _serve_range(
        self,
        origin: Origin,
        read: Read,
        topic: Topic,
        subscription: Subscription | None,
        sole_owner: bool,
        now: float,
    ) -> int | None:
        """Answer a READ of a topic that is served.

        Raises:
            StoreDamaged: a row cannot be read.
        """
        state = self._state
        begin = self._begin(topic, subscription, read)
        if begin is None:
            self._is_not_held(origin, read, topic, sole_owner=sole_owner)
            return 0
        spans, start, since, reason = begin
        rest = behind(topic, spans, start, read.after)
        after = start if read.after is None else read.after
        cut = None if rest is None else up_to(topic, rest, after, read.until)
        if cut is None and not isinstance(read.start, int) and read.start != EARLIEST and _is_held(topic, read.until):
            cut = ()  # The range ends before its start.
        if cut is None:
            state.counters["positions_behind"] += 1
            state.replies.answer(origin, Outcome.BEHIND, position=start, log=topic.open.id)
            return 0
        facts: dict[str, object] = {"position": start} | ({"reason": reason} if reason else {})
        if subscription is not None:
            topic.use(KEY + read.name)
        else:
            facts |= {"since": since, "history": topic.history_token, "number": topic.removal.tombstones}
            cut = self._within(topic, cut, read)
        if read.records_max and not read.times:
            return self._hand_out_at_a_pace(origin, read, topic, cut, after, facts, now)
        if read.times:
            body = self._times(topic, cut)
        else:
            body = plan(topic, cut, after, state.reader, read.bytes_max, named=subscription is not None)
        state.replies.answer(origin, Outcome.SUCCESS, log=topic.open.id, body=body, **facts)
        return len(body)

    def _hand_out_at_a_pace(
        self,
        origin: Origin,
        read: Read,
        topic: Topic,
        spans: tuple[Span, ...],
        after: Position,
        facts: dict[str, object],
        now: float,
    ) -> int | None:
        """Hand out records, or return None if the reader is far behind and waits for its turn."""
        far = begins_far_behind(topic, spans, self._state.reader)
        if far and (at := self._replays.next_at(now)) is not None:
            self._delayed_until = min(self._delayed_until, at)
            return None
        size = self._hand_out(origin, read, topic, spans, after, facts)
        if far:
            self._replays.handed_out(size)
        elif size:
            self._replays.shared = True
        return size

    def _is_not_held(self, origin: Origin, read: Read, topic: Topic, *, sole_owner: bool) -> None:
        """Answer a READ that begins at a position which is not held here, or ask whether another server holds it."""
        state = self._state
        if sole_owner:
            state.replies.answer(origin, Outcome.GONE, reason=NOT_HELD, **oldest(topic, state.reader))
        else:
            self._sole_owner.park_or_reject(origin, read, Outcome.UNKNOWN)

    def _begin(
        self, topic: Topic, subscription: Subscription | None, read: Read
    ) -> tuple[tuple[Span, ...], Position, int, str] | None:
        """Return the spans that a range is a part of, the position before them, and the `since` of a reader of them.

        The last item is the reason for the answer, "" for none.

        Returns:
            None if the position that the range begins at is not held here.
        """
        start = read.start
        if subscription is not None:
            return subscription.cursor.backlog, subscription.cursor.acknowledged, ALWAYS, ""
        if start == EARLIEST or isinstance(start, int):
            spans = self._spans(topic, read)
            return spans, start_of(spans), max(ALWAYS, start - 1) if isinstance(start, int) else ALWAYS, ""
        cursor = cursor_at(topic, start, 0, 0, self._state.reader)
        if cursor is None:
            return None
        since = cursor.since if isinstance(start, tuple) else ALWAYS
        return cursor.backlog, cursor.acknowledged, since, FEWER if cursor.short else ""

    def _within(self, topic: Topic, spans: tuple[Span, ...], read: Read) -> tuple[Span, ...]:
        """Return the part of a range within its limits by timestamp."""
        reader = self._state.reader
        if isinstance(read.start, int):
            spans = begun_all(topic, spans, max(ALWAYS, read.start - 1), reader)
        if read.before:
            spans = tuple(ended(topic, span, read.before, reader) for span in spans)
            spans = tuple(span for span in spans if span.low < (span.high or 0))
        return spans

    def _times(self, topic: Topic, spans: tuple[Span, ...]) -> bytes:
        """Return what the spans show, as JSON."""
        found = times(topic, spans, self._state.reader)
        ends = {"first": (topic.open.id, topic.open.end), "end": (topic.open.id, topic.open.end)}
        if spans:
            ends = {"first": (spans[0].log, spans[0].low), "end": (spans[-1].log, spans[-1].high or 0)}
        facts = asdict(found) | {name: format_position(place) for name, place in ends.items()}
        return json.dumps(facts, separators=(",", ":")).encode("ascii")

    def _spans(self, topic: Topic, read: Read) -> tuple[Span, ...]:
        """Return the history, without batches that were let go before the reader came."""
        if topic.in_force is BUILT_IN and not topic.purged:
            return topic.history
        return with_bodies(topic, topic.history, self._state.reader, but=read.after[0] if read.after else "")

    def _hand_out(
        self,
        origin: Origin,
        read: Read,
        topic: Topic,
        spans: tuple[Span, ...],
        after: Position,
        facts: dict[str, object],
    ) -> int:
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
            reason=answer.reason or str(facts.get("reason", "")),
            records=answer.records,
            checksum=answer.checksum,
            log=topic.open.id,
            body=answer.body,
            **{name: fact for name, fact in facts.items() if name not in {"position", "reason"}},
        )
        return len(answer.body)


def _refusal(read: Read) -> str:
    """Return the reason why a READ contradicts itself; "" if it does not."""
    if read.name and (read.start != EARLIEST or read.before or read.history or read.times):
        return "a READ of a named subscription has neither a start, a limit by time, a history nor times"
    if read.after is not None and read.start != EARLIEST and not isinstance(read.start, int):
        return "a READ that goes on begins at a timestamp, or has no start"
    return ""


def _is_held(topic: Topic, position: Position | None) -> bool:
    if position is None or find(topic.history, position) is None:
        return False
    return position[1] < topic.logs[position[0]].end


def _passed(answer: Answer, spans: tuple[Span, ...], after: Position) -> Position:
    """Return the position from which the reader continues if all records read were left out."""
    rest = answer.rest or ()
    used = spans[: len(spans) - len(rest)]
    if rest and rest[0] != spans[len(used)]:
        return start_of(rest)
    # The position before an unread span may be outside the range, so use the end of the last span that was read.
    return (used[-1].log, (used[-1].high or 1) - 1) if used else after
