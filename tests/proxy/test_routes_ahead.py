"""The routes file on a full disk: it continues in its reserved space."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest

from pubsub.errors import StoreFull
from pubsub.proxy.remembered import RouteChanges, StoreRow
from pubsub.proxy.routes_file import FILE_NAME, RoutesStore

ROW = StoreRow("a" * 16, "s1", 3, 9, "tcp://s1", overflow=False)


class FullDisk(apsw.VFS):
    """The machine's file system, on which no file grows while it is full."""

    def __init__(self) -> None:
        self.full = False
        super().__init__("full disk", "")

    def xOpen(self, name: Any, flags: list[int]) -> _File:  # noqa: N802 - apsw's name
        return _File(self, name, flags)


class _File(apsw.VFSFile):
    def __init__(self, disk: FullDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        if self._disk.full and offset + len(data) > self.xFileSize():
            raise apsw.FullError("no space, says the test")
        super().xWrite(data, offset)


@pytest.fixture
def disk() -> Iterator[FullDisk]:
    made = FullDisk()
    yield made
    made.unregister()


def opened(directory: Path) -> RoutesStore:
    return RoutesStore(directory, vfs="full disk", ahead=True)


def topics(first: int, count: int) -> RouteChanges:
    held = {(f"topic-{number}", ROW.store): f"{number:016x}" for number in range(first, first + count)}
    return RouteChanges({ROW.store: replace(ROW, change=first)}, dict(held))


def test_a_proxy_with_a_full_disk_continues_in_its_reserve(disk: FullDisk, tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.write(topics(0, 10))
    disk.full = True
    for number in range(1, 1_201):  # Far more than its log holds at once.
        store.write(RouteChanges({ROW.store: replace(ROW, change=number)}))
    store.write(topics(10, 1_000))
    store.close()
    store = opened(tmp_path)  # On a disk that is still full.
    found = store.load()
    assert (found.stores[0].change, len(found.holders)) == (10, 1_010)
    store.write(topics(1_010, 10))
    store.close()


def test_a_proxy_that_used_up_its_reserve_says_so_and_continues_with_space(disk: FullDisk, tmp_path: Path) -> None:
    store = opened(tmp_path)
    disk.full = True
    with pytest.raises(StoreFull):
        store.write(topics(0, 60_000))
    store.write(topics(0, 10))
    disk.full = False
    store.write(topics(10, 10))
    assert len(store.load().holders) == 20
    store.close()


def test_a_proxy_begins_on_a_disk_that_has_no_space_ahead(
    disk: FullDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RoutesStore(tmp_path, vfs="full disk", ahead=False).close()
    with monkeypatch.context() as patched:
        patched.setattr(RoutesStore, "_grow_log", lambda self, db: (_ for _ in ()).throw(apsw.FullError("no")))
        store = opened(tmp_path)
    store.write(topics(0, 10))
    store.close()


def test_a_reserved_log_is_not_used_for_a_replaced_file(disk: FullDisk, tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old = opened(tmp_path / "old")
    old.write(topics(0, 10))
    old.close()
    new = opened(tmp_path / "new")
    new.write(topics(0, 3))
    new.close()
    (tmp_path / "old" / FILE_NAME).write_bytes((tmp_path / "new" / FILE_NAME).read_bytes())
    store = opened(tmp_path / "old")
    assert len(store.load().holders) == 3
    store.close()
