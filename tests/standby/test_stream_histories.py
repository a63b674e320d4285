"""The stream through random histories: restarts, power cuts, entries that are taken back, and one's own."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.disk import stream as streams
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.standby.replication.entries import Entry
from tests.standby.test_stream import entry, files


class Modelled:
    """A stream and its required content, through restarts and power cuts."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.directory, self.random = directory, random
        self.entries: list[Entry] = []
        self.synced = self.applied = 0
        self.number = 0
        self.own_from = 10**9
        """From which entry on they are this member's own, as primary."""
        self.stream = self.open()

    def open(self) -> Stream:
        return Stream(self.directory, self.at(self.applied), bytes_max=30_000)

    def at(self, count: int) -> EntryId:
        return self.entries[count - 1].id if count else ROOT

    def append(self) -> None:
        if sum(one.size for one in self.entries[self.applied :]) > 8000:
            return
        own = self.random.random() < 0.2 and self.applied == len(self.entries)
        some = []
        for _ in range(self.random.choice((1, 1, 1, 3, 8))):
            self.number += 1
            size = self.random.choice((1, 50, 50, 500, 3000))
            some.append(entry(self.number, some[-1].id if some else self.at(len(self.entries)), size))
        if own:
            self.own_from = min(self.own_from, len(self.entries))
        self.stream.append(some, own=own or self.own_from < len(self.entries))
        self.entries += some

    def sync(self) -> None:
        assert self.stream.sync() == self.at(len(self.entries))
        self.synced = len(self.entries)

    def apply(self) -> None:
        if self.own_from < len(self.entries):
            self.applied = len(self.entries)
            self.own_from = 10**9
        elif self.synced > self.applied:
            self.applied = self.random.randrange(self.applied, self.synced + 1)
        self.stream.pin(self.at(self.applied))

    def cut(self) -> None:
        low = max(self.applied, len(self.entries) - 3)
        keep = self.random.randrange(low, len(self.entries) + 1)
        self.stream.cut(self.at(keep))
        del self.entries[keep:]
        if keep <= self.own_from:
            self.own_from = 10**9
        self.synced = min(self.synced, keep)

    def restart(self) -> None:
        """The process is killed; the host may lose power, and any part of the unsynced entries."""
        position, synced_position = self.stream.position, self.stream._synced
        newest = self.stream._segments[-1]
        self.stream.close()
        kept = len(self.entries)
        if self.random.random() < 0.6 and synced_position > newest.start:
            data = bytearray(newest.path.read_bytes())
            low = synced_position - newest.start
            del data[self.random.randrange(low, len(data) + 1) :]
            for _ in range(self.random.choice((0, 0, 1, 2))):
                if len(data) > low:
                    begin = self.random.randrange(low, len(data))
                    stop = self.random.randrange(begin, len(data) + 1)
                    data[begin:stop] = bytes(stop - begin)
            newest.path.write_bytes(data)
            kept = -1
        assert position >= synced_position
        self.stream = self.open()
        staged = self.stream.staged
        complete = [one for place, one in enumerate(self.entries) if place < self.own_from]
        assert staged == complete[self.applied : self.applied + len(staged)]
        count = self.applied + len(staged)
        assert count >= min(self.synced, self.own_from)
        if kept >= 0:
            assert count == max(self.applied, min(kept, self.own_from))
        del self.entries[count:]
        self.own_from = 10**9
        self.synced = len(self.entries)

    def look(self) -> None:
        """The entries that it reports are the written ones, in order and to the end."""
        place = self.random.randrange(len(self.entries) + 1)
        if place >= self.applied:
            assert self.stream.holds(self.at(place))
        if self.stream.holds(self.at(place)):
            found, after = [], self.at(place)
            while some := self.stream.read(after, 5000, 7):
                found += some
                after = some[-1].id
            assert found == self.entries[place:]
        assert self.stream.end == self.at(len(self.entries))
        assert sum(path.stat().st_size for path in files(self.directory)) <= 110_000


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_random_histories_of_streams_keep_confirmed_entries(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "RECENT_BYTES_MAX", 4000)
    random = Random(seed)
    one = Modelled(tmp_path, random)
    for _ in range(120):
        random.choice((one.append, one.append, one.append, one.sync, one.apply, one.cut, one.restart, one.look))()
    one.stream.close()
