"""What a proxy remembers beyond its end: values that the routing table makes and the routes file keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pubsub.protocol.register import View


@dataclass(frozen=True, slots=True)
class StoreRow:
    """What the routes file keeps of a store.

    Attributes:
        store: its ID.
        server: the ID of the server that brought it last.
        incarnation, change: of the highest announcement that was accepted.
        address: where that server was reached by other servers.
        overflow: whether it holds topics that are not in the table, because topics_max was reached.
        heard: whether it has ever said all it holds; else it was only heard of.
    """

    store: str
    server: str
    incarnation: int
    change: int
    address: str
    overflow: bool = False
    heard: bool = True


@dataclass(frozen=True, slots=True)
class GoneStore:
    """What the routes file keeps of a store that is in the roster no more (see `roster`).

    Attributes:
        incarnation: up to which it counts as gone.
        here: whether only this proxy forgot it, because servers_max was reached: nobody else is told.
    """

    store: str
    incarnation: int
    here: bool = False


@dataclass(frozen=True, slots=True)
class AbandonedLog:
    """A log that operators gave up, with the holder whose it was: it must not come back.

    Attributes:
        server, store, address: the holder's; store and address are "" where they were not known.
    """

    topic: str
    log: str
    server: str
    store: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class RegisterRow:
    """What the routes file keeps of a store's register (see `register`).

    Attributes:
        promised: no lower ballot is accepted any more.
        ballot, view: what was accepted last.
        server: the ID of the server that brought the row. With keys nobody else asks about this store, or brings it.
    """

    store: str
    promised: int
    ballot: int
    view: View
    server: str = ""


@dataclass(slots=True)
class RouteChanges:
    """What the routes file does not have yet: the latest value of each row, None where it is to be deleted."""

    stores: dict[str, StoreRow | None] = field(default_factory=dict)
    holders: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """(topic, store) to log."""
    given: dict[tuple[str, str], int] = field(default_factory=dict)
    """Of the same: the change number after the merge, where it is a holder on the giver's word; else 0."""
    abandoned: dict[tuple[str, str], AbandonedLog] = field(default_factory=dict)
    """By (topic, log); never deleted."""
    gone: dict[str, GoneStore | None] = field(default_factory=dict)
    registers: dict[str, RegisterRow] = field(default_factory=dict)
    """Never deleted: a proxy that forgot what it promised has no vote."""

    def __bool__(self) -> bool:
        return (
            bool(self.stores) or bool(self.holders) or bool(self.abandoned) or bool(self.gone) or bool(self.registers)
        )

    def clear(self) -> None:
        """All of it was written."""
        self.stores.clear()
        self.holders.clear()
        self.given.clear()
        self.abandoned.clear()
        self.gone.clear()
        self.registers.clear()


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a routes file holds.

    Attributes:
        holders: (topic, store, log).
        given: (topic, store, change number after the merge) of those that are holders on a giver's word.
        identity: the file's own.
    """

    stores: Sequence[StoreRow] = ()
    holders: Sequence[tuple[str, str, str]] = ()
    abandoned: Sequence[AbandonedLog] = ()
    gone: Sequence[GoneStore] = ()
    registers: Sequence[RegisterRow] = ()
    given: Sequence[tuple[str, str, int]] = ()
    identity: str = field(default="0" * 16, compare=False)
