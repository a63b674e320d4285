"""Named subscriptions and range reads: what Spark reads a topic by (docs/architecture.md, *Subscribe and get*).

A named subscription is an entry of its own, under a key that no client's ID can be. It is made while the topic is
whole, at the beginning or the end of what is held, and a repeat finds it as it stands: so "from the newest on" means
the same each time it is asked. It has no fence: any process may read ranges of it, as often as it likes, and only an
acknowledgement moves it. Retention and the backlog's limit see it as any other subscriber.

    SUBSCRIBE name   no entry, or off under a lower number → made, once the topic is known to be whole
                     on → success, nothing changes         off under this number or a higher one → superseded
    UNSUBSCRIBE name a higher number → off                  else → superseded, or success where it is off by this one
    GET name max=0   acknowledged up to `last`, or behind   other max → refused
    READ             records of (after, until], or lost; nothing left in it → empty; max=0 → the plan of the range

A range is read after the loop's own changes are in the store, like a GET, since it may hold what the same loop took.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Final

from pubsub.clock import MICROSECONDS
from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Get, Outcome, Read, Subscribe, Unsubscribe
from pubsub.protocol.names import Position
from pubsub.server import changes as c
from pubsub.server.delivery import Answer, collect
from pubsub.server.givenup import ends_unknown
from pubsub.server.legs import ALWAYS, Leg
from pubsub.server.links import Origin
from pubsub.server.ranges import KEY, behind, plan, start_of, up_to
from pubsub.server.topic import Entry, Topic

if TYPE_CHECKING:
    from pubsub.server.core import ServerCore

READS_MAX: Final = 1_000
"""Range reads that wait for their turn; a further one is answered `busy`."""

READS_PER_CLIENT_MAX: Final = 64
"""The same of one client, so that others have their turn."""

READ_BYTES_MAX: Final = 8 * 1024 * 1024
"""Bytes of ranges handed out in one loop."""


class Named:
    """The named subscriptions of one server, and the ranges it is asked for.

    Args:
        core: the server.
    """

    def __init__(self, core: ServerCore) -> None:
        self._core = core
        self._reads: deque[tuple[Origin, Read, bool]] = deque()
        """With each, whether all proxies have answered for it that the topic is whole."""
        self._waiting: Counter[tuple[int | str, bytes]] = Counter()
        """How many of them are whose: by link and origin."""

    # The subscription

    def subscribe(self, origin: Origin, request: Subscribe | Unsubscribe, now: float, whole: bool = False) -> None:
        """SUBSCRIBE or UNSUBSCRIBE with a name.

        Args:
            whole: every proxy has answered, for this very request, that no other server holds the topic.
        """
        core = self._core
        key = KEY + request.name
        topic = core.topics.get(request.topic)
        entry = topic.entries.get(key) if topic else None
        if topic is not None and topic.frozen:
            core.answer(origin, Outcome.MOVED)
            return
        if not request.number:
            core.refuse(origin, "number is 0", now)
            return
        on = isinstance(request, Subscribe)
        if topic is not None and entry is not None and ((on and entry.on) or request.number <= entry.number):
            same = on == entry.on and (on or request.number == entry.number)
            self._told(origin, topic, entry, Outcome.SUCCESS if same else Outcome.SUPERSEDED)
            return
        obstacle = self._obstacle(topic, key, on)
        if obstacle:
            core.answer(origin, Outcome.FULL, reason=obstacle)
        elif on and not whole:
            self._ask(origin, request)
        else:
            self._settle(origin, request, topic or core.create(request.topic), now)

    def _ask(self, origin: Origin, request: Subscribe | Unsubscribe) -> None:
        core = self._core

        def then(whole: bool, now: float) -> None:
            if whole:
                self.subscribe(origin, request, now, whole=True)
            else:
                core.answer(origin, Outcome.BUSY, reason="topic_is_not_known_to_be_whole")

        if not core.wholeness.ask(request.topic, then):
            core.answer(origin, Outcome.BUSY, reason="too_many_operations_wait_for_a_whole_topic")

    def _obstacle(self, topic: Topic | None, key: str, on: bool) -> str:
        core = self._core
        known = topic is not None and key in topic.entries
        if core.full and (on or not known):
            return "disk"
        if topic is None:
            return "topics_max" if len(core.topics) >= core.settings.topics_max else ""
        return "subscribers_max" if not known and len(topic.entries) >= core.settings.subscribers_max else ""

    def _settle(self, origin: Origin, request: Subscribe | Unsubscribe, topic: Topic, now: float) -> None:
        core = self._core
        log = topic.open
        position: Position = (log.id, log.end - 1)
        since = ALWAYS
        legs: tuple[Leg, ...] = ()
        if isinstance(request, Subscribe) and request.start == "earliest":
            legs, position = topic.spine, start_of(topic.spine)
        elif isinstance(request, Subscribe):
            since = max(0, core.stamps.reading(now) - int(core.settings.skew_seconds * MICROSECONDS))
            legs = (Leg(log.id, log.end),)
        entry = Entry(request.number, request.opening, isinstance(request, Subscribe), since, position, legs)
        topic.entries[KEY + request.name] = entry
        core.marks.entry(topic.name, KEY + request.name)
        self._told(origin, topic, entry, Outcome.SUCCESS)

    def _told(self, origin: Origin, topic: Topic, entry: Entry, outcome: Outcome) -> None:
        self._core.answer(
            origin,
            outcome,
            position=entry.acknowledged,
            number=entry.number,
            opening=entry.opening,
            log=topic.open.id,
        )

    def acknowledge(self, origin: Origin, get: Get, now: float) -> None:
        """GET with a name: it acknowledges, and hands nothing out."""
        core = self._core
        if get.records_max:
            core.refuse(origin, "a named subscription is read by READ", now)
            return
        found = self._find(origin, get.topic, get.name)
        if found is None:
            return
        topic, entry = found
        assert entry is not None
        sound, changed = topic.acknowledge(entry, get.last)
        if not sound:
            core.counters["positions behind"] += 1
            core.answer(origin, Outcome.BEHIND, position=entry.acknowledged, log=topic.open.id)
            return
        if changed:
            core.marks.acknowledged(topic.name, KEY + get.name, now)
        core.answer(origin, Outcome.EMPTY, position=entry.acknowledged, log=topic.open.id)

    def _find(self, origin: Origin, name: str, subscription: str) -> tuple[Topic, Entry | None] | None:
        """The topic, and the entry where a name is given; None where that was answered."""
        topic = self._core.topics.get(name)
        if topic is None:
            self._core.answer(origin, Outcome.UNKNOWN, reason="topic")
            return None
        if topic.frozen:
            self._core.answer(origin, Outcome.MOVED)
            return None
        if self._core.quarantine.holds(name):
            self._core.answer(origin, Outcome.UNAVAILABLE, reason="quarantined_here")
            return None
        entry = topic.entries.get(KEY + subscription) if subscription else None
        if subscription and (entry is None or not entry.on):
            self._core.answer(origin, Outcome.UNKNOWN, reason="subscription", log=topic.open.id)
            return None
        return topic, entry

    # Ranges

    def read(self, origin: Origin, read: Read, whole: bool = False) -> None:
        """READ: it waits for the loop's changes to be in the store.

        Args:
            whole: every proxy has answered, for this very request, that no other server holds the topic.
        """
        whose = origin.link, origin.origin
        if len(self._reads) >= READS_MAX or self._waiting[whose] >= READS_PER_CLIENT_MAX:
            self._core.counters["reads turned away"] += 1
            self._core.answer(origin, Outcome.BUSY, reason="too_many_reads_wait")
        elif not whole and self._ends_unknown(read):
            self._ask_for_read(origin, read)
        else:
            self._reads.append((origin, read, whole))
            self._waiting[whose] += 1

    def _ends_unknown(self, read: Read) -> bool:
        """Whether the legs go through the end of a log that a restored copy lacks."""
        topic = self._core.topics.get(read.topic)
        if topic is None or not topic.ended:
            return False
        entry = topic.entries.get(KEY + read.name) if read.name else None
        legs = topic.spine if entry is None else entry.legs
        return any(leg.high is not None and ends_unknown(topic, (leg.log, leg.high - 1)) for leg in legs)

    def _ask_for_read(self, origin: Origin, read: Read) -> None:
        core = self._core

        def then(whole: bool, now: float) -> None:
            if whole:
                self.read(origin, read, whole=True)
            else:
                core.answer(origin, Outcome.BUSY, reason="topic_is_not_known_to_be_whole")

        if not core.wholeness.ask(read.topic, then):
            core.answer(origin, Outcome.BUSY, reason="too_many_operations_wait_for_a_whole_topic")

    def has_ready(self) -> bool:
        """Whether `deliver` has something to do."""
        return bool(self._reads)

    def deadline(self) -> float:
        """When there is something to do: at once where a read waits."""
        return float("-inf") if self._reads else float("inf")

    def deliver(self) -> None:
        """Answer the reads that wait, up to a limit for one loop, after this loop's changes are in the store."""
        handed_out = 0
        while self._reads and handed_out < READ_BYTES_MAX:
            origin, read, whole = self._reads.popleft()
            whose = origin.link, origin.origin
            self._waiting[whose] -= 1
            if not self._waiting[whose]:
                del self._waiting[whose]
            handed_out += self._serve(origin, read, whole)

    def _serve(self, origin: Origin, read: Read, whole: bool) -> int:
        """Answer a READ; how many bytes were handed out."""
        core = self._core
        found = self._find(origin, read.topic, read.name)
        if found is None:
            return 0
        topic, entry = found
        if not whole and self._ends_unknown(read):  # A join has brought a restored copy's log since it came.
            self._ask_for_read(origin, read)
            return 0
        legs = topic.spine if entry is None else entry.legs
        start = start_of(legs) if entry is None else entry.acknowledged
        rest = behind(topic, legs, start, read.after)
        after = start if read.after is None else read.after
        cut = None if rest is None else up_to(topic, rest, after, read.until)
        if cut is None:
            core.counters["positions behind"] += 1
            core.answer(origin, Outcome.BEHIND, position=start, log=topic.open.id)
            return 0
        try:
            if not read.records_max:
                body = plan(topic, cut, after, core.reader, read.bytes_max)
                core.answer(origin, Outcome.SUCCESS, position=start, log=topic.open.id, body=body)
                return len(body)
            return self._hand_out(origin, read, topic, cut, after)
        except StoreDamaged:
            core.found_damaged(topic)
            core.answer(origin, Outcome.UNAVAILABLE, reason="the_store_is_damaged_here", log=topic.open.id)
            return 0

    def _hand_out(self, origin: Origin, read: Read, topic: Topic, legs: tuple[Leg, ...], after: Position) -> int:
        core, settings = self._core, self._core.settings
        records = min(read.records_max, settings.answer_records_max)
        size = min(read.bytes_max or settings.answer_bytes_max, settings.answer_bytes_max)
        answer = collect(topic, legs, core.reader, core.publishers.names, records, size)
        core.marks.rows += [c.BatchQuarantined(log, offset) for log, offset in answer.damaged]
        core.counters["damaged batches"] += len(answer.damaged)
        core.counters["read by range"] += answer.records
        core.answer(
            origin,
            answer.outcome,
            message=answer.last or _passed(answer, legs, after),
            first=answer.first,
            records=answer.records,
            checksum=answer.checksum,
            log=topic.open.id,
            body=answer.body,
        )
        return len(answer.body)


def _passed(answer: Answer, legs: tuple[Leg, ...], after: Position) -> Position:
    """Up to where all that was looked at is left out, where nothing was handed out: the reader goes on behind it."""
    if answer.rest:
        return start_of(answer.rest)
    return (legs[-1].log, (legs[-1].high or 1) - 1) if legs else after
