"""What is intact of a stopped server's store, and what is not: read, never changed (docs/architecture.md, *Stores*).

Everything that a server would read is read here: the file's length against what it says of itself, its write-ahead log
frame by frame, SQLite's own pages, each topic's rows, each batch and its checksum. A page that cannot be read hides
what lies on it and nothing else, so a topic is read from both ends and what lies between is named.

    intact     everything that was written is here
    damaged    a server starts on it and serves what is intact; what is not is told, topic by topic
    broken     a server refuses to start on it: what all topics need is damaged
    stale      an older copy of itself: acknowledged puts are missing that nothing in the file speaks of
    newer      written by a newer release

What a server does with a damaged topic: a batch whose bytes are not what was put is lost, told once, and the rest
served; at a page that cannot be read it goes no further, and says unavailable; a topic whose newest batches, or whose
description, cannot be read is held back. To put a copy back, or to let the topic go, is for the operator to decide.

That a copy is older than the store was, its file does not say. The server does, once a proxy or a client has told it;
and proxies remember how far a store had come: see `compare`. A standby's store is behind what its stream file holds, so
of a member of two it is the register that counts.
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
from pubsub.protocol.batch import Buffer, check_batch
from pubsub.server.offline.found import PROBLEMS_MAX, Found, TopicFound, Verdict
from pubsub.server.storage import repaired
from pubsub.server.storage.loading import Loading, load
from pubsub.server.storage.reader import BATCH, is_batch
from pubsub.server.storage.schema import ADDED, APPLICATION_ID, DESCRIBING, FILE, FORMAT, MEMBER
from pubsub.server.storage.staged import body_of
from pubsub.server.topic.notes import HELD, STALE
from pubsub.server.topic.topic import Log, Topic

_OFFSET: Final = (1 << OFFSET_BITS) - 1
_SQLITE: Final = b"SQLite format 3\0"
_WAL_VERSION: Final = 2
"""The version of SQLite's file format that has a write-ahead log; a file of a later one is only read."""


def check(directory: Path) -> Found:
    """Read a stopped server's store.

    Args:
        directory: the server's.

    Raises:
        ConfigurationError: it holds no store, or cannot be read.
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
        found.notes.append(f"it is member {found.member} of two, whose newest changes may be in its stream file only")
    with _kept_out(directory):
        try:
            see_begun(path)
        except StoreDamaged as error:
            found.problems.add(f"{FILE} is {_plain(error)}")
            found.verdict = Verdict.BROKEN
            return found
        header = first_page(log_of(path))[:100] or header
        if len(header) < 100 or not header.startswith(_SQLITE):
            found.problems.add(f"{FILE} does not begin as a database does")
            found.verdict = Verdict.BROKEN
            return found
        whole = _check_length(found, path, header)
        whole = _check_log(found, path) and whole
        try:
            with contextlib.closing(_open(path)) as db:
                _check(found, path, header, db)
        except (apsw.Error, StorageError) as error:
            found.problems.add(f"{FILE} cannot be read any further: {_plain(error)}")
            found.verdict = Verdict.BROKEN
    if not whole:
        found.verdict = Verdict.BROKEN
    return found


def compare(found: Found, reports: Iterable[Mapping[str, Any]]) -> None:
    """See whether proxies have heard of a later state of this store.

    Args:
        found: of a store; it is `stale` afterwards where they have.
        reports: those of proxies.
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
                    f"proxy {report['proxy']} heard it at change {server['change']}, started as"
                    f" {server['incarnation']}; this one is at change {found.change}, started as {found.incarnation}"
                )
                found.verdict = Verdict.STALE
                return
        found.notes.append(f"proxy {report['proxy']} has not heard of a later state of this store")


def _compare_member(found: Found, report: Mapping[str, Any]) -> None:
    """What a proxy's copy of the register says of this member."""
    rows = [row for row in report.get("registers", ()) if row["store"] == found.store and row["votes"]]
    if not rows:
        found.notes.append(f"proxy {report['proxy']} knows of no register of this store")
    elif found.member in rows[0]["in_sync"]:
        found.notes.append(f"proxy {report['proxy']}: this member is in sync")
    else:
        others = " and ".join(rows[0]["in_sync"])
        found.notes.append(f"proxy {report['proxy']}: this member is not in sync, {others} is; what it lacks is there")


