"""Reads a server's topics and its own records from the store. It writes nothing.

The rule is docs/explanation/stores.md, S9.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import apsw

from pubsub.base.database import forget_pages
from pubsub.base.limits import OFFSET_BITS, OFFSET_MAX, STORE_PUBLISHERS_MAX
from pubsub.errors import StoreDamaged
from pubsub.server.storage import delayed, groups, staged
from pubsub.server.storage.reader import Reader
from pubsub.server.storage.schema import RESTORED, read_parts, read_removal, read_settings, read_spans
from pubsub.server.topic.changes import LogState
from pubsub.server.topic.compacted import Parts
from pubsub.server.topic.delayed import Delayed
from pubsub.server.topic.loaded import Loaded, QuarantinedTopic
from pubsub.server.topic.purges import Places
from pubsub.server.topic.removal import LET_GO, NOTHING, Removal
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import SubscriptionRow, subscription_of
from pubsub.server.topic.topic import Log, Topic

_Value = TypeVar("_Value")

_OFFSET: Final = (1 << OFFSET_BITS) - 1

NUMBERS_MAX: Final = 1 << 48
"""Limit above all numbers of topics, pieces and copies of `last` that are ever assigned."""

LOGS_MAX: Final = 1 << 62 - OFFSET_BITS
"""The same limit for logs: half of the numbers for which there are keys."""


class Loading:
    """An open store, for reading.

    Args:
        path: of its file.
        db: the connection.

    Attributes:
        reader: reads its batches.
        store_id: its ID; "" if it has none.
    """

    def __init__(self, path: Path, db: apsw.Connection) -> None:
        self.path, self.db = path, db
        self.reader = Reader(db)
        self.store_id = str(self._meta("store") or "")
        self._newest_stamp = self._newest_publisher = 0

    # The server's own records

    def incarnation(self) -> int:
        """The number of the last start; 0 before the first one."""
        return int(self._meta("incarnation") or 0)

    def change(self) -> int:
        """The last stored change number."""
        return int(self._meta("change") or 0)

    def stamp(self) -> int:
        """The highest timestamp of the topics loaded so far, and of the last commit that counted a change."""
        return max(self._newest_stamp, int(self._meta("stamp") or 0))

    def notes(self) -> dict[str, Any]:
        """The server's notes about itself, by name."""
        return dict(self._rows("select substr(name, 6), value from meta where substr(name, 1, 5) = 'note '"))

    @property
    def server_id(self) -> str:
        """The ID of the server that used the store last, "" if there was none."""
        return str(self._meta("server") or "")

    def publishers(self) -> list[str]:
        """Return the names of all publishers by number; "" for a number without a name, which no new publisher may get.

        Raises:
            StoreDamaged: a number is outside of the assigned range.
        """
        names = [""]
        for number, name in self._rows("select id, name from publisher order by id"):
            if not len(names) <= number <= STORE_PUBLISHERS_MAX:
                raise StoreDamaged(str(self.path), f"damaged: a publisher has the number {number}, out of range")
            names.extend([""] * (number - len(names)))
            names.append(name)
        # If the table of publishers is older than the rest, a new publisher would continue another one's counters.
        last = max(self._newest_publisher, self._highest("last", "publisher", STORE_PUBLISHERS_MAX + 1))
        names.extend([""] * (last + 1 - len(names)))
        self.reader.nameless = {number for number, name in enumerate(names) if number and not name}
        return names

    def topics(
        self, name: str | None = None, *, quarantined: bool = False, unreadable: bool = False
    ) -> Iterator[Topic]:
        """Yield all topics, or the named one, as of the last commit.

        Args:
            name: only this topic; None for all.
            quarantined: quarantined topics instead, which the server no longer holds.
            unreadable: for a topic that cannot be read, yield the readable parts, marked as such.

        Raises:
            StoreDamaged: a topic cannot be read, or a row refers to a missing row.
        """
        every = "select id, name, open_log, history, frozen from topic"
        if quarantined:
            every = "select id, name, open_log, history, '' from quarantined_topic"
        for row in self._rows(every) if name is None else self._rows(f"{every} where name = ?", (name,)):
            try:
                topic = self._topic_of(*row, quarantined=quarantined)
            except (apsw.CorruptError, StoreDamaged) as error:
                forget_pages(self.db)
                if not unreadable:
                    raise
                number, title, open_log, *_ = row
                topic = self._unreadable(number, title, open_log, str(error))
            yield topic

    def _unreadable(self, number: int, title: str, open_log: int, reason: str) -> Topic:
        row = self._row("select name from log where id = ?", (open_log,))
        if row is None:
            raise StoreDamaged(str(self.path), f"topic {title} has no open log")
        log = Log(open_log, row[0])
        return Topic(number, title, log, {log.id: log}, unreadable=reason)

    def _topic_of(
        self, number: int, title: str, open_log: int, history: str, frozen: str, *, quarantined: bool
    ) -> Topic:
        logs = {log.number: log for log in self._logs(number, quarantined=quarantined)}
        if open_log not in logs:
            raise StoreDamaged(str(self.path), f"topic {title} has no open log")
        topic = Topic(number, title, logs[open_log], {log.id: log for log in logs.values()})
        topic.history, topic.frozen = self._spans(history, title), frozen
        topic.merged = {
            name
            for (name,) in self._rows(
                "select name from log where topic = ? and state = ?", (number, LogState.MERGED.stored)
            )
        }
        ended = self._rows(
            "select name, receiver from log where topic = ? and end >= ? order by id", (number, OFFSET_MAX)
        )
        topic.ended = {name for name, _ in ended}
        topic.restored = tuple(name for name, receiver in ended if receiver == RESTORED)
        if (row := self._row("select settings from topic_settings where topic = ?", (number,))) is not None:
            topic.settings = self._read(title, "settings", lambda: read_settings(row[0]))
        topic.removal, topic.compacted = self._removal(number, title), self._compacted(logs, title)
        topic.order = next((log for (log,) in self._rows("select log from topic_order where topic = ?", (number,))), "")
        purges = list(self._rows("select log, kept, unread from purge where topic = ?", (number,)))
        topic.purged = {log: Places(kept, unread) for log, kept, unread in purges}
        topic.contested = dict(self._rows("select log, server from rival where topic = ?", (number,)))
        topic.last = dict(self._rows("select publisher, last from last where topic = ?", (number,)))
        unknown = "select 1 from last where topic = ? and publisher not in (select id from publisher) limit 1"
        if self._rows(unknown, (number,)):  # Repeated puts of these publishers would count as new.
            raise StoreDamaged(str(self.path), f"topic {title} has counters of publishers that the store does not know")
        self._load_subscriptions(topic)
        topic.groups = self._read(title, "consumer groups", lambda: groups.load(self.db, number))
        self._load_watermarks(topic)
        topic.stages, topic.delayed = staged.load(self.db, number), self._delayed(number, title)
        numbers = set(map(type, topic.last)) | set(map(type, topic.last.values()))
        for counters in topic.watermarks.values():
            numbers |= set(map(type, counters)) | set(map(type, counters.values()))
        texts = {type(text) for text in (topic.name, topic.frozen, *topic.merged, *topic.ended)}
        texts |= {type(text) for rival in topic.contested.items() for text in rival}
        texts |= {type(log) for log, _, _ in purges}
        numbers |= {type(number) for _, *row in purges for number in row}
        self._check_types(topic.name, numbers, texts)
        return topic

    def _check_types(self, topic: str, numbers: set[type], texts: set[type]) -> None:
        """Check that numbers are numbers and texts are texts, because SQLite returns values of any type.

        Raises:
            StoreDamaged: a value has another type.
        """
        if not (numbers <= {int} and texts <= {str}):
            raise StoreDamaged(str(self.path), f"topic {topic} has rows that cannot be read")

    def _read(self, topic: str, kind: str, read: Callable[[], _Value]) -> _Value:
        try:
            return read()
        except (ValueError, TypeError):
            raise StoreDamaged(str(self.path), f"topic {topic} has {kind} that cannot be read") from None

    def _spans(self, text: str, topic: str) -> tuple[Span, ...]:
        return self._read(topic, "spans", lambda: read_spans(text))

    def _compacted(self, logs: Iterable[int], topic: str) -> dict[str, Parts]:
        """Return the compacted parts of the logs with these numbers, by their IDs."""
        query = "select name, parts from compacted join log on id = log where log = ?"
        rows = [row for log in logs for row in self._rows(query, (log,))]
        return {name: self._read(topic, "compacted parts", partial(read_parts, parts)) for name, parts in rows}

    def _delayed(self, topic: int, title: str) -> Delayed:
        found = delayed.load(self.db, topic)
        if found is None:
            raise StoreDamaged(str(self.path), f"topic {title} has delayed messages that cannot be read")
        return found

    def _removal(self, number: int, topic: str) -> Removal:
        """Return the note of the records that went; the low end of a log, also of a used-up one, shows it too."""
        found = NOTHING
        if (row := self._row("select removal from removal where topic = ?", (number,))) is not None:
            found = self._read(topic, "removals", lambda: read_removal(row[0]))
        raised = "select 1 from log where topic = ? and state in (?, ?) and low > 1 limit 1"
        if found == NOTHING and self._row(raised, (number, LogState.HELD.stored, LogState.MERGED.stored)) is not None:
            return LET_GO
        return found

    def _load_subscriptions(self, topic: Topic) -> None:
        for row in self._rows(
            "select subscriber, number, epoch, subscribed, since, log, acknowledged, backlog from subscription"
            " where topic = ?",
            (topic.number,),
        ):
            who, own, epoch, on, since, log, acknowledged, spans = row
            self._check_types(
                topic.name, {type(one) for one in (own, epoch, since, acknowledged)}, {type(who), type(log)}
            )
            read = SubscriptionRow(own, epoch, bool(on), since, (log, acknowledged), self._spans(spans, topic.name))
            topic.subscriptions[who] = subscription_of(who, read)

    def _load_watermarks(self, topic: Topic) -> None:
        spans = (
            *topic.history,
            *(span for subscription in topic.subscriptions.values() for span in subscription.cursor.backlog),
        )
        for number in sorted({span.watermark for span in spans} - {0}):
            counters = self._rows("select publisher, counter from watermark where id = ?", (number,))
            topic.watermarks[number] = dict(counters)

    def unused_watermarks(self, topics: Iterable[Topic]) -> list[int]:
        """Return the numbers of the copies of `last` to which no span refers.

        Args:
            topics: all topics of the store. Quarantined topics refer to copies too.
        """
        every = (*topics, *self.topics(quarantined=True, unreadable=True))
        if any(topic.unreadable for topic in every):
            return []  # An unreadable topic may refer to any of them.
        used = {number for topic in every for number in topic.watermarks}
        found, unused = 0, []
        # One query for each watermark: reading complete watermarks would cost a row for each publisher.
        while (row := self._row("select id from watermark where id > ? order by id limit 1", (found,))) is not None:
            found = row[0]
            if found not in used:
                unused.append(found)
        return unused

    def discarded(self) -> list[int]:
        """Return the numbers of logs without a topic that still have batches to delete. Damaged batches stay."""
        return [
            number
            for (number,) in self._rows(
                "select id from log where state in (?1, ?2) and (state = ?1 or exists"
                " (select 1 from batch where key >= log.id << ?3 and key < (log.id + 1) << ?3"
                " and key not in (select key from quarantine)))",
                (LogState.INCOMING.stored, LogState.GIVEN.stored, OFFSET_BITS),
            )
        ]

    def _logs(self, topic: int, *, quarantined: bool = False) -> Iterator[Log]:
        # In a quarantined topic, `receiver` holds the state that the log had.
        which = "state = ? and receiver = ?" if quarantined else "state = ?"
        states = (LogState.QUARANTINED.stored, LogState.HELD.stored) if quarantined else (LogState.HELD.stored,)
        for number, name, low, end, total in self._rows(
            f"select id, name, low, end, total from log where topic = ? and {which}",  # noqa: S608 - our own words
            (topic, *states),
        ):
            newest = self._row(
                "select key, count, total, length(body), stamp, publisher from batch"
                " where key >= ? and key < ? order by key desc limit 1",
                (number << OFFSET_BITS, number + 1 << OFFSET_BITS),
            )
            log = Log(number, name, low, end, total)
            if not all(type(value) is int for value in (low, end, total)) or type(name) is not str:
                raise StoreDamaged(str(self.path), f"damaged: the row of log {name} cannot be read")
            stored = low  # A damaged batch may remain below that offset.
            if newest is not None:
                key, count, before, size, stamp, publisher = newest
                valid = all(type(value) is int for value in (count, before, stamp, publisher))
                if not valid or key >> OFFSET_BITS != number:
                    raise StoreDamaged(str(self.path), f"damaged: the newest batch of log {name} cannot be read")
                self._newest_stamp = max(self._newest_stamp, stamp)
                if publisher <= STORE_PUBLISHERS_MAX:
                    self._newest_publisher = max(self._newest_publisher, publisher)
                stored = max(low, (key & _OFFSET) + count)
                log.end = max(end, stored)
                log.total = max(total, before + (size or staged.size_of(self.db, key)))
            log.unknown = log.end - stored if log.end == OFFSET_MAX else 0
            yield log

    def next_numbers(self) -> tuple[int, int, int]:
        """Return the first free numbers of a topic, a log and a copy of `last`: above all numbers in any table.

        A table may be older than the rest, after a lost page write or an incomplete copy of the file. A new topic or
        log with a number that other tables refer to would continue another one's counters and batches.
        """
        referring = (
            "last",
            "topic_settings",
            "removal",
            "topic_order",
            "purge",
            "subscription",
            *groups.TABLES,
            "log",
            "rival",
            "stage",
            "shelf",
        )
        numbered = (("topic", "id"), ("quarantined_topic", "id"), ("shelf", "id"), ("delayed", "shelf"))
        columns = [*numbered, *((table, "topic") for table in referring)]
        topic = max(self._highest(table, column, NUMBERS_MAX) for table, column in columns)
        # Damaged batches stay when their log is deleted. A new log with that number would collide with them.
        damaged = max(self.reader.damaged, default=0)
        key = max(damaged, self._highest("batch", "key", LOGS_MAX << OFFSET_BITS))
        log = max(self._highest("log", "id", LOGS_MAX), self._highest("compacted", "log", LOGS_MAX), key >> OFFSET_BITS)
        return topic + 1, log + 1, self._highest("watermark", "id", NUMBERS_MAX) + 1

    def next_staged(self) -> tuple[int, int]:
        """Return the first free numbers of a stage and of a piece, as in `next_numbers`."""
        try:
            stage, piece = staged.next_numbers(self.db)
        except apsw.CorruptError:  # Perhaps only the index is damaged, which only staged rows need.
            forget_pages(self.db)
            stage, piece = staged.next_numbers(self.db, indexed=False)
        return stage, max(piece, self._highest("published", "source", NUMBERS_MAX) + 1)

    def _highest(self, table: str, column: str, bound: int) -> int:
        """Return the highest readable number in a column below a bound; 0 if there is none.

        On a damaged page a number may be any other number. No assigned number is as high as the bound.
        """
        statement = f"select max({column}) from {table} where {column} < ?"  # noqa: S608 - our own words
        with contextlib.suppress(apsw.CorruptError):
            return int(self._row(statement, (bound,))[0] or 0)
        return 0

    def dropped_stages(self) -> list[tuple[int, int]]:
        """Return the number and the count of pieces of each stage without a topic."""
        return self._left(staged.dropped)

    def discarded_shelves(self) -> list[int]:
        """Return the numbers of shelves without a topic that still have rows to delete."""
        return self._left(delayed.orphans)

    def discarded_copies(self) -> list[int]:
        """Return the numbers of records copied for groups of no topic, which a transfer has left."""
        return self._left(groups.orphans)

    def _left(self, find: Callable[[apsw.Connection], list[_Value]]) -> list[_Value]:
        try:
            return find(self.db)
        except apsw.CorruptError:
            forget_pages(self.db)
            return []  # They stay in the file.

    def quarantined(self) -> list[QuarantinedTopic]:
        """Return the quarantined topics."""
        rows = self._rows(
            "select q.name, log.name, reason, stamp from quarantined_topic q join log on log.id = open_log"
            " order by stamp, q.name"
        )
        return [QuarantinedTopic(*row) for row in rows]

    def _rows(self, statement: str, bind: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self.db.execute(statement, bind).fetchall()
        except apsw.CorruptError:
            forget_pages(self.db)
            raise
        except UnicodeDecodeError:
            raise StoreDamaged(str(self.path), "damaged: a text is not valid UTF-8") from None

    def _row(self, statement: str, bind: tuple[Any, ...] = ()) -> Any:
        rows = self._rows(statement, bind)
        return rows[0] if rows else None

    def _meta(self, name: str) -> Any:
        row = self._row("select value from meta where name = ?", (name,))
        return row[0] if row else None


def load(store: Loading) -> Loaded:
    """Read everything that a server needs before it serves. `pubsub server check` reads the same.

    Raises:
        apsw.Error, StoreDamaged: the server cannot start on this store.
    """
    store.reader.begin()
    next_topic, next_log, next_watermark = store.next_numbers()
    topics = {topic.name: topic for topic in store.topics(unreadable=True)}
    referred = (number for topic in topics.values() for number in topic.watermarks)
    next_watermark = max(next_watermark, 1 + max(referred, default=0))
    return Loaded(
        store.store_id,
        store.incarnation(),
        store.change(),
        topics,
        store.publishers(),
        next_topic,
        next_log,
        next_watermark,
        tuple(store.discarded()),
        store.notes(),
        store.quarantined(),
        *store.next_staged(),
        tuple(store.dropped_stages()),
        tuple(store.unused_watermarks(topics.values())),
        tuple(store.discarded_shelves()),
        tuple(store.discarded_copies()),
    )
