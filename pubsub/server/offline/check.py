"""Checks a stopped server's store, and reports the intact part; see docs/explanation/stores.md, *Damaged pages*.

The check reads all data that a server would read. It compares the file's length with its header. It reads the
write-ahead log frame by frame, SQLite's own pages, each topic's rows, and each batch with its checksum. An unreadable
page hides only its own contents. A topic is therefore read from both ends, and the part between is named.

    intact     the store has all data that was written
    damaged    a server starts on it and serves the intact part; the rest is reported topic by topic
    broken     a server refuses to start on it, because data that all topics need is damaged
    stale      an older copy of itself: it lacks acknowledged puts without a trace in the file
    newer      written by a newer release

A server treats a damaged topic as follows:

* A batch with damaged bytes is lost. The loss is reported once, and the rest is served.
* At an unreadable page the server stops serving the topic, and answers `unavailable`.
* A topic with unreadable newest batches, or an unreadable description, is held back.

The operator decides whether to restore a copy or to give the topic up.

The file does not show that a copy is older than the store was. The server records it after a proxy or a client has
reported it, and proxies remember the last state of a store: see `compare`. A standby's store is behind its stream file,
so for one of two members the register counts instead.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import apsw

from pubsub.base.database import CAREFUL, find_damage, forget_pages, see_begun
from pubsub.base.limits import OFFSET_BITS, OFFSET_MAX
from pubsub.base.wal import begins_damaged, first_page, frames, log_of, missing_pages
from pubsub.errors import ConfigurationError, DecodeError, StorageError, StoreDamaged, StoreInUse
from pubsub.protocol.batch import DELAYED, Buffer, check_batch
from pubsub.server.offline.found import PROBLEMS_MAX, Found, TopicFound, Verdict
from pubsub.server.storage import formats, repaired
from pubsub.server.storage.loading import Loading, load
from pubsub.server.storage.reader import BATCH, is_batch
from pubsub.server.storage.schema import APPLICATION_ID, DESCRIBING, FILE, FORMAT, MEMBER
from pubsub.server.storage.staged import body_of
from pubsub.server.topic.compacted import Parts, count_left, miscounted, outside
from pubsub.server.topic.notes import HELD, STALE
from pubsub.server.topic.purged import unread_place
from pubsub.server.topic.topic import Log, Topic

_OFFSET: Final = (1 << OFFSET_BITS) - 1
_SQLITE: Final = b"SQLite format 3\0"
_WAL_VERSION: Final = 2
"""The version of SQLite's file format with a write-ahead log. SQLite opens a file of a later version for reading only.
"""


def check(directory: Path) -> Found:
    """Check a stopped server's store.

    Args:
        directory: of the server.

    Raises:
        ConfigurationError: it has no store, or cannot be read.
        StoreInUse: the server is running.
    """
    path = directory / FILE
    try:
        with path.open("rb") as file:
            header = file.read(100)
    except OSError as error:
        raise ConfigurationError(f"{directory} holds no server's store: {FILE}: {error.strerror}") from None
    found = Found(str(directory), member=_member(directory))
    if found.member:
        found.notes.append(f"it is member {found.member} of two: its newest changes may be only in its stream file")
    with _kept_out(directory):
        try:
            see_begun(path)
        except StoreDamaged as error:
            found.problems.add(f"{FILE} is {_plain(error)}")
            found.verdict = Verdict.BROKEN
            return found
        header = first_page(log_of(path))[:100] or header
        if len(header) < 100 or not header.startswith(_SQLITE):
            found.problems.add(f"{FILE} does not begin with an SQLite header")
            found.verdict = Verdict.BROKEN
            return found
        complete = _check_length(found, path, header)
        complete = _check_log(found, path) and complete
        try:
            with contextlib.closing(_open(path)) as db:
                _check(found, path, header, db)
        except (apsw.Error, StorageError) as error:
            found.problems.add(f"{FILE} cannot be read any further: {_plain(error)}")
            found.verdict = Verdict.BROKEN
    if not complete:
        found.verdict = Verdict.BROKEN
    return found


def compare(found: Found, reports: Iterable[Mapping[str, Any]]) -> None:
    """Check whether proxies know a later state of this store.

    Args:
        found: the result for a store; it becomes `stale` if they do.
        reports: of the proxies.
    """
    for report in reports:
        if found.member:
            _compare_member(found, report)
            continue
        for server in report["servers"]:
            if not found.store or server["store"] != found.store or found.verdict is Verdict.BROKEN:
                continue
            later = server["incarnation"] > found.incarnation
            if later or server["change"] > found.change:
                found.stale = (
                    f"proxy {report['proxy']} knows it at change {server['change']} of start {server['incarnation']},"
                    f" and this copy is at change {found.change} of start {found.incarnation}"
                )
                found.verdict = Verdict.STALE
                return
        found.notes.append(f"proxy {report['proxy']} knows no later state of this store")


def _compare_member(found: Found, report: Mapping[str, Any]) -> None:
    """Note the state of this member in a proxy's row of the register."""
    rows = [row for row in report.get("registers", ()) if row["store"] == found.store and row["votes"]]
    if not rows:
        found.notes.append(f"proxy {report['proxy']} knows of no register of this store")
    elif found.member in rows[0]["in_sync"]:
        found.notes.append(f"proxy {report['proxy']}: this member is in sync")
    else:
        others = " and ".join(rows[0]["in_sync"])
        found.notes.append(f"proxy {report['proxy']}: this member is not in sync; member {others} has all data")


