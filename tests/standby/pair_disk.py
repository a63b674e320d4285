"""The disk of a member of `pair`: the sum of its entries, and a stream that may lose unsynced ones."""

from __future__ import annotations

from random import Random

from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.replication.entries import Entry, changes_of
from pubsub.server.topic.changes import Change, NoteKept


class State:
    """The sum of the entries: a log of (publisher, counter), and each publisher's last counter."""

    def __init__(self, entries: list[Entry]) -> None:
        self.log: list[tuple[str, int]] = []
        self.last: dict[str, int] = {}
        for entry in entries:
            for change in changes_of(entry):
                self.apply(change)

    def apply(self, change: Change) -> None:
        assert isinstance(change, NoteKept)
        assert isinstance(change.value, int)
        self.log.append((change.name, change.value))
        self.last[change.name] = change.value


Snapshot = tuple[int, list[tuple[Entry, bool]]]
"""The entries on the disk after an fsync that begins now."""


class File:
    """A stream of entries on a disk that may lose unsynced ones, `stream.Stream` in a list."""

    def __init__(self) -> None:
        self.base = ROOT
        self.entries: list[tuple[Entry, bool]] = []
        self.on_disk: list[tuple[Entry, bool]] = []
        self.kept = self.snapshots = self.newest = 0

    def snapshot(self) -> Snapshot:
        self.snapshots += 1
        return self.snapshots, list(self.entries)

    def synced(self, snapshot: Snapshot) -> None:
        """An fsync that was begun then has ended; those end in any order."""
        number, entries = snapshot
        if number > self.newest:
            self.newest, self.on_disk = number, entries

    def fit(self, store_end: EntryId) -> list[Entry]:
        ids = [self.base, *(entry.id for entry, _ in self.entries)]
        if store_end not in ids:
            self.reset(store_end)
        place = 0 if store_end not in ids else ids.index(store_end)
        staged: list[Entry] = []
        for entry, own in self.entries[place:]:
            if own:
                break
            staged.append(entry)
        del self.entries[place + len(staged) :]
        self.on_disk = list(self.entries)
        return staged

    def reset(self, base: EntryId) -> None:
        self.base, self.entries, self.on_disk, self.newest = base, [], [], self.snapshots

    def append(self, entries: list[Entry], own: bool) -> None:
        self.entries += [(entry, own) for entry in entries]

    def cut(self, end: EntryId) -> None:
        while self.entries and self.entries[-1][0].id > end:
            self.entries.pop()
        assert self.end == end

    @property
    def end(self) -> EntryId:
        return self.entries[-1][0].id if self.entries else self.base

    def trim(self) -> None:
        for _ in range(min(self.kept, len(self.entries))):
            self.base = self.entries.pop(0)[0].id
        self.newest = self.snapshots
        self.on_disk = [one for one in self.on_disk if one[0].id > self.base]

    def lose_power(self, random: Random) -> None:
        common = 0
        while common < min(len(self.entries), len(self.on_disk)) and self.entries[common] == self.on_disk[common]:
            common += 1
        if common < len(self.on_disk) and random.random() < 0.5:
            self.entries = list(self.on_disk)  # The removed entries return.
        else:
            del self.entries[random.randrange(common, len(self.entries) + 1) :]

    def holds(self, entry: EntryId) -> bool:
        return entry == self.base or any(one.id == entry for one, _ in self.entries)

    def read(self, after: EntryId, bytes_max: int, entries_max: int) -> list[Entry]:
        ids = [self.base, *(entry.id for entry, _ in self.entries)]
        place = ids.index(after) if after in ids else len(ids)
        return [entry for entry, _ in self.entries[place : place + min(entries_max, 3)]]
