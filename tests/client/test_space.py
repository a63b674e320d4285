"""A client on a small or full disk: it continues as soon as it can, and never blocks for lack of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import pubsub.client.storage.space
from pubsub.client.core import changes as c
from pubsub.client.storage.space import AMPLE_BYTES, RESERVE_BYTES, Space
from pubsub.client.storage.store import CHECKPOINT_PAGES, PAGE_BYTES, Store
from pubsub.errors import StoreFull

MIB = 1 << 20


class SmallDisk(apsw.VFS):
    """The operating system's file system, with a limit on the bytes of all files in one folder.

    Attributes:
        size: the limit.
        others: bytes that other files take of it.
    """

    def __init__(self, folder: Path, size: int) -> None:
        self.folder, self.size, self.others = folder, size, 0
        self.name = f"small {id(self)}"
        super().__init__(self.name, "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return SmallFile(self, name, flags)

    def free(self) -> int:
        return self.size - self.others - sum(path.stat().st_size for path in self.folder.iterdir())


class SmallFile(apsw.VFSFile):
    """A file of this file system."""

    def __init__(self, disk: SmallDisk, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        grows = offset + len(data) - self.xFileSize()
        if grows > 0 and grows > self._disk.free():
            raise apsw.FullError("the test's disk is full")
        super().xWrite(data, offset)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallDisk]:
    """A disk of 4 MiB for the clients of this process."""
    made = SmallDisk(tmp_path, 4 * MIB)
    monkeypatch.setattr(pubsub.client.storage.space, "free_bytes", lambda _: made.free())
    yield made
    made.unregister()


def row(counter: int) -> c.RowAdded:
    return c.RowAdded("t", counter, counter - 1, 1, 0, 7, b"x" * 3_000)


def wal(store: Store) -> int:
    return Path(f"{store.path}-wal").stat().st_size


def test_the_log_of_a_client_on_a_small_disk_stays_small(disk: SmallDisk) -> None:
    store = Store(disk.folder / "alice.db")
    for counter in range(1, 3_000):  # More than ten times the disk goes through it.
        store.commit([row(counter)])
        store.commit([c.RowsRemoved([counter])])
    assert wal(store) <= RESERVE_BYTES + 80 * PAGE_BYTES
    assert disk.free() > MIB
    store.close()


def test_the_log_of_a_client_on_an_ample_disk_is_moved_seldom(tmp_path: Path) -> None:
    assert Space(tmp_path / "alice.db", CHECKPOINT_PAGES * PAGE_BYTES).log_bytes_max() in {
        CHECKPOINT_PAGES * PAGE_BYTES,
        RESERVE_BYTES,  # where the machine's own disk is nearly full
    }
    assert AMPLE_BYTES >= 4 * CHECKPOINT_PAGES * PAGE_BYTES


def fill(store: Store) -> int:
    """Put until there is no space; return the number of puts."""
    counter = 0
    while True:
        try:
            store.commit([row(counter + 1)])
        except StoreFull:
            return counter
        counter += 1


def test_a_client_that_filled_its_disk_continues_after_deliveries(disk: SmallDisk) -> None:
    store = Store(disk.folder / "alice.db")
    taken = fill(store)
    assert taken * 3_000 > MIB
    for _ in range(3):
        with pytest.raises(StoreFull):
            store.commit([row(taken + 1)])
    assert [found[0] for found in store.rows()] == list(range(1, taken + 1))
    store.commit([c.RowsRemoved(list(range(1, taken)))])
    assert not store.failed
    for counter in range(taken + 1, taken + 100):
        store.commit([row(counter)])
    store.close()


def test_a_client_whose_disk_others_filled_continues_in_its_own_space(disk: SmallDisk) -> None:
    store = Store(disk.folder / "alice.db")
    for counter in range(1, 100):
        store.commit([row(counter)])
    disk.others += disk.free()
    store.commit([c.RowsRemoved(list(range(1, 90)))])
    for counter in range(100, 150):
        store.commit([row(counter)])
    assert len(list(store.rows())) == 60
    store.close()


def test_a_transaction_of_the_application_succeeds_at_its_next_try(disk: SmallDisk) -> None:
    store = Store(disk.folder / "alice.db")
    for counter in range(1, 50):
        store.commit([row(counter)])
    disk.others += disk.free()

    def remove() -> None:
        with store.transaction(fsync=True):
            store.apply([c.RowsRemoved(list(range(1, 40)))])

    with pytest.raises(StoreFull):
        remove()
    assert store.has_room
    remove()
    assert len(list(store.rows())) == 10
    store.close()


def test_a_client_that_died_on_a_full_disk_opens_there(disk: SmallDisk) -> None:
    store = Store(disk.folder / "alice.db", "boot")
    for counter in range(1, 100):
        store.commit([row(counter)])
    disk.others += disk.free()
    store.db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    store.db.close()
    store = Store(disk.folder / "alice.db", "boot")
    assert len(list(store.rows())) == 99
    store.commit([c.RowsRemoved(list(range(1, 90)))])
    store.close()


def test_a_client_continues_when_there_is_space_again(disk: SmallDisk) -> None:
    store = Store(disk.folder / "alice.db")
    taken = fill(store)
    disk.size += 8 * MIB
    for counter in range(taken + 1, taken + 500):
        store.commit([row(counter)])
    assert (disk.folder / "alice.reserve").stat().st_size == RESERVE_BYTES
    store.close()
    assert not (disk.folder / "alice.reserve").exists()


def test_a_partial_reserve_left_by_a_kill_is_completed(disk: SmallDisk) -> None:
    reserve = disk.folder / "alice.reserve"
    reserve.touch()
    store = Store(disk.folder / "alice.db")
    assert reserve.stat().st_size == RESERVE_BYTES
    store.close()
