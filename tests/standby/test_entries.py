"""Entries: a store that is given those of another one becomes equal to it, and only whole ones are taken."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from pubsub.errors import DecodeError, StoreDamaged
from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.disk.applied import applied_entry, apply_entries
from pubsub.server.standby.replication.entries import Entry, changes_of, make_entry, received
from pubsub.server.storage.local import keep_port
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from pubsub.server.topic.notes import PORT
from tests.server.test_fields import CHANGES
from tests.simulation import nodes
from tests.simulation.disk import NAME
from tests.simulation.fate import draw
from tests.simulation.limits import small
from tests.simulation.simulation import Simulation
from tests.standby.twins import RecordingStore, check_memory, follow, rows

FIRST = 7_000_000
STRAYS = ("put back", "flip")
"""Faults after which a store differs from the sum of its own entries."""


@pytest.mark.slow
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.nightly) for part in range(1, 4))])
def test_a_store_with_the_applied_entries_of_another_store_equals_it(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "Store", RecordingStore)
    compared = 0
    for seed in range(FIRST + 10 * part, FIRST + 10 * part + 10):
        RecordingStore.made.clear()
        fate = draw(Random(seed))
        fate.seconds = 2.5
        fate.faults = {fault: rate for fault, rate in fate.faults.items() if fault not in STRAYS}
        simulation = Simulation(seed, fate)
        result = simulation.run()
        assert not result.violations
        with small(Random(0)):
            for node in simulation.cast.servers:
                if not node.alive:
                    continue
                entries = RecordingStore.made[f"/{node.name}"]
                disk = follow(f"{node.name}twin", node.store_id(), entries, Random(seed))
                twin = Store(Path(f"/{node.name}twin"), vfs=NAME)
                assert rows(twin) == rows(node.group_commit.store), f"seed {seed}"
                twin.close()
                assert check_memory(node, f"{node.name}twin", disk) == [], f"seed {seed}"
                node.compare()
                assert node.found == [], f"seed {seed}"
                compared += len(entries)
    assert compared > 500


ENTRY = make_entry(EntryId(3, 1), ROOT, CHANGES)

OF_ONE_DISK = [c.BatchQuarantined(1, 2), c.BatchRepaired(1, 2, 1, 1, 1, 1, 1, 1, b"body")]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store(tmp_path)
    yield store
    store.close()


def seen(number: int, previous: EntryId, count: int = 1) -> Entry:
    """An entry that gives a publisher a number."""
    return make_entry(EntryId(3, number), previous, [c.PublisherSeen(number, f"p{number}")] * count)


def test_changes_of_one_machine_are_not_sent() -> None:
    entry = make_entry(EntryId(3, 1), ROOT, [*OF_ONE_DISK, c.LogUsedUp(1), c.NoteKept(PORT, 4711)])
    assert changes_of(entry) == [c.LogUsedUp(1)]
    noted = [change for change in CHANGES if type(change) not in set(map(type, OF_ONE_DISK))]
    assert changes_of(ENTRY) == noted


def test_frames_that_are_not_the_listed_entries_are_refused() -> None:
    entries = [ENTRY, seen(2, ENTRY.id)]
    listed = [entry.listed for entry in entries]
    frames = [bytes(part) for entry in entries for part in entry.parts]
    assert received(listed, frames) == entries
    assert received([], []) == []
    flipped = bytes([frames[0][0] ^ 1]) + frames[0][1:]
    for wrong in (frames[:-1], [*frames, b"more"], frames[::-1], [flipped, *frames[1:]], [], [b"".join(frames)]):
        with pytest.raises(DecodeError):
            received(listed, wrong)


def test_bytes_under_another_id_are_no_entry() -> None:
    with pytest.raises(DecodeError):
        changes_of(ENTRY._replace(id=EntryId(3, 2)))


def test_a_store_returns_its_last_applied_entry(store: Store) -> None:
    assert applied_entry(store) == ROOT
    first, second = seen(1, ROOT), seen(5, EntryId(3, 1))
    assert apply_entries(store, [first, second]) == applied_entry(store) == (3, 5)
    keep_port(store, 4711)
    assert applied_entry(store) == (3, 5)
    assert apply_entries(store, []) == (3, 5)


@pytest.mark.parametrize("previous", [ROOT, EntryId(3, 3), EntryId(2, 1)])
def test_an_entry_that_does_not_follow_is_not_applied(store: Store, previous: EntryId) -> None:
    apply_entries(store, [seen(1, ROOT)])
    with pytest.raises(StoreDamaged):
        apply_entries(store, [seen(4, previous)])
    assert applied_entry(store) == (3, 1)
    assert store.publishers() == ["", "p1"]


def test_entries_are_applied_all_or_none(store: Store) -> None:
    with pytest.raises(StoreDamaged):  # The last one gives a number twice.
        apply_entries(store, [seen(1, ROOT), seen(2, EntryId(3, 1), count=2)])
    assert (applied_entry(store), store.publishers()) == (ROOT, [""])


def test_entries_of_both_forms_follow_one_another(store: Store) -> None:
    end, entries = ROOT, list[Entry]()
    for number in range(1, 7):
        entries.append(make_entry(EntryId(3, number), end, [c.PublisherSeen(number, f"p{number}")], 1 + number % 2))
        end = entries[-1].id
    assert {bytes(entry.parts[0][:1]) for entry in entries} == {b"{", b"\x94"}
    assert apply_entries(store, entries) == end
    assert store.publishers() == ["", *(f"p{number}" for number in range(1, 7))]


def test_a_damaged_end_of_a_store_is_detected(store: Store) -> None:
    with store.guarded():
        store.db.execute("insert into meta values ('term', 'x')")
    with pytest.raises(StoreDamaged):
        applied_entry(store)
