"""The server: what it does with each message, without a socket, a file or a clock.

The rules are those of docs/architecture.md, *Cores and shells*.

The shell feeds it a batch of messages, takes the changes and has them applied, lets it hand out, commits once, and only
then sends what it answered. So an answer never leaves before what it says is durable, and everything that arrived
together shares one fsync:

    handle(…) for each message  →  changes()  →  deliver()  →  changes()  →  commit  →  outgoing()

A put, a subscription and an acknowledgement are done in memory at once and marked. Where the commit finds the disk
full, `reverted` puts back what the store holds and turns the loop's answers into retries. GETs are parked and served
by `deliver`, which sees what the same loop has put. What needs the topic to be whole waits until every proxy has
answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pubsub.clock import Stamps
from pubsub.config.settings import ServerSettings
from pubsub.errors import DecodeError, StoreDamaged
from pubsub.protocol.codec import split_topics
from pubsub.protocol.messages import (
    Get,
    Heartbeat,
    Merge,
    Message,
    Operate,
    Outcome,
    Publish,
    Put,
    Read,
    Report,
    Stage,
    Status,
    Subscribe,
    Transfer,
    Unsubscribe,
)
from pubsub.protocol.names import format_holder, parse_holder
from pubsub.server import changes as c
from pubsub.server.delivery import BatchReader
from pubsub.server.disputes import Disputes
from pubsub.server.gets import Gets
from pubsub.server.givenup import GivenUp
from pubsub.server.legs import Leg
from pubsub.server.links import LISTENER, Links, Origin, Outgoing
from pubsub.server.marks import Marks
from pubsub.server.moves import Moves
from pubsub.server.named import Named
from pubsub.server.operations import Operations
from pubsub.server.polls import Polls
from pubsub.server.publishers import Publishers
from pubsub.server.puts import Puts
from pubsub.server.quarantine import Aside, Quarantine, Request
from pubsub.server.report import TOPICS_MAX, TOPICS_PER_SECOND, report
from pubsub.server.retention import Retention
from pubsub.server.sinks import Sinks
from pubsub.server.stores import Stores
from pubsub.server.topic import Log, Topic
from pubsub.server.wholeness import Wholeness

if TYPE_CHECKING:
    from random import Random

GIVEN: Final = "given "
"""What the note begins with that says to whom a topic was given."""

RESTORED_MAX: Final = 8
"""Logs ended by a restoration with which a topic is announced."""


@dataclass(slots=True)
class Loaded:
    """What a store held when it was opened.

    Attributes:
        incarnation, change: of this start; the last change number.
        topics: by name.
        publishers: names by number; 0 is not used.
        next_topic, next_log, next_skip: the first free numbers.
        discarded: numbers of logs that are nobody's and have batches yet.
        notes: what the server remembers of itself, by name.
        aside: topics that were set aside.
        next_stage, next_piece: the first free numbers of what sinks stage.
        dropped: number and pieces of stages that are nobody's.
        unused_skips: numbers of copies of `last` that no leg refers to.
    """

    store_id: str
    incarnation: int
    change: int
    topics: dict[str, Topic]
    publishers: list[str]
    next_topic: int
    next_log: int
    next_skip: int = 1
    discarded: tuple[int, ...] = ()
    notes: dict[str, object] = field(default_factory=dict)
    aside: list[Aside] = field(default_factory=list)
    next_stage: int = 1
    next_piece: int = 1
    dropped: tuple[tuple[int, int], ...] = ()
    unused_skips: tuple[int, ...] = ()


class ServerCore:
    """One server.

    Args:
        settings: its configuration.
        loaded: what its store held.
        reader: reads stored batches, those of the open transaction included.
        stamps: its clock for stamps.
        random: for log IDs.
        now: monotonic seconds.
    """

    def __init__(
        self, settings: ServerSettings, loaded: Loaded, reader: BatchReader, stamps: Stamps, random: Random, now: float
    ) -> None:
        self.settings, self.stamps, self.reader = settings, stamps, reader
        self.store_id, self.incarnation, self.change = loaded.store_id, loaded.incarnation, loaded.change
        self.topics = loaded.topics
        self._next_topic, self._next_log, self.next_skip = loaded.next_topic, loaded.next_log, loaded.next_skip
        self._random, self.started = random, now
        self.links = Links(settings, loaded.store_id, loaded.incarnation, stamps, now)
        self.stores = Stores(self, loaded.notes)
        self.given_up = GivenUp(self)
        self.quarantine = Quarantine(self, loaded.aside, loaded.notes)
        self.wholeness = Wholeness(self.links, self._is_disputed, self._nobody_claims)
        self.polls = Polls()
        self.marks = Marks(self.topics)
        self.disputes = Disputes(self)
        self.publishers = Publishers(loaded.publishers, self.marks)
        self.retention = Retention(settings.retention_hold_seconds, settings.history_bytes_max, now, self.topics)
        self.retention.discard(list(loaded.discarded))
        self.retention.discard_skips(loaded.unused_skips)
        self.counters: Counter[str] = Counter()
        self.full = False
        """Whether the disk is full: puts and subscriptions are answered so."""
        self.damaged: set[str] = set()
        """Topics of which some could not be read."""
        self.disk: Callable[[], dict[str, int]] = dict
        """Gives sizes in bytes that the shell knows, for reports."""
        self.answers: list[tuple[Origin, Status | Transfer]] = []
        self._announce: dict[str, str] = {}
        self._given: dict[str, str] = {}
        """Topics of which it is noted to whom they were given, as that is announced."""
        for note, value in loaded.notes.items():
            if note.startswith(GIVEN):
                self._given[note.removeprefix(GIVEN)] = str(value)
                self.links.remember(note.removeprefix(GIVEN), str(value), self.change)
        self._given_stored = dict(self._given)
        self._count_change = True
        self._change_stored = self.change
        self.puts, self.gets = Puts(self), Gets(self)
        self.named = Named(self)
        self._reported = 0.0, b""
        self.sinks = Sinks(self, loaded.next_stage, loaded.next_piece, loaded.dropped, now)
        self.moves = Moves(self, random, now)
        self.operations = Operations(self, loaded.notes)
        for topic in [topic for topic in self.topics.values() if topic.unreadable]:
            self.quarantine.damaged(topic, topic.unreadable)

    # What comes in

    def handle(self, origin: Origin, message: Message, now: float) -> None:
        """A message that a proxy passed on, or one of its own.

        Args:
            origin: where the answer goes.
            message: as decoded.
            now: monotonic seconds.
        """
        self.links.heard(origin.link, now)
        if isinstance(origin.link, str) or origin.link == LISTENER:
            self._from_server(origin, message, now)
        elif isinstance(message, Request) and self.quarantine.turns_away(origin, message):
            return
        elif isinstance(message, Put):
            self.puts.put(origin, message, now)
        elif isinstance(message, Get):
            (self.named.acknowledge if message.name else self.gets.get)(origin, message, now)
        elif isinstance(message, Subscribe | Unsubscribe):
            (self.named.subscribe if message.name else self.gets.subscribe)(origin, message, now)
        elif isinstance(message, Read):
            self.named.read(origin, message)
        elif isinstance(message, Operate):
            self.operations.handle(origin, message, now)
        elif isinstance(message, Stage):
            self.sinks.stage(origin, message, now)
        elif isinstance(message, Publish):
            self.sinks.publish(origin, message, now)
        elif isinstance(message, Report):
            self.answer(origin, Outcome.SUCCESS, body=self._report(now))
        elif isinstance(message, Merge) and not origin.origin:
            self.moves.merge(message, now)
        elif origin.origin or not isinstance(message, Status | Heartbeat):
            self.refuse(origin, f"{type(message).__name__} is not served here", now)
        elif isinstance(message, Status):
            self._status(origin, message, now)
        else:
            self._hear(message.stamp, now)
            if origin.callback:  # A mark: all that the proxy sent before it has been taken in.
                self.answer(origin, Outcome.SUCCESS)

    def _from_server(self, origin: Origin, message: Message, now: float) -> None:
        """What came to our own address, or from another server's."""
        if isinstance(message, Transfer):
            self.moves.transfer(origin, message, now)
        elif isinstance(message, Status) and origin.link != LISTENER:
            self.moves.refused(origin, message, now)
        else:
            self.refuse(origin, f"{type(message).__name__} is not served here", now)

    def _report(self, now: float) -> bytes:
        made_at, body = self._reported
        if not body or (now - made_at) * TOPICS_PER_SECOND >= min(TOPICS_MAX, len(self.topics)):
            body = report(self, now)
            self._reported = now, body
        return body

    def refuse(self, origin: Origin, reason: str, now: float) -> None:
        """Answer a request whose bytes cannot be served.

        Args:
            reason: a few words for a person.
        """
        self.links.heard(origin.link, now)
        self.counters["refused"] += 1
        if origin.callback:
            self.answer(origin, Outcome.REFUSED, reason=_words(reason))

    def _hear(self, stamp: int, now: float) -> None:
        if stamp and not self.stamps.hear(stamp, now):
            self.counters["stamps too far ahead"] += 1

    def _status(self, origin: Origin, status: Status, now: float) -> None:
        """A proxy's answer to an announcement, a heartbeat (no callback) or a question."""
        self._hear(status.stamp, now)
        proxy = int(origin.link)
        if origin.callback:
            for name, others in self.wholeness.answered(origin.callback, proxy, status, now).items():
                self.disputes.told(name, ",".join(sorted(others)), proxy, now)
            return
        self.links.answered(proxy, status, now)
        if self._given and not self._announce:
            self._forget_given()
        if status.outcome is Outcome.STALE:
            self.quarantine.hold_all_back(status.reason, status.change)
        elif status.outcome in {Outcome.SUCCESS, Outcome.FULL}:
            self._told_of_topics(status, proxy, now)

    def _told_of_topics(self, status: Status, proxy: int, now: float) -> None:
        """Take note of who else holds our topics, as a proxy sees it, of what was given up, and of the roster."""
        self.stores.told(status)
        try:
            topics = split_topics(status.body)
        except DecodeError:
            self.counters["answers not understood"] += 1
            return
        for name, value in topics.items():
            self.disputes.told(name, value, proxy, now)

    def _is_disputed(self, topic: str) -> bool:
        # What we gave away ourselves is not whole because a proxy has not heard to whom.
        return self.disputes.is_open(topic) or self.quarantine.holds(topic) or topic in self._given

    def _nobody_claims(self, topic: str, since: int) -> None:
        self.disputes.unclaimed(topic, since)

    def leave(self, now: float) -> None:
        """Say goodbye to every proxy: the process ends."""
        nothing = not (self.topics or self.quarantine.aside or self._given)
        self.links.leave(now, empty=self.links.draining and nothing)

    # Topics

    def measure(self, topic: Topic) -> None:
        """Find out how many bytes some subscriber has not acknowledged."""
        topic.waiting_bytes, topic.measured_total = 0, topic.open.total
        for log_id, floor in topic.floors().items():
            log = topic.logs[log_id]
            try:
                before = None if floor >= log.end else self.reader.total_before(log.number, floor)
            except StoreDamaged:
                self.found_damaged(topic)
                before = 0
            topic.waiting_bytes += 0 if before is None else log.total - before

    def found_damaged(self, topic: Topic) -> None:
        """Some of a topic cannot be read: it is not served beyond that, and said so; other topics are."""
        self.damaged.add(topic.name)
        self.counters["damaged reads"] += 1

    def changed(self, change: c.Change) -> Topic | None:
        """The topic that a change is of; None where it is of none that is held here."""
        number, log = getattr(change, "topic", None), getattr(change, "log", None)
        stage = getattr(change, "stage", None)
        for topic in self.topics.values():
            if topic.number == number or any(one.number == log for one in topic.logs.values()):
                return topic
            if any(one.number == stage for one in topic.stages.values()):
                return topic
        return None

    def new_log_id(self) -> str:
        """A log ID that nobody has."""
        return f"{self._random.getrandbits(64):016x}"

    def new_log_number(self) -> int:
        """A log number that was never used."""
        self._next_log += 1
        return self._next_log - 1

    def announce(self, topic: str, log: str) -> None:
        """Have every proxy told that a topic is held, with its open log, or no longer ("")."""
        self._announce[topic] = _announced(self.topics[topic]) if log else ""
        self._count_change = True

    def announce_given(self, topic: Topic, done: Transfer) -> None:
        """Have every proxy told that a topic is held no longer, and by whom it is: durably, until each has heard."""
        value = f"{format_holder(done.sender, topic.open.id)},{done.store},{done.change}" if done.store else ""
        self._announce[topic.name] = value
        self._count_change = True
        if value:
            self.marks.rows.append(c.NoteKept(GIVEN + topic.name, value))
            self._given[topic.name] = value

    def drop_given(self, topic: str, server: str, store: str, log: str) -> None:
        """Whom a topic was given to was given up there: there is nobody to be told of any more.

        Args:
            server, store, log: of the holder that was given up; store is "" where it is not known.
        """
        value = self._given.get(topic)
        if value is None:
            return
        receiver, given = parse_holder(value.partition(",")[0])
        if log == given or (store == value.split(",")[1] if store else server == receiver):
            del self._given[topic]
            self.links.remember(topic, "", self.change)
            self.marks.rows.append(c.NoteKept(GIVEN + topic, None))

    def _forget_given(self) -> None:
        """What every proxy has heard needs no memory."""
        for name in [name for name in self._given if self.links.is_known_as_given(name)]:
            del self._given[name]
            self.marks.rows.append(c.NoteKept(GIVEN + name, None))

    def create(self, name: str) -> Topic:
        """A new topic."""
        log = Log(self.new_log_number(), self.new_log_id())
        topic = Topic(self._next_topic, name, log, {log.id: log}, spine=(Leg(log.id, 1),))
        self._next_topic += 1
        self.topics[name] = topic
        self.marks.rows.append(c.LogOpened(log.number, log.id, topic.number))
        self.marks.topic(name)
        if name in self._given:
            # A proxy that has not heard to whom it went sends on what it believes is here: that server holds it too.
            receiver, given = parse_holder(self._given[name].partition(",")[0])
            self.disputes.note(topic, given, receiver)
        self.announce(name, log.id)
        return topic

    # Time

    def tick(self, now: float) -> None:
        """What is due by now: waits that are over, heartbeats, announcements, retention."""
        self.polls.tick(now)
        self.wholeness.tick(now)
        self.moves.tick(now)
        if now >= self.links.deadline():
            # Who gets a new socket is told everything too.
            announcing = any(now >= min(link.announce_at, link.reconnect_at) for link in self.links.links)
            holdings = {name: _announced(topic) for name, topic in self.topics.items()} if announcing else {}
            self.links.tick(holdings, self.change, now)
            self._count_change = self._count_change or announcing
        self.marks.rows += self.retention.tick(self, now)
        self.marks.rows += self.sinks.tick(now)

    def deadline(self) -> float:
        """When `tick` has something to do (monotonic seconds)."""
        return min(
            self.links.deadline(),
            self.polls.deadline(),
            self.wholeness.deadline(),
            self.retention.deadline(),
            self.marks.deadline(),
            self.moves.deadline(),
            self.named.deadline(),
            self.sinks.deadline(),
        )

    # What goes out

    def changes(self, now: float) -> list[c.Change]:
        """What is to be committed: all that was marked since the last call."""
        self.wholeness.send(now)
        out = self.marks.take(now)
        if out and self._count_change:
            # The first commit after an announcement moves the change number, so that a copy of the store from
            # before it can be told by that number.
            self.change += 1
            self._count_change = False
            out.append(c.ChangeCounted(self.change, self.stamps.last))
        return out

    def has_ready(self) -> bool:
        """Whether `deliver` has something to look at."""
        return self.polls.has_ready() or self.named.has_ready()

    def outgoing(self, now: float) -> list[Outgoing]:
        """What is to be sent, once all that was taken from `changes` is committed: announcements first."""
        self.marks.touched.clear()
        self.operations.committed()
        self.stores.committed(now)
        self.disputes.committed(now)
        self.quarantine.committed()
        self.retention.committed()
        self.sinks.committed()
        self._change_stored = self.change
        if self._given != self._given_stored:
            self._given_stored = dict(self._given)
        self.publishers.committed()
        if self._announce:
            self.links.announce(self._announce, self.change, now)
            self._announce = {}
        out, self.links.out = self.links.out, []
        for origin, status in self.answers:
            self.links.sent(origin.link, now)
            out.append(Outgoing(origin.link, origin.origin, origin.callback, 0, status))
        self.answers = []
        self.puts.sent()
        out += self.moves.outgoing(now)
        return out

    def reverted(
        self,
        reload: Callable[[str], Topic | None],
        now: float,
        outcome: Outcome = Outcome.FULL,
        reason: str = "disk",
    ) -> None:
        """The commit failed: go back to what the store holds, and answer the loop's requests so, to be tried again.

        Args:
            reload: gives a topic as the store has it, or None where it holds none of that name.
            outcome, reason: of the answers; by default, that it was for want of space.
        """
        self._announce = {}
        # A number that is announced is on the disk, or an honest server would look stale after a power cut.
        self.change, self._count_change = self._change_stored, True
        self.links.withdraw_announcements()
        for name in self.marks.drop():
            self.topics.pop(name, None)
            topic = reload(name)
            if topic is not None:
                self.topics[name] = topic
        self._given = dict(self._given_stored)
        self.publishers.reverted()
        self.moves.reverted(now)
        self.operations.reverted()
        self.stores.reverted()
        self.quarantine.reverted()
        self.retention.reverted(now)
        self.sinks.reverted()
        retry = Status(self.settings.id, outcome, reason=reason)
        # What else was answered speaks of logs, counters and positions that are not there any more.
        self.answers = [
            (origin, answer if isinstance(answer, Status) and answer.outcome is Outcome.REFUSED else retry)
            for origin, answer in self.answers
        ]

    def reply(self, origin: Origin, message: Status | Transfer) -> None:
        """Answer another server."""
        self.answers.append((origin, message))

    def answer(self, origin: Origin, outcome: Outcome, **facts: object) -> None:
        """Answer a request."""
        self.answers.append((origin, Status(self.settings.id, outcome, **facts)))  # type: ignore[arg-type]


def _announced(topic: Topic) -> str:
    """A topic as it is announced: by its open log, and by those of which this store's copy was restored."""
    return ",".join((topic.open.id, *topic.restored[-RESTORED_MAX:]))


def _words(text: str) -> str:
    """A text as one word of a header."""
    return "".join(ch if "!" <= ch <= "~" else "_" for ch in text)[:200]
