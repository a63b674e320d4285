"""The content of a transfer: chunks, each small, self-describing and checked when it is read.

The first chunk describes the topic: its logs, its history, its merged logs. Then come the batches of each log, as they
are stored, the staged rows of sinks, and the delayed puts. The copies of `last` that spans refer to, the last counters
and the subscriptions follow. A topic does not change while it is given, so the same topic always makes the same chunks.
Publishers travel by name, because each store has its own numbers for them.

A chunk has two forms, which differ in their first byte. The second form is MessagePack, derived by msgspec from the
classes below: the number of the form, then one of these parts. The first form is JSON with the bodies after it
(`moves.json_chunks`), for a receiver of an earlier release. Both are read; an argument selects the form to write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
from msgspec import Struct

from pubsub.errors import DecodeError
from pubsub.protocol.names import DELAY
from pubsub.server.moves import json_chunks
from pubsub.server.moves.parts import Batches as Batches  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import BatchRow as BatchRow  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Configured as Configured  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import CopiedRow as CopiedRow  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Copies as Copies  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import DelayedRow as DelayedRow  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import DelayedRows as DelayedRows  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Described as Described  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Groups as Groups  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Last as Last  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import LogRow as LogRow  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Members as Members  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Ordered as Ordered  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Part as Part  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import PieceRow as PieceRow  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Purged as Purged  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Removed as Removed  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Retries as Retries  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Staged as Staged  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import SubscriptionRow as SubscriptionRow  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Subscriptions as Subscriptions  # noqa: PLC0414 - handed on
from pubsub.server.moves.parts import Watermark as Watermark  # noqa: PLC0414 - handed on
from pubsub.server.topic import subscription as stored
from pubsub.server.topic.commits import UNREADABLE
from pubsub.server.topic.delivery import BatchReader
from pubsub.server.topic.description import Description, describe
from pubsub.server.topic.facts import Facts
from pubsub.server.topic.group import Group, member_of
from pubsub.server.topic.removal import LET_GO, NOTHING
from pubsub.server.topic.settings import DEFAULTS
from pubsub.server.topic.stages import Stage
from pubsub.server.topic.topic import Log, Topic

if TYPE_CHECKING:
    from pubsub.protocol.batch import Buffer
else:
    Buffer = memoryview  # A body read from a chunk is a view into it; a body to be written may be bytes too.

FORM: Final = 2
"""The newest form of a chunk that this release writes and reads."""

NOTED: Final = 3
"""The form that a receiver with the settings and the delayed puts of a topic names."""

READS: Final = 4
"""The newest form that a receiver of this release names: that one, with consumer groups."""

CHUNK_BYTES: Final = 1024 * 1024
"""Bytes of batches after which a chunk is full; one batch always fits."""

CHUNK_BATCHES: Final = 2_000
CHUNK_ITEMS: Final = 5_000
"""Counters in one chunk, or subscriptions and ranges of their backlogs."""

_Item = TypeVar("_Item")

LINE_BYTES_MAX: Final = 8 * 1024 * 1024
"""Most bytes of a chunk without its bodies."""


class _Chunk(Struct, array_like=True, tag=FORM, forbid_unknown_fields=True):
    part: Part


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Chunk)


def encode(part: Part, form: int = FORM) -> bytes:
    return _encoder.encode(_Chunk(part)) if form >= FORM else json_chunks.encode(part)


def decode(chunk: Buffer) -> Part:
    """Return the part in a chunk of either form; bodies are views into it.

    Raises:
        DecodeError: the bytes are no chunk, or come from a release with other chunks.
    """
    try:
        if bytes(chunk[:1]) == b"{":
            part: Part = msgspec.convert(json_chunks.decode(bytes(chunk), LINE_BYTES_MAX), Part)
        else:
            part = _decoder.decode(chunk).part
    except UNREADABLE as error:
        raise DecodeError(f"chunk cannot be read: {type(error).__name__}") from None
    rows: Sequence[Any] = part.batches if isinstance(part, Batches) else getattr(part, "pieces", ())
    rows = part.rows if isinstance(part, DelayedRows | Copies) else rows
    if len(chunk) - sum(len(row.body or b"") for row in rows) > LINE_BYTES_MAX:
        raise DecodeError(f"a chunk has more than {LINE_BYTES_MAX} bytes without its bodies")
    return part


# Writing


def chunks(topic: Topic, reader: BatchReader, publishers: Sequence[str], form: int = READS) -> Iterator[bytes]:
    """Yield every chunk of a frozen topic, in order.

    Args:
        publishers: names, by number.
        form: the newest form that the receiver reads.
    """
    return (encode(part, form) for part in _parts(topic, reader, publishers, form))


def needs(topic: Topic, publishers: Sequence[str]) -> int:
    """Return the form of chunks that the receiver of a topic must read; `publishers` are names, by number."""
    if topic.groups:
        return READS
    plain = topic.settings == DEFAULTS and not (topic.compacted or topic.delayed or topic.purged)
    return 1 if plain and not any(publishers[number].startswith(DELAY) for number in topic.last) else NOTED


def _parts(topic: Topic, reader: BatchReader, publishers: Sequence[str], form: int) -> Iterator[Part]:
    said = describe(topic, publishers)
    logs = {log.id: LogRow(log.low, log.end, log.total, log.unknown) for log in said.logs.values()}
    yield Described(said.open, logs, said.history, sorted(said.merged), sorted(said.ended), said.contested)
    if said.settings != DEFAULTS:
        yield Configured(said.settings)
    shown = said.removal == NOTHING or (said.removal == LET_GO and any(log.low > 1 for log in said.logs.values()))
    if (not shown or said.compacted) and form >= NOTED:  # An earlier release merges without the note.
        yield Removed(said.removal, said.compacted)
    if said.order and form >= NOTED:
        yield Ordered(said.order)
    if said.purged:
        yield Purged(said.purged)
    for log in topic.logs.values():
        yield from _batches(log, reader, publishers)
    for stage in topic.stages.values():
        yield from _staged(stage, reader, publishers)
    yield from _delayed(topic, reader, publishers)
    for number, counters in said.watermarks.items():
        for some in _pieces(counters):
            yield Watermark(number, some)
    for some in _pieces(said.last):
        yield Last(some)
    yield from _subscriptions(said.subscriptions.items())
    yield from _groups(topic, reader)


def _pieces(counters: dict[str, int]) -> Iterator[dict[str, int]]:
    rest = iter(counters.items())
    while piece := dict(islice(rest, CHUNK_ITEMS)):
        yield piece


def _subscriptions(subscriptions: Iterable[tuple[str, stored.Subscription]]) -> Iterator[Subscriptions]:
    rows: dict[str, SubscriptionRow] = {}
    items = 0
    for name, one in subscriptions:
        rows[name] = SubscriptionRow(*one.row())
        items += 1 + len(one.cursor.backlog)
        if items >= CHUNK_ITEMS:
            yield Subscriptions(rows)
            rows, items = {}, 0
    if rows:
        yield Subscriptions(rows)


def _groups(topic: Topic, reader: BatchReader) -> Iterator[Part]:
    if topic.groups:
        yield Groups({name: group.row for name, group in topic.groups.items()})
    for name, group in topic.groups.items():
        members = [(*key, member.row()) for key, member in group.members.items()]
        for some in _some(members, lambda member: 1 + len(member[2].held)):
            yield Members(name, some)
        for rows in _some(group.facts.rows(), lambda row: 1 + len(row.error) // 40):
            yield Retries(name, rows)
        copies: list[CopiedRow] = []
        size = 0
        for row in group.copies.values():
            copies.append(CopiedRow(row, reader.copied(topic.number, name, row.log, row.offset) or b""))
            size += row.size
            if size >= CHUNK_BYTES or len(copies) >= CHUNK_BATCHES:
                yield Copies(name, copies)
                copies, size = [], 0
        if copies:
            yield Copies(name, copies)


def _some(rows: list[_Item], weight: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Yield rows in pieces of a few thousand items."""
    out: list[_Item] = []
    items = 0
    for row in rows:
        out.append(row)
        items += weight(row)
        if items >= CHUNK_ITEMS:
            yield out
            out, items = [], 0
    if out:
        yield out


