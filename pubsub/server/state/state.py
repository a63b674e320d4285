"""The state of a server in memory. The server's other packages build on it; it imports none of them.

Each of these packages receives the state and the lower packages that it uses. Durable state is loaded from the store.
Code that changes it records the change in `uncommitted`, and the loop commits it. All other state ends with the
process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from pubsub.base.clock import Stamps
from pubsub.config.settings import ServerSettings
from pubsub.errors import StoreDamaged
from pubsub.protocol.deletion_table import Deletion, DeletionTable
from pubsub.protocol.groups import Describe, Group, Work
from pubsub.protocol.messages import Configure, Get, Put, Read, Settings, Subscribe, Unsubscribe
from pubsub.protocol.names import format_holder, is_letters_topic, is_reply_topic, is_service_topic, parse_holder
from pubsub.protocol.sinks import Publish, Stage
from pubsub.protocol.topic_defaults import BUILT_IN as NO_RULE
from pubsub.protocol.topic_defaults import TopicDefault, default_for, parse_default
from pubsub.protocol.topic_objects import Purge
from pubsub.protocol.transfers import Transfer
from pubsub.server.state.long_polls import LongPolls
from pubsub.server.state.measures import Measures
from pubsub.server.state.publishers import Publishers
from pubsub.server.state.quotas import Quotas
from pubsub.server.state.replies import Replies
from pubsub.server.state.uncommitted import Uncommitted
from pubsub.server.state.undelivered import Undelivered
from pubsub.server.topic import changes as c
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.loaded import Loaded
from pubsub.server.topic.notes import ACCEPTED, DELETED, GIVEN, HELD, STALE, UNHEARD
from pubsub.server.topic.policy import Policy
from pubsub.server.topic.purged import unread_place
from pubsub.server.topic.settings import DEFAULTS, LETTERS
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic

if TYPE_CHECKING:
    from random import Random

Request = (
    Put
    | Get
    | Work
    | Subscribe
    | Unsubscribe
    | Read
    | Stage
    | Publish
    | Configure
    | Settings
    | Purge
    | Describe
    | Group
)
"""The requests of clients about a topic, the most frequent first."""

REPAIRING: Final = "a_damaged_batch_is_asked_of_the_other_member"
"""Reason for rejecting a request that met a damaged batch while the other member may still have it intact."""

PROXIES_ALONE: Final = 2
"""With more proxies than this, one witness of a new topic is too few, and the store records topics without enough
witnesses."""

RESTORED_MAX: Final = 8
"""Maximum number of logs, truncated by a restore, that the announcement of a topic names."""


class State:
    """The state of one server.

    Args:
        settings: its configuration.
        loaded: the contents of its store.
        reader: reads stored batches, including those of the open transaction.
        stamps: its clock for timestamps.
        random: for log IDs.
        now: monotonic seconds.

    Attributes:
        change: the change number.
        defaults: the rules of its configuration for topics without own settings, by pattern.
        topics: by name.
        uncommitted: changes for the next commit.
        quotas: the buckets of topics with a quota.
        held: reason by topic for topics that are held back.
        stale: reason if the whole store is held back, otherwise "".
        accepted: True if an operator accepted this store as the only copy. The data that it lacks is lost.
        quarantined: quarantined topics: those that came back after an operator had abandoned them.
        given: by topic that was given away: its receiver, as announced.
        deletions: the deleted names, with the numbers of their last deletions.
        undelivered: what subscribers had not acknowledged of deleted topics.
        unheard: topics held here that too few proxies have confirmed.
        announcements: topics to announce to every proxy after the commit, in announced form.
        count_change: True if the next commit increases the change number.
        left: the change number at which a topic last left this process; -1 for none.
        newly_contested: topics for which this loop recorded another holder.
    """

    def __init__(
        self, settings: ServerSettings, loaded: Loaded, reader: BatchReader, stamps: Stamps, random: Random, now: float
    ) -> None:
        self.settings, self.stamps, self.reader = settings, stamps, reader
        self.store_id, self.incarnation, self.change = loaded.store_id, loaded.incarnation, loaded.change
        self._next_topic, self._next_log = loaded.next_topic, loaded.next_log
        self.next_watermark = loaded.next_watermark
        self._random, self.started = random, now
        self.topics = loaded.topics
        self.defaults = tuple(map(parse_default, settings.topic_defaults))
        limits = settings.retention_hold_seconds, settings.history_bytes_max
        self._policies = {one: Policy(*limits, one, DEFAULTS.with_default(one)) for one in self.defaults}
        self._policies[NO_RULE] = Policy(*limits)
        self.uncommitted = Uncommitted(self.topics)
        for topic in list(loaded.topics.values()):
            self._add(topic)
        self.uncommitted.rows += [c.CopiesDropped(number) for number in loaded.discarded_copies]
        self.publishers = Publishers(loaded.publishers, self.uncommitted)
        self.quotas = Quotas(self.topics)
        self.counters: Counter[str] = Counter()
        self.replies = Replies(settings.id, self.counters)
        self.long_polls = LongPolls(self.replies)
        self.full = False
        """True if the disk is full. Puts and subscriptions are answered accordingly."""
        self.damaged: set[str] = set()
        """Topics with parts that could not be read."""
        self.disk: Callable[[], dict[str, int]] = dict
        """Returns sizes in bytes that the shell knows, for reports."""
        self.process: Callable[[], dict[str, int]] = dict
        """Returns the resources that the process uses, for reports."""
        self.measures: Measures | None = None
        """The measurements; None if they are not reported."""
        self.ask_repair: Callable[[int, int], bool] = lambda log, offset: False
        """Asks the other member for a batch that is damaged here. Returns False if that member cannot have it intact.
        """
        self.held = {name.removeprefix(HELD): str(why) for name, why in loaded.notes.items() if name.startswith(HELD)}
        self.stale = str(loaded.notes.get(STALE) or "")
        self.accepted = bool(loaded.notes.get(ACCEPTED))
        self.quarantined = list(loaded.quarantined)
        self.given = {
            name.removeprefix(GIVEN): str(value) for name, value in loaded.notes.items() if name.startswith(GIVEN)
        }
        self.unconfirmed = {name.removeprefix(UNHEARD): "" for name in loaded.notes if name.startswith(UNHEARD)}
        self.deletions = _deletions(loaded.notes)
        self.undelivered = Undelivered(loaded.notes, self.uncommitted)
        self.announcements: dict[str, str] = {}
        self.count_change = True
        self.left = -1
        self.newly_contested: set[str] = set()

    # Queries

    def is_held_back(self, topic: str) -> bool:
        """Return True if a topic, or the whole store, is held back."""
        return bool(self.stale) or topic in self.held

    def why_held_back(self, topic: str) -> str:
        """Return the reason, for a person, as one word of a header."""
        what = "this_server_runs_on_an_older_copy_of_its_store" if self.stale else "the_topic_is_held_back"
        return f"{what}:_{(self.stale or self.held[topic]).replace(' ', '_')}"[:300]

    def is_contested(self, topic: str) -> bool:
        """Return True if another server may hold some of a topic."""
        held = self.topics.get(topic)
        return held is not None and bool(held.contested)

    def is_not_sole_owner(self, topic: str) -> bool:
        """Return True if this server knows that it is not a topic's sole owner, independent of the proxies."""
        # A topic that was given away counts until every proxy knows the receiver: requests may still arrive here.
        return self.is_contested(topic) or self.is_held_back(topic) or topic in self.given

    def topic_of(self, change: c.Change) -> Topic | None:
        """Return the topic to which a change belongs; None if it is not held here."""
        number, log = getattr(change, "topic", None), getattr(change, "log", None)
        stage, shelf = getattr(change, "stage", None), getattr(change, "shelf", None)
        for topic in self.topics.values():
            if topic.number == number or any(one.number == log for one in topic.logs.values()):
                return topic
            if any(one.number == stage for one in topic.stages.values()):
                return topic
            if shelf is not None and shelf in (topic.number, *topic.delayed.shelves):
                return topic
        return None

    def measure(self, topic: Topic) -> None:
        """Compute the bytes of a topic that some subscriber has not acknowledged."""
        topic.waiting_bytes, topic.measured_total = 0, topic.open.total
        for log_id, floor in topic.floors().items():
            log = topic.logs[log_id]
            floor = max(floor, log.bare, log.expired, unread_place(topic, log_id))  # noqa: PLW2901 - these take no room.
            try:
                before = None if floor >= log.end else self.total_before(log, floor)
            except StoreDamaged:
                self.found_damaged(topic)
                before = 0
            topic.waiting_bytes += 0 if before is None else log.total - before

    def total_before(self, log: Log, offset: int) -> int | None:
        """Return the bytes of a log before an offset; None if no batch is there or above.

        Raises:
            StoreDamaged: the row cannot be read.
        """
        before = self.reader.total_before(log.number, offset)
        if before is not None:
            return before
        # The batch may have been put in this loop, so that it is not in the store yet.
        put = (row for row in self.uncommitted.rows if isinstance(row, c.BatchAppended | c.BatchPublished))
        found = next((row.total for row in put if row.log == log.number and 0 <= offset - row.offset < row.count), None)
        if found is None:  # If its row was deleted, the backlog begins with the next one.
            found = next((total for *_, total in self.reader.stamps(log.number, offset, 1)), None)
        return found

    # Changes

    def found_damaged(self, topic: Topic) -> None:
        """Record that a part of a topic cannot be read. The topic is not served beyond that part; other topics are."""
        self.damaged.add(topic.name)
        self.counters["reads_damaged"] += 1

    def new_log_id(self) -> str:
        """Return a random log ID."""
        return f"{self._random.getrandbits(64):016x}"

    def new_log_number(self) -> int:
        self._next_log += 1
        return self._next_log - 1

    def new_shelf(self) -> int:
        """Return a new number for delayed puts that arrive with a transfer; no topic has it."""
        self._next_topic += 1
        return self._next_topic - 1

    def new_watermark(self) -> int:
        """Return a new number for a copy of `last`."""
        self.next_watermark += 1
        return self.next_watermark - 1

    def create(self, name: str) -> Topic:
        log = Log(self.new_log_number(), self.new_log_id())
        topic = self._add(Topic(self._next_topic, name, log, {log.id: log}, history=(Span(log.id, 1),)))
        self._next_topic += 1
        self.uncommitted.rows.append(c.LogOpened(log.number, log.id, topic.number))
        self.uncommitted.topic(name)
        if name in self.given:
            # One proxy does not know the receiver of the topic yet, and another begins the topic here. The receiver is
            # therefore recorded as a holder.
            receiver, given = parse_holder(self.given[name].partition(",")[0])
            self.contest(topic, given, receiver)
        if is_letters_topic(name):
            topic.configure(LETTERS)
        self.announce(name, log.id)
        return topic

    def _add(self, topic: Topic) -> Topic:
        topic.dirty = self.uncommitted
        topic.follow(self._policy_of(topic.name))
        for subscription in topic.subscriptions.values():  # A loaded topic does not know which messages were sent.
            subscription.cursor.suppose_all_handed_out(topic.logs)
        # An upper bound. `measure` finds the messages of closed logs for which no subscriber waits.
        topic.waiting_bytes = sum(log.total for log in topic.logs.values() if log is not topic.open)
        self.topics[topic.name] = topic
        return topic

    def default_of(self, topic: str) -> TopicDefault:
        """Return this server's default of the settings of a topic, held here or not."""
        return NO_RULE if is_service_topic(topic) or is_reply_topic(topic) else default_for(topic, self.defaults)

    def _policy_of(self, name: str) -> Policy:
        """Return the policy of a topic, one for all topics of a rule."""
        return self._policies[self.default_of(name)]

    def remove(self, name: str) -> Topic:
        """Remove a topic that is no longer held here. The caller must announce it."""
        self.uncommitted.gone(name)
        self.uncommitted.keep(self, "left")
        self.left = self.change + 1
        return self.topics.pop(name)

    def contest(self, topic: Topic, log: str, server: str) -> None:
        """Record another holder of a topic, by its open log."""
        topic.contest(log, server)
        self.newly_contested.add(topic.name)

    def announce(self, topic: str, log: str) -> None:
        """Announce to every proxy that a topic is held, with its open log, or is no longer held ("")."""
        self.announcements[topic] = announced(self.topics[topic]) if log else ""
        self.count_change = True
        if not log:
            self.forget_unconfirmed(topic)
        elif topic not in self.unconfirmed and len(self.settings.proxies) > PROXIES_ALONE:
            self.uncommitted.keep_item(self.unconfirmed, topic)
            self.unconfirmed[topic] = ""
            self.uncommitted.rows.append(c.NoteKept(UNHEARD + topic, 1))

    def announce_given(self, topic: Topic, done: Transfer) -> None:
        """Announce the receiver of a topic that was given away: durably, until every proxy has confirmed it."""
        value = f"{format_holder(done.sender, topic.open.id)},{done.store},{done.change}" if done.store else ""
        self.announcements[topic.name] = value
        self.count_change = True
        self.forget_unconfirmed(topic.name)
        if value:
            self.uncommitted.rows.append(c.NoteKept(GIVEN + topic.name, value))
            self.uncommitted.keep_item(self.given, topic.name)
            self.given[topic.name] = value

    def forget_unconfirmed(self, topic: str) -> None:
        """Record that enough proxies have confirmed a topic, or that it is no longer held here."""
        if topic in self.unconfirmed:
            self.uncommitted.keep_item(self.unconfirmed, topic)
            del self.unconfirmed[topic]
            self.uncommitted.rows.append(c.NoteKept(UNHEARD + topic, None))

    def forget_given(self, topic: str) -> None:
        """Stop announcing the receiver of a topic."""
        self.uncommitted.keep_item(self.given, topic)
        del self.given[topic]
        self.uncommitted.rows.append(c.NoteKept(GIVEN + topic, None))

    # Commit

    def changes(self, now: float) -> list[c.Change]:
        """Return the changes to commit: all that were recorded since the last call."""
        out = self.uncommitted.take(now)
        if out and self.count_change:
            # The first commit after an announcement increases the change number. A copy of the store from before
            # that commit is then recognised by its lower number.
            self.uncommitted.keep(self, "change")
            self.change += 1
            self.count_change = False
            out.append(c.ChangeCounted(self.change, self.stamps.last))
        return out

    def revert(self, reload: Callable[[str], Topic | None]) -> list[str]:
        """Go back to the contents of the store, because the commit failed.

        Args:
            reload: returns a topic from the store, or None if the store holds none of that name.

        Returns:
            The topics that were loaded again.
        """
        # An announced change number must be on the disk. Otherwise an intact server would look stale after a power cut.
        self.announcements, self.count_change = {}, True
        touched = self.uncommitted.revert()
        for name in touched:
            self.topics.pop(name, None)
            topic = reload(name)
            if topic is not None:
                self._add(topic)
        return touched


def _deletions(notes: Mapping[str, object]) -> DeletionTable:
    return DeletionTable(
        Deletion(name.removeprefix(DELETED), int(str(value)))
        for name, value in notes.items()
        if name.startswith(DELETED) and value is not None
    )


def announced(topic: Topic) -> str:
    """Return the announced form of a topic: its open log, and the logs of this copy that a restore truncated."""
    return ",".join((topic.open.id, *topic.restored[-RESTORED_MAX:]))
