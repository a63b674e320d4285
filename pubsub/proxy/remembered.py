"""Values that a proxy keeps across a restart: the routing table makes them, and the routes file stores them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pubsub.protocol.deletion_table import Deletion
from pubsub.protocol.pattern_table import Key, PatternRow
from pubsub.protocol.register import View


@dataclass(frozen=True, slots=True)
class StoreRow:
    """The routes file's row of a store.

    Attributes:
        server: the ID of the last server with this store.
        incarnation, change: of the highest announcement that was accepted.
        address: the address of that server for other servers.
        overflow: whether it holds topics that did not fit into the table (topics_max).
        announced: whether its full announcement was ever accepted; False if only other servers named it.
        defaults: the digest of its defaults of topics' settings; "" for none.
    """

    store: str
    server: str
    incarnation: int
    change: int
    address: str
    overflow: bool = False
    announced: bool = True
    defaults: str = ""


@dataclass(frozen=True, slots=True)
class RemovedStore:
    """The routes file's row of a store that was removed from the store directory (see `store_directory`).

    Attributes:
        incarnation: the highest incarnation that counts as removed.
        here: True if only this proxy removed it, because servers_max was reached. Such a row is not reported to
            servers.
    """

    store: str
    incarnation: int
    here: bool = False


@dataclass(frozen=True, slots=True)
class AbandonedLog:
    """A log that operators gave up, with its holder. It must not come back.

    Attributes:
        server, store, address: of the holder; store and address are "" if unknown.
    """

    topic: str
    log: str
    server: str
    store: str
    address: str = ""


@dataclass(frozen=True, slots=True)
class RegisterRow:
    """The routes file's row of a store's register (see `register`).

    Attributes:
        promised: the highest promised ballot; lower ones are not accepted.
        ballot, view: the last ones accepted.
        server: the ID of the server that brought the row. With keys only that server may ask about this store or
            replace the row.
    """

    store: str
    promised: int
    ballot: int
    view: View
    server: str = ""


@dataclass(slots=True)
class RouteChanges:
    """Changes not written to the routes file yet: the latest value of each row, None for a deleted one."""

    stores: dict[str, StoreRow | None] = field(default_factory=dict)
    holders: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """(topic, store) to log."""
    given: dict[tuple[str, str], int] = field(default_factory=dict)
    """(topic, store) to the change number after the merge if only a giver reported the holder, otherwise to 0."""
    abandoned: dict[tuple[str, str], AbandonedLog] = field(default_factory=dict)
    """By (topic, log); never deleted."""
    gone: dict[str, RemovedStore | None] = field(default_factory=dict)
    registers: dict[str, RegisterRow] = field(default_factory=dict)
    """Never deleted, because a proxy that forgot its promises has no vote."""
    patterns: dict[Key, PatternRow] = field(default_factory=dict)
    """Never deleted, because an ended pattern stays as a number."""
    deletions: dict[str, int] = field(default_factory=dict)
    """By topic the number of its last deletion; never removed."""

    def __bool__(self) -> bool:
        rows = self.stores, self.holders, self.abandoned, self.gone, self.registers, self.patterns, self.deletions
        return any(rows)

    def clear(self) -> None:
        self.stores.clear()
        self.holders.clear()
        self.given.clear()
        self.abandoned.clear()
        self.gone.clear()
        self.registers.clear()
        self.patterns.clear()
        self.deletions.clear()


@dataclass(frozen=True, slots=True)
class Remembered:
    """The contents of a routes file.

    Attributes:
        holders: (topic, store, log).
        given: (topic, store, change number after the merge) of holders that only a giver has reported.
        identity: the random identity of the file.
    """

    stores: Sequence[StoreRow] = ()
    holders: Sequence[tuple[str, str, str]] = ()
    abandoned: Sequence[AbandonedLog] = ()
    gone: Sequence[RemovedStore] = ()
    registers: Sequence[RegisterRow] = ()
    given: Sequence[tuple[str, str, int]] = ()
    patterns: Sequence[PatternRow] = ()
    deletions: Sequence[Deletion] = ()
    identity: str = field(default="0" * 16, compare=False)
