"""The stream on a disk that is full or fails: all or nothing is taken, and it goes on when there is space."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from pubsub.errors import StorageError, StoreFull
from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.disk import stream as streams
from pubsub.server.standby.disk.stream import Stream
from tests.standby.test_stream import ALL, chain, entry, files, opened


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """No file can be larger: the kernel writes the fitting bytes, and then refuses."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [0, 1, 40, 63, 64, 65, 500, 1000])
def test_a_full_disk_takes_all_entries_or_none(tmp_path: Path, room: int) -> None:
    entries = chain(20, 100)
    with opened(tmp_path) as stream:
        stream.append(entries[:5], own=False)
        stream.sync()
        (path,) = files(tmp_path)
        size = path.stat().st_size
        with small_files(size + room), pytest.raises(StoreFull):
            stream.append(entries[5:], own=False)
        assert (stream.end, path.stat().st_size) == (entries[4].id, size)
        assert stream.read(entries[3].id, ALL, 9) == entries[4:5]
        stream.append(entries[5:], own=False)
        assert stream.read(ROOT, ALL, 99) == entries
    with opened(tmp_path) as stream:
        assert stream.staged == entries


def test_a_disk_without_room_for_a_further_file_takes_nothing(tmp_path: Path) -> None:
    entries = chain(30, 300)
    with opened(tmp_path, bytes_max=16_000) as stream:
        stream.append(entries[:2], own=False)
        before = files(tmp_path)
        with small_files(20), pytest.raises(StoreFull):
            stream.append(entries[2:], own=False)
        assert stream.end == entries[1].id
        assert files(tmp_path) == before  # Nothing is left over, or each try would leave one more.
        stream.append(entries[2:], own=False)
        assert stream.end == entries[-1].id


def test_a_prepared_stream_begins_on_a_full_disk(tmp_path: Path) -> None:
    entries, base = chain(3, 300), EntryId(9, 4)
    with opened(tmp_path) as stream:
        stream.append(entries[:2], own=False)
        before = files(tmp_path)
        with small_files(20), pytest.raises(StoreFull):
            stream.prepare(base)
        assert (stream.end, files(tmp_path)) == (entries[1].id, before)
        stream.append(entries[2:], own=False)
        stream.prepare(base)
        assert stream.end == entries[2].id
        with small_files(20):
            stream.reset(base)
        assert (stream.end, len(files(tmp_path))) == (base, 1)
    with opened(tmp_path, base) as stream:
        assert (stream.end, stream.staged) == (base, [])


def test_a_stream_prepared_for_another_entry_or_place_is_not_used(tmp_path: Path) -> None:
    entries = chain(3, 300)
    with opened(tmp_path) as stream:
        stream.prepare(EntryId(9, 4))
        stream.append(entries, own=False)
        stream.reset(EntryId(9, 4))
        stream.prepare(EntryId(9, 5))
        stream.reset(EntryId(9, 6))
        position = stream.position
    with opened(tmp_path, EntryId(9, 6)) as stream:
        assert (stream.end, stream.position) == (EntryId(9, 6), position)
        assert position > sum(entry.size for entry in entries)


def test_a_file_that_cannot_be_removed_is_an_error_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = chain(200, 300)

    def failing(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EIO, "the disk failed")

    with opened(tmp_path, bytes_max=16_000) as stream:
        monkeypatch.setattr(Path, "unlink", failing)
        stream.append(entries[:20], own=True)
        stream.applied(entries[19].id)
        with pytest.raises(StorageError):
            stream.append(entries[20:], own=True)


@pytest.mark.parametrize("call", ["fdatasync", "pwritev", "ftruncate", "pread"])
def test_a_failing_disk_is_an_error_and_does_not_count_as_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(streams, "RECENT_BYTES_MAX", 1)

    def fail(*_: object) -> None:
        raise OSError(errno.EIO, "the disk failed, says the test")

    calls: dict[str, Callable[[Stream], object]] = {
        "fdatasync": Stream.sync,
        "pwritev": lambda stream: stream.append([entry(4, stream.end)], own=False),
        "ftruncate": lambda stream: stream.cut(EntryId(1, 2)),
        "pread": lambda stream: stream.read(ROOT, ALL, 9),
    }
    with opened(tmp_path) as stream:
        stream.append(chain(3), own=False)
        with monkeypatch.context() as patched:
            patched.setattr(os, call, fail)
            with pytest.raises(StorageError) as caught:
                calls[call](stream)
        assert type(caught.value) is StorageError


def test_old_entries_make_room_for_new_ones_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = chain(60, 300)
    real = os.pwritev

    def write(file: int, buffers: list[bytes], offset: int) -> int:
        if sum(path.stat().st_size for path in files(tmp_path)) + sum(map(len, buffers)) > 12_000:
            raise OSError(errno.ENOSPC, "no space, says the test")
        return real(file, buffers, offset)

    with opened(tmp_path, bytes_max=16_000) as stream:
        monkeypatch.setattr(os, "pwritev", write)
        for one in entries[:40]:
            stream.append([one], own=True)
        assert stream.read(entries[30].id, ALL, 99) == entries[31:40]
        stream.pin(entries[35].id)  # A copy under way needs the later entries.
        with suppress(StoreFull):
            for one in entries[40:]:
                stream.append([one], own=True)
        assert entries[40].id < stream.end < entries[-1].id
        assert stream.holds(entries[35].id)
        assert stream.size > 9_000
