"""Directories of this machine, and those that Hadoop reaches: the same answers from both."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pubsub.errors import StorageError
from pubsub.spark.storage import Folder, Remote, open_storage

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_written_files_are_read_listed_and_removed(session: Any, tmp_path: Path, scheme: str) -> None:
    storage = open_storage(session, f"{scheme}{tmp_path}/a b")
    assert isinstance(storage, Remote if scheme else Folder)
    assert (storage.has(), storage.has("x"), storage.names()) == (False, False, [])
    storage.write("x", "é\n")
    (tmp_path / "a b" / "topic=a%2Fb").mkdir()
    (tmp_path / "a b" / "topic=a%2Fb" / "part").write_text("")
    assert (storage.has(), storage.has("x"), storage.read("x")) == (True, True, "é\n")
    assert [name for name in storage.names() if not name.startswith(".")] == ["topic=a%2Fb", "x"]
    found = {name: at for name, at in storage.files() if not name.startswith(".")}
    assert found.keys() == {"topic=a%2Fb/part", "x"}
    written = (tmp_path / "a b" / "x").stat().st_mtime
    assert abs(found["x"] / 1000 - written) < 1.0
    storage.remove("x")
    assert not storage.has("x")


def test_a_file_gets_its_name_only_after_it_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut leaves a plan that is empty, or none of what was put already."""
    synced: list[tuple[bool, bool]] = []

    def fsync(file: int) -> None:
        there = (tmp_path / "journal" / "plan").exists()
        synced.append((os.path.isdir(f"/proc/self/fd/{file}"), there))

    monkeypatch.setattr(os, "fsync", fsync)
    Folder(f"{tmp_path}/journal").write("plan", "all of it")
    assert synced == [(False, False), (True, True)]


def test_an_unwritable_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        Folder(f"{tmp_path}/file/below").write("x", "")
