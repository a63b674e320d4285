"""The parts of a topic besides its records: one list of fields that storage, moves, merges and exports all use.

`FIELDS` has every field of `Topic`, and the places that keep it. A new field must be added there. A test then looks for
it in each place: the store's tables (`storage.loading`), the chunks (`moves.chunks`), `merge.merge`, the export's files
(`offline.export`). A `Description` is a topic in a form for another store: with publishers by name, since each store
has its own numbers for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Flag, auto
from typing import Final

from msgspec import structs

from pubsub.server.topic.compacted import Parts
from pubsub.server.topic.group import Group
from pubsub.server.topic.purges import Places
from pubsub.server.topic.removal import NOTHING, Removal
from pubsub.server.topic.settings import DEFAULTS, Settings
from pubsub.server.topic.spans import Span
from pubsub.server.topic.subscription import Subscription
from pubsub.server.topic.topic import Log, Topic


class Fate(Flag):
    """The places that keep a field."""

    MEMORY = 0
    """Each process computes its own value."""

    STORED = auto()
    """The store has it, so a new process reads it."""

    TRAVELS = auto()
    """A transfer of the topic carries it."""

    MERGED = auto()
    """`merge.merge` merges it; the rooms that keep the other travelling fields merge those."""

    EXPORTED = auto()
    """An export restores it as it was; of the other fields an export has only the effect, ranges of one new log."""


_EVERYWHERE: Final = Fate.STORED | Fate.TRAVELS | Fate.MERGED | Fate.EXPORTED
_BETWEEN_STORES: Final = Fate.STORED | Fate.TRAVELS | Fate.MERGED

FIELDS: Final[dict[str, Fate]] = {
    "number": Fate.STORED,
    "name": Fate.STORED | Fate.EXPORTED,  # The message around the chunks carries it.
    "open": _BETWEEN_STORES,
    "logs": _BETWEEN_STORES,
    "last": _EVERYWHERE,
    "subscriptions": _EVERYWHERE,
    "history": _EVERYWHERE,
    "watermarks": _BETWEEN_STORES,
    "merged": _BETWEEN_STORES,
    "stages": Fate.STORED | Fate.TRAVELS,  # `upkeep.staging` merges them. After an export the sink stages again.
    "frozen": Fate.STORED,
    "ended": _BETWEEN_STORES,
    "restored": Fate.STORED,
    "settings": _EVERYWHERE,
    "delayed": Fate.STORED | Fate.TRAVELS | Fate.EXPORTED,  # `upkeep.delays` merges it.
    "removal": _EVERYWHERE,
    "compacted": _BETWEEN_STORES,  # An export numbers the records anew.
    "order": _BETWEEN_STORES,
    "purged": _BETWEEN_STORES,
    "groups": _BETWEEN_STORES,
    "in_force": Fate.MEMORY,
    "contested": Fate.STORED | Fate.TRAVELS,  # `ownership.contested` merges it.
    "waiting_bytes": Fate.MEMORY,
    "measured_total": Fate.MEMORY,
    "superseded_since": Fate.MEMORY,
    "not_let_go": Fate.MEMORY,
    "policy": Fate.MEMORY,  # It comes from the settings of each server.
    "unreadable": Fate.MEMORY,
    "dirty": Fate.MEMORY,
}
"""Every field of a topic."""


@dataclass(slots=True)
class Description:
    """The parts of a topic that a transfer carries, except its records and the rows that sinks have staged.

    Attributes:
        open: ID of the log that is written to.
        last, watermarks: counters by publisher's name.
    """

    open: str = ""
    logs: dict[str, Log] = field(default_factory=dict)
    history: tuple[Span, ...] = ()
    merged: frozenset[str] = frozenset()
    ended: frozenset[str] = frozenset()
    settings: Settings = DEFAULTS
    removal: Removal = NOTHING
    compacted: dict[str, Parts] = field(default_factory=dict)
    order: str = ""
    purged: dict[str, Places] = field(default_factory=dict)
    contested: dict[str, str] = field(default_factory=dict)
    watermarks: dict[int, dict[str, int]] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)


def describe(topic: Topic, publishers: Sequence[str]) -> Description:
    """Describe a topic for another store.

    Args:
        publishers: names, by their numbers in this store.
    """
    return Description(
        open=topic.open.id,
        logs=topic.logs,
        history=topic.history,
        merged=frozenset(topic.merged),
        ended=frozenset(topic.ended),
        settings=topic.settings,
        removal=topic.removal,
        compacted=dict(topic.compacted),
        order=topic.order,
        purged=dict(topic.purged),
        contested=dict(topic.contested),
        watermarks={
            watermark: {publishers[p]: last for p, last in counters.items()}
            for watermark, counters in topic.watermarks.items()
        },
        last={publishers[p]: last for p, last in topic.last.items()},
        subscriptions=topic.subscriptions,
        groups=topic.groups,
    )


def understood(name: str, said: Description, publisher: Callable[[str], int], watermark: Callable[[], int]) -> Topic:
    """Make a topic of this store from the description of another store.

    Args:
        name: the topic's.
        publisher: returns the number of a publisher by its name.
        watermark: returns a new number for a copy of `last`.
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
        settings=said.settings,
        removal=said.removal,
        compacted=dict(said.compacted),
        order=said.order,
        purged=dict(said.purged),
        contested=dict(said.contested),
        last={publisher(p): last for p, last in said.last.items()},
        subscriptions={
            who: replace(
                subscription, cursor=replace(subscription.cursor, backlog=renumbered(subscription.cursor.backlog))
            )
            for who, subscription in said.subscriptions.items()
        },
        groups=dict(said.groups),
    )
