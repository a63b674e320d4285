"""The changes of batches that wait: staged by a sink, or for their due time."""

from __future__ import annotations

from pubsub.server.topic.change import Buffer, RecordedChange
from pubsub.server.topic.spans import Number


class StageOpened(RecordedChange):
    """A sink begins to stage rows.

    Attributes:
        stage: its number in this store.
        topic: 0 while the topic itself is being received.
        heard: time of the sink's last message about it, microseconds since 1970.
    """

    stage: Number
    topic: Number
    publisher: Number
    batch: Number
    attempt: str
    heard: Number


class PieceStaged(RecordedChange):
    """One fragment of staged rows: a batch as it arrived.

    Attributes:
        piece: its number in this store.
        first, count: the rows of the stage that it holds.
        heard: time of arrival, microseconds since 1970.
    """

    stage: Number
    piece: Number
    first: Number
    count: Number
    checksum: Number
    heard: Number
    body: Buffer


class StageMerged(RecordedChange):
    """A stage that arrived with a transfer becomes the topic's."""

    stage: Number
    topic: Number


class BatchPublished(RecordedChange):
    """A batch of a log with the bytes of a staged fragment, `source`; otherwise like BatchAppended."""

    log: Number
    offset: Number
    count: Number
    publisher: Number
    counter: Number
    stamp: Number
    checksum: Number
    total: Number
    source: Number


class StagePublished(RecordedChange):
    """A stage ends because its fragments are published."""

    stage: Number


class StageDropped(RecordedChange):
    """A stage loses its topic and will be deleted."""

    stage: Number


class StagedDeleted(RecordedChange):
    """This many fragments of a dropped stage are deleted; with the last of them, the stage."""

    stage: Number
    pieces: Number
    last: bool


class DelayedKept(RecordedChange):
    """A put batch waits for its due time.

    Attributes:
        shelf: the number of its topic, or of a transfer that brings it.
        due: microseconds since 1970.
        publisher, counter, count, checksum, body: of the put.
    """

    shelf: Number
    due: Number
    publisher: Number
    counter: Number
    count: Number
    checksum: Number
    body: Buffer


class DelayedGone(RecordedChange):
    """A batch waits no more: this commit appends it, or it was delivered elsewhere before a merge."""

    shelf: Number
    due: Number
    publisher: Number
    counter: Number


class ShelfMerged(RecordedChange):
    """The batches that wait on a shelf become a topic's."""

    shelf: Number
    topic: Number


class ShelfDiscarded(RecordedChange):
    """So many batches of a shelf without a topic are deleted, in order."""

    shelf: Number
    rows: Number
