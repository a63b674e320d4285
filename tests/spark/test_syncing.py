"""What a query wrote is on the disk before its records are acknowledged."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from pubsub.errors import ConfigurationError, StorageError
from pubsub.spark.options import source_options
from pubsub.spark.syncing import MARGIN_SECONDS, Directories
from tests.spark.broker import Broker
from tests.spark.test_source import ALL, numbers, stands, stream


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    made = tmp_path / "archive"
    (made / "topic=t").mkdir(parents=True)
    (made / "topic=t" / "part").write_text("rows")
    (made / "log").write_text("part")
    return made


def names(archive: Path, synced: list[str]) -> list[str]:
    found = [os.path.relpath(path, archive) for path in synced]
    synced.clear()
    return sorted(found)


def test_files_and_the_directories_of_their_names_are_synced_if_they_changed(archive: Path) -> None:
    synced: list[str] = []
    later = time.time() + 100 + MARGIN_SECONDS
    directories = Directories([str(archive), str(archive / "none")], lambda: later, synced.append)
    directories.sync()
    assert synced.index(str(archive / "topic=t" / "part")) < synced.index(str(archive / "topic=t"))
    assert names(archive, synced) == [".", "log", "topic=t", "topic=t/part"]
    directories.sync()
    assert names(archive, synced) == []
    os.utime(archive / "topic=t" / "part", (later, later))
    directories.sync()
    assert names(archive, synced) == ["topic=t/part"]


def test_a_renamed_file_counts_as_changed_although_it_was_written_before(archive: Path) -> None:
    synced: list[str] = []
    directories = Directories([str(archive)], lambda: time.time() + MARGIN_SECONDS - 5, synced.append)
    directories.sync()
    synced.clear()
    os.utime(archive / "log", (0, 0))  # The second time of a file, that of its name, is the present one.
    directories.sync()
    assert "log" in names(archive, synced)


def test_a_disk_that_fails_is_an_error_and_everything_is_synced_again(archive: Path) -> None:
    synced: list[str] = []
    broken = [True]

    def sync(path: str) -> None:
        if broken:
            raise OSError(broken.pop() and errno.EIO, "Input/output error")
        synced.append(path)

    directories = Directories([str(archive)], lambda: time.time() + 1000, sync)
    with pytest.raises(StorageError, match="cannot be written to the disk: Input/output error"):
        directories.sync()
    directories.sync()
    assert names(archive, synced) == [".", "log", "topic=t", "topic=t/part"]


def test_real_files_are_synced(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}")))
    Directories([str(archive)]).sync()
    assert names(archive, synced) == [".", "log", "topic=t", "topic=t/part"]


def test_nothing_is_acknowledged_before_the_sync(broker: Broker, archive: Path) -> None:
    broker.put("t", numbers(0, 10))
    reader = stream(broker, syncDirectories=str(archive))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    before: list[str] = []

    def fails(path: str) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for name, sync in (("fails", fails), ("works", lambda path: before.append(stands(broker)))):
        reader._written = Directories(reader.options.sync_directories, sync=sync)
        if name == "fails":
            with pytest.raises(StorageError):
                reader.commit(end)
            assert stands(broker) == start["t"]
        else:
            reader.commit(end)
    assert set(before) == {start["t"]}
    assert stands(broker) == end["t"]
    before.clear()
    reader.commit(end)
    assert before == [], "what is acknowledged is not synced again"


@pytest.mark.parametrize("given", ["relative", '["/a", "b"]', '["/a"', "[1]"])
def test_a_path_that_is_not_absolute_is_refused(given: str) -> None:
    options = {"subscribe": "t", "subscription": "x", "syncDirectories": given}
    with pytest.raises(ConfigurationError, match="give an absolute path, or a JSON list of these"):
        source_options(options, stream=True)


def test_a_path_and_a_list_of_paths_are_taken_by_a_stream_only() -> None:
    for given, paths in (("/a,b", ("/a,b",)), ('["/a", "/b"]', ("/a", "/b")), ("", ())):
        options = {"subscribe": "t", "subscription": "x", "syncDirectories": given}
        assert source_options(options, stream=True).sync_directories == paths
    with pytest.raises(ConfigurationError, match="syncDirectories is for streams only"):
        source_options({"subscribe": "t", "syncDirectories": "/a"}, stream=False)
