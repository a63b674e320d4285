"""A stopped server's store as a tree of files, and back (Pires et al., section 5.1).

    server_{server_id}/{topic}/subscribers
                               publishers
                               order
                               messages/{message_id}
                               keys/{message_id}
                               headers/{message_id}
                               settings
                               removal

A topic's folder is its percent-encoded name. A message ID is `log.offset`; its file has the bytes as they were put.
A message with a key, or with headers, has a second file, in `keys` or `headers` (`pubsub.server.offline.metadata`).
`settings` and `removal` are JSON, and missing if they are the default. `pubsub.server.offline.delayed` has the form of
delayed messages. The other three files are lines of words in ASCII, separated by single spaces:

    subscribers    NAME number=N opening=N on=0|1 since=STAMP position=ID waiting=ID-OFFSET,ID-OFFSET,…
    publishers     CLIENT/STORE LAST
    order          ID COUNT CLIENT/STORE COUNTER STAMP [by=CLIENT/STORE,COUNTER] [purged] [spare] [lost]

* `position` is the last acknowledged position of the subscriber.
* `waiting` is the backlog, in order: ranges of one log each, both ends included, the second one by its offset. A `?`
  behind a range marks it as doubtful: a lost state directory of the client may have processed it.
* A line of `order` is a run of messages put together, with COUNT offsets and counters, in the order of the history.
* `spare` marks a second copy. A merge keeps it for subscribers that are to receive the messages from that log.
* `purged` marks lost messages that an operator purged before a subscriber acknowledged them.
* `lost` marks messages without files, which cannot be read any more. Without their row, their publisher is `-`.

An import reads each topic into a new log. Offsets are assigned anew, and all other data stays. Repeats of a publisher
are recognised as before. A subscriber that took messages before the export without acknowledging them gets the answer
`behind`. A restored copy may lack the end of a log; that becomes one lost message of the new log.
"""

from __future__ import annotations

import contextlib
import shutil
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex
from typing import Final
from zlib import crc32

import apsw

from pubsub.base.database import translate
from pubsub.base.intervals import IntervalSet
from pubsub.base.limits import BATCH_RECORDS_MAX, NUMBER_MAX, OFFSET_MAX
from pubsub.errors import CallerError, ConfigurationError, InvalidName
from pubsub.protocol.batch import decode_batch, encode_batch, with_origin
from pubsub.protocol.names import (
    Position,
    check_topic,
    file_name,
    format_position,
    is_id,
    parse_position,
    topic_of,
)
from pubsub.protocol.records import check_publisher
from pubsub.server.offline.delayed import BY, origin_word, read_delayed, read_origin, write_delayed
from pubsub.server.offline.metadata import read_kept, read_metadata, write_kept, write_metadata
from pubsub.server.offline.words import lines_of, number_in, parsed, root_of
from pubsub.server.storage.schema import FILE, MEMBER
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.compacted import outside
from pubsub.server.topic.consumers import group_of, is_key
from pubsub.server.topic.delivery import Batch
from pubsub.server.topic.notes import UNHEARD
from pubsub.server.topic.purged import unread_place, without_purged
from pubsub.server.topic.purges import Places
from pubsub.server.topic.removal import NOTHING
from pubsub.server.topic.settings import DEFAULTS
from pubsub.server.topic.spans import ALWAYS, Span
from pubsub.server.topic.topic import Topic

NOBODY: Final = "-"
"""Publisher of messages with a lost row."""

Range = tuple[str, int, int]
"""The offsets in [low, stop) of a log."""


