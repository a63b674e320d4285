"""The contents of a server's store at its opening: all that a new process knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from pubsub.server.topic.topic import Topic


@dataclass(frozen=True, slots=True)
class QuarantinedTopic:
    """A quarantined topic that an operator had abandoned.

    Attributes:
        log: its open log.
        reason: for a person.
        stamp: time of the quarantine, microseconds since 1970.
    """

    topic: str
    log: str
    reason: str
    stamp: int


@dataclass(slots=True)
class Loaded:
    """The contents of a store at its opening.

    Attributes:
        incarnation, change: of this start; the last change number.
        topics: by name.
        publishers: names by number; 0 is not used.
        next_topic, next_log, next_watermark: the first free numbers.
        discarded: numbers of logs without a topic that still have batches.
        notes: the facts that the server remembers about itself, by name.
        quarantined: quarantined topics that an operator had abandoned.
        next_stage, next_piece: the first free numbers of stages and their fragments.
        dropped: number and fragment count of stages without a topic.
        unused_watermarks: numbers of copies of `last` that no span refers to.
        discarded_copies: numbers of records copied for groups of no topic.
        discarded_shelves: numbers of shelves without a topic that still have delayed puts.
    """

    store_id: str
    incarnation: int
    change: int
    topics: dict[str, Topic]
    publishers: list[str]
    next_topic: int
    next_log: int
    next_watermark: int = 1
    discarded: tuple[int, ...] = ()
    notes: dict[str, object] = field(default_factory=dict)
    quarantined: list[QuarantinedTopic] = field(default_factory=list)
    next_stage: int = 1
    next_piece: int = 1
    dropped: tuple[tuple[int, int], ...] = ()
    unused_watermarks: tuple[int, ...] = ()
    discarded_shelves: tuple[int, ...] = ()
    discarded_copies: tuple[int, ...] = ()
