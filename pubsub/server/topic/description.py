"""What is said of a topic besides its records: one list of fields, by which it is stored, moved, merged and exported.

`FIELDS` has every field of `Topic` and what becomes of it. Who adds one adds it there, and a test then looks for it in
each place: the store's tables (`storage.loading`), the chunks (`moves.chunks`), `merge.merge`, the export's files
(`offline.export`). A `Description` is a topic as another store can understand it: publishers by their names, since each
store has its own numbers for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from typing import Final

from msgspec import structs

from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Log, Topic


class Fate(Flag):
    """What becomes of a field."""

    MEMORY = 0
    """Each process has its own."""

    STORED = auto()
    """A new process finds it in the store."""

    TRAVELS = auto()
    """It goes along when the topic moves."""

    MERGED = auto()
    """`merge.merge` makes one of two; of what travels the others are merged by who keeps them."""

    EXPORTED = auto()
    """It comes back from an export; of the others an export has what they come to: ranges of one new log."""


_EVERYWHERE: Final = Fate.STORED | Fate.TRAVELS | Fate.MERGED | Fate.EXPORTED
_BETWEEN_STORES: Final = Fate.STORED | Fate.TRAVELS | Fate.MERGED

FIELDS: Final[dict[str, Fate]] = {
    "number": Fate.STORED,
    "name": Fate.STORED | Fate.EXPORTED,  # The message around the chunks has the name.
    "open": _BETWEEN_STORES,
    "logs": _BETWEEN_STORES,
    "last": _EVERYWHERE,
    "subscriptions": _EVERYWHERE,
    "history": _EVERYWHERE,
    "watermarks": _BETWEEN_STORES,
    "merged": _BETWEEN_STORES,
    "stages": Fate.STORED | Fate.TRAVELS,  # Merged by `upkeep.staging`; after an export staged again by their sink.
    "frozen": Fate.STORED,
    "ended": _BETWEEN_STORES,
    "restored": Fate.STORED,
    "contested": Fate.STORED | Fate.TRAVELS,  # Merged by `ownership.contested`.
    "waiting_bytes": Fate.MEMORY,
    "measured_total": Fate.MEMORY,
    "policy": Fate.MEMORY,  # The settings of each server say it.
    "unreadable": Fate.MEMORY,
    "noted": Fate.MEMORY,
}
"""Every field of a topic."""


@dataclass(slots=True)
class Description:
    """What travels of a topic, but for its records and what sinks have staged.

    Attributes:
        open: ID of the log that is written to.
        last, watermarks: counters by publisher's name.
    """

    open: str = ""
    logs: dict[str, Log] = field(default_factory=dict)
    history: tuple[Span, ...] = ()
    merged: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    contested: dict[str, str] = field(default_factory=dict)
    watermarks: dict[int, dict[str, int]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)


def describe(topic: Topic, publishers: Sequence[str]) -> Description:
    """A topic for another store.

    Args:
        publishers: names, by their numbers in this one.
    """
    return Description(
        open=topic.open.id,
        logs=topic.logs,
        history=topic.history,
        merged=frozenset(topic.merged),
        ended=frozenset(topic.ended),
        contested=dict(topic.contested),
        watermarks={
            watermark: {publishers[p]: last for p, last in counters.items()}
            for watermark, counters in topic.watermarks.items()
        },
        last={publishers[p]: last for p, last in topic.last.items()},
        subscriptions=topic.subscriptions,
    )


def understood(name: str, said: Description, publisher: Callable[[str], int], watermark: Callable[[], int]) -> Topic:
    """A topic of another store, in the words of this one.

    Args:
        name: the topic's.
        publisher: gives the number of a publisher by its name.
        skip: gives a new number of a copy of `last`.
    """
    watermarks = {0: 0} | {theirs: watermark() for theirs in said.watermarks}

    def renumbered(spans: tuple[Span, ...]) -> tuple[Span, ...]:
        return tuple(structs.replace(span, watermark=watermarks.get(span.watermark, 0)) for span in spans)

    return Topic(
        0,
        name,
        open=said.logs[said.open],
        logs=dict(said.logs),
        watermarks={
            watermarks[n]: {publisher(p): last for p, last in counters.items()}
            for n, counters in said.watermarks.items()
        },
        history=renumbered(said.history),
        merged=set(said.merged),
        ended=set(said.ended),
        contested=dict(said.contested),
        last={publisher(p): last for p, last in said.last.items()},
        subscriptions={
            who: replace(
                subscription, cursor=replace(subscription.cursor, backlog=renumbered(subscription.cursor.backlog))
            )
            for who, subscription in said.subscriptions.items()
        },
    )
