"""Delayed puts: appends the batches that are due, while the server is the topic's sole owner.

The rules are those of docs/explanation/delay.md, DM3, DM4, DM5 and DM6.

Topics wait in a heap for the due time of their first row, by this server's own clock. One question of sole ownership
covers one piece of a topic's due rows, and all questions of a loop go out together. The commit that appends a batch
removes its row. The batch is appended under the publisher of the log's delayed messages, with that publisher's next
counter: the original counter lies below `last`, so filters and watermarks would leave the batch out. The batch names
its original publisher and counter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol
from zlib import crc32

from pubsub.base.clock import MICROSECONDS
from pubsub.base.due_times import DueTimes
from pubsub.base.limits import OFFSET_MAX
from pubsub.errors import StoreDamaged
from pubsub.protocol.batch import Buffer, with_origin
from pubsub.protocol.messages import Put
from pubsub.protocol.names import delay_publisher
from pubsub.server.ownership.sole_owner import Delivering, SoleOwner
from pubsub.server.state.state import State
from pubsub.server.topic import changes as c
from pubsub.server.topic.delayed import Delayed, Waiting, gone
from pubsub.server.topic.topic import Topic
from pubsub.server.upkeep.backlog_limit import BacklogLimit
from pubsub.server.upkeep.retention import Retention

ROUND_SECONDS: Final = 1.0
"""Interval before another question about a topic with due rows that had to wait."""

PIECE_ROWS: Final = 500
PIECE_BYTES: Final = 8 * 1024 * 1024
"""Size of the rows of a topic that one commit appends; one row is always appended."""

TOPICS_MAX: Final = 200
"""Maximum number of topics that one tick asks about."""


class DelayedPut(Protocol):
    """A delayed put of another store, with its publisher's name."""

    due: int
    publisher: str
    counter: int
    count: int
    checksum: int
    body: Buffer