def export_tree(directory: Path, target: Path, *, quarantined: bool = False) -> int:
    """Write a stopped server's store as `target`/server_ID. The store does not change.

    Args:
        directory: of the server.
        target: the folder for the tree; made if it does not exist.
        quarantined: write the quarantined topics instead of those that are served. Of several topics with one name,
            all but the newest have the ID of their open log in their name.

    Returns:
        The number of messages written.

    Raises:
        StoreInUse: the server is running.
        CallerError: the tree exists already.
        ConfigurationError: there is no store, or the tree cannot be written.
        StorageError: the store cannot be read.
    """
    if not (directory / FILE).exists():
        raise ConfigurationError(f"{directory} holds no server's store")
    with _opened(directory, read_only=True) as store, _written(target):
        server = store.server_id or directory.name
        root = target / f"server_{server if is_id(server) else 'unknown'}"
        if root.exists():
            raise CallerError(f"{root} exists already, and an export replaces nothing: name another directory")
        part = target / f".{root.name}.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        publishers = store.publishers()
        topics = list(store.topics(quarantined=quarantined))
        newest = {topic.name: topic.number for topic in topics}
        count = 0
        for topic in topics:
            name = topic.name if topic.number == newest[topic.name] else f"{topic.name[:60]}~{topic.open.id}"
            count += _export_topic(store, topic, publishers, part / file_name(name))
        part.rename(root)
        return count


def import_tree(directory: Path, source: Path) -> int:
    """Read a tree that `export_tree` wrote into a server's store, all of it or nothing.

    Args:
        directory: of a stopped server, or of a new one.
        source: the tree `server_ID`, or a directory with one such tree.

    Returns:
        The number of messages read.

    Raises:
        StoreInUse: the server is running.
        ConfigurationError: the tree is malformed, the store has one of its topics already, or it belongs to one of two
            members.
        StorageError: the store cannot be written.
    """
    if (directory / MEMBER).exists():
        raise ConfigurationError(f"{directory} belongs to one of two members, and the other one would lack the import")
    folders = sorted(path for path in root_of(source).iterdir() if path.is_dir())
    with _opened(directory) as store, store.guarded():
        importing = _Import(store)
        for folder in folders:
            importing.topic(folder)
        return importing.count


@contextlib.contextmanager
def _opened(directory: Path, *, read_only: bool = False) -> Iterator[Store]:
    store = Store(directory, read_only=read_only)
    try:
        yield store
    except apsw.Error as error:
        raise translate(error, store.path) from None
    finally:
        store.close()


