"""What one loop of a server changes on disk: values, applied by the store in one transaction.

The core never writes. It says what is to be different, the shell hands that to the store, and only when the commit is
through do the answers leave that were computed from it. A simulator can therefore lose, replay or tear a commit
without the core noticing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pubsub.protocol.batch import Buffer
from pubsub.protocol.names import Position
from pubsub.server.topic.spans import Span


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


@dataclass(slots=True)
class BatchAppended:
    """One put batch: one row.

    Attributes:
        log, offset: where its first record stands; the log by its number in this store.
        total: bytes of all batches of the log before this one.
        stamp: microseconds since 1970.
        sound: whether the checksum was compared with the body.
    """

    log: int
    offset: int
    count: int
    publisher: int
    counter: int
    stamp: int
    checksum: int
    total: int
    body: Buffer | None
    sound: bool = True


@dataclass(slots=True)
class PublisherSeen:
    """A publisher's name gets a number in this store."""

    publisher: int
    name: str


@dataclass(slots=True)
class LastMoved:
    """The highest counter of a publisher on a topic."""

    topic: int
    publisher: int
    last: int


@dataclass(slots=True)
class LogOpened:
    """A log with this number and ID begins.

    Attributes:
        state: held, incoming, merged or dead; the others come about by other changes.
    """

    log: int
    id: str
    topic: int
    state: LogState = LogState.HELD


@dataclass(slots=True)
class LogMerged:
    """A log that was incoming is the topic's now."""

    log: int
    topic: int
    low: int
    end: int
    total: int


@dataclass(slots=True)
class LogUsedUp:
    """A closed log of which nothing is held any more; that it was here stays known."""

    log: int


@dataclass(slots=True)
class BatchesDiscarded:
    """Batches below the offset `low` of a log that is nobody's go.

    Attributes:
        last: whether these were all; then a log that was only incoming is forgotten.
    """

    log: int
    low: int
    last: bool


@dataclass(slots=True)
class TopicGiven:
    """A topic went to another server: everything of it goes, but where its logs went stays known."""

    topic: int
    receiver: str


@dataclass(slots=True)
class WatermarkStored:
    """A copy of `last` that spans refer to."""

    watermark: int
    counters: dict[int, int]


@dataclass(slots=True)
class WatermarkDropped:
    """No span refers to it any more."""

    watermark: int


@dataclass(slots=True)
class LogTrimmed:
    """A log's batches below the offset `low` go; `end` and `total` are kept for when the newest batch cannot say them.

    It may be gone, or without its bytes.
    """

    log: int
    low: int
    end: int
    total: int


@dataclass(slots=True)
class BodiesDropped:
    """The batches in offsets [low, high) of a log lose their bytes; what their rows say of them stays."""

    log: int
    low: int
    high: int


@dataclass(slots=True)
class TopicChanged:
    """A topic is new, or its open log, its history, or whom it is frozen for is different."""

    topic: int
    name: str
    open_log: int
    history: tuple[Span, ...]
    frozen: str


@dataclass(slots=True)
class SubscriptionChanged:
    """A subscriber's subscription is different."""

    topic: int
    subscriber: str
    number: int
    epoch: int
    on: bool
    since: int
    acknowledged: Position
    backlog: tuple[Span, ...]


@dataclass(slots=True)
class BatchQuarantined:
    """A batch that is not what was written: its bytes are set aside, its place stays."""

    log: int
    offset: int


@dataclass(slots=True)
class BatchRepaired:
    """A batch that was damaged in this store, as the store's other member has it; of this disk alone.

    Attributes:
        log, offset, count, publisher, counter, stamp, checksum, total, body: as in `BatchAppended`.
    """

    log: int
    offset: int
    count: int
    publisher: int
    counter: int
    stamp: int
    checksum: int
    total: int
    body: Buffer


@dataclass(slots=True)
class LogEnded:
    """A log of which a restored copy may lack the end: all beyond what is stored counts as lost.

    Attributes:
        here: whether it is this very store that was restored.
    """

    log: int
    here: bool = False


@dataclass(slots=True)
class LogReplaced:
    """A log of a restored copy, by its ID: another server had all of it, and that takes its place."""

    topic: int
    log: str


@dataclass(slots=True)
class TopicSetAside:
    """A topic is this server's no more, and kept: `reason` for a person, `stamp` in microseconds since 1970."""

    topic: int
    reason: str
    stamp: int


@dataclass(slots=True)
class TopicContested:
    """Another server holds a topic too, with this open log."""

    topic: int
    log: str
    server: str


@dataclass(slots=True)
class TopicSettled:
    """That log was merged, or given up."""

    topic: int
    log: str


@dataclass(slots=True)
class NoteKept:
    """Something that the server remembers of itself, by its name; None: no longer."""

    name: str
    value: str | int | None


@dataclass(slots=True)
class StageOpened:
    """A sink begins to stage rows.

    Attributes:
        stage: its number in this store.
        topic: 0 while the topic itself is on its way here.
        heard: when it was heard of last, microseconds since 1970.
    """

    stage: int
    topic: int
    publisher: int
    batch: int
    attempt: str
    heard: int


@dataclass(slots=True)
class PieceStaged:
    """Rows are staged: a batch of them as it came.

    Attributes:
        piece: its number in this store.
        first, count: which rows of the stage.
        heard: when they came.
    """

    stage: int
    piece: int
    first: int
    count: int
    checksum: int
    heard: int
    body: Buffer


@dataclass(slots=True)
class StageMerged:
    """A stage that arrived is the topic's now."""

    stage: int
    topic: int


@dataclass(slots=True)
class BatchPublished:
    """A batch of a log whose bytes are those of a staged piece, `source`; else as BatchAppended."""

    log: int
    offset: int
    count: int
    publisher: int
    counter: int
    stamp: int
    checksum: int
    total: int
    source: int


@dataclass(slots=True)
class StagePublished:
    """A stage is no more; its pieces are published."""

    stage: int


@dataclass(slots=True)
class StageDropped:
    """A stage is nobody's any more, and will be deleted."""

    stage: int


@dataclass(slots=True)
class StagedDeleted:
    """So many pieces of a stage that is nobody's go; with the last ones the stage."""

    stage: int
    pieces: int
    last: bool


@dataclass(slots=True)
class ChangeCounted:
    """The server's change number and its highest stamp."""

    change: int
    stamp: int


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
