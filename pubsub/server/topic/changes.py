"""The changes that one loop of a server makes on disk: values, applied by the store in one transaction.

The core never writes. It names the changes, the shell hands them to the store, and the answers computed from them leave
only after the commit. A simulator can therefore lose, repeat or tear a commit without the core noticing.

The annotation of a field is its only declaration: `topic.commits` writes and reads the field by it. A new field goes to
the end of its class and has a default. A release that lacks the field refuses the commit.

The rule is docs/explanation/cores-and-shells.md, A5.
"""

from __future__ import annotations

from pubsub.server.topic.change import Buffer, RecordedChange
from pubsub.server.topic.compacted import Parts
from pubsub.server.topic.group_rows import CopiesDropped as CopiesDropped  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import CopiesMerged as CopiesMerged  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import CopyChanged as CopyChanged  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import CopyGone as CopyGone  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import CopyKept as CopyKept  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import GroupChanged as GroupChanged  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import GroupEmptied as GroupEmptied  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import MemberChanged as MemberChanged  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import MemberGone as MemberGone  # noqa: PLC0414 - handed on
from pubsub.server.topic.group_rows import RetriesChanged as RetriesChanged  # noqa: PLC0414 - handed on
from pubsub.server.topic.log_state import LogState as LogState  # noqa: PLC0414 - handed on
from pubsub.server.topic.purges import Places
from pubsub.server.topic.removal import Removal
from pubsub.server.topic.settings import Settings
from pubsub.server.topic.spans import Number, Span
from pubsub.server.topic.waiting_changes import BatchPublished as BatchPublished  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import DelayedGone as DelayedGone  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import DelayedKept as DelayedKept  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import PieceStaged as PieceStaged  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import ShelfDiscarded as ShelfDiscarded  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import ShelfMerged as ShelfMerged  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import StagedDeleted as StagedDeleted  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import StageDropped as StageDropped  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import StageMerged as StageMerged  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import StageOpened as StageOpened  # noqa: PLC0414 - handed on
from pubsub.server.topic.waiting_changes import StagePublished as StagePublished  # noqa: PLC0414 - handed on


class BatchAppended(RecordedChange):
    """One put batch: one row.

    Attributes:
        log, offset: the place of its first record; the log by its number in this store.
        total: bytes of all batches of the log before this one.
        stamp: microseconds since 1970.
        sound: True if the checksum was compared with the body.
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


class PublisherSeen(RecordedChange):
    """A publisher's name gets a number in this store."""

    publisher: Number
    name: str


class LastMoved(RecordedChange):
    """A publisher has a new highest counter on a topic."""

    topic: Number
    publisher: Number
    last: Number


class LogOpened(RecordedChange):
    """A log with this number and ID begins.

    Attributes:
        state: held, incoming, merged or dead; other changes lead to the other states.
    """

    log: Number
    id: str
    topic: Number
    state: LogState = LogState.HELD


class LogMerged(RecordedChange):
    """An incoming log becomes a log of the topic."""

    log: Number
    topic: Number
    low: Number
    end: Number
    total: Number


class LogUsedUp(RecordedChange):
    """A closed log has no records left; the store keeps its ID."""

    log: Number


class BatchesDiscarded(RecordedChange):
    """Batches below the offset `low` of a log without a topic are deleted.

    Attributes:
        last: True if these were all; a log that was only incoming is then forgotten.
    """

    log: Number
    low: Number
    last: bool


class TopicGiven(RecordedChange):
    """A topic went to another server: all of it is deleted, except the note of where its logs went."""

    topic: Number
    receiver: str


class WatermarkStored(RecordedChange):
    """A copy of `last` that spans refer to."""

    watermark: Number
    counters: dict[Number, Number]


class WatermarkDropped(RecordedChange):
    """No span refers to the watermark any more."""

    watermark: Number


class LogTrimmed(RecordedChange):
    """A log's batches below the offset `low` are deleted.

    `end` and `total` are kept because the newest batch may be deleted or without its bytes, and so cannot supply them.
    """

    log: Number
    low: Number
    end: Number
    total: Number


