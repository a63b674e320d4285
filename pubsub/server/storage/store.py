"""The server's store: one SQLite file, one writing connection, one transaction a loop (docs/architecture.md, *Stores*).

Batches are rows as they were put, keyed by log number << 40 | offset, so that a put is one insert at the end of a
B-tree and a read is one range. Everything else that has to outlive the process is small: topics with their spine,
logs, the last counter of each publisher, the subscribers' entries.

`synchronous=FULL` with a write-ahead log: a commit that returned is on the disk. The log is copied back into the file
by `checkpoint.Checkpointer`, on a thread of its own.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from pubsub.base.limits import OFFSET_BITS, OFFSET_MAX
from pubsub.errors import StoreDamaged, StoreFull, StoreNewer
from pubsub.server.storage import staged
from pubsub.server.storage.database import find_damage, lock_directory, open_database, translate
from pubsub.server.storage.reader import Reader
from pubsub.server.storage.wal import begins_damaged, commits_behind
from pubsub.server.topic import changes as c
from pubsub.server.topic.delivery import Batch
from pubsub.server.topic.loaded import Aside, Loaded
from pubsub.server.topic.spans import Leg
from pubsub.server.topic.topic import Entry, Log, Topic

FORMAT: Final = 1
APPLICATION_ID: Final = 0x50505542
FILE: Final = "server.db"
RESTORED: Final = "restored"
"""Stands as the receiver of a log that was ended in this store because it was restored."""

_SCHEMA: Final = (
    "create table meta (name text primary key, value) without rowid",
    "create table topic (id integer primary key, name text not null unique, open_log integer not null,"
    " spine text not null, frozen text not null)",
    "create table log (id integer primary key, name text not null, topic integer not null, state text not null,"
    " low integer not null, end integer not null, total integer not null, receiver text not null default '')",
    "create index log_name on log (name)",
    "create index log_topic on log (topic)",
    "create table publisher (id integer primary key, name text not null unique)",
    "create table last (topic integer, publisher integer, last integer not null, primary key (topic, publisher))"
    " without rowid",
    "create table entry (topic integer, subscriber text, number integer not null, opening integer not null,"
    " subscribed integer not null, since integer not null, log text not null, acknowledged integer not null,"
    " legs text not null, primary key (topic, subscriber)) without rowid",
    "create table skip (id integer, publisher integer, counter integer not null, primary key (id, publisher))"
    " without rowid",
    "create table batch (key integer primary key, count integer not null, publisher integer not null,"
    " counter integer not null, stamp integer not null, checksum integer not null, total integer not null, body blob)",
    "create table quarantine (key integer primary key, checksum integer not null, body blob)",
    *staged.SCHEMA,
)
ADDED: Final = (
    "create table if not exists rival (topic integer, log text, server text not null, primary key (topic, log))"
    " without rowid",
    "create table if not exists aside (id integer primary key, name text not null, open_log integer not null,"
    " spine text not null, reason text not null, stamp integer not null)",
)
"""Tables that a store of this format may lack."""

DESCRIBING: Final = (
    "sqlite_schema",
    "meta",
    "topic",
    "log",
    "publisher",
    "last",
    "entry",
    "skip",
    "stage",
    "published",
    "rival",
    "aside",
    "quarantine",
)
"""Tables that every topic needs, or whose rows stand close together: a server refuses to start where a page of one, or
of the list of free pages, is damaged. What is damaged elsewhere concerns single topics."""

_OFFSET: Final = (1 << OFFSET_BITS) - 1
_PRAGMAS: Final = (
    ("journal_mode", "wal"),
    ("synchronous", 2),
    ("wal_autocheckpoint", 0),
    ("temp_store", 2),
    ("cache_size", -65536),
)


def write_legs(legs: Iterable[Leg]) -> str:
    """Legs as the text that a row holds."""
    return json.dumps([(leg.log, leg.low, leg.high, leg.skip, leg.since) for leg in legs], separators=(",", ":"))


def read_legs(text: str) -> tuple[Leg, ...]:
    """The legs that `write_legs` wrote.

    Raises:
        ValueError: the text is something else.
    """
    return tuple(Leg(*row) for row in json.loads(text))


def _deletion(low: int, high: int) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """The statements that delete the batches with keys in [low, high), but for those found damaged."""
    return (*staged.deletion(low, high), (f"delete from batch where {staged.SOUND}", (low, high)))  # noqa: S608


def _baring(low: int, high: int) -> tuple[tuple[str, tuple[Any, ...]], ...]:
    """Those that take their bytes."""
    return ((f"update batch set body = null where body is not null and {staged.SOUND}", (low, high)),)  # noqa: S608


def _on_database(apply: Callable[[apsw.Connection, Any], object]) -> Callable[[Store, Any], object]:
    return lambda store, change: apply(store.db, change)


class Store:
    """A server's directory, open for one process.

    Args:
        directory: made if it is not there.
        bytes_max: size of the file beyond which it counts as full; 0: the disk's limit.
        vfs: SQLite's file system, for one that is not the machine's: it has no shared memory, and the directory is
            neither made nor locked.

    Raises:
        StoreInUse: another process has it open.
        StoreNewer, StoreDamaged, StorageError, ConfigurationError: it cannot be used.
    """

    def __init__(self, directory: Path, *, bytes_max: int = 0, vfs: str | None = None) -> None:
        self.directory = directory
        self.path = directory / FILE
        self._lock_file = lock_directory(directory) if vfs is None else None
        try:
            alone = () if vfs is None else (("locking_mode", "exclusive"),)
            log = Path(f"{self.path}-wal")
            if vfs is None and begins_damaged(log):
                raise StoreDamaged(str(self.path), f"damaged: {log.name} cannot be read, see: pubsub server check")
            self.db = open_database(self.path, (*alone, *_PRAGMAS), vfs=vfs)
            if vfs is None:
                self._check_log(log)
            if self._open_format() and vfs is None:
                self._check_length()
            if bytes_max:
                self.db.pragma("max_page_count", max(64, bytes_max // self.db.pragma("page_size")))
            self.store_id = str(self._meta("store"))
        except BaseException as error:
            self._unlock()
            if isinstance(error, apsw.Error):
                raise translate(error, self.path) from None
            raise
        self.reader = Reader(self.db)
        self.failed: c.Change | None = None
        """The change during which a damaged page was met."""
        self._fresh: list[int] = []
        self._newest_stamp = 0

    def _open_format(self) -> bool:
        """Read the format, or make a new store; whether there was one."""
        found = self.db.pragma("user_version")
        if found > FORMAT:
            raise StoreNewer(str(self.path), found, FORMAT)
        if found == FORMAT:
            if self.db.pragma("application_id") != APPLICATION_ID:
                raise StoreDamaged(str(self.path), "not a server's store")
            for finding in find_damage(self.db, DESCRIBING):
                raise StoreDamaged(str(self.path), f"damaged: {finding}, see: pubsub server check")
            self._add_tables()
            return True
        if self._row("select 1 from sqlite_schema"):
            raise StoreDamaged(str(self.path), "a database, but not a server's store")
        try:
            with self.db:
                for statement in (*_SCHEMA, *ADDED):
                    self.db.execute(statement)
                self.db.execute("insert into meta values ('store', ?)", (secrets.token_hex(8),))
                self.db.execute(f"pragma application_id = {APPLICATION_ID}")
                self.db.execute(f"pragma user_version = {FORMAT}")
        except apsw.FullError:
            raise StoreFull(str(self.path), "no space for a new store") from None
        return False

    def _add_tables(self) -> None:
        if self._row("select count(*) from sqlite_schema where name in ('rival', 'aside')")[0] < len(ADDED):
            with self.db:
                for statement in ADDED:
                    self.db.execute(statement)

    def _check_length(self) -> None:
        """See that nothing was cut off the file: SQLite reads the rest of a page that is missing as zeros, in silence.

        Raises:
            StoreDamaged: something was.
        """
        pages, page_bytes = self._row("select page_count, page_size from pragma_page_count, pragma_page_size")
        if self.path.stat().st_size >= pages * page_bytes:
            return
        logged, copied = self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)  # The rest may be in the log.
        size = self.path.stat().st_size
        if logged == copied and size < pages * page_bytes:
            raise StoreDamaged(str(self.path), f"damaged: {size} bytes are left of {pages * page_bytes}")

    def _check_log(self, log: Path) -> None:
        """See that SQLite takes all of the write-ahead log, before anything is written over the rest.

        Raises:
            StoreDamaged: it leaves out more than a commit that was not finished.
        """
        if not log.exists() or not log.stat().st_size:
            return
        self.db.pragma("user_version")  # A connection that has not read yet does not know how long the log is.
        sound, _ = self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        lost = commits_behind(log, max(0, sound))
        if lost > 1:
            self.keep_log()
            reason = f"damaged: {lost:,} commits at the end of {log.name} cannot be read, see: pubsub server check"
            raise StoreDamaged(str(self.path), reason)

    def _rows(self, statement: str, bind: tuple[Any, ...] = ()) -> list[Any]:
        try:
            return self.db.execute(statement, bind).fetchall()
        except UnicodeDecodeError:
            raise StoreDamaged(str(self.path), "damaged: a text that is none") from None

    def _row(self, statement: str, bind: tuple[Any, ...] = ()) -> Any:
        """The first row, or None."""
        rows = self._rows(statement, bind)
        return rows[0] if rows else None

    def _meta(self, name: str) -> Any:
        row = self._row("select value from meta where name = ?", (name,))
        return row[0] if row else None

    # Loading

    def start(self, wall_ms: int, server_id: str = "") -> tuple[int, int]:
        """Begin a new incarnation, durably.

        Args:
            wall_ms: milliseconds since 1970.
            server_id: noted for who opens the store without a configuration.

        Returns:
            The incarnation and the change number.
        """
        incarnation = max(wall_ms, int(self._meta("incarnation") or 0) + 1)
        with self.guarded():
            self.db.executemany(
                "insert or replace into meta values (?,?)", (("incarnation", incarnation), ("server", server_id))
            )
        return incarnation, self.change()

    def change(self) -> int:
        """The change number that was stored last."""
        return int(self._meta("change") or 0)

    def skip_changes(self, change: int) -> None:
        """Go on from this change number, within the open transaction."""
        self.db.execute("insert or replace into meta values ('change', ?)", (change,))

    def stamp(self) -> int:
        """The highest stamp of the topics loaded so far, and of the last commit that counted a change."""
        return max(self._newest_stamp, int(self._meta("stamp") or 0))

    def notes(self) -> dict[str, Any]:
        """What the server remembers of itself, by name."""
        return dict(self._rows("select substr(name, 6), value from meta where substr(name, 1, 5) = 'note '"))

    @property
    def server_id(self) -> str:
        """The ID of the server that used it last, "" where none did."""
        return str(self._meta("server") or "")

    def publishers(self) -> list[str]:
        """Every publisher's name, by its number."""
        names = [""]
        for number, name in self._rows("select id, name from publisher order by id"):
            names.extend([""] * (number - len(names)))
            names.append(name)
        return names

    def topics(self, name: str | None = None, *, aside: bool = False, unreadable: bool = False) -> Iterator[Topic]:
        """Every topic, or the one named, as the last commit left it.

        Args:
            aside: those that were set aside, which are no topics of this server's any more.
            unreadable: where a topic cannot be read, give what is to be had of it, marked so.

        Raises:
            StoreDamaged: a topic cannot be read, or a row refers to what is not there.
        """
        every = "select id, name, open_log, spine, frozen from topic"
        if aside:
            every = "select id, name, open_log, spine, '' from aside"
        for row in self._rows(every) if name is None else self._rows(f"{every} where name = ?", (name,)):
            try:
                topic = self._topic_of(*row, aside=aside)
            except (apsw.CorruptError, StoreDamaged) as error:
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

    def _topic_of(self, number: int, title: str, open_log: int, spine: str, frozen: str, *, aside: bool) -> Topic:
        logs = {log.number: log for log in self._logs(number, aside=aside)}
        if open_log not in logs:
            raise StoreDamaged(str(self.path), f"topic {title} has no open log")
        topic = Topic(number, title, logs[open_log], {log.id: log for log in logs.values()})
        topic.spine, topic.frozen = self._legs(spine, title), frozen
        topic.absorbed = {
            name for (name,) in self._rows("select name from log where topic = ? and state = 'absorbed'", (number,))
        }
        ended = self._rows(
            "select name, receiver from log where topic = ? and end >= ? order by id", (number, OFFSET_MAX)
        )
        topic.ended = {name for name, _ in ended}
        topic.restored = tuple(name for name, receiver in ended if receiver == RESTORED)
        topic.rivals = dict(self._rows("select log, server from rival where topic = ?", (number,)))
        topic.last = dict(self._rows("select publisher, last from last where topic = ?", (number,)))
        for row in self._rows(
            "select subscriber, number, opening, subscribed, since, log, acknowledged, legs from entry where topic = ?",
            (number,),
        ):
            who, own, opening, on, since, log, acknowledged, legs = row
            topic.entries[who] = Entry(own, opening, bool(on), since, (log, acknowledged), self._legs(legs, title))
        self._load_skips(topic)
        topic.stages = staged.load(self.db, number)
        self._check_types(topic)
        return topic

    def _check_types(self, topic: Topic) -> None:
        """See that numbers are numbers and texts are texts: SQLite gives what stands there.

        Raises:
            StoreDamaged: something is not.
        """
        numbers = set(map(type, topic.last)) | set(map(type, topic.last.values()))
        for counters in topic.skips.values():
            numbers |= set(map(type, counters)) | set(map(type, counters.values()))
        texts = {type(text) for text in (topic.name, topic.frozen, *topic.absorbed, *topic.ended, *topic.entries)}
        texts |= {type(text) for rival in topic.rivals.items() for text in rival}
        for entry in topic.entries.values():
            numbers |= {type(entry.number), type(entry.opening), type(entry.since), type(entry.acknowledged[1])}
            texts.add(type(entry.acknowledged[0]))
        if not (numbers <= {int} and texts <= {str}):
            raise StoreDamaged(str(self.path), f"topic {topic.name} has rows that cannot be read")

    def _legs(self, text: str, topic: str) -> tuple[Leg, ...]:
        try:
            return read_legs(text)
        except (ValueError, TypeError):
            raise StoreDamaged(str(self.path), f"topic {topic} has legs that cannot be read") from None

    def _load_skips(self, topic: Topic) -> None:
        legs = (*topic.spine, *(leg for entry in topic.entries.values() for leg in entry.legs))
        for number in sorted({leg.skip for leg in legs} - {0}):
            topic.skips[number] = dict(self._rows("select publisher, counter from skip where id = ?", (number,)))

    def unused_skips(self, topics: Iterable[Topic]) -> list[int]:
        """Numbers of the copies of `last` that no leg refers to.

        Args:
            topics: all that the store holds; those that were set aside refer to copies too.
        """
        every = (*topics, *self.topics(aside=True, unreadable=True))
        if any(topic.unreadable for topic in every):
            return []  # Nobody knows what those refer to.
        used = {number for topic in every for number in topic.skips}
        found, unused = 0, []
        # One look for each copy: to have them all read would cost a row for each publisher.
        while (row := self._row("select id from skip where id > ? order by id limit 1", (found,))) is not None:
            found = row[0]
            if found not in used:
                unused.append(found)
        return unused

    def discarded(self) -> list[int]:
        """Numbers of logs that are nobody's and have batches yet that can be deleted: what is damaged stays."""
        return [
            number
            for (number,) in self._rows(
                "select id from log where state in ('incoming', 'given') and (state = 'incoming' or exists"
                " (select 1 from batch where key >= log.id << ? and key < (log.id + 1) << ?"
                " and key not in (select key from quarantine)))",
                (OFFSET_BITS, OFFSET_BITS),
            )
        ]

    def _logs(self, topic: int, *, aside: bool = False) -> Iterator[Log]:
        which = "state = 'aside' and receiver = 'held'" if aside else "state = 'held'"
        for number, name, low, end, total in self._rows(
            f"select id, name, low, end, total from log where topic = ? and {which}",  # noqa: S608 - our own words
            (topic,),
        ):
            newest = self._row(
                "select key, count, total, length(body), stamp from batch"
                " where key >= ? and key < ? order by key desc limit 1",
                (number << OFFSET_BITS, number + 1 << OFFSET_BITS),
            )
            log = Log(number, name, low, end, total)
            if not all(type(value) is int for value in (low, end, total)) or type(name) is not str:
                raise StoreDamaged(str(self.path), f"what the store says of log {name} cannot be read")
            stored = low  # A damaged batch may have been left behind below it.
            if newest is not None:
                key, count, before, size, stamp = newest
                if not all(type(value) is int for value in (count, before, stamp)):
                    raise StoreDamaged(str(self.path), f"the newest batch of log {name} cannot be read")
                self._newest_stamp = max(self._newest_stamp, stamp)
                stored = max(low, (key & _OFFSET) + count)
                log.end = max(end, stored)
                log.total = max(total, before + (size or staged.size_of(self.db, key)))
            log.unknown = log.end - stored if log.end == OFFSET_MAX else 0
            yield log

    def next_numbers(self) -> tuple[int, int, int]:
        """The first numbers of a topic, a log and a copy of `last` that are free."""
        topic = max(self._row(f"select coalesce(max(id), 0) + 1 from {table}")[0] for table in ("topic", "aside"))  # noqa: S608
        log = self._row("select coalesce(max(id), 0) + 1 from log")[0]
        skip = self._row("select coalesce(max(id), 0) + 1 from skip")[0]
        return topic, log, skip

    def next_staged(self) -> tuple[int, int]:
        """The first numbers of a stage and of a piece of one that are free."""
        return staged.next_numbers(self.db)

    def dropped_stages(self) -> list[tuple[int, int]]:
        """Number and pieces of the stages that are nobody's."""
        return staged.dropped(self.db)

    # Writing

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """One transaction; what SQLite says goes wrong in it comes out as our errors, and nothing of it is left."""
        try:
            self.begin()
            yield
            self.commit()
        except BaseException as error:
            self.roll_back()
            if isinstance(error, apsw.Error):
                raise translate(error, self.path) from None
            raise

    def begin(self) -> None:
        """Open the loop's transaction."""
        self.db.execute("begin immediate")

    def commit(self) -> None:
        """Make the loop's transaction durable; it is on the disk when this returns."""
        self.db.execute("commit")
        self._fresh.clear()

    def roll_back(self) -> None:
        """Forget the loop's transaction."""
        for key in self._fresh:
            self.reader.drop(key)
        self._fresh.clear()
        if self.db.in_transaction:
            self.db.execute("rollback")

    def apply(self, changes: Sequence[c.Change]) -> None:
        """Carry out changes within the open transaction, in order.

        Raises:
            apsw.CorruptError, apsw.ConstraintError: a damaged page was met; `failed` is the change that needed it.
        """
        try:
            for change in changes:
                self._APPLY[type(change)](self, change)
        except (apsw.CorruptError, apsw.ConstraintError):  # A row is in the way that no sound page shows.
            self.failed = change
            raise

    def _spared(self, *statements: tuple[str, tuple[Any, ...]]) -> bool:
        """Carry these out, all or, where a damaged page is in the way, none; whether they were."""
        self.db.execute("savepoint spared")
        try:
            for statement, bind in statements:
                self.db.execute(statement, bind)
        except apsw.CorruptError:
            self.db.execute("rollback to spared")
            return False
        finally:
            self.db.execute("release spared")
        return True

    def _each(
        self, low: int, high: int, statements: Callable[[int, int], tuple[tuple[str, tuple[Any, ...]], ...]]
    ) -> None:
        """Change the batches with keys in [low, high); of those that a damaged page is in the way of, none.

        What was found damaged stays as it is: its row may lead to pages that are another's.
        """
        if self._spared(*statements(low, high)):
            return
        keys: list[int] = []
        with contextlib.suppress(apsw.CorruptError):
            for (key,) in self.db.execute("select key from batch where key >= ? and key < ?", (low, high)):
                keys.append(key)
        for key in keys:
            self._spared(*statements(key, key + 1))

    def _append(self, change: c.BatchAppended) -> None:
        key = change.log << OFFSET_BITS | change.offset
        self.db.execute(
            "insert into batch values (?,?,?,?,?,?,?,?)",
            (
                key,
                change.count,
                change.publisher,
                change.counter,
                change.stamp,
                change.checksum,
                change.total,
                change.body,
            ),
        )
        batch = Batch(
            change.offset,
            change.count,
            change.publisher,
            change.counter,
            change.stamp,
            change.checksum,
            change.total,
            change.body,
            change.sound,
        )
        self._fresh.append(key)
        self.reader.remember(key, batch)

    def _publish(self, change: c.BatchPublished) -> None:
        key = change.log << OFFSET_BITS | change.offset
        staged.publish(self.db, key, change)
        self._fresh.append(key)  # It may be read, and so remembered, before the commit.

    def _trim(self, change: c.LogTrimmed) -> None:
        first = change.log << OFFSET_BITS
        self.db.execute(
            "update log set low = ?, end = ?, total = ? where id = ?",
            (change.low, change.end, change.total, change.log),
        )
        self._each(first, first | change.low, _deletion)

    def _drop_bodies(self, change: c.BodiesDropped) -> None:
        first = change.log << OFFSET_BITS
        self._each(first | change.low, first | change.high, _baring)
        self.reader.drop_range(first | change.low, first | change.high)

    def _discard(self, change: c.BatchesDiscarded) -> None:
        # The log of a topic whose giving was taken back for want of space is held again, and keeps its batches.
        first = change.log << OFFSET_BITS
        if not self._row("select 1 from log where id = ? and state = 'held'", (change.log,)):
            self._each(first, first | change.low, _deletion)
        if change.last:
            self.db.execute("delete from log where id = ? and state = 'incoming'", (change.log,))

    def _replaced(self, change: c.LogReplaced) -> None:
        self.db.execute(
            "update log set state = 'incoming', topic = 0, end = 1, receiver = ''"
            " where topic = ? and name = ? and state = 'held'",
            (change.topic, change.log),
        )
        # Of one that was only known nothing is stored that could be deleted later.
        self.db.execute("delete from log where topic = ? and name = ?", (change.topic, change.log))

    def _given(self, change: c.TopicGiven) -> None:
        self.db.execute(
            "update log set state = 'given', receiver = ?, topic = 0 where topic = ?", (change.receiver, change.topic)
        )
        for table, column in (("topic", "id"), ("last", "topic"), ("entry", "topic"), ("rival", "topic")):
            self.db.execute(f"delete from {table} where {column} = ?", (change.topic,))  # noqa: S608 - our own names

    def _quarantine(self, change: c.BatchQuarantined) -> None:
        key = change.log << OFFSET_BITS | change.offset
        # Its row stays: where a page number is what was damaged, to free its pages would free those of another.
        self._spared(staged.keep(key))
        self._spared(
            (
                "insert or ignore into quarantine select key, checksum, body from batch where key = ?1"
                " and body is not null",
                (key,),
            )
        )
        self.reader.damaged.add(key)
        self.reader.drop(key)

    def _topic(self, change: c.TopicChanged) -> None:
        self.db.execute(
            "insert or replace into topic values (?,?,?,?,?)",
            (change.topic, change.name, change.open_log, write_legs(change.spine), change.frozen),
        )

    def _entry(self, change: c.EntryChanged) -> None:
        log, acknowledged = change.acknowledged
        self.db.execute(
            "insert or replace into entry values (?,?,?,?,?,?,?,?,?)",
            (
                change.topic,
                change.subscriber,
                change.number,
                change.opening,
                int(change.on),
                change.since,
                log,
                acknowledged,
                write_legs(change.legs),
            ),
        )

    def _set_aside(self, change: c.TopicSetAside) -> None:
        self.db.execute(
            "insert into aside select id, name, open_log, spine, ?, ? from topic where id = ?",
            (change.reason, change.stamp, change.topic),
        )
        self.db.execute("delete from topic where id = ?", (change.topic,))
        self.db.execute("delete from rival where topic = ?", (change.topic,))
        self.db.execute("update log set receiver = state, state = 'aside' where topic = ?", (change.topic,))

    def aside(self) -> list[Aside]:
        """What was set aside."""
        rows = self._rows(
            "select aside.name, log.name, reason, stamp from aside join log on log.id = open_log"
            " order by stamp, aside.name"
        )
        return [Aside(*row) for row in rows]

    def _note(self, change: c.NoteKept) -> None:
        if change.value is None:
            self.db.execute("delete from meta where name = ?", (f"note {change.name}",))
        else:
            self.db.execute("insert or replace into meta values (?,?)", (f"note {change.name}", change.value))

    def _counted(self, change: c.ChangeCounted) -> None:
        self.db.executemany(
            "insert or replace into meta values (?,?)", (("change", change.change), ("stamp", change.stamp))
        )

    _APPLY: Final[dict[type[Any], Callable[[Store, Any], object]]] = {
        c.BatchAppended: _append,
        c.PublisherSeen: lambda self, x: self.db.execute("insert into publisher values (?,?)", (x.publisher, x.name)),
        c.LastMoved: lambda self, x: self.db.execute(
            "insert or replace into last values (?,?,?)", (x.topic, x.publisher, x.last)
        ),
        c.LogOpened: lambda self, x: self.db.execute(
            "insert into log values (?,?,?,?,1,1,0,'')", (x.log, x.id, x.topic, x.state)
        ),
        c.LogJoined: lambda self, x: self.db.execute(
            "update log set topic = ?, state = 'held', low = ?, end = ?, total = ? where id = ?",
            (x.topic, x.low, x.end, x.total, x.log),
        ),
        c.LogUsedUp: lambda self, x: self.db.execute("update log set state = 'absorbed' where id = ?", (x.log,)),
        c.BatchesDiscarded: _discard,
        c.TopicGiven: _given,
        c.SkipStored: lambda self, x: self.db.executemany(
            "insert into skip values (?,?,?)", [(x.skip, *item) for item in x.counters.items()]
        ),
        c.SkipDropped: lambda self, x: self.db.execute("delete from skip where id = ?", (x.skip,)),
        c.LogTrimmed: _trim,
        c.BodiesDropped: _drop_bodies,
        c.TopicChanged: _topic,
        c.EntryChanged: _entry,
        c.BatchQuarantined: _quarantine,
        c.LogEnded: lambda self, x: self.db.execute(
            "update log set end = ?, receiver = ? where id = ?", (OFFSET_MAX, RESTORED if x.here else "", x.log)
        ),
        c.LogReplaced: _replaced,
        c.TopicSetAside: _set_aside,
        c.RivalTold: lambda self, x: self.db.execute(
            "insert or replace into rival values (?,?,?)", (x.topic, x.log, x.server)
        ),
        c.RivalGone: lambda self, x: self.db.execute("delete from rival where topic = ? and log = ?", (x.topic, x.log)),
        c.NoteKept: _note,
        c.ChangeCounted: _counted,
        c.BatchPublished: _publish,
        **{kind: _on_database(apply) for kind, apply in staged.APPLY.items()},
    }

    # Sizes

    def free_bytes(self) -> int:
        """Bytes within the file that hold nothing and are used before it grows."""
        return int(self.db.pragma("freelist_count")) * int(self.db.pragma("page_size"))

    def room_bytes(self) -> int:
        """Bytes that can still be written before the limit set for this store is reached."""
        pages = int(self.db.pragma("max_page_count")) - int(self.db.pragma("page_count"))
        return self.free_bytes() + pages * int(self.db.pragma("page_size"))

    def sizes(self) -> dict[str, int]:
        """Bytes on the disk: of the file, and of its write-ahead log."""
        wal = Path(f"{self.path}-wal")
        return {
            "store": int(self.db.pragma("page_count")) * int(self.db.pragma("page_size")),
            "log": wal.stat().st_size if wal.exists() else 0,
        }

    def keep_log(self) -> None:
        """Do not copy the write-ahead log back when the file is closed: the disk failed, and only the log is sure."""
        self.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def close(self) -> None:
        """Close the file and let another process have it."""
        self.db.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock_file is not None:
            self._lock_file.close()


def load(store: Store, incarnation: int, change: int) -> Loaded:
    """All that a server reads of its store before it serves; `pubsub server check` reads the same.

    Raises:
        apsw.Error, StoreDamaged: it cannot start on this store.
    """
    next_topic, next_log, next_skip = store.next_numbers()
    topics = {topic.name: topic for topic in store.topics(unreadable=True)}
    return Loaded(
        store.store_id,
        incarnation,
        change,
        topics,
        store.publishers(),
        next_topic,
        next_log,
        next_skip,
        tuple(store.discarded()),
        store.notes(),
        store.aside(),
        *store.next_staged(),
        tuple(store.dropped_stages()),
        tuple(store.unused_skips(topics.values())),
    )
