"""What a server's store held when it was opened: all that a new process knows."""

from __future__ import annotations

from dataclasses import dataclass, field

from pubsub.server.topic.topic import Topic


@dataclass(frozen=True, slots=True)
class Aside:
    """A topic that was set aside.

    Attributes:
        log: its open log.
        reason: why, for a person.
        stamp: when, microseconds since 1970.
    """

    topic: str
    log: str
    reason: str
    stamp: int


@dataclass(slots=True)
class Loaded:
    """What a store held when it was opened.

    Attributes:
        incarnation, change: of this start; the last change number.
        topics: by name.
        publishers: names by number; 0 is not used.
        next_topic, next_log, next_watermark: the first free numbers.
        discarded: numbers of logs that are nobody's and have batches yet.
        notes: what the server remembers of itself, by name.
        aside: topics that were set aside.
        next_stage, next_piece: the first free numbers of what sinks stage.
        dropped: number and pieces of stages that are nobody's.
        unused_watermarks: numbers of copies of `last` that no span refers to.
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
    aside: list[Aside] = field(default_factory=list)
    next_stage: int = 1
    next_piece: int = 1
    dropped: tuple[tuple[int, int], ...] = ()
    unused_watermarks: tuple[int, ...] = ()
