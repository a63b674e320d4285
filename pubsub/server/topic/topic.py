"""One topic as its server holds it: logs, the last counter of each publisher, the subscribers' subscriptions.

All that is decided about one topic is decided here, on values in memory; the core around it routes requests and
collects what changed. The rules are those of docs/architecture.md:

* `last` is one number per publisher, for ever: a batch that ends at or below it is a repeat, one whose `previous` is
  above it comes too early, any other is taken whole. So a log's records of a publisher have no holes.
* A subscription has a number; the highest wins, also after unsubscribing, so that a late request changes nothing.
* Acknowledging a position trims the spans up to it. A position that is in no span is the one acknowledged before (then
  nothing changes) or an older copy of the client's memory (then it is told).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from pubsub.base.limits import OFFSET_MAX
from pubsub.protocol.messages import Outcome
from pubsub.protocol.names import Position, is_service_topic
from pubsub.server.topic import spans as spans_of
from pubsub.server.topic.changes import TopicContested, TopicSettled
from pubsub.server.topic.consumers import Readers, Session
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.noted import Noted
from pubsub.server.topic.policy import EVERYTHING, Policy
from pubsub.server.topic.spans import Span
from pubsub.server.topic.stages import Piece, Stage, StageKey
from pubsub.server.topic.subscription import Subscription


@dataclass(slots=True)
class Log:
    """A sequence of records with one writer; its offsets begin at 1 and are never used twice.

    Attributes:
        number: its number in this store.
        id: its random ID, 16 hex digits, which is unique everywhere.
        low: the first offset that is still stored.
        end: one above the last offset.
        total: bytes of all batches ever appended.
        unknown: how many offsets before `end`, from `low` on, are only counted as lost: a restored copy ended there.
    """

    number: int
    id: str
    low: int = 1
    end: int = 1
    total: int = 0
    unknown: int = 0

    def begin_at(self, low: int) -> None:
        """Nothing below this offset is stored any more.

        It may lie among those that are only counted as lost: a subscriber acknowledges what it received of them before
        the copy was put back. Of these, too, only what is left is counted, as it will be when the store is loaded.
        """
        self.low = max(self.low, low)
        self.unknown = min(self.unknown, self.end - self.low)


class Verdict(Enum):
    """What is to be done with a batch."""

    TAKE = "take"
    DUPLICATE = "duplicate"
    GAP = "gap"


def judge(last: int, counter: int, count: int, previous: int) -> Verdict:
    """Whether a batch is new, a repeat, or comes too early.

    Args:
        last: the highest counter of its publisher that is held.
        counter, count: of the batch.
        previous: the publisher's counter before it.
    """
    if counter + count - 1 <= last:
        return Verdict.DUPLICATE
    # A batch that `last` lies inside of was cut differently before: not ours to mend, the client finds out.
    if previous > last or counter <= last:
        return Verdict.GAP
    return Verdict.TAKE


@dataclass(slots=True)
class Topic:
    """What one server holds of a topic.

    Attributes:
        number: its number in this store.
        name: its name.
        open: the log that is written to.
        logs: every log of the topic that is held here, by ID.
        last: the highest counter taken, by publisher number.
        subscriptions: by subscriber.
        history: spans over everything that is held.
        watermarks: stored copies of `last` that spans refer to, by their number.
        merged: IDs of logs that were merged into this topic, those that are used up included.
        stages: what sinks have staged and not published.
        frozen: address of the server that it is being given to; "" where it is not.
        ended: IDs of logs, held or merged, of which a restored copy may lack the end.
        restored: those of them that were ended in this very store.
        contested: open logs of other servers that hold this topic too, and their servers.
        waiting_bytes: bytes that some subscriber has not acknowledged, as last measured.
        measured_total: the open log's total at that time.
        policy: how much of it is kept, as the settings of this server say.
        unreadable: why nothing else of it than its name and its open log's ID could be read; "" where all was.
        noted: told of all that changes and is to be stored: every method here that changes such a thing tells it.
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
    contested: dict[str, str] = field(default_factory=dict)
    waiting_bytes: int = 0
    measured_total: int = 0
    policy: Policy = field(default=EVERYTHING, compare=False)
    unreadable: str = ""
    noted: Noted = field(default_factory=Noted, repr=False, compare=False)

    @property
    def backlog_bytes(self) -> int:
        """At most so many bytes wait for some subscriber; exact right after a measurement."""
        return self.waiting_bytes + self.open.total - self.measured_total

    @property
    def contested_by(self) -> frozenset[str]:
        """Servers that are known to hold this topic too."""
        return frozenset(self.contested.values())

    def go_on_in(self, log: Log, end: int | None = None) -> None:
        """Close the open log and go on in this one, which is empty.

        Args:
            end: where the closed log ends; None: where it does.
        """
        old = self.open
        old.end = old.end if end is None else end
        tail = Span(log.id, log.end)
        for subscription in self.subscriptions.values():
            rest = spans_of.cut(subscription.cursor.backlog, old.id, old.end)
            subscription.cursor.backlog = (*rest, tail) if subscription.on else ()
        self.history = (*spans_of.cut(self.history, old.id, old.end), tail)
        self.logs[log.id] = self.open = log
        self.measured_total = 0
        self.note_all()

    @property
    def staged_bytes(self) -> int:
        """Bytes that are staged and not published."""
        return sum(stage.size for stage in self.stages.values())

    def append(self, publisher: int, counter: int, count: int, size: int) -> tuple[int, int]:
        """Take a batch that was judged so.

        Returns:
            The offset of its first record, and the log's bytes before it.
        """
        log = self.open
        offset, total = log.end, log.total
        log.end += count
        log.total += size
        self.last[publisher] = counter + count - 1
        self.noted.last(self.name, publisher)
        return offset, total

    def reach(self, publisher: int, counter: int) -> None:
        """A publisher's counters up to this one are taken."""
        self.last[publisher] = counter
        self.noted.last(self.name, publisher)

    def note_all(self) -> None:
        """Its history and its subscriptions are different."""
        self.noted.topic(self.name)
        for subscriber in self.subscriptions:
            self.noted.subscription(self.name, subscriber)

    def freeze(self, address: str) -> None:
        """Take no more requests: it is being given to the server at this address; "": it is not any more."""
        self.frozen = address
        self.noted.topic(self.name)

    # Who else holds it

    def contest(self, log: str, server: str) -> None:
        """Another server holds some of it, with this open log."""
        self.contested[log] = server
        self.noted.row(self.name, TopicContested(self.number, log, server))

    def settle(self, log: str) -> bool:
        """That log is merged, or given up; whether it was one of another's."""
        if self.contested.pop(log, None) is None:
            return False
        self.noted.row(self.name, TopicSettled(self.number, log))
        return True

    # What sinks stage

    def keep(self, stage: Stage, piece: Piece | None = None) -> None:
        """A stage is the topic's, or has another piece."""
        self.stages[stage.key] = stage
        if piece is not None:
            stage.add(piece)
        self.noted.touched.add(self.name)

    def drop(self, stage: Stage) -> None:
        """A stage is the topic's no more."""
        del self.stages[stage.key]
        self.noted.touched.add(self.name)

    # Subscriptions

    def subscribe(
        self, name: str, number: int, epoch: int, on: bool, begin: Cursor, *, continues: bool = False
    ) -> tuple[Outcome, Subscription, bool]:
        """SUBSCRIBE (`on`) or UNSUBSCRIBE of a client's own subscription.

        Args:
            name: the client's.
            begin: where it stands if it is new.
            continues: one that is on keeps what waits, and what was handed out of that is marked; this server is the
                topic's sole owner.

        Returns:
            SUCCESS, or SUPERSEDED where a higher number or epoch is known; the subscription; whether it changed.
        """
        subscription = self.subscriptions.get(name)
        if subscription is not None and number == subscription.number:
            return Outcome.SUCCESS, subscription, False
        # A client with an epoch below the highest could subscribe, but would then be refused each GET for ever.
        if subscription is not None and subscription.outdates(number, epoch):
            return Outcome.SUPERSEDED, subscription, False
        cursor = begin if on else replace(begin, backlog=())
        if continues and subscription is not None and subscription.on:
            cursor = replace(subscription.cursor, backlog=subscription.cursor.marked())
        elif on and subscription is not None and subscription.on and is_service_topic(self.name):
            # A repeat: calls were taken as soon as there was a worker, and none of them may go with the earlier number.
            cursor = replace(subscription.cursor)
        subscription = Subscription(number, on, cursor, Session(epoch))
        self.enter(name, subscription)
        return Outcome.SUCCESS, subscription, True

    def enter(self, name: str, subscription: Subscription) -> None:
        """A subscription is new."""
        self.subscriptions[name] = subscription
        self.noted.subscription(self.name, name)

    def begin_epoch(self, name: str, epoch: int) -> None:
        """A subscriber's client was opened anew."""
        self.subscriptions[name].consumer = Session(epoch)
        self.noted.subscription(self.name, name)

    def use(self, name: str) -> None:
        """Somebody who was told of a named subscription by this holder reads it."""
        if self.subscriptions[name].consumer == Readers():
            self.bind(name, 0)

    def bind(self, name: str, token: int) -> None:
        """A named subscription belongs to the checkpoint with this token; 0: to none."""
        subscription = self.subscriptions[name]
        readers = Readers.bound(token, subscription.number)
        if subscription.consumer != readers:
            subscription.consumer = readers
            self.noted.subscription(self.name, name)

    def end(self, name: str) -> None:
        """End a subscription, so that neither its own requests nor a merge bring it back."""
        self.subscriptions[name].end()
        self.noted.subscription(self.name, name)

    def pass_over(self, name: str, spans: tuple[Span, ...]) -> None:
        """What lies before these spans is left out for a subscriber, and not looked at again."""
        self.subscriptions[name].cursor.backlog = spans
        self.noted.acknowledged(self.name, name)

    def acknowledge(self, name: str, last: Position | None) -> bool:
        """Note that all up to `last` is durable at a subscriber's client; None: nothing new is.

        Returns:
            Whether the position makes sense; else the client's memory is an older copy.
        """
        cursor = self.subscriptions[name].cursor
        if last is None or last == cursor.acknowledged:
            return True
        if not self._stored(last) or not cursor.acknowledge(last):
            return False
        self.noted.acknowledged(self.name, name)
        return True

    def reading(self, cursor: Cursor, position: Position | None) -> tuple[Span, ...] | None:
        """The spans behind `position`, or all for None; None where the position is in no span, or never was."""
        if position is not None and position != cursor.acknowledged and not self._stored(position):
            return None
        return cursor.behind(position)

    def _stored(self, position: Position) -> bool:
        """Whether a log that is held goes as far as a position."""
        log = self.logs.get(position[0])
        return log is not None and position[1] < log.end

    def suppose_all_handed_out(self, cursor: Cursor) -> None:
        """It is not known how much of a cursor's backlog was handed out: all that is there counts as such."""
        for span in reversed(cursor.backlog):
            log = self.logs.get(span.log)
            stop = 0 if log is None else log.end if span.high is None else min(span.high, log.end)
            if span.low < stop:
                cursor.handed = span.log, stop - 1
                return
        cursor.handed = None

    def waiting(self, spans: Iterable[Span]) -> int:
        """How many records these spans hold, those left out by `watermark` and `since` included."""
        return sum(
            max(
                0,
                (log.end if span.high is None else span.high) - span.low - (log.unknown if span.high == log.end else 0),
            )
            for span in spans
            if (log := self.logs.get(span.log)) is not None
        )

    def floors(self) -> dict[str, int]:
        """For each log the offset below which nobody is to receive anything."""
        return spans_of.floors(
            (subscription.cursor.backlog for subscription in self.subscriptions.values()),
            {log.id: log.end for log in self.logs.values()},
        )

    def trim(self, log: Log, low: int) -> bool:
        """Drop offsets below `low` of a log from the history; whether the log is used up by that."""
        self.noted.topic(self.name)
        log.begin_at(low)
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
    """Whether a position is one that a restored copy lacks: it is lost only if no other server has it."""
    return position[0] in topic.ended and position[1] == OFFSET_MAX - 1


def knows(topic: Topic | None, log: str) -> bool:
    """Whether a log is held or merged, and all of it was: not one that a restored copy ended."""
    return topic is not None and (log in topic.logs or log in topic.merged) and log not in topic.ended
