"""Damaged state files: opening says so, or everything works; and a second opening leaves the lock to the first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pubsub.client.storage.store import Store
from pubsub.errors import StoreDamaged, StoreInUse
from pubsub.gateway.registry import Registry
from pubsub.proxy.routes_file import RoutesStore
from tests.client.damages import FILE, LOG, PAGE_BYTES, Made, opened, tried, used, workshop


@pytest.fixture(scope="module")
def bench() -> Iterator[tuple[Made, Path]]:
    with workshop() as made:
        yield made


@pytest.mark.parametrize("first", [0, 228])
def test_what_opening_says_of_a_damaged_state_is_what_the_client_does(bench: tuple[Made, Path], first: int) -> None:
    made, copy = bench
    findings = {}
    for seed in range(first, first + 25):
        what, _, found = tried(made, copy, seed)
        if found:
            findings[f"seed {seed}, {what}"] = found
    assert findings == {}


def copied(files: dict[str, bytes], directory: Path) -> Path:
    for name, raw in files.items():
        (directory / name).write_bytes(raw)
    return directory / FILE


def spoil(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


def test_a_damaged_page_of_ours_is_told_at_the_opening(bench: tuple[Made, Path], tmp_path: Path) -> None:
    path = copied(bench[0].closed, tmp_path)
    page = bench[0].pages["leaf of pubsub_outbox"][0]
    spoil(path, (page - 1) * PAGE_BYTES, b"\xff" * 8)
    with pytest.raises(StoreDamaged, match="restore it, or start with an empty directory"):
        opened(tmp_path)


def test_a_damaged_page_of_the_applications_is_its_own_matter(bench: tuple[Made, Path], tmp_path: Path) -> None:
    path = copied(bench[0].closed, tmp_path)
    page = bench[0].pages["leaf of the application's"][0]
    spoil(path, (page - 1) * PAGE_BYTES, b"\xff" * 8)
    assert used(bench[0], tmp_path) == ""


@pytest.mark.parametrize("place", [3, 32 + 24 + 10])
def test_commits_of_this_boot_do_not_go_without_a_word(bench: tuple[Made, Path], tmp_path: Path, place: int) -> None:
    """Each was kept for its caller; and numbers that were given out would be given out again."""
    copied(bench[0].killed, tmp_path)
    spoil(tmp_path / LOG, place, b"\xee")
    with pytest.raises(StoreDamaged, match="-wal cannot be read to its end"):
        opened(tmp_path)
    with pytest.raises(StoreDamaged):  # It has changed nothing.
        opened(tmp_path)


def test_after_another_boot_the_last_commits_may_be_gone(bench: tuple[Made, Path], tmp_path: Path) -> None:
    copied(bench[0].killed, tmp_path)
    spoil(tmp_path / LOG, 32 + 24 + 10, b"\xee")
    Store(tmp_path / FILE, "another boot").close()


def test_a_file_whose_format_is_gone_is_not_taken_for_a_new_one(bench: tuple[Made, Path], tmp_path: Path) -> None:
    path = copied(bench[0].closed, tmp_path)
    db = apsw.Connection(str(path))
    db.pragma("user_version", 0)
    db.close()
    with pytest.raises(StoreDamaged, match="no format"):
        opened(tmp_path)


def locks(directory: Path) -> list[str]:
    """The locks of processes on the files of a directory, as the system has them."""
    inodes = {str(file.stat().st_ino) for file in directory.iterdir()}
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return sorted(line.split(": ", 1)[1] for line in lines if line.split()[5].rpartition(":")[2] in inodes)


@pytest.mark.parametrize("kind", [lambda path: Store(path / "c.db"), RoutesStore, Registry])
def test_a_second_opening_in_the_same_process_leaves_the_first_its_lock(
    tmp_path: Path, kind: Callable[[Path], Any]
) -> None:
    """A process has one lock on a file, and closing any descriptor of the file gives it up."""
    first = kind(tmp_path)
    before = locks(tmp_path)
    assert before
    for _ in range(2):
        with pytest.raises(StoreInUse):
            kind(tmp_path)
    assert locks(tmp_path) == before
    first.close()
    kind(tmp_path).close()
