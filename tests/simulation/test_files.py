"""Plain files on the virtual disk: their state after a power cut, and the errors that the writing code gets."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from unittest import mock

import pytest

from pubsub.errors import StorageError, StoreFull
from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.disk import local_file, pages, segment
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.standby.replication.entries import make_entry
from pubsub.server.topic.changes import NoteKept
from tests.simulation.disk import Disk, Killed, disks
from tests.simulation.files import SYSTEM, DiskPath


@contextmanager
def simulated() -> Iterator[Disk]:
    """A disk, under `/h`, for the modules that write files."""
    known = disks()
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(known, "disks", {"h": Disk()}))
        for module in (local_file, pages, segment):
            stack.enter_context(mock.patch.object(module, "os", SYSTEM))
        yield known.disks["h"]


HERE = DiskPath("/h")


def test_a_power_cut_undoes_unsynced_names_from_the_last_one_on() -> None:
    left = set()
    for seed in range(60):
        with simulated() as disk:
            for name in ("one", "two"):
                number = SYSTEM.open(HERE / name, SYSTEM.O_RDWR | SYSTEM.O_CREAT)
                SYSTEM.pwrite(number, name.encode(), 0)
                SYSTEM.fsync(number)
                SYSTEM.close(number)
            SYSTEM.fsync(SYSTEM.open(HERE, SYSTEM.O_RDONLY))
            (HERE / "one").rename(HERE / "two")
            (HERE / "two").rename(HERE / "three")
            disk.cut_power(Random(seed))
            left.add(tuple(sorted((name, bytes(file.data)) for name, file in disk.files.items())))
    assert left == {
        (("/h/one", b"one"), ("/h/two", b"two")),
        (("/h/two", b"one"),),
        (("/h/three", b"one"),),
    }


def test_a_power_cut_keeps_synced_bytes_and_may_drop_others() -> None:
    left = set()
    for seed in range(40):
        with simulated() as disk:
            number = SYSTEM.open(HERE / "one", SYSTEM.O_RDWR | SYSTEM.O_CREAT)
            SYSTEM.pwrite(number, b"synced", 0)
            SYSTEM.fsync(number)
            SYSTEM.fsync(SYSTEM.open(HERE, SYSTEM.O_RDONLY))
            SYSTEM.pwritev(number, [b"; ", b"not"], 6)
            disk.cut_power(Random(seed))
            left.add(bytes(disk.files["/h/one"].data))
    assert left == {b"synced", b"synced; not"}


def test_the_local_file_of_a_member_is_complete_after_a_kill_at_any_access() -> None:
    for access in range(30):
        with simulated() as disk:
            LocalFile(HERE).make("1" * 16)
            disk.kill_in = access
            try:
                LocalFile(HERE).keep(registered=True)
            except Killed:
                disk.cut_power(Random(access))
            local = LocalFile(HERE).local
            assert local is not None
            assert local.member == "1" * 16


def test_the_errors_of_a_full_disk_and_of_a_failing_disk_differ() -> None:
    with simulated() as disk:
        here = Stream(HERE / "stream", ROOT)
        entry = make_entry(EntryId(1, 1), ROOT, [NoteKept("n", "x" * 100)])
        disk.full = True
        with pytest.raises(StoreFull):
            here.append([entry], own=False)
        disk.full = False
        here.append([entry], own=False)
        disk.fail_in = 0
        with pytest.raises(StorageError, match="synced"):
            here.sync()
        assert disk.troubled


def test_a_process_that_is_gone_writes_nothing_more() -> None:
    with simulated() as disk:
        number = SYSTEM.open(HERE / "one", SYSTEM.O_RDWR | SYSTEM.O_CREAT)
        disk.end_process()
        with pytest.raises(Killed):
            SYSTEM.pwrite(number, b"x", 0)
        with pytest.raises(FileNotFoundError) as found:
            SYSTEM.open(HERE / "two", SYSTEM.O_RDWR)
        assert found.value.errno == errno.ENOENT