@contextlib.contextmanager
def _written(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{error.filename or target} cannot be written: {error.strerror}") from None


# Export


def _export_topic(store: Store, topic: Topic, publishers: list[str], folder: Path) -> int:
    messages = folder / "messages"
    messages.mkdir(parents=True)
    visible = list(_ranges(store, topic, without_purged(topic)))
    spare = _left_over(topic, visible)
    count = 0
    with (folder / "order").open("w", encoding="ascii") as order:
        for word, ranges in (("", visible), (" spare", spare)):
            for found in ranges:
                for line, written in _export_range(store, topic, publishers, messages, found):
                    order.write(f"{line}{word}{'' if written else ' lost'}\n")
                    count += written
    lines = [f"{publishers[number]} {last}\n" for number, last in sorted(topic.last.items())]
    (folder / "publishers").write_text("".join(lines), encoding="ascii")
    write_kept(folder, topic.settings, topic.removal)
    count += write_delayed(store, topic, publishers, folder)
    with (folder / "subscribers").open("w", encoding="ascii") as file:
        for name, subscription in sorted(topic.subscriptions.items()):
            if group_of(name):
                continue  # An export has no groups: nobody could tell what their members have done since.
            row = subscription.row()
            waiting = ",".join(
                f"{log}.{low}-{stop - 1}{'?' if span.doubtful else ''}"
                for span in row.backlog
                for log, low, stop in _ranges(store, topic, (span,))
                if low < stop
            )
            file.write(
                f"{name} number={row.number} opening={row.epoch} on={int(row.on)}"
                f" since={row.since} position={format_position(row.acknowledged)} waiting={waiting}\n"
            )
    return count


def _ranges(store: Store, topic: Topic, spans: Iterable[Span]) -> Iterator[Range]:
    """Yield the offsets that a subscriber with these spans receives, after the filters of the spans."""
    for span in spans:
        log = topic.logs.get(span.log)
        if log is None:
            continue
        low, stop = max(span.low, log.low), log.end if span.high is None else min(span.high, log.end)
        if not span.watermark and span.since == ALWAYS:
            if low < stop:
                yield span.log, low, stop
            continue
        watermark = topic.watermarks.get(span.watermark, {})
        for batch in store.reader.batches(log.number, low, stop):
            held = watermark.get(batch.publisher, 0) - batch.counter + 1
            first, last = max(low, batch.offset + held, batch.offset), min(stop, batch.offset + batch.count)
            if batch.stamp > span.since and first < last:
                yield span.log, first, last


def _left_over(topic: Topic, visible: Iterable[Range]) -> list[Range]:
    """Return the offsets of the topic's logs that are not in these ranges."""
    rest = {log.id: IntervalSet([(log.low, log.end)]) for log in topic.logs.values()}
    for log, low, stop in visible:
        rest[log].discard(low, stop)
    return [(log, low, stop) for log, ranges in rest.items() for low, stop in ranges]


def _export_range(
    store: Store, topic: Topic, publishers: list[str], messages: Path, found: Range
) -> Iterator[tuple[str, int]]:
    """Write the messages of a range. Yield a line of `order` for each run, with its number of files."""
    log, place, stop = found
    purged = unread_place(topic, log)
    for batch in store.reader.batches(topic.logs[log].number, place, stop):
        if batch.offset > place:
            yield from _missing(topic, log, place, batch.offset)
            place = batch.offset
        last = min(stop, batch.offset + batch.count)
        if last <= place:
            continue
        known = 0 < batch.publisher < len(publishers)
        publisher, counter = (publishers[batch.publisher], batch.counter) if known else (NOBODY, 1)
        gone = batch.offset + batch.count <= purged
        bodies = _bodies(batch) if known and not gone else None
        if bodies is not None:
            for offset in range(place, last):
                (messages / f"{log}.{offset}").write_bytes(bodies[offset - batch.offset])
            write_metadata(batch.body or b"\0\0", batch.offset, messages.parent, log, range(place, last))
        counter += place - batch.offset if known else 0
        line = _line(log, place, last - place, publisher, counter, batch.stamp)
        line += "" if bodies is None else origin_word(batch, place - batch.offset)
        line += " purged" if gone else ""
        yield line, 0 if bodies is None else last - place
        place = last
    if place < stop:
        yield from _missing(topic, log, place, stop)


def _missing(topic: Topic, log: str, place: int, stop: int) -> Iterator[tuple[str, int]]:
    """Yield a line for each run of missing messages that compaction has not removed."""
    for first, last in outside(topic.compacted.get(log, ()), place, stop):
        yield _line(log, first, last - first, NOBODY, 1, 0), 0


def _line(log: str, offset: int, count: int, publisher: str, counter: int, stamp: int) -> str:
    return f"{log}.{offset} {count} {publisher} {counter} {stamp}"


def _bodies(batch: Batch) -> list[bytes] | None:
    """Return the records of a batch; None if its bytes are damaged."""
    if batch.body is None or crc32(batch.body) != batch.checksum:
        return None
    bodies = decode_batch(batch.body)
    return bodies if len(bodies) == batch.count else None


# Import


@dataclass(slots=True)
class _Offsets:
    """Maps positions in other logs to the new log."""

    found: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By log: (offset there, offset here, messages here), kept sorted by the offset there."""
    stops: dict[str, list[int]] = field(default_factory=dict)

    def add(self, log: str, offset: int, count: int, here: int, count_here: int) -> None:
        self.found.setdefault(log, []).append((offset, here, count_here))
        self.stops.setdefault(log, []).append(offset + count)

    def sort(self) -> None:
        for log, rows in self.found.items():
            order = sorted(range(len(rows)), key=lambda index: rows[index][0])
            self.stops[log] = [self.stops[log][index] for index in order]
            self.found[log] = [rows[index] for index in order]

    def ranges(self, log: str, low: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges in the new log for the offsets [low, stop) of another log."""
        rows, stops = self.found.get(log, []), self.stops.get(log, [])
        for index in range(bisect_right(stops, low), len(rows)):
            offset, here, count = rows[index]
            first, last = max(low, offset), min(stop, stops[index])
            if first >= last:
                return
            yield here + min(first - offset, count - 1), here + min(last - offset, count)


class _Import:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._held = {topic.name for topic in store.topics()}
        self._publishers = {name: number for number, name in enumerate(store.publishers()) if name}
        self._next_publisher = len(store.publishers())
        self._next_topic, self._next_log, _ = store.next_numbers()
        self.count = 0

    def topic(self, folder: Path) -> None:
        name = topic_of(folder.name)
        try:
            check_topic(name)
        except InvalidName:
            raise ConfigurationError(f"{folder} is not named after a topic; nothing was imported") from None
        if name in self._held:
            raise ConfigurationError(
                f"topic {name} is already in {self._store.directory}; nothing was imported: use another store"
            )
        self._held.add(name)
        number, log = self._next_topic, self._next_log
        self._next_topic, self._next_log = number + 1, log + 1
        log_id = token_hex(8)
        self._store.apply([c.LogOpened(log, log_id, number)])
        offsets, history, end = self._order(folder, number, log, log_id)
        # No proxy knows that the topic is here, so answers about it wait for its witnesses.
        self._store.apply([c.TopicChanged(number, name, log, history, ""), c.NoteKept(UNHEARD + name, 1)])
        settings, removal = read_kept(folder)
        if settings != DEFAULTS:
            self._store.apply([c.SettingsChanged(number, settings)])
        if removal != NOTHING:
            self._store.apply([c.RemovalChanged(number, removal)])
        for words in lines_of(folder / "publishers"):
            publisher, last = parsed(folder / "publishers", words, 2, lambda w: (check_publisher(w[0]), w[1]))
            self._store.apply([c.LastMoved(number, self._publisher(publisher), number_in(folder / "publishers", last))])
        for kept in read_delayed(folder, number, self._publisher):
            self._store.apply([kept])
            self.count += kept.count
        for words in lines_of(folder / "subscribers"):
            self._subscriber(folder / "subscribers", words, number, (log_id, end), offsets)

    def _publisher(self, name: str) -> int:
        number = self._publishers.get(name)
        if number is None:
            number = self._publishers[name] = self._next_publisher
            self._next_publisher += 1
            self._store.apply([c.PublisherSeen(number, name)])
        return number

    def _order(self, folder: Path, topic: int, log: int, log_id: str) -> tuple[_Offsets, tuple[Span, ...], int]:
        """Read all runs. Return their new positions, the history without spare messages, and the end of the log."""
        path, offsets = folder / "order", _Offsets()
        end, total, stamp, spare_from, purged = 1, 0, ALWAYS + 1, 0, 1
        for words in lines_of(path):
            origin = [read_origin(path, word) for word in words[5:6] if word.startswith(BY)]
            flags = set(words[5 + len(origin) :])
            position = parsed(path, words[:5], 5, lambda w: parse_position(w[0]))
            if position is None or not flags <= {"spare", "lost", "purged"} or len(words) > 9:
                raise ConfigurationError(f"{path} has a line that cannot be read: {' '.join(words)[:100]}")
            count, counter, put_at = (number_in(path, word) for word in (words[1], words[3], words[4]))
            if (
                not 0 < count <= (NUMBER_MAX if "lost" in flags else BATCH_RECORDS_MAX)
                or not 0 < counter <= NUMBER_MAX - count
            ):
                raise ConfigurationError(f"{path} has a run of {count} messages, which is out of range")
            # It is unknown how much a restored copy lacks. Keeping all these offsets would use up the new log.
            here = 1 if "lost" in flags and position[1] + count == OFFSET_MAX else count
            if end + here > OFFSET_MAX:
                raise ConfigurationError(f"{path} has more messages than one log can hold")
            if "spare" in flags:
                spare_from = spare_from or end
            elif spare_from:
                raise ConfigurationError(f"{path} has other messages after spare ones, which must come last")
            stamp = max(stamp, put_at)  # Timestamps rise within a log. ALWAYS itself must not occur.
            publisher = 0 if words[2] == NOBODY else self._publisher(parsed(path, [words[2]], 1, _first_publisher))
            body = None if "lost" in flags else encode_batch(*self._bodies(folder, position, count))
            body = with_origin(body, *origin[0]) if body is not None and origin else body
            checksum = 0 if body is None else crc32(body)
            gap = max(0, here - BATCH_RECORDS_MAX)  # No row can count more. A longer run is lost, so it needs none.
            first, counter, rest = end + gap, counter + gap, here - gap
            self._store.apply(
                [c.BatchAppended(log, first, rest, publisher, counter, stamp, checksum, total, body, sound=False)]
            )
            offsets.add(*position, count, end, here)
            end, total = end + here, total + (0 if body is None else len(body))
            purged = end if "purged" in flags and purged == end - here else purged
            self.count += 0 if body is None else count
        offsets.sort()
        if purged > 1:  # Purged messages behind others are lost without that reason.
            self._store.apply([c.TopicPurged(topic, log_id, Places(purged, purged))])
        history = (Span(log_id, 1, spare_from), Span(log_id, end)) if spare_from else (Span(log_id, 1),)
        return offsets, tuple(span for span in history if span.high != 1), end

    @staticmethod
    def _bodies(folder: Path, position: Position, count: int) -> tuple[list[bytes], list[bytes], list[bytes]]:
        """Return the messages of a run, their keys and their headers."""
        log, offset = position
        names = [f"{log}.{place}" for place in range(offset, offset + count)]
        try:
            return [(folder / "messages" / name).read_bytes() for name in names], *read_metadata(folder, names)
        except OSError as error:
            raise ConfigurationError(f"{error.filename} cannot be read: {error.strerror}") from None

    def _subscriber(self, path: Path, words: list[str], topic: int, end: Position, offsets: _Offsets) -> None:
        facts = dict(word.partition("=")[::2] for word in words[1:])
        if not is_key(words[0]) or facts.keys() != {"number", "opening", "on", "since", "position", "waiting"}:
            raise ConfigurationError(f"{path} has a line that cannot be read: {' '.join(words)[:100]}")
        number, epoch, on, since = (number_in(path, facts[name]) for name in ("number", "opening", "on", "since"))
        position = parsed(path, [facts["position"]], 1, lambda w: parse_position(w[0]))
        spans: list[Span] = []
        for word in filter(None, facts["waiting"].split(",")):
            first, _, last = word.partition("-")
            doubtful = last.endswith("?")
            begin = parsed(path, [first], 1, lambda w: parse_position(w[0])) or ("", 0)
            for low, stop in offsets.ranges(*begin, number_in(path, last.removesuffix("?")) + 1):
                if spans and spans[-1].high == low and spans[-1].doubtful == doubtful:
                    low = spans.pop().low  # noqa: PLW2901 - one range with the one before
                spans.append(Span(end[0], low, stop, doubtful=doubtful))
        if on:
            joins = bool(spans) and spans[-1].high == end[1] and not spans[-1].doubtful
            low = spans.pop().low if joins else end[1]
            spans.append(Span(end[0], low))
        acknowledged = position or (end[0], end[1] - 1)
        self._store.apply(
            [
                c.SubscriptionChanged(
                    topic, words[0], number, epoch, bool(on), since, acknowledged, tuple(spans) if on else ()
                )
            ]
        )


def _first_publisher(words: list[str]) -> str:
    return check_publisher(words[0])
