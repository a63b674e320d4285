"""What one loop of a server changes on disk: values, applied by the store in one transaction.

The core never writes. It says what is to be different, the shell hands that to the store, and only when the commit is
through do the answers leave that were computed from it. A simulator can therefore lose, replay or tear a commit
without the core noticing.

The annotation of a field is its only declaration: `topic.commits` writes and reads it as it stands here. A new field
goes to the end of its class and has a default; a release that lacks the field refuses the commit.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from msgspec import Struct

from pubsub.server.topic.spans import Number, Span

if TYPE_CHECKING:
    from pubsub.protocol.batch import Buffer
else:
    Buffer = memoryview  # A body that is read is a view into the commit's bytes; one that is written may be bytes too.


class LogState(StrEnum):
    """What a store knows of a log."""

    HELD = "held"
    INCOMING = "incoming"
    """It is being received."""

    MERGED = "absorbed"
    """It was merged here, and nothing of it is held any more: only its ID is to be known."""

    ABANDONED = "dead"
    """It was another server's, and was given up."""

    GIVEN = "given"
    """Its topic went to another server."""

    ASIDE = "aside"
    """Its topic was set aside."""

    UNREADABLE = "unreadable"
    """The store's word for it is damaged; never stored."""

    UNKNOWN = ""
    """Nothing is known of it; never stored."""

    @property
    def merged_here(self) -> bool:
        """Whether it was begun, or merged, here."""
        return self in {LogState.HELD, LogState.MERGED, LogState.GIVEN}

    @property
    def new(self) -> bool:
        """Whether it is neither ours nor given up: another server may come with it."""
        return self in {LogState.UNKNOWN, LogState.INCOMING}


class _Change(Struct, array_like=True, tag=True, forbid_unknown_fields=True):
    """As bytes: the name of the class, then the fields in their order."""


class BatchAppended(_Change):
    """One put batch: one row.

    Attributes:
        log, offset: where its first record stands; the log by its number in this store.
        total: bytes of all batches of the log before this one.
        stamp: microseconds since 1970.
        sound: whether the checksum was compared with the body.
    """

    log: Number
    offset: Number
    count: Number
    publisher: Number
    counter: Number
    stamp: Number
    checksum: Number
    total: Number
    body: Buffer | None
    sound: bool = True


class PublisherSeen(_Change):
    """A publisher's name gets a number in this store."""

    publisher: Number
    name: str


class LastMoved(_Change):
    """The highest counter of a publisher on a topic."""

    topic: Number
    publisher: Number
    last: Number


class LogOpened(_Change):
    """A log with this number and ID begins.

    Attributes:
        state: held, incoming, merged or dead; the others come about by other changes.
    """

    log: Number
    id: str
    topic: Number
    state: LogState = LogState.HELD


class LogMerged(_Change):
    """A log that was incoming is the topic's now."""

    log: Number
    topic: Number
    low: Number
    end: Number
    total: Number


class LogUsedUp(_Change):
    """A closed log of which nothing is held any more; that it was here stays known."""

    log: Number


class BatchesDiscarded(_Change):
    """Batches below the offset `low` of a log that is nobody's go.

    Attributes:
        last: whether these were all; then a log that was only incoming is forgotten.
    """

    log: Number
    low: Number
    last: bool


class TopicGiven(_Change):
    """A topic went to another server: everything of it goes, but where its logs went stays known."""

    topic: Number
    receiver: str


class WatermarkStored(_Change):
    """A copy of `last` that spans refer to."""

    watermark: Number
    counters: dict[Number, Number]


class WatermarkDropped(_Change):
    """No span refers to it any more."""

    watermark: Number


class LogTrimmed(_Change):
    """A log's batches below the offset `low` go; `end` and `total` are kept for when the newest batch cannot say them.

    It may be gone, or without its bytes.
    """

    log: Number
    low: Number
    end: Number
    total: Number


class BodiesDropped(_Change):
    """The batches in offsets [low, high) of a log lose their bytes; what their rows say of them stays."""

    log: Number
    low: Number
    high: Number


