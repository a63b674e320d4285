"""What a server has in memory: the ground that its rooms stand on. It imports none of them.

A room is given the state and the rooms below it that it uses. Everything that is durable is loaded from the store, and
whoever changes it notes that in `uncommitted`, so that the loop commits it. Everything else ends with the process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pubsub.base.clock import Stamps
from pubsub.config.settings import ServerSettings
from pubsub.errors import StoreDamaged
from pubsub.protocol.messages import Get, Publish, Put, Read, Stage, Subscribe, Transfer, Unsubscribe
from pubsub.protocol.names import format_holder, parse_holder
from pubsub.server.state.long_polls import LongPolls
from pubsub.server.state.measures import Measures
from pubsub.server.state.publishers import Publishers
from pubsub.server.state.replies import Replies
from pubsub.server.state.uncommitted import Uncommitted
from pubsub.server.topic import changes as c
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.loaded import Loaded
from pubsub.server.topic.notes import ACCEPTED, GIVEN, HELD, STALE, UNHEARD
from pubsub.server.topic.policy import Policy
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic

if TYPE_CHECKING:
    from random import Random

Request = Put | Get | Subscribe | Unsubscribe | Read | Stage | Publish
"""What clients ask of a topic; the most frequent first."""

MENDING: Final = "a_damaged_batch_is_asked_of_the_other_member"
"""Why a request is turned away that would be told of a loss, which may be none."""

PROXIES_ALONE: Final = 2
"""With more proxies than these one witness of a new topic is too few, and the store notes which topics lack any."""

RESTORED_MAX: Final = 8
"""Logs ended by a restoration with which a topic is announced."""


class State:
    """One server's.

    Args:
        settings: its configuration.
        loaded: what its store held.
        reader: reads stored batches, those of the open transaction included.
        stamps: its clock for stamps.
        random: for log IDs.
        now: monotonic seconds.

    Attributes:
        change: the change number.
        topics: by name.
        uncommitted: what the next commit is to make durable.
        held: topics that are held back, and why.
        stale: why the whole store is held back, "" where it is not.
        accepted: whether this store is a copy that was said to be all there is: what it lacks is gone.
        aside: topics that were set aside.
        given: topics of which it is noted to whom they were given, as that is announced.
        unheard: topics held here of which it is noted that too few proxies have heard.
        announcements: topics of which every proxy is to be told after the commit, as they are announced.
        count_change: whether the next commit moves the change number.
        left: the change number with which a topic left this process last, -1: none has.
        newly_contested: topics of which another holder was noted in this loop.
    """

    def __init__(
        self, settings: ServerSettings, loaded: Loaded, reader: BatchReader, stamps: Stamps, random: Random, now: float
    ) -> None:
        self.settings, self.stamps, self.reader = settings, stamps, reader
        self.store_id, self.incarnation, self.change = loaded.store_id, loaded.incarnation, loaded.change
        self._next_topic, self._next_log, self.next_watermark = (
            loaded.next_topic,
            loaded.next_log,
            loaded.next_watermark,
        )
        self._random, self.started = random, now
        self.topics = loaded.topics
        self.uncommitted = Uncommitted(self.topics)
        for topic in list(loaded.topics.values()):
            self._add(topic)
        self.publishers = Publishers(loaded.publishers, self.uncommitted)
        self.counters: Counter[str] = Counter()
        self.replies = Replies(settings.id, self.counters)
        self.long_polls = LongPolls(self.replies)
        self.full = False
        """Whether the disk is full: puts and subscriptions are answered so."""
        self.damaged: set[str] = set()
        """Topics of which some could not be read."""
        self.disk: Callable[[], dict[str, int]] = dict
        """Gives sizes in bytes that the shell knows, for reports."""
        self.process: Callable[[], dict[str, int]] = dict
        """Gives what the process uses of its machine, for reports."""
        self.measures: Measures | None = None
        """What is measured; None where nobody is told."""
        self.mends: Callable[[int, int], bool] = lambda log, offset: False
        """Whether the batch at this place, which is damaged here, may come from the other member: that one is asked."""
        self.held = {name.removeprefix(HELD): str(why) for name, why in loaded.notes.items() if name.startswith(HELD)}
        self.stale = str(loaded.notes.get(STALE) or "")
        self.accepted = bool(loaded.notes.get(ACCEPTED))
        self.aside = list(loaded.aside)
        self.given = {
            name.removeprefix(GIVEN): str(value) for name, value in loaded.notes.items() if name.startswith(GIVEN)
        }
        self.unheard = {name.removeprefix(UNHEARD): "" for name in loaded.notes if name.startswith(UNHEARD)}
        self.announcements: dict[str, str] = {}
        self.count_change = True
        self.left = -1
        self.newly_contested: set[str] = set()

    # What is asked

    def is_held_back(self, topic: str) -> bool:
        """Whether a topic, or the whole store, is held back."""
        return bool(self.stale) or topic in self.held

    def why_held_back(self, topic: str) -> str:
        """Why it is, for a person, as one word of a header."""
        what = "this_server_runs_on_an_older_copy_of_its_store" if self.stale else "quarantined_here"
        return f"{what}:_{(self.stale or self.held[topic]).replace(' ', '_')}"[:300]

    def is_contested(self, topic: str) -> bool:
        """Whether another server may hold some of a topic."""
        held = self.topics.get(topic)
        return held is not None and bool(held.contested)

    def is_not_sole_owner(self, topic: str) -> bool:
        """Whether this server is known not to be a topic's sole owner, whatever proxies say."""
        # A topic that was given away counts until every proxy has heard to whom: it may still send requests here.
        return self.is_contested(topic) or self.is_held_back(topic) or topic in self.given

    def topic_of(self, change: c.Change) -> Topic | None:
        """The topic that a change is of; None where it is of none that is held here."""
        number, log = getattr(change, "topic", None), getattr(change, "log", None)
        stage = getattr(change, "stage", None)
        for topic in self.topics.values():
            if topic.number == number or any(one.number == log for one in topic.logs.values()):
                return topic
            if any(one.number == stage for one in topic.stages.values()):
                return topic
        return None

    def measure(self, topic: Topic) -> None:
        """Find out how many bytes some subscriber has not acknowledged."""
        topic.waiting_bytes, topic.measured_total = 0, topic.open.total
        for log_id, floor in topic.floors().items():
            log = topic.logs[log_id]
            try:
                before = None if floor >= log.end else self._total_before(log, floor)
            except StoreDamaged:
                self.found_damaged(topic)
                before = 0
            topic.waiting_bytes += 0 if before is None else log.total - before

    def _total_before(self, log: Log, offset: int) -> int | None:
        before = self.reader.total_before(log.number, offset)
        if before is not None:
            return before
        # It may have been put in this loop, and not be in the store yet.
        put = (row for row in self.uncommitted.rows if isinstance(row, c.BatchAppended | c.BatchPublished))
        found = next((row.total for row in put if row.log == log.number and 0 <= offset - row.offset < row.count), None)
        if found is None:  # Its row may be gone: then what waits begins with the next one.
            found = next((total for *_, total in self.reader.stamps(log.number, offset, 1)), None)
        return found

    # What changes

    def found_damaged(self, topic: Topic) -> None:
        """Some of a topic cannot be read: it is not served beyond that, and said so; other topics are."""
        self.damaged.add(topic.name)
        self.counters["reads_damaged"] += 1

    def new_log_id(self) -> str:
        """A log ID that nobody has."""
        return f"{self._random.getrandbits(64):016x}"

    def new_log_number(self) -> int:
        """A log number that was never used."""
        self._next_log += 1
        return self._next_log - 1

    def new_watermark(self) -> int:
        """A number that no copy of `last` ever had."""
        self.next_watermark += 1
        return self.next_watermark - 1

    def create(self, name: str) -> Topic:
        """A new topic."""
        log = Log(self.new_log_number(), self.new_log_id())
        topic = self._add(Topic(self._next_topic, name, log, {log.id: log}, history=(Span(log.id, 1),)))
        self._next_topic += 1
        self.uncommitted.rows.append(c.LogOpened(log.number, log.id, topic.number))
        self.uncommitted.topic(name)
        if name in self.given:
            # Some proxy has not heard yet to whom the topic was given, and another has it begun here: the receiver is a
            # holder.
            receiver, given = parse_holder(self.given[name].partition(",")[0])
            self.contest(topic, given, receiver)
        self.announce(name, log.id)
        return topic

    def _add(self, topic: Topic) -> Topic:
        topic.noted, settings = self.uncommitted, self.settings
        topic.policy = Policy(settings.retention_hold_seconds, settings.history_bytes_max)
        for subscription in topic.subscriptions.values():  # Of one that was loaded: what was handed out is forgotten.
            topic.suppose_all_handed_out(subscription.cursor)
        # At most; what of the closed logs waits for nobody is found out by measuring.
        topic.waiting_bytes = sum(log.total for log in topic.logs.values() if log is not topic.open)
        self.topics[topic.name] = topic
        return topic

    def remove(self, name: str) -> Topic:
        """A topic that is held here no more, which is to be announced."""
        self.uncommitted.gone(name)
        self.uncommitted.keep(self, "left")
        self.left = self.change + 1
        return self.topics.pop(name)

    def contest(self, topic: Topic, log: str, server: str) -> None:
        """Remember another holder of a topic, by its open log."""
        topic.contest(log, server)
        self.newly_contested.add(topic.name)

    def announce(self, topic: str, log: str) -> None:
        """Have every proxy told that a topic is held, with its open log, or no longer ("")."""
        self.announcements[topic] = announced(self.topics[topic]) if log else ""
        self.count_change = True
        if not log:
            self.forget_unheard(topic)
        elif topic not in self.unheard and len(self.settings.proxies) > PROXIES_ALONE:
            self.uncommitted.keep_item(self.unheard, topic)
            self.unheard[topic] = ""
            self.uncommitted.rows.append(c.NoteKept(UNHEARD + topic, 1))

    def announce_given(self, topic: Topic, done: Transfer) -> None:
        """Have every proxy told that a topic is held no longer, and by whom it is: durably, until each has heard."""
        value = f"{format_holder(done.sender, topic.open.id)},{done.store},{done.change}" if done.store else ""
        self.announcements[topic.name] = value
        self.count_change = True
        self.forget_unheard(topic.name)
        if value:
            self.uncommitted.rows.append(c.NoteKept(GIVEN + topic.name, value))
            self.uncommitted.keep_item(self.given, topic.name)
            self.given[topic.name] = value

    def forget_unheard(self, topic: str) -> None:
        """Enough proxies have heard of a topic, or it is held here no more."""
        if topic in self.unheard:
            self.uncommitted.keep_item(self.unheard, topic)
            del self.unheard[topic]
            self.uncommitted.rows.append(c.NoteKept(UNHEARD + topic, None))

    def forget_given(self, topic: str) -> None:
        """To whom a topic was given need not be told any more."""
        self.uncommitted.keep_item(self.given, topic)
        del self.given[topic]
        self.uncommitted.rows.append(c.NoteKept(GIVEN + topic, None))

    # The commit

    def changes(self, now: float) -> list[c.Change]:
        """What is to be committed: all that was noted since the last call."""
        out = self.uncommitted.take(now)
        if out and self.count_change:
            # The first commit after an announcement moves the change number, so that a copy of the store from
            # before it can be told by that number.
            self.uncommitted.keep(self, "change")
            self.change += 1
            self.count_change = False
            out.append(c.ChangeCounted(self.change, self.stamps.last))
        return out

    def revert(self, reload: Callable[[str], Topic | None]) -> list[str]:
        """The commit failed: go back to what the store holds.

        Args:
            reload: gives a topic as the store has it, or None where it holds none of that name.

        Returns:
            The topics that were loaded again.
        """
        # A number that is announced is on the disk, or an honest server would look stale after a power cut.
        self.announcements, self.count_change = {}, True
        touched = self.uncommitted.revert()
        for name in touched:
            self.topics.pop(name, None)
            topic = reload(name)
            if topic is not None:
                self._add(topic)
        return touched


def announced(topic: Topic) -> str:
    """A topic as it is announced: by its open log, and by those of which this store's copy was restored."""
    return ",".join((topic.open.id, *topic.restored[-RESTORED_MAX:]))