def _batches(log: Log, reader: BatchReader, publishers: Sequence[str]) -> Iterator[Batches]:
    place = log.low
    while place < log.end:
        rows: list[BatchRow] = []
        size = 0
        for one in reader.batches(log.number, place, log.end):
            place, name = one.offset + one.count, publishers[one.publisher]
            facts = one.counter, one.stamp, one.checksum, one.total, one.body
            rows.append(BatchRow(one.offset, one.count, name, *facts))
            size += len(one.body or b"")
            if size >= CHUNK_BYTES or len(rows) >= CHUNK_BATCHES:
                break  # The reader must not stay open while the chunk travels.
        if not rows:
            return
        yield Batches(log.id, rows)


def _staged(stage: Stage, reader: BatchReader, publishers: Sequence[str]) -> Iterator[Staged]:
    facts = publishers[stage.publisher], stage.batch, stage.attempt, stage.heard
    rows: list[PieceRow] = []
    size = 0
    for piece in stage.pieces:
        rows.append(PieceRow(piece.first, piece.count, piece.checksum, reader.staged(piece.id)))
        size += piece.size
        if size >= CHUNK_BYTES or len(rows) >= CHUNK_BATCHES:
            yield Staged(*facts, rows)
            rows, size = [], 0
    if rows:
        yield Staged(*facts, rows)