class TopicChanged(_Change):
    """A topic is new, or its open log, its history, or whom it is frozen for is different."""

    topic: Number
    name: str
    open_log: Number
    history: tuple[Span, ...]
    frozen: str


class SubscriptionChanged(_Change):
    """A subscriber's subscription is different."""

    topic: Number
    subscriber: str
    number: Number
    epoch: Number
    on: bool
    since: Number
    acknowledged: tuple[str, Number]
    backlog: tuple[Span, ...]


class BatchQuarantined(_Change):
    """A batch that is not what was written: its bytes are set aside, its place stays."""

    log: Number
    offset: Number


class BatchRepaired(_Change):
    """A batch that was damaged in this store, as the store's other member has it; of this disk alone.

    Attributes:
        log, offset, count, publisher, counter, stamp, checksum, total, body: as in `BatchAppended`.
    """

    log: Number
    offset: Number
    count: Number
    publisher: Number
    counter: Number
    stamp: Number
    checksum: Number
    total: Number
    body: Buffer


class LogEnded(_Change):
    """A log of which a restored copy may lack the end: all beyond what is stored counts as lost.

    Attributes:
        here: whether it is this very store that was restored.
    """

    log: Number
    here: bool = False


class LogReplaced(_Change):
    """A log of a restored copy, by its ID: another server had all of it, and that takes its place."""

    topic: Number
    log: str


class TopicSetAside(_Change):
    """A topic is this server's no more, and kept: `reason` for a person, `stamp` in microseconds since 1970."""

    topic: Number
    reason: str
    stamp: Number


class TopicContested(_Change):
    """Another server holds a topic too, with this open log."""

    topic: Number
    log: str
    server: str


class TopicSettled(_Change):
    """That log was merged, or given up."""

    topic: Number
    log: str


class NoteKept(_Change):
    """Something that the server remembers of itself, by its name; None: no longer."""

    name: str
    value: str | Number | None


class StageOpened(_Change):
    """A sink begins to stage rows.

    Attributes:
        stage: its number in this store.
        topic: 0 while the topic itself is on its way here.
        heard: when it was heard of last, microseconds since 1970.
    """

    stage: Number
    topic: Number
    publisher: Number
    batch: Number
    attempt: str
    heard: Number


class PieceStaged(_Change):
    """Rows are staged: a batch of them as it came.

    Attributes:
        piece: its number in this store.
        first, count: which rows of the stage.
        heard: when they came.
    """

    stage: Number
    piece: Number
    first: Number
    count: Number
    checksum: Number
    heard: Number
    body: Buffer


class StageMerged(_Change):
    """A stage that arrived is the topic's now."""

    stage: Number
    topic: Number


class BatchPublished(_Change):
    """A batch of a log whose bytes are those of a staged piece, `source`; else as BatchAppended."""

    log: Number
    offset: Number
    count: Number
    publisher: Number
    counter: Number
    stamp: Number
    checksum: Number
    total: Number
    source: Number


class StagePublished(_Change):
    """A stage is no more; its pieces are published."""

    stage: Number


class StageDropped(_Change):
    """A stage is nobody's any more, and will be deleted."""

    stage: Number


class StagedDeleted(_Change):
    """So many pieces of a stage that is nobody's go; with the last ones the stage."""

    stage: Number
    pieces: Number
    last: bool


class ChangeCounted(_Change):
    """The server's change number and its highest stamp."""

    change: Number
    stamp: Number


Change = (
    BatchAppended
    | PublisherSeen
    | LastMoved
    | LogOpened
    | LogMerged
    | LogTrimmed
    | BodiesDropped
    | LogUsedUp
    | BatchesDiscarded
    | TopicGiven
    | WatermarkStored
    | WatermarkDropped
    | TopicChanged
    | SubscriptionChanged
    | BatchQuarantined
    | BatchRepaired
    | LogEnded
    | LogReplaced
    | TopicSetAside
    | TopicContested
    | TopicSettled
    | NoteKept
    | StageOpened
    | PieceStaged
    | StageMerged
    | BatchPublished
    | StagePublished
    | StageDropped
    | StagedDeleted
    | ChangeCounted
)
