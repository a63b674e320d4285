"""What a query wrote is on the disk before its records are acknowledged."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import ConfigurationError, StorageError
from pubsub.spark import rollup
from pubsub.spark.options import source_options
from pubsub.spark.pipelines import Place, source
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


def names(archive: Path, synced: list[Path]) -> list[str]:
    found = [os.path.relpath(path, archive) for path in synced]
    synced.clear()
    return sorted(found)


def test_files_and_the_directories_of_their_names_are_synced_if_they_changed(archive: Path) -> None:
    synced: list[Path] = []
    later = time.time() + 100 + MARGIN_SECONDS
    directories = Directories([str(archive), str(archive / "none")], lambda: later, synced.append)
    directories.sync()
    assert synced.index(archive / "topic=t" / "part") < synced.index(archive / "topic=t")
    assert names(archive, synced) == [".", "log", "topic=t", "topic=t/part"]
    directories.sync()
    assert names(archive, synced) == []
    os.utime(archive / "topic=t" / "part", (later, later))
    directories.sync()
    assert names(archive, synced) == ["topic=t/part"]


def test_a_renamed_file_counts_as_changed_although_it_was_written_before(archive: Path) -> None:
    synced: list[Path] = []
    directories = Directories([str(archive)], lambda: time.time() + MARGIN_SECONDS - 5, synced.append)
    directories.sync()
    synced.clear()
    os.utime(archive / "log", (0, 0))  # The second time of a file, that of its name, is the present one.
    directories.sync()
    assert "log" in names(archive, synced)


def test_a_disk_that_fails_is_an_error_and_everything_is_synced_again(archive: Path) -> None:
    synced: list[Path] = []
    broken = [True]

    def sync(path: Path) -> None:
        if broken:
            raise OSError(broken.pop() and errno.EIO, "Input/output error")
        synced.append(path)

    directories = Directories([str(archive)], lambda: time.time() + 1000, sync)
    with pytest.raises(StorageError, match="cannot be written to the disk: Input/output error"):
        directories.sync()
    directories.sync()
    assert names(archive, synced) == [".", "log", "topic=t", "topic=t/part"]


@pytest.mark.parametrize("error", [FileNotFoundError, PermissionError])
def test_a_file_that_is_gone_or_belongs_to_another_user_is_left_out(archive: Path, error: type[OSError]) -> None:
    synced: list[Path] = []

    def sync(path: Path) -> None:
        if path.name == "log":
            raise error(errno.EACCES, "not for you")
        synced.append(path)

    Directories([str(archive)], sync=sync).sync()
    assert names(archive, synced) == [".", "topic=t", "topic=t/part"]


def test_real_files_are_synced(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(os, "fsync", lambda file: synced.append(Path(os.readlink(f"/proc/self/fd/{file}"))))
    Directories([str(archive)]).sync()
    assert names(archive, synced) == [".", "log", "topic=t", "topic=t/part"]


def test_nothing_is_acknowledged_before_the_sync(broker: Broker, archive: Path) -> None:
    broker.put("t", numbers(0, 10))
    reader = stream(broker, syncDirectories=str(archive))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    before: list[str] = []

    def fails(path: Path) -> None:
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


class Reader:
    """Records the options of a stream; every other attribute and call is itself."""

    defaultParallelism = 2  # noqa: N815 - Spark's name

    def __init__(self) -> None:
        self.given: dict[str, str] = {}

    def __getattr__(self, name: str) -> Reader:
        return self

    def __call__(self, *_: object, **given: str) -> Reader:
        self.given |= given
        return self


def test_a_pipeline_names_its_local_directories_to_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for written, named in (
        (("/lake", "check"), ["/lake", str(tmp_path / "check")]),
        (("s3a://bucket/lake", "/check"), ["/check"]),
        (("", "hdfs://host/check"), None),
    ):
        reader: Any = Reader()
        source(reader, Place(proxies=("tcp://127.0.0.1:1",)), ["t"], "n", 0, written=written)
        assert json.loads(reader.given.get("syncDirectories", "null")) == named


def test_a_rollup_names_its_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    reader: Any = Reader()
    named = []

    def sourced(*given: Any) -> Any:
        named.append(given[-1])
        raise InterruptedError

    monkeypatch.setattr(rollup, "source", sourced)
    what, when = rollup.Rollup(window="1h", by=()), {"name": "n", "checkpoint": "/check", "once": True, "seconds": 1.0}
    for start, to in ((rollup.to_directory, "/counts"), (rollup.to_topic, "counts")):
        with pytest.raises(InterruptedError):
            start(reader, Place(proxies=()), "t", to, what, records=0, **when)  # type: ignore[arg-type]
    assert named == [("/counts", "/check"), ("/check",)]
