"""One topic as its server holds it: logs, the last counter of each publisher, and the subscriptions.

This module makes all decisions about one topic, on values in memory. The core around it routes requests and collects
the changes. The rules are those of docs/explanation/put.md, P1, P2 and P3, and docs/explanation/get.md, G3 and G6:

* `last` is one number per publisher, kept permanently. A batch that ends at or below it is a duplicate. A batch with
  `previous` above it comes too early. Any other batch is stored complete. So a log has no gaps in a publisher's
  records.
* A subscription has a number. The highest number wins, also after unsubscribing, so that a late request changes
  nothing.
* Acknowledging a position trims the spans up to it. If no span holds the position, there are two cases. It is the
  position acknowledged before, and nothing changes. Or the client's memory is an older copy, and the client gets an
  error.

The rule is docs/explanation/logs.md, L1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol.messages import Outcome
from pubsub.protocol.names import Position, is_service_topic
from pubsub.server.topic import compacted as compacted_parts
from pubsub.server.topic import spans as spans_of
from pubsub.server.topic.changes import (
    LogCompacted,
    LogTrimmed,
    OrderChanged,
    RemovalChanged,
    SettingsChanged,
    TopicContested,
    TopicPurged,
    TopicSettled,
)
from pubsub.server.topic.compacted import Parts
from pubsub.server.topic.consumers import Readers, Session
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.delayed import Delayed
from pubsub.server.topic.dirty import DirtyState
from pubsub.server.topic.group import Group
from pubsub.server.topic.log import Log as Log  # noqa: PLC0414 - handed on
from pubsub.server.topic.policy import EVERYTHING, Policy
from pubsub.server.topic.purges import NOWHERE, Places
from pubsub.server.topic.removal import LET_GO, NOTHING, Removal
from pubsub.server.topic.settings import BUILT_IN, DEFAULTS, Settings
from pubsub.server.topic.spans import Span
from pubsub.server.topic.stages import Piece, Stage, StageKey
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.verdict import Verdict as Verdict  # noqa: PLC0414 - handed on
from pubsub.server.topic.verdict import judge as judge  # noqa: PLC0414 - handed on


@dataclass(slots=True)
class Topic:
    """The part of a topic that one server holds.

    Attributes:
        number: the topic's number in this store.
        open: the log that is written to.
        logs: every log of the topic that is held here, by ID.
        last: the highest counter stored, by publisher number.
        subscriptions: by subscriber.
        history: spans over all records that are held.
        watermarks: stored copies of `last` that spans refer to, by their number.
        merged: IDs of all logs that were merged into this topic, including logs that are used up.
        stages: rows that sinks have staged and not published.
        frozen: address of the server that the topic is being given to; "" if there is none.
        ended: IDs of logs, held or merged, with an end that a restored copy may lack.
        restored: the logs in `ended` that were ended in this very store.
        settings: how much of the topic is kept, as an operator or client has set it.
        delayed: puts that wait for their due time.
        removal: whether records went, and the tombstones among them.
        compacted: the parts of each log from which compaction removed records, by the log's ID.
        order: ID of the log with which the order of the history began; "": it is the open log.
        purged: by log, the places up to which an operator purged it.
        in_force: the same with the server's default where they have no value.
        groups: consumer groups by name, ended ones too. Their waiting records are in `subscriptions`.
        contested: open logs of other servers that hold this topic too, with their servers.
        waiting_bytes: bytes that at least one subscriber has not acknowledged, as last measured.
        measured_total: the open log's total at that time.
        policy: the limits of this server's own settings.
        superseded_since: timestamp of the oldest superseded record that a subscriber needs, as last found; 0 for none.
        not_let_go: the reason why records stay that the topic's settings let go, as last found; "" if none stay.
        unreadable: the reason why only the topic's name and its open log's ID could be read; "" if all was readable.
        noted: collects the changes to be stored; every method that changes durable state notes it here.
    """

    number: int
    name: str
    open: Log
    logs: dict[str, Log]
    last: dict[int, int] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    history: tuple[Span, ...] = ()
    watermarks: dict[int, dict[int, int]] = field(default_factory=dict)
    merged: set[str] = field(default_factory=set)
    stages: dict[StageKey, Stage] = field(default_factory=dict)
    frozen: str = ""
    ended: set[str] = field(default_factory=set)
    restored: tuple[str, ...] = ()
    settings: Settings = DEFAULTS
    delayed: Delayed = field(default_factory=Delayed)
    removal: Removal = NOTHING
    compacted: dict[str, Parts] = field(default_factory=dict)
    order: str = ""
    purged: dict[str, Places] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    in_force: Settings = field(default=BUILT_IN, compare=False)
    contested: dict[str, str] = field(default_factory=dict)
    waiting_bytes: int = 0
    measured_total: int = 0
    superseded_since: int = 0
    not_let_go: str = ""
    policy: Policy = field(default=EVERYTHING, compare=False)
    unreadable: str = ""
    dirty: DirtyState = field(default_factory=DirtyState, repr=False, compare=False)

    @property
    def backlog_bytes(self) -> int:
        """Upper bound of the bytes that wait for some subscriber; exact right after a measurement."""
        return self.waiting_bytes + self.open.total - self.measured_total

    @property
    def contested_by(self) -> frozenset[str]:
        """Servers that are known to hold this topic too."""
        return frozenset(self.contested.values())

    def go_on_in(self, log: Log, end: int | None = None) -> None:
        """Close the open log and continue in `log`, which is empty.

        Args:
            end: the end of the closed log; None: its present end.
        """
        old = self.open
        old.end = old.end if end is None else end
        tail = Span(log.id, log.end)
        for subscription in self.subscriptions.values():
            rest = spans_of.cut(subscription.cursor.backlog, old.id, old.end)
            subscription.cursor.backlog = (*rest, tail) if subscription.on else ()
        self.history = (*spans_of.cut(self.history, old.id, old.end), tail)
        for group in self.groups.values():
            group.go_on_in(old.id, old.end, tail, restored=end is not None)
        self.logs[log.id] = self.open = log
        self.begin_order("")  # The closed log may continue at another server.
        self.measured_total = 0
        self.note_all()

    @property
    def staged_bytes(self) -> int:
        return sum(stage.size for stage in self.stages.values())

    def append(self, publisher: int, counter: int, count: int, size: int) -> tuple[int, int]:
        """Append a batch with the verdict TAKE.

        Returns:
            The offset of its first record, and the bytes of the log before it.
        """
        log = self.open
        offset, total = log.end, log.total
        log.end += count
        log.total += size
        self.last[publisher] = counter + count - 1
        self.dirty.last(self.name, publisher)
        return offset, total

    def reach(self, publisher: int, counter: int) -> None:
        """Record that a publisher's counters up to this one are stored."""
        self.last[publisher] = counter
        self.dirty.last(self.name, publisher)

    def note_all(self) -> None:
        """Record that the history and all subscriptions have changed."""
        self.dirty.topic(self.name)
        for subscriber in self.subscriptions:
            self.dirty.subscription(self.name, subscriber)
        for group in self.groups:
            self.dirty.group(self.name, group)

    def freeze(self, address: str) -> None:
        """Reject requests while the topic is given to the server at `address`; "" ends that."""
        self.frozen = address
        self.dirty.topic(self.name)

    def configure(self, settings: Settings) -> None:
        """Replace the settings."""
        self.settings = settings
        self.follow(self.policy)
        self.dirty.row(self.name, SettingsChanged(self.number, settings))

    def remove(self, removal: Removal) -> None:
        """Replace the note of the records that went."""
        self.removal = removal
        self.dirty.row(self.name, RemovalChanged(self.number, removal))

    def compact(self, log: Log, gone: tuple[int, ...], parts: Parts) -> None:
        """Remove rows of a log, by their first offsets. The caller stores again what stays of them, as in `parts`."""
        self._thin(log, parts)
        self.dirty.row(self.name, LogCompacted(log.number, gone, parts))
        self.dirty.row(self.name, LogTrimmed(log.number, log.low, log.end, log.total))

    def _thin(self, log: Log, parts: Parts) -> None:
        self.compacted = {**self.compacted, log.id: parts}
        if not parts:
            del self.compacted[log.id]

    @property
    def history_token(self) -> str:
        """Identifies the order of the history (docs/explanation/replay.md, I9)."""
        return self.order or self.open.id

    def begin_order(self, order: str) -> None:
        """Record the log with which the order of the history began; "": it begins with the open log."""
        if order == self.open.id:
            order = ""
        if order != self.order:
            self.order = order
            self.dirty.row(self.name, OrderChanged(self.number, order))

    def purge(self, log: str, places: Places) -> bool:
        """Record up to where a log is purged; return False if it was purged as far before."""
        before = self.purged.get(log, NOWHERE)
        after = before.with_both(places)
        if after != before:
            self.purged[log] = after
            self.dirty.row(self.name, TopicPurged(self.number, log, after))
        return after != before

    def forget_purge(self, log: str) -> None:
        """Forget up to where a log was purged, because no message below that place is stored any more."""
        if self.purged.pop(log, None) is not None:
            self.dirty.row(self.name, TopicPurged(self.number, log, NOWHERE))

    def follow(self, policy: Policy) -> None:
        """Take over the limits and the default of this server."""
        self.policy = policy
        plain = self.settings is DEFAULTS or self.settings == DEFAULTS
        self.in_force = policy.settings if plain else self.settings.with_default(policy.default)

    # Other holders

    def contest(self, log: str, server: str) -> None:
        """Record that another server holds a part of the topic, with this open log."""
        self.contested[log] = server
        self.dirty.row(self.name, TopicContested(self.number, log, server))

    def settle(self, log: str) -> bool:
        """Record that another server's log was merged or abandoned; return False if it was not a contested log."""
        if self.contested.pop(log, None) is None:
            return False
        self.dirty.row(self.name, TopicSettled(self.number, log))
        return True

    # Stages of sinks

    def keep(self, stage: Stage, piece: Piece | None = None) -> None:
        """Add a stage to the topic, or a fragment to a stage."""
        self.stages[stage.key] = stage
        if piece is not None:
            stage.add(piece)
        self.dirty.touched.add(self.name)

    def drop(self, stage: Stage) -> None:
        del self.stages[stage.key]
        self.dirty.touched.add(self.name)

    # Subscriptions

    def subscribe(
        self, name: str, number: int, epoch: int, on: bool, begin: Cursor, *, continues: bool = False
    ) -> tuple[Outcome, Subscription, bool]:
        """Process SUBSCRIBE (`on`) or UNSUBSCRIBE of a client's own subscription.

        Args:
            name: the client's ID.
            begin: the cursor of a new subscription.
            continues: an active subscription keeps its backlog, and the part that was handed out is marked as doubtful.
                The caller knows that this server is the topic's sole owner.

        Returns:
            SUCCESS, or SUPERSEDED if a higher number or epoch is known; the subscription; True if it changed.
        """
        subscription = self.subscriptions.get(name)
        if subscription is not None and number == subscription.number:
            return Outcome.SUCCESS, subscription, False
        # A client with an epoch below the highest is rejected here, since its GETs would all be rejected later.
        if subscription is not None and subscription.outdates(number, epoch):
            return Outcome.SUPERSEDED, subscription, False
        cursor = begin if on else replace(begin, backlog=())
        if continues and subscription is not None and subscription.on:
            cursor = replace(subscription.cursor, backlog=subscription.cursor.marked())
        elif on and subscription is not None and subscription.on and is_service_topic(self.name):
            # A repeat. Calls were accepted from the first subscription on, and the new number must not lose them
            # (docs/explanation/calls.md, X8).
            cursor = replace(subscription.cursor)
        subscription = Subscription(number, on, cursor, Session(epoch))
        self.enter(name, subscription)
        return Outcome.SUCCESS, subscription, True

    def enter(self, name: str, subscription: Subscription) -> None:
        """Add a new subscription."""
        self.subscriptions[name] = subscription
        self.dirty.subscription(self.name, name)

    def begin_epoch(self, name: str, epoch: int) -> None:
        """Start a new session of a subscriber, because its client was opened again."""
        self.subscriptions[name].consumer = Session(epoch)
        self.dirty.subscription(self.name, name)

    def use(self, name: str) -> None:
        """Record that a reader uses a named subscription that this holder reported to it."""
        if self.subscriptions[name].consumer == Readers():
            self.bind(name, 0)

    def bind(self, name: str, token: int) -> None:
        """Bind a named subscription to the checkpoint with this token; 0: to none."""
        subscription = self.subscriptions[name]
        readers = Readers.bound(token, subscription.number)
        if subscription.consumer != readers:
            subscription.consumer = readers
            self.dirty.subscription(self.name, name)

    def end(self, name: str) -> None:
        """End a subscription so that neither its own requests nor a merge bring it back."""
        self.subscriptions[name].end()
        self.dirty.subscription(self.name, name)

    def pass_over(self, name: str, spans: tuple[Span, ...]) -> None:
        """Skip all records before these spans for a subscriber, because its spans leave them out."""
        self.subscriptions[name].cursor.backlog = spans
        self.dirty.acknowledged(self.name, name)

    def acknowledge(self, name: str, last: Position | None) -> bool:
        """Record that all records up to `last` are durable at a subscriber's client; None: no new ones are.

        Returns:
            False if the position cannot be right, because the client's memory is an older copy.
        """
        cursor = self.subscriptions[name].cursor
        if last is None or last == cursor.acknowledged:
            return True
        if not self._stored(last) or not cursor.acknowledge(last):
            return False
        self.dirty.acknowledged(self.name, name)
        return True

    def reading(self, cursor: Cursor, position: Position | None) -> tuple[Span, ...] | None:
        """Return the spans after `position`, or all spans for None.

        The result is None if no span holds the position, or if its log does not reach that far.
        """
        if position is not None and position != cursor.acknowledged and not self._stored(position):
            return None
        return cursor.behind(position)

    def _stored(self, position: Position) -> bool:
        """Return True if a log that is held reaches as far as the position."""
        log = self.logs.get(position[0])
        return log is not None and position[1] < log.end

    def waiting(self, spans: Iterable[Span]) -> int:
        """Count the records in these spans, including those that `watermark` and `since` leave out."""
        return sum(
            max(
                0,
                (log.end if span.high is None else span.high) - span.low - (log.unknown if span.high == log.end else 0),
            )
            for span in spans
            if (log := self.logs.get(span.log)) is not None
        )

    def floors(self) -> dict[str, int]:
        """Return for each log the offset below which no subscriber is still to receive a record."""
        lowest = spans_of.floors(
            (subscription.cursor.backlog for subscription in self.subscriptions.values()),
            {log.id: log.end for log in self.logs.values()},
        )
        for log, low in (floor for group in self.groups.values() for floor in group.floors() if floor[0] in lowest):
            lowest[log] = min(low, lowest[log])
        return lowest

    def trim(self, log: Log, low: int) -> bool:
        """Drop offsets below `low` of a log from the history; return True if that uses up the log."""
        self.dirty.topic(self.name)
        log.begin_at(low)
        if self.removal is NOTHING:  # The store shows it by the low end of the log.
            self.removal = LET_GO
        if log.id in self.compacted:
            parts = compacted_parts.trimmed(self.compacted[log.id], low)
            if parts != self.compacted[log.id]:
                self._thin(log, parts)
                self.dirty.row(self.name, LogCompacted(log.number, (), parts))
        self.history = tuple(
            span.from_offset(max(span.low, low)) if span.log == log.id else span
            for span in self.history
            if span.log != log.id or span.high is None or span.high > low
        )
        if log is self.open or log.low < log.end:
            return False
        del self.logs[log.id]
        self.merged.add(log.id)
        return True


def ends_unknown(topic: Topic, position: Position) -> bool:
    """Return True if a restored copy lacks this position. The record is lost only if no other server has it."""
    return position[0] in topic.ended and position[1] == OFFSET_MAX - 1


def knows(topic: Topic | None, log: str) -> bool:
    """Return True if a log is held or merged here with all its records; a log in `ended` does not count."""
    return topic is not None and (log in topic.logs or log in topic.merged) and log not in topic.ended