def _delayed(topic: Topic, reader: BatchReader, publishers: Sequence[str]) -> Iterator[DelayedRows]:
    rows: list[DelayedRow] = []
    size = 0
    for row in sorted(topic.delayed.rows.values()):
        body = reader.delayed(row) or b""  # A damaged body stays so: its checksum does not match there either.
        rows.append(DelayedRow(row.due, publishers[row.publisher], row.counter, row.records, row.checksum, body))
        size += row.size
        if size >= CHUNK_BYTES or len(rows) >= CHUNK_BATCHES:
            yield DelayedRows(rows)
            rows, size = [], 0
    if rows:
        yield DelayedRows(rows)


# Reading


Piece = Batches | Staged | DelayedRows | Copies
"""A part with bodies, which the store keeps as they arrive."""

COPIES_MAX: Final = 20_000
"""Most copied records of a group; more than any release makes."""


@dataclass(slots=True)
class Moving(Description):
    """The part of a topic that has arrived so far. Its logs have numbers of the receiving store.

    Attributes:
        size: bytes of the chunks that described it.
    """

    size: int = 0


def read(chunk: Buffer, moving: Moving, number: Callable[[], int]) -> Piece | None:
    """Process one chunk.

    Args:
        moving: the part that has arrived so far; it grows.
        number: returns a new log number of this store.

    Returns:
        The batches, the staged rows, the delayed puts or the copied records in the chunk; None if it has none of them.

    Raises:
        DecodeError: the chunk cannot follow the earlier ones.
    """
    part = decode(chunk)
    match part:
        case Batches():
            _check_batches(part, moving)
            return part
        case Staged() | DelayedRows():
            return part
        case Groups() | Members() | Retries() | Copies():
            _read_group(part, moving)
            if isinstance(part, Copies):
                return part
        case Described():
            _read_description(part, moving, number)
        case Configured():
            moving.settings = part.settings
        case Removed():
            moving.removal, moving.compacted = part.removal, part.compacted
        case Ordered():
            moving.order = part.order
        case Purged():
            moving.purged = part.purged
        case Watermark():
            moving.watermarks.setdefault(part.number, {}).update(part.counters)
        case Last():
            moving.last.update(part.counters)
        case Subscriptions():
            for name, row in part.rows.items():
                if any(span.log not in moving.logs for span in row.backlog):
                    raise DecodeError("a subscription refers to a log that no chunk has described")
                found = stored.SubscriptionRow(*msgspec.structs.astuple(row))
                moving.subscriptions[name] = stored.subscription_of(name, found)
    moving.size += len(chunk)
    return None


def _read_group(part: Groups | Members | Retries | Copies, moving: Moving) -> None:
    if isinstance(part, Groups):
        moving.groups = {name: Group(name, row) for name, row in part.rows.items()}
        return
    group = moving.groups.get(part.group)
    if group is None:
        raise DecodeError("rows belong to a group that no chunk has described")
    if isinstance(part, Members):
        for client, store, member in part.rows:
            if any(held.part not in group.parts or held.low >= held.high for held in member.held):
                raise DecodeError("a member holds what its group does not have")
            group.members[client, store] = member_of(member)
    elif isinstance(part, Retries):
        group.facts = Facts([*group.facts.rows(), *part.rows])
    elif len(group.copies) + len(part.rows) > COPIES_MAX:
        raise DecodeError("a group has too many copied records")
    else:
        for row in part.rows:
            group.keep_copy(row.copy)
    group.index_holders()


def _read_description(part: Described, moving: Moving, number: Callable[[], int]) -> None:
    if moving.open:
        raise DecodeError("a topic is described twice")
    if part.open not in part.logs:
        raise DecodeError("a description lacks the topic's open log")
    moving.logs = {log: Log(number(), log, *msgspec.structs.astuple(row)) for log, row in part.logs.items()}
    moving.open, moving.history, moving.contested = part.open, part.history, part.contested
    moving.merged, moving.ended = frozenset(part.merged), frozenset(part.ended)
    if any(log.low > 1 for log in part.logs.values()):
        moving.removal = LET_GO


def _check_batches(part: Batches, moving: Moving) -> None:
    log = moving.logs.get(part.log)
    if log is None:
        raise DecodeError("batches belong to a log that no chunk has described")
    if not all(log.low <= one.offset and one.offset + one.count <= log.end for one in part.batches):
        raise DecodeError("a batch lies outside its log")
