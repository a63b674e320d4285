"""Messages with keys in topics that keep the latest of each, and the judgement on the records that went.

    1   a new reader of a topic's begin has the same last message of each key as if nothing had gone
    2   each acknowledged message is there, or compaction has removed it
    3   a record with a time to live that has not ended goes only if a later one has its key

Every third message of a program deletes its key, and so does the end of a time to live. The message keeps its text,
because the other checks need it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from unittest import mock

from pubsub.base.clock import MICROSECONDS
from pubsub.client.flows.puts import Puts
from pubsub.errors import StoreDamaged
from pubsub.protocol.batch import decode_batch, decode_blocks, decode_keys
from pubsub.protocol.time_to_live import is_over
from pubsub.protocol.topic_settings import LATEST
from pubsub.server.upkeep import stretches
from pubsub.server.upkeep.stretches import Thinning
from tests.simulation.history import ACKED, History

if TYPE_CHECKING:
    from pubsub.server.topic.delivery import Batch
    from pubsub.server.topic.topic import Topic
    from tests.simulation.configuring import Configured
    from tests.simulation.members import Server

KEYS = 5

Position = tuple[str, int]


@dataclass(frozen=True)
class Record:
    """One record, as it was stored."""

    publisher: str
    counter: int
    key: bytes
    body: str
    over: bool
    """Its time to live had ended when it was looked at last, which is at its removal if it went."""
    lives: bool
    """It has a time to live that had not ended then."""

    @property
    def deletes(self) -> bool:
        return self.over or deletes(self.body.encode())


@dataclass
class Compacted:
    """The records that compaction removed in one run, by topic and position.

    Attributes:
        on: True if messages have keys.
        early: last records of a key that went before their time to live had ended.
        wall: returns the clock of the host that is furthest ahead (seconds since 1970).
    """

    on: bool
    wall: Callable[[], float]
    removed: dict[str, dict[Position, Record]] = field(default_factory=dict)
    early: list[str] = field(default_factory=list)
    tables: dict[str, dict[bytes, str]] = field(default_factory=dict)
    """In the end, by topic the last message of each key."""
    since: dict[str, float] = field(default_factory=dict)
    """By topic the time since which each change of its settings kept the latest; infinity: there is none."""


def key_of(body: bytes) -> bytes:
    return b"k%d" % (_index(body) % KEYS)


def _index(body: bytes) -> int:
    digits = body.rpartition(b":")[2]
    return int(digits) if digits.isdigit() else 1


def deletes(body: bytes) -> bool:
    return _index(body) * 7 // KEYS % 3 == 0


@contextlib.contextmanager
def keyed(known: Compacted) -> Iterator[None]:
    """Give messages their keys, and see each record that goes."""
    put, put_many, remove = Puts.put, Puts.put_many, Thinning.remove

    def keyed_put(self: Any, topic: str, body: bytes, key: bytes, *more: Any) -> Any:
        return put(self, topic, body, key or (b"" if topic[0] == "$" else key_of(body)), *more)

    def keyed_put_many(
        self: Any, topic: str, bodies: Any, timeout: Any, transaction: Any, wait: bool, *more: Any, **named: Any
    ) -> Any:
        keys, *more = more or ((),)  # type: ignore[assignment]
        keys = keys or ([] if topic[0] == "$" else [key_of(body) for body in bodies])
        return put_many(self, topic, bodies, timeout, transaction, wait, keys, *more, **named)

    def seen_remove(self: Thinning, batch: Batch, gone: Iterable[int]) -> None:
        indexes = list(gone)
        names = self._state.publishers.names
        for index, record in _records(batch, names[batch.publisher], known.wall()):
            if index in indexes:
                place = self._log.id, batch.offset + index
                known.removed.setdefault(self._topic.name, {})[place] = record
                if record.lives and not record.deletes and not _is_superseded(self, place, record.key):
                    known.early.append(f"{record} went before its time to live had ended")
        remove(self, batch, indexes)

    def is_tombstone(body: Any, index: int) -> bool:
        return deletes(decode_batch(body)[index])

    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (Puts, "put", keyed_put), (Puts, "put_many", keyed_put_many),
            (Thinning, "remove", seen_remove), (stretches, "is_tombstone", is_tombstone),
        ) if known.on else ():  # fmt: skip
            stack.enter_context(mock.patch.object(target, name, value))
        yield


def _records(batch: Batch, publisher: str, wall: float) -> Iterator[tuple[int, Record]]:
    if batch.body is None:
        return
    bodies = decode_batch(batch.body)
    keys = decode_keys(batch.body) or [b""] * len(bodies)
    blocks = decode_blocks(batch.body) or [b""] * len(bodies)
    for index, (key, body, block) in enumerate(zip(keys, bodies, blocks, strict=True)):
        over = is_over(block, batch.stamp, int(wall * MICROSECONDS))
        yield index, Record(publisher, batch.counter + index, key, body.decode(), over, bool(block) and not over)


def _is_superseded(thinning: Thinning, place: Position, key: bytes) -> bool:
    """Return True if a record of the key is stored behind a place in the history."""
    topic, reader = thinning._topic, thinning._state.reader
    for span in reversed(topic.history):
        log, stop = topic.logs[span.log], float("inf") if span.high is None else span.high
        here = span.log == place[0] and span.low <= place[1] < stop
        low = place[1] + 1 if here else span.low
        for batch in reader.batches(log.number, low, int(min(stop, log.end - log.unknown)), cached=False):
            keys = [] if batch.body is None else decode_keys(batch.body)
            if key in keys[max(0, low - batch.offset) :]:
                return True
        if here:
            return False
    return True  # A place that is in no span; it is the one of a copy.


def judge(known: Compacted, configured: Configured, servers: list[Server], history: History) -> None:
    """Object to what is not as it should be in the end."""
    for text in known.early:
        history.violate(text)
    for server in servers if known.on else ():
        for name, topic in sorted(server.core.state.topics.items()):
            if name in history.given_up or name[0] == "$":
                continue
            with contextlib.suppress(StoreDamaged):
                _judge(known, configured, server, topic, history)


def _judge(known: Compacted, configured: Configured, server: Server, topic: Topic, history: History) -> None:
    state = server.core.state
    removed, names = known.removed.get(topic.name, {}), state.publishers.names
    stored: dict[Position, Record] = {}
    for log in topic.logs.values():
        for batch in state.reader.batches(log.number, log.low, log.end - log.unknown):
            for index, record in _records(batch, names[batch.publisher], known.wall()):
                stored[log.id, batch.offset + index] = record
    shown, ever = list[Record](), list[Record]()
    placed = set()
    for span in topic.history:
        held = {names[number]: last for number, last in topic.watermarks.get(span.watermark, {}).items()}
        log = topic.logs[span.log]
        stop = log.end - log.unknown if span.high is None else min(span.high, log.end - log.unknown)
        for offset in range(span.low, stop):
            record = stored.get((span.log, offset))
            both = record or removed.get((span.log, offset))
            placed.add((span.log, offset))
            if both is not None and both.counter > held.get(both.publisher, 0):
                ever.append(both)
                shown += [] if record is None else [record]
    before = [record for position, record in removed.items() if position not in placed]
    # A log that is used up had its place somewhere in the history, and may have deleted a key.
    unsure = {record.key for record in before if record.deletes} - {record.key for record in shown}
    now, then = _fold(shown), {key: body for key, body in _fold(ever).items() if key not in unsure}
    known.tables[topic.name] = now
    if now != then:
        history.violate(f"compaction changed the latest of {topic.name} at {server.name}: {now}, and it was {then}")
    # The record that superseded it may be purged.
    for record in before if not history.purges.of(topic.name, unread=False) else ():
        ends = any(one.key == record.key and one.deletes for one in before)
        if not ends and not any(one.key == record.key for one in ever):
            history.violate(f"the last record of {record.key!r} in {topic.name} went: {record}")
    changes = [change for change in configured.changes.values() if change.topic == topic.name]
    since = min((change.answered_at for change in changes if change.answered), default=float("inf"))
    known.since[topic.name] = since if all(change.keep == LATEST for change in changes) else float("inf")
    since = max(since, history.purges.last(topic.name, unread=False))
    # Both members of a pair may have damaged the same batch.
    bodies = {record.body for record in (*stored.values(), *removed.values())}
    bodies |= history.damaged.get(topic.name, set())
    if all(change.keep == LATEST for change in changes):
        for put in history.states((ACKED,)):
            if put.topic == topic.name and put.invoked > since and put.body not in bodies:
                history.violate(f"{put.body} of {topic.name} is neither there nor was it superseded")


def _fold(records: Iterable[Record]) -> dict[bytes, str]:
    table: dict[bytes, str] = {}
    for record in records:
        if record.key and record.deletes:
            table.pop(record.key, None)
        elif record.key:
            table[record.key] = record.body
    return table