def _member(directory: Path) -> str:
    """The ID of the member that this is one of two, "" where it is none or that cannot be read."""
    try:
        return str(json.loads((directory / MEMBER).read_text(encoding="utf-8"))["member"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""


@contextlib.contextmanager
def _kept_out(directory: Path) -> Iterator[None]:
    """Let no server start here meanwhile; where none ever did there is nothing to hold on to."""
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
    """The file, so that nothing is written: not the file, not its log, and no shared memory beside them."""
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
    """A store to be checked, with what no server asks of it."""

    def names(self, table: str) -> list[str]:
        return [name for (name,) in self._rows(f"select name from {table}")]  # noqa: S608 - our own words

    def count(self, table: str) -> int:
        return int(self._row(f"select count(*) from {table}")[0])  # noqa: S608 - our own words


def _check(found: Found, path: Path, header: bytes, db: apsw.Connection) -> None:
    version = db.pragma("user_version")
    if max(header[18:20]) > _WAL_VERSION:
        found.problems.add("it says of itself that it may not be written")
        found.verdict = Verdict.BROKEN
        return
    if version > FORMAT:
        found.problems.add(f"it is in format {version}; this release knows up to {FORMAT}")
        found.verdict = Verdict.NEWER
        return
    if not version and not db.execute("select 1 from sqlite_schema").fetchall():
        found.problems.add("it holds nothing: a server begins a new store here")
        found.verdict = Verdict.DAMAGED
        return
    if db.pragma("application_id") != APPLICATION_ID or version < 1:
        found.problems.add("it is a database, but not a server's store")
        found.verdict = Verdict.BROKEN
        return
    for statement in ADDED:  # A store of this format may lack these tables; only memory is written here.
        name = statement.split()[5]
        if not db.execute("select 1 from sqlite_schema where name = ?", (name,)).fetchall():
            db.execute(statement.replace("create table", "create temp table", 1))
    with contextlib.closing(_open(path)) as other:  # It then knows pages that a careful one would not take.
        sound = _check_pages(found, other)
    store = _Reading(path, db)
    found.store, found.server = store.store_id, store.server_id
    found.incarnation, found.change = store.incarnation(), store.change()
    load(store)
    publishers = store.publishers()
    for name in store.names("topic"):
        found.topics.append(_check_topic(store, name, publishers, aside=False))
    for name in dict.fromkeys(store.names("aside")):
        found.topics.append(_check_topic(store, name, publishers, aside=True))
    quarantined = store.count("quarantine")
    if quarantined:
        note = f"{quarantined:,} damaged batches were found earlier; their bytes are kept in quarantine"
        mended = len(repaired.keys(db))
        found.notes.append(note + (f"; {mended:,} of them came whole from the other member" if mended else ""))
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
    """Whether nothing was cut off the file that its log does not have."""
    page_bytes, pages = int.from_bytes(header[16:18], "big"), int.from_bytes(header[28:32], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    if page_bytes < 512:
        return True  # SQLite will say so.
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
    """Whether the write-ahead log is whole."""
    if begins_damaged(log_of(path)):
        found.problems.add(f"{FILE}-wal is damaged where it begins: its commits are lost, though they were answered")
        return False
    sound = unsound = after = 0
    for frame in frames(log_of(path), checked=True):
        sound += bool(frame.pages and frame.sound)
        unsound += not frame.sound
        after += bool(frame.pages and not frame.sound)
    if after > 1:
        found.problems.add(
            f"{FILE}-wal is damaged: the {after:,} commits after its first {sound:,} are lost, though answered"
        )
    elif unsound:
        found.notes.append(f"{FILE}-wal ends in an unfinished commit, as a power cut leaves it; it was never answered")
    return after <= 1


def _check_pages(found: Found, db: apsw.Connection) -> bool:
    """Whether what all topics need is sound; what is wrong with any page is noted."""
    described = find_damage(db, DESCRIBING, PROBLEMS_MAX)
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


def _check_topic(store: _Reading, name: str, publishers: Sequence[str], *, aside: bool) -> TopicFound:
    found = TopicFound(name, aside=aside)
    try:
        topics = list(store.topics(name, aside=aside))
    except (apsw.CorruptError, StoreDamaged) as error:
        found.problems.add(f"what the store says of it cannot be read: {_plain(error)}")
        found.held_back = True
        return found
    for topic in topics:
        found.log = topic.open.id
        for log in topic.logs.values():
            _check_batches(found, store.db, topic, log, publishers)
    return found


def _check_batches(found: TopicFound, db: apsw.Connection, topic: Topic, log: Log, publishers: Sequence[str]) -> None:
    """Every batch of a log; where one cannot be read it goes on with the next one that can."""
    base = log.number << OFFSET_BITS
    end = log.end - log.unknown if log.end < OFFSET_MAX else _last_end(db, base, log)
    place, floor = log.low, topic.floors().get(log.id, OFFSET_MAX)
    for _ in range(PROBLEMS_MAX):
        torn = False
        for row in _rows(db, base | place, base | end):
            if row is None:
                torn = True
                break
            place = _check_row(found, db, log, place, row, publishers, floor)
        if not torn:
            break
        if not found.stops:
            found.stops = f"{log.id}.{place}"
        stop = min(_next_readable(db, base | place, base | end) & _OFFSET, end) or end
        _lost(found, log, place, stop, "cannot be read: their place in the file is damaged")
        place = stop
    if place < end:
        _lost(found, log, place, end, "are missing")


def _next_readable(db: apsw.Connection, low: int, high: int) -> int:
    """The key of the first batch in [low, high) behind one that cannot be read; `high` where there is none.

    The file is read from the other end, without the bodies. A batch of which these alone cannot be read is skipped.
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
    """Where the batches of a log end that was ended for good: its end is above them all."""
    rows: list[Any] = db.execute(
        "select (key & ?) + count from batch where key >= ? and key < ? order by key desc limit 1",
        (_OFFSET, base, base | _OFFSET),
    ).fetchall()
    return int(rows[0][0]) if rows else log.low


def _rows(db: apsw.Connection, low: int, high: int) -> Iterator[Sequence[Any] | None]:
    """The batches with keys in [low, high); None, at last, where they cannot be read any further."""
    mended = repaired.keys(db)
    least = low
    try:
        for row in db.execute(f"{BATCH} where key >= ? and key < ? order by key", (low, high)):
            if not is_batch(row, least, high) and row[0] not in mended:
                yield None
                return
            least = row[0] + 1
            if row[0] in mended:
                yield repaired.find(db, row[0], row[0])
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
    """One batch; where the next one is to begin.

    Args:
        floor: the offset below which all have had everything, so that bytes may be gone on purpose.
    """
    key, count, publisher, _, _, checksum, _, body = row
    offset = int(key) & _OFFSET
    if offset > place:
        _lost(found, log, place, offset, "are missing")
    wrong = ""
    if not 0 < publisher < len(publishers) or not publishers[publisher]:
        wrong = "are of a publisher that the store does not know"
    elif body is None and db.execute("select 1 from quarantine where key = ?", (key,)).fetchall():
        wrong = "were found damaged earlier"
    elif body is None and db.execute("select 1 from published where key = ?", (key,)).fetchall():
        wrong = "cannot be found where they were staged"
    elif body is None and offset + count > floor:
        wrong = "have no bytes, and not all have received them"
    elif body is not None:
        wrong = _wrong(body, count, checksum)
    if wrong:
        _lost(found, log, offset, offset + count, wrong)
    else:
        found.records += max(0, offset + count - max(place, offset))
        found.bare += 0 if body is not None else count
    return max(place, offset + int(count))


def _wrong(body: Buffer, count: int, checksum: int) -> str:
    try:
        check_batch(body, count, checksum)
    except DecodeError as error:
        return f"are not what was put: {error.reason}"
    return ""


def _lost(found: TopicFound, log: Log, low: int, stop: int, why: str) -> None:
    found.lost += stop - low
    found.problems.add(f"records {log.id}.{low} to {log.id}.{stop - 1} {why}")