class Delays:
    """The delayed puts of one server.

    Args:
        state: of the server.
        sole_owner: answers whether this server is a topic's sole owner.
        retention: counts appended bytes.
        backlogs: watches topics near the limit of their backlog.
        discarded: numbers of shelves without a topic.
        now: monotonic seconds.
    """

    def __init__(
        self,
        state: State,
        sole_owner: SoleOwner,
        retention: Retention,
        backlogs: BacklogLimit,
        discarded: Iterable[int],
        now: float,
    ) -> None:
        self._state, self._sole_owner = state, sole_owner
        self._retention, self._backlogs = retention, backlogs
        self._due = DueTimes[str]()
        """When each topic is due."""
        self._discarded = deque(discarded)
        self._paused_until = float("-inf")
        for topic in state.topics.values():
            self.look_at(topic, now)

    def keep(self, topic: Topic, publisher: int, put: Put, due: int, now: float) -> None:
        """Store a delayed put that the chain has judged as new."""
        count, size = put.count, len(put.body)
        row = Waiting(due, publisher, put.counter, count, put.checksum, size, topic.number)
        self._hold(topic, row)
        self._state.uncommitted.rows.append(
            c.DelayedKept(topic.number, due, publisher, put.counter, count, put.checksum, put.body)
        )
        self._state.counters["records_delayed"] += count
        self.look_at(topic, now)

    @staticmethod
    def _hold(topic: Topic, row: Waiting) -> None:
        """Keep a row. Its publisher's `last` moves, so that a repeat is a duplicate."""
        topic.delayed.hold(row)
        topic.reach(row.publisher, row.last)

    def look_at(self, topic: Topic, now: float) -> None:
        """Make a topic due with its first row, because it has another one."""
        row = topic.delayed.first()
        if row is not None:
            self._due.hasten(topic.name, now + (row.due - self._state.stamps.clock(now)) / MICROSECONDS)

    def pause(self, now: float, topics: Iterable[str]) -> None:
        """Wait before the next try, because the loop was undone.

        Args:
            now: monotonic seconds.
            topics: those that the loop touched, as the store has them again.
        """
        self._paused_until = now + ROUND_SECONDS
        for name in topics:
            if (topic := self._state.topics.get(name)) is not None:
                self.look_at(topic, now)

    def deadline(self) -> float:
        """Return the time at which `tick` has work."""
        if self._discarded:
            return self._paused_until
        return max(self._due.deadline(), self._paused_until)

    def tick(self, now: float) -> list[c.Change]:
        """Ask about the topics with due rows, and delete a piece of the rows without a topic."""
        if now < self._paused_until or not (self._due or self._discarded):
            return []
        for name in self._due.take(now, TOPICS_MAX):
            topic = self._state.topics.get(name)
            if topic is None or topic.delayed.first() is None:
                continue
            # A frozen topic may be taken back, so it stays in the heap.
            if topic.frozen or not self._sole_owner.ask(name, Delivering(name)):
                self._due.hasten(name, now + ROUND_SECONDS)
        return self._discard() if self._discarded else []

    def decided(self, name: str, sole_owner: bool, now: float) -> None:
        """Append due rows of a topic if this server is its sole owner."""
        topic = self._state.topics.get(name)
        if topic is None:
            return
        if not sole_owner or self._state.full or topic.frozen:
            self._state.counters["delayed_held_up"] += not sole_owner
            self._due.hasten(name, now + ROUND_SECONDS)
            return
        try:
            appended = self._append(topic, now)
        except StoreDamaged:
            self._state.found_damaged(topic)
            appended = False
        first = topic.delayed.first()
        if first is not None and not appended and first.due <= self._state.stamps.clock(now):
            self._due.hasten(name, now + ROUND_SECONDS)
        else:
            self.look_at(topic, now)

    def _append(self, topic: Topic, now: float) -> bool:
        """Append a piece of the due rows, in order. Return False if the first one cannot be appended."""
        state, clock, size, rows = self._state, self._state.stamps.clock(now), 0, 0
        name = delay_publisher(topic.open.id)
        if state.publishers.find(name) is None and state.publishers.full:
            return False
        while (row := topic.delayed.first()) is not None and row.due <= clock:
            if rows == PIECE_ROWS or (rows and size + row.size > PIECE_BYTES):
                break
            if topic.open.end + row.records > OFFSET_MAX:
                return bool(rows)
            self._append_row(topic, state.publishers.number(name), row, now)
            rows, size = rows + 1, size + row.size
        return bool(rows)

    def _append_row(self, topic: Topic, publisher: int, row: Waiting, now: float) -> None:
        state = self._state
        # Raises StoreDamaged before anything is changed. A row without a body makes a batch that counts as lost.
        stored = self._body(row)
        body = None if stored is None else with_origin(stored, state.publishers.names[row.publisher], row.counter)
        counter = topic.last.get(publisher, 0) + 1
        offset, total = topic.append(publisher, counter, row.records, len(body or b""))
        _release(topic, row)
        stamp, checksum = state.stamps.next(now), 0 if body is None else crc32(body)
        state.uncommitted.rows += [
            c.DelayedGone(row.shelf, row.due, row.publisher, row.counter),
            c.BatchAppended(
                topic.open.number,
                offset,
                row.records,
                publisher,
                counter,
                stamp,
                checksum,
                total,
                body,
                body is not None,
            ),
        ]
        state.counters["records_due"] += row.records
        self._retention.appended(topic.name, len(body or b""), now)
        self._backlogs.appended(topic, now)
        state.long_polls.appended(topic.name)

    def _body(self, row: Waiting) -> Buffer | None:
        """Return the body of a row; None if it is damaged.

        Raises:
            StoreDamaged: a page cannot be read.
        """
        body: Buffer | None = self._state.reader.delayed(row)
        if body is None:  # The row may have been put in this loop.
            key = row.shelf, row.due, *row.key
            put = (x for x in self._state.uncommitted.rows if isinstance(x, c.DelayedKept))
            body = next((x.body for x in put if (x.shelf, x.due, x.publisher, x.counter) == key), None)
        return body if body is not None and crc32(body) == row.checksum else None

    # Moves and merges

    def merge(self, topic: Topic, its: Delayed, last: dict[int, int], its_last: dict[int, int], now: float) -> None:
        """Take in the rows of a merged topic (rule 7).

        Args:
            topic: the merged topic.
            its: the rows that arrived.
            last, its_last: the last counters of both sides before the merge.
        """
        mine_gone, its_gone = gone(topic.delayed, last, its, its_last)
        rows = self._state.uncommitted.rows
        for row in mine_gone:
            _release(topic, row)
        if len(its_gone) == len(its):
            self.discard(its.shelves)  # In pieces, in later loops.
            its_gone, its = [], Delayed()
        for row in its_gone:
            its.drop(row)
        rows += [c.DelayedGone(row.shelf, row.due, row.publisher, row.counter) for row in (*mine_gone, *its_gone)]
        if its:
            topic.delayed.take(its)
            topic.dirty.touched.add(topic.name)
            rows += [c.ShelfMerged(shelf, topic.number) for shelf in its.shelves]
        self.look_at(topic, now)

    def arrived(self, delayed: Delayed, rows: Iterable[DelayedPut]) -> None:
        """Store delayed puts of a topic that is being transferred to this server, on a shelf of their own."""
        state = self._state
        delayed.shelves = delayed.shelves or (state.new_shelf(),)
        (shelf,) = delayed.shelves
        for one in rows:
            publisher, size = state.publishers.number(one.publisher), len(one.body)
            delayed.hold(Waiting(one.due, publisher, one.counter, one.count, one.checksum, size, shelf))
            state.uncommitted.rows.append(
                c.DelayedKept(shelf, one.due, publisher, one.counter, one.count, one.checksum, one.body)
            )

    def thawed(self, name: str) -> None:
        """Make a topic due again, because it stays here."""
        if self._state.topics[name].delayed:
            self._due.hasten(name, float("-inf"))

    def discard(self, shelves: Iterable[int]) -> None:
        """Delete the rows of shelves without a topic."""
        for shelf in shelves:
            self._discarded.append(shelf)
            self._state.uncommitted.undo(self._discarded.pop)

    def _discard(self) -> list[c.Change]:
        shelf = self._discarded[0]
        # Rows that arrive in this loop are not in the store yet.
        if any(isinstance(row, c.DelayedKept) and row.shelf == shelf for row in self._state.uncommitted.rows):
            return []
        try:
            left = self._state.reader.has_delayed(shelf)
        except StoreDamaged:  # The rest takes space and does no other harm.
            left = False
        if left:
            return [c.ShelfDiscarded(shelf, PIECE_ROWS)]
        self._discarded.popleft()
        self._state.uncommitted.undo(lambda: self._discarded.appendleft(shelf))
        return []


def _release(topic: Topic, row: Waiting) -> None:
    """Remove a row that is appended, or was delivered elsewhere."""
    topic.delayed.drop(row)
    topic.dirty.touched.add(topic.name)
