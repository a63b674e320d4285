"""Stores that write an entry with each commit, and a second store to which these entries are applied."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

from pubsub.protocol.batch import Buffer
from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.disk.applied import applied_entry, apply_entries, keep_entry
from pubsub.server.standby.replication.entries import Entry, make_entry, received, travels
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import Change
from tests.simulation import memory
from tests.simulation.disk import NAME, Disk, disks

LOCAL = {"incarnation", "server", "note port"}
"""The local rows of a member (`storage.local`)."""


class RecordingStore(Store):
    """A store with one entry for each transaction, as a primary's; the stores are kept by directory."""

    made: ClassVar[dict[str, list[Entry]]] = {}

    def __init__(self, directory: Path, **more: Any) -> None:
        super().__init__(directory, **more)
        entries = self.made.setdefault(str(directory), [])
        self.end = applied_entry(self)
        # Entries uncommitted at the end of the process never existed.
        while entries and entries[-1].id != self.end:
            entries.pop()
        self._number = 0
        self._changes: list[Change] = []

    def begin(self) -> None:
        self._changes = []
        super().begin()

    def apply(self, changes: Any) -> None:
        super().apply(changes)
        self._changes += changes

    def commit(self) -> None:
        if any(map(travels, self._changes)):
            self._number += 1
            entry = make_entry(EntryId(self.incarnation(), self._number), self.end, self._changes)
            keep_entry(self, entry.id)
            entries = self.made[str(self.directory)]
            while entries and entries[-1].id > self.end:  # A commit that found the disk full: it was taken back.
                entries.pop()
            entries.append(entry)
            super().commit()
            self.end = entry.id
        else:
            super().commit()


def rows(store: Store, but: set[str] = LOCAL) -> list[Any]:
    """Every row of a store, except the rows of one machine alone."""
    tables = [name for (name,) in store.db.execute("select name from sqlite_schema where type = 'table' order by name")]
    every = [(table, *row) for table in tables for row in store.db.execute(f"select * from {table}")]
    return sorted((row for row in every if not (row[0] == "meta" and row[1] in but)), key=repr)


def sent(entries: list[Entry]) -> list[Entry]:
    """Entries as they arrive: each part a frame."""
    frames: list[Buffer] = [bytes(part) for entry in entries for part in entry.parts]
    return received([entry.listed for entry in entries], frames)


def follow(name: str, store_id: str, entries: list[Entry], random: Random) -> Disk:
    """The disk of a copy `/NAME` of a store when it was new, to which all entries were applied, a few at a time."""
    disk = disks().disks[name] = Disk()
    store = Store(Path(f"/{name}"), vfs=NAME)
    with store.guarded():
        store.db.execute("update meta set value = ? where name = 'store'", (store_id,))
    rest = sent(entries)
    while rest:
        few = random.choice((1, 2, 10, 100))
        assert apply_entries(store, rest[:few]) == rest[:few][-1].id
        rest = rest[few:]
    assert applied_entry(store) == (entries[-1].id if entries else ROOT)
    store.close()
    return disk


def check_memory(node: Any, name: str, disk: Disk) -> list[str]:
    """The differences between a running primary's memory and a process that loads the store `/NAME` of this disk."""
    host = SimpleNamespace(disk=disk, monotonic=node.host.monotonic, wall=node.host.wall)
    other = SimpleNamespace(
        name=name, host=host, settings=node.settings, group_commit=node.group_commit, core=node.core
    )
    return memory.check(other)  # type: ignore[arg-type]
