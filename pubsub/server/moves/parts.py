"""The parts of a topic in the chunks of a transfer, each with its fields (`moves.chunks`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from pubsub.base.limits import BATCH_BYTES_MAX, ORIGIN_BYTES_MAX
from pubsub.protocol.names import ID, PUBLISHER
from pubsub.server.topic.compacted import Parts
from pubsub.server.topic.consumers import GROUP_KEY, KEY, PATTERN_KEY
from pubsub.server.topic.group_rows import CopyRow, GroupRow, MemberRow, RetryRow
from pubsub.server.topic.purges import Places
from pubsub.server.topic.removal import Removal
from pubsub.server.topic.settings import Settings
from pubsub.server.topic.spans import LogId, Number, Span

if TYPE_CHECKING:
    from pubsub.protocol.batch import Buffer
else:
    Buffer = memoryview  # A body read from a chunk is a view into it; a body to be written may be bytes too.

Id = Annotated[str, Meta(pattern=rf"\A{ID}\Z")]
Subscriber = Annotated[
    str,
    Meta(pattern=rf"\A({KEY}?{ID}|[{PATTERN_KEY}]{ID}:[!-~]{{1,80}}|{GROUP_KEY}{ID}(:[0-9]{{1,4}})?)\Z"),
]
Publisher = Annotated[str, Meta(pattern=rf"\A{PUBLISHER}\Z")]
Body = Annotated[Buffer, Meta(max_length=BATCH_BYTES_MAX + ORIGIN_BYTES_MAX)]


class _Row(Struct, array_like=True, forbid_unknown_fields=True):
    """A row; its bytes are the fields in their order."""


class _Part(Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """A part; its bytes are the name of the class, then the fields in their order."""


class LogRow(_Row):
    """A log as `topic.Log` has it."""

    low: Number
    end: Number
    total: Number
    unknown: Number


class Described(_Part):
    """The short fields of a `Description`."""

    open: LogId
    logs: dict[LogId, LogRow]
    history: tuple[Span, ...]
    merged: list[LogId]
    ended: list[LogId]
    contested: dict[LogId, Id]


class BatchRow(_Row):
    """A batch as `delivery.Batch` has it, with its publisher's name."""

    offset: Number
    count: Number
    publisher: Publisher
    counter: Number
    stamp: Number
    checksum: Number
    total: Number
    body: Body | None


class Batches(_Part):
    """Batches of one log."""

    log: LogId
    batches: list[BatchRow]


class PieceRow(_Row):
    """Staged rows, as `stages.Piece` has them."""

    first: Number
    count: Number
    checksum: Number
    body: Body


class Staged(_Part):
    """Fragments of a sink's stage."""

    publisher: Publisher
    batch: Number
    attempt: Id
    heard: Number
    pieces: list[PieceRow]


class DelayedRow(_Row):
    """A put that waits for its due time, as `delayed.Waiting` has it, with its publisher's name and its body."""

    due: Number
    publisher: Publisher
    counter: Number
    count: Number
    checksum: Number
    body: Body


class DelayedRows(_Part):
    """Some of the puts that wait for their due time. A release without them refuses the topic."""

    rows: list[DelayedRow]


class Watermark(_Part):
    """Some counters of a copy of `last`."""

    number: Number
    counters: dict[Publisher, Number]


class Last(_Part):
    """Some of the last counters."""

    counters: dict[Publisher, Number]


class SubscriptionRow(_Row):
    """A subscription as `topic.subscription.SubscriptionRow` has it."""

    number: Number
    epoch: Number
    on: bool
    since: Number
    acknowledged: tuple[LogId, Number]
    backlog: tuple[Span, ...]


class Subscriptions(_Part):
    """Some of the subscriptions."""

    rows: dict[Subscriber, SubscriptionRow]


class Configured(_Part):
    """The settings of a topic that has other ones than the defaults. A release before them refuses the topic."""

    settings: Settings


class Removed(_Part):
    """The records that went. This part is left out where the low end of a log shows the same."""

    removal: Removal
    compacted: dict[LogId, Parts] = {}


class Ordered(_Part):
    """The log with which the order of the history began, if it is not the open log."""

    order: LogId


class Purged(_Part):
    """The places up to which the topic's logs are purged. A release before them refuses the topic."""

    purged: dict[LogId, Places]


class Groups(_Part):
    """The consumer groups. A release before them refuses the topic."""

    rows: dict[Id, GroupRow]


class Members(_Part):
    """Some of the members of a group."""

    group: Id
    rows: list[tuple[Id, LogId, MemberRow]]


class Retries(_Part):
    """Some of the facts of records of a group."""

    group: Id
    rows: list[RetryRow]


class CopiedRow(_Row):
    """A record that was copied out of its log, with the batch that has it alone."""

    copy: CopyRow
    body: Body


class Copies(_Part):
    """Some of the copied records of a group."""

    group: Id
    rows: list[CopiedRow]


Part = (
    Described
    | Configured
    | Removed
    | Ordered
    | Purged
    | Batches
    | Staged
    | DelayedRows
    | Watermark
    | Last
    | Subscriptions
    | Groups
    | Members
    | Retries
    | Copies
)