class LogCompacted(RecordedChange):
    """Compaction removes rows of a log; `BatchKept` stores again what stays of them.

    Attributes:
        gone: the first offset of each row.
        parts: the parts of the log from which records are missing afterwards.
    """

    log: Number
    gone: tuple[Number, ...]
    parts: Parts


class BatchKept(RecordedChange):
    """A run of records that compaction keeps of a batch; the fields are those of `BatchAppended`."""

    log: Number
    offset: Number
    count: Number
    publisher: Number
    counter: Number
    stamp: Number
    checksum: Number
    total: Number
    body: Buffer


class BodiesDropped(RecordedChange):
    """The batches in offsets [low, high) of a log lose their bytes; their rows keep the other fields."""

    log: Number
    low: Number
    high: Number


class TopicChanged(RecordedChange):
    """A topic is new, or has another open log, history, or `frozen`."""

    topic: Number
    name: str
    open_log: Number
    history: tuple[Span, ...]
    frozen: str


class SettingsChanged(RecordedChange):
    """A topic has other settings."""

    topic: Number
    settings: Settings


class RemovalChanged(RecordedChange):
    """A topic has let go of records, where the low ends of its logs do not show it, or of tombstones."""

    topic: Number
    removal: Removal


class OrderChanged(RecordedChange):
    """The order of a topic's history began with this log; "": with the open log."""

    topic: Number
    order: str


class TopicPurged(RecordedChange):
    """A log of a topic is purged up to these places; (0, 0): its purge is forgotten."""

    topic: Number
    log: str
    purged: Places


class SubscriptionChanged(RecordedChange):
    """A subscription is new or has changed."""

    topic: Number
    subscriber: str
    number: Number
    epoch: Number
    on: bool
    since: Number
    acknowledged: tuple[str, Number]
    backlog: tuple[Span, ...]


class BatchQuarantined(RecordedChange):
    """A batch is damaged: its bytes move to quarantine, and its row stays."""

    log: Number
    offset: Number


class BatchRepaired(RecordedChange):
    """A batch that was damaged in this store, as the store's other member has it; it changes this disk alone.

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


class LogEnded(RecordedChange):
    """A restored copy may lack the end of this log: all records beyond the stored ones count as lost.

    Attributes:
        here: True if this very store was restored.
    """

    log: Number
    here: bool = False


class LogReplaced(RecordedChange):
    """Another server's complete log takes the place of a restored copy's log, given by its ID."""

    topic: Number
    log: str


class TopicSetAside(RecordedChange):
    """A topic no longer belongs to this server, which keeps it in quarantine.

    Attributes:
        reason: for a person.
        stamp: microseconds since 1970.
    """

    topic: Number
    reason: str
    stamp: Number


class TopicContested(RecordedChange):
    """Another server holds the topic too, with this open log."""

    topic: Number
    log: str
    server: str


class TopicSettled(RecordedChange):
    """A contested log was merged or abandoned."""

    topic: Number
    log: str


class NoteKept(RecordedChange):
    """A fact that the server remembers about itself, by its name; None deletes it."""

    name: str
    value: str | Number | None


class ChangeCounted(RecordedChange):
    """The server's change number and its highest timestamp."""

    change: Number
    stamp: Number


Change = (
    BatchAppended
    | PublisherSeen
    | LastMoved
    | LogOpened
    | LogMerged
    | LogTrimmed
    | LogCompacted
    | BatchKept
    | BodiesDropped
    | LogUsedUp
    | BatchesDiscarded
    | TopicGiven
    | WatermarkStored
    | WatermarkDropped
    | TopicChanged
    | SettingsChanged
    | RemovalChanged
    | OrderChanged
    | TopicPurged
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
    | DelayedKept
    | DelayedGone
    | ShelfMerged
    | ShelfDiscarded
    | GroupChanged
    | MemberChanged
    | MemberGone
    | RetriesChanged
    | CopyKept
    | CopyChanged
    | CopyGone
    | CopiesMerged
    | CopiesDropped
    | GroupEmptied
    | ChangeCounted
)