def _member(directory: Path) -> str:
    """Return the ID of this member of two; "" if it is not one of two, or if the ID cannot be read."""
    try:
        return str(json.loads((directory / MEMBER).read_text(encoding="utf-8"))["member"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


@contextlib.contextmanager
def _kept_out(directory: Path) -> Iterator[None]:
    """Lock the directory, so that no server starts meanwhile. Without a lock file no server ever ran here."""
    try:
        file = (directory / "lock").open(encoding="ascii", errors="replace")
    except FileNotFoundError:
        yield
        return
    except OSError as error:
        raise ConfigurationError(f"{directory} cannot be read: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreInUse(str(directory), f"process {file.read(100).strip() or 'unknown'}") from None
        yield


def _open(path: Path) -> apsw.Connection:
    """Open the file so that nothing is written: not the file, not its log, and no shared memory beside them."""
    log = log_of(path)
    logged = log.exists() and log.stat().st_size > 0
    name = path.absolute().as_uri() + ("?mode=ro" if logged else "?mode=ro&immutable=1")
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    db = apsw.Connection(name, flags, vfs="unix-none" if logged else None)
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    db.pragma("locking_mode", "exclusive")
    db.pragma("temp_store", 2)
    db.execute(CAREFUL)
    return db


class _Reading(Loading):
    """A store to check, with queries that no server needs."""

    def names(self, table: str) -> list[str]:
        return [name for (name,) in self._rows(f"select name from {table}")]  # noqa: S608 - our own words

    def count(self, table: str) -> int:
        return int(self._row(f"select count(*) from {table}")[0])  # noqa: S608 - our own words


def _check(found: Found, path: Path, header: bytes, db: apsw.Connection) -> None:
    version = db.pragma("user_version")
    if max(header[18:20]) > _WAL_VERSION:
        found.problems.add("its header marks it as read-only")
        found.verdict = Verdict.BROKEN
        return
    if version > FORMAT:
        found.problems.add(f"it is in format {version}; this release knows up to {FORMAT}")
        found.verdict = Verdict.NEWER
        return
    if not version and not db.execute("select 1 from sqlite_schema").fetchall():
        found.problems.add("it is empty: a server would make a new store here")
        found.verdict = Verdict.DAMAGED
        return
    if db.pragma("application_id") != APPLICATION_ID or version < 1:
        found.problems.add("it is a database, but not a server's store")
        found.verdict = Verdict.BROKEN
        return
    formats.show(db, version)
    with contextlib.closing(_open(path)) as other:  # Separate: it caches pages that a careful read would reject.
        sound = _check_pages(found, other)
    store = _Reading(path, db)
    found.store, found.server = store.store_id, store.server_id
    found.incarnation, found.change = store.incarnation(), store.change()
    load(store)
    publishers = store.publishers()
    for name in store.names("topic"):
        found.topics.append(_check_topic(store, name, publishers, quarantined=False))
    for name in dict.fromkeys(store.names("quarantined_topic")):
        found.topics.append(_check_topic(store, name, publishers, quarantined=True))
    quarantined = store.count("quarantine")
    if quarantined:
        note = f"{quarantined:,} damaged batches were found earlier; their bytes are kept in the table `quarantine`"
        copies = len(repaired.keys(db))
        found.notes.append(note + (f"; {copies:,} of them are repaired from the other member" if copies else ""))
    notes = store.notes()
    found.stale = str(notes.get(STALE) or "").replace("_", " ")
    for name, why in notes.items():
        if name.startswith(HELD):
            found.stale = found.stale or f"topic {name.removeprefix(HELD)} is held back: {why}"
    if found.stale:
        found.verdict = Verdict.STALE
    elif found.problems or any(topic.problems for topic in found.topics):
        found.verdict = Verdict.DAMAGED
    if not sound:
        found.verdict = Verdict.BROKEN


def _check_length(found: Found, path: Path, header: bytes) -> bool:
    """Return False if the file was cut short and its log does not have the missing pages."""
    page_bytes, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    if page_bytes < 512:
        return True  # SQLite reports this error itself.
    logged: set[int] = set()
    for frame in frames(log_of(path), checked=True):
        if frame.sound:
            logged.add(frame.page)
            pages = frame.pages or pages
    size = path.stat().st_size
    missing = missing_pages(size, pages, page_bytes, logged)
    if missing > 0:
        found.problems.add(
            f"{FILE} was cut short: {size:,} bytes are left of {pages * page_bytes:,}; {missing:,} pages are gone"
        )
    return missing <= 0


def _check_log(found: Found, path: Path) -> bool:
    """Return True if the write-ahead log is complete."""
    if begins_damaged(log_of(path)):
        found.problems.add(f"{FILE}-wal is damaged at its start: its commits are lost, although they were answered")
        return False
    sound = unsound = after = 0
    for frame in frames(log_of(path), checked=True):
        sound += bool(frame.pages and frame.sound)
        unsound += not frame.sound
        after += bool(frame.pages and not frame.sound)
    if after > 1:
        found.problems.add(
            f"{FILE}-wal is damaged: the {after:,} commits after its first {sound:,} are lost, although answered"
        )
    elif unsound:
        found.notes.append(f"{FILE}-wal ends with an unfinished commit, as after a power cut; it was never answered")
    return after <= 1


def _check_pages(found: Found, db: apsw.Connection) -> bool:
    """Return True if the tables that all topics need are intact. The problems of any page are recorded."""
    described = find_damage(db, (*DESCRIBING, *formats.OLD_NAMES), PROBLEMS_MAX)
    for line in described:
        found.problems.add(f"SQLite: {line}")
    try:
        for (text,) in db.execute(f"pragma integrity_check({PROBLEMS_MAX})"):
            for line in str(text).splitlines():
                if line != "ok" and not line.startswith("*** in database") and line not in described:
                    found.problems.add(f"SQLite: {line}")
    except apsw.CorruptError as error:
        found.problems.add(f"SQLite: {_plain(error)}")
    return not described


def _plain(error: Exception) -> str:
    return str(error).split(": ", 1)[-1]


def _check_topic(store: _Reading, name: str, publishers: Sequence[str], *, quarantined: bool) -> TopicFound:
    found = TopicFound(name, quarantined=quarantined)
    try:
        topics = list(store.topics(name, quarantined=quarantined))
    except (apsw.CorruptError, StoreDamaged) as error:
        found.problems.add(f"its description in the store cannot be read: {_plain(error)}")
        found.held_back = True
        return found
    for topic in topics:
        found.log = topic.open.id
        for log in topic.logs.values():
            _check_batches(found, store.db, topic, log, publishers)
    return found


def _check_batches(found: TopicFound, db: apsw.Connection, topic: Topic, log: Log, publishers: Sequence[str]) -> None:
    """Check every batch of a log. After an unreadable batch, continue with the next readable one."""
    base = log.number << OFFSET_BITS
    end = log.end - log.unknown if log.end < OFFSET_MAX else _last_end(db, base, log)
    parts = topic.compacted.get(log.id, ())
    left = [0] * len(parts)
    # Settings that drop, and purges, let bodies go although a subscriber has not received them.
    place, floor = log.low, OFFSET_MAX if topic.settings.dropped else topic.floors().get(log.id, OFFSET_MAX)
    floor = max(floor, unread_place(topic, log.id))
    for _ in range(PROBLEMS_MAX):
        torn = False
        for row in _rows(db, base | place, base | end):
            if row is None:
                torn = True
                break
            offset = int(row[0]) & _OFFSET
            _missing(found, log, place, offset, parts)
            count_left(parts, left, offset, int(row[1]))
            place = _check_row(found, db, log, max(place, offset), row, publishers, floor)
        if not torn:
            break
        if not found.stops:
            found.stops = f"{log.id}.{place}"
        stop = min(_next_readable(db, base | place, base | end) & _OFFSET, end) or end
        _lost(found, log, place, stop, "are on a damaged page of the file")
        place = stop
    if place < end:
        _missing(found, log, place, end, parts)
    if not found.stops:
        for problem in miscounted(log.id, parts, left):
            found.problems.add(problem)


def _missing(found: TopicFound, log: Log, low: int, high: int, parts: Parts) -> None:
    for first, stop in outside(parts, low, high):
        _lost(found, log, first, stop, "are missing")


def _next_readable(db: apsw.Connection, low: int, high: int) -> int:
    """Return the key of the first readable batch in [low, high) behind an unreadable one; `high` if there is none.

    The file is read from the other end, without the bodies. A batch with an unreadable body only is skipped.
    """
    keys = [(high, 0)]
    with contextlib.suppress(apsw.CorruptError, UnicodeDecodeError):
        for key, count in db.execute(
            "select key, count from batch where key >= ? and key < ? order by key desc", (low, high)
        ):
            if not low <= key < keys[-1][0]:
                break
            if type(count) is int:
                keys.append((key, count))
    forget_pages(db)
    key, count = keys[-1]
    return key + count if key == low else key


def _last_end(db: apsw.Connection, base: int, log: Log) -> int:
    """Return the end of the last batch of a log that was ended permanently. The log's own end is above all batches."""
    rows: list[Any] = db.execute(
        "select (key & ?) + count from batch where key >= ? and key < ? order by key desc limit 1",
        (_OFFSET, base, base | _OFFSET),
    ).fetchall()
    return int(rows[0][0]) if rows else log.low


def _rows(db: apsw.Connection, low: int, high: int) -> Iterator[Sequence[Any] | None]:
    """Yield the batches with keys in [low, high), and None at the end if the rest cannot be read."""
    copies = repaired.keys(db)
    least = low
    try:
        for row in db.execute(f"{BATCH} where key >= ? and key < ? order by key", (low, high)):
            if not is_batch(row, least, high) and row[0] not in copies:
                yield None
                return
            least = row[0] + 1
            if row[0] in copies:
                if (copy := repaired.find(db, row[0], row[0])) and copy[1]:
                    yield copy
                continue
            yield *row[:-1], body_of(db, row[0]) if row[-1] is None else row[-1]
    except (apsw.CorruptError, UnicodeDecodeError):
        forget_pages(db)
        yield None


def _check_row(
    found: TopicFound,
    db: apsw.Connection,
    log: Log,
    place: int,
    row: Sequence[Any],
    publishers: Sequence[str],
    floor: int,
) -> int:
    """Check one batch, and return the offset at which the next one must begin.

    Args:
        found: receives the result.
        db: the connection.
        log: of the batch.
        place: the offset at which this batch must begin.
        row: of the batch.
        publishers: names by number.
        floor: bodies below this offset may be dropped on purpose.
    """
    key, count, publisher, _, _, checksum, _, body = row
    offset = int(key) & _OFFSET
    wrong = ""
    if not 0 < publisher < len(publishers) or not publishers[publisher]:
        wrong = "have a publisher that the store does not know"
    elif body is None and db.execute("select 1 from quarantine where key = ?", (key,)).fetchall():
        wrong = "were found damaged earlier"
    elif body is None and db.execute("select 1 from published where key = ?", (key,)).fetchall():
        wrong = "are missing from the staged rows of their sink"
    elif body is None and offset + count > floor:
        wrong = "have no bytes, and some subscribers have not received them"
    elif body is not None:
        wrong = _wrong(body, count, checksum)
    if wrong:
        _lost(found, log, offset, offset + count, wrong)
    else:
        found.records += max(0, offset + count - max(place, offset))
        found.dropped += 0 if body is not None else count
    return max(place, offset + int(count))


def _wrong(body: Buffer, count: int, checksum: int) -> str:
    try:
        check_batch(body, count, checksum, delays=DELAYED)
    except DecodeError as error:
        return f"are damaged: {error.reason}"
    return ""


def _lost(found: TopicFound, log: Log, low: int, stop: int, why: str) -> None:
    found.lost += stop - low
    found.problems.add(f"records {log.id}.{low} to {log.id}.{stop - 1} {why}")
