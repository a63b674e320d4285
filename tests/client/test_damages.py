"""Damaged state files: the opening reports them, or everything works; a second opening keeps the first one's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from pubsub.cli import main
from pubsub.client.core import changes as c
from pubsub.client.storage.store import Store
from pubsub.errors import StorageError, StoreDamaged, StoreInUse
from pubsub.gateway.registry import Registry
from pubsub.proxy.routes_file import RoutesStore
from tests.client.damages import FILE, LOG, PAGE_BYTES, Made, mishap, opened, tried, used, workshop
from tests.mishaps import contents


@pytest.fixture(scope="module")
def bench() -> Iterator[tuple[Made, Path]]:
    with workshop() as made:
        yield made


@pytest.mark.parametrize("first", [0, pytest.param(228, marks=pytest.mark.nightly)])
def test_a_client_opens_a_damaged_state_or_names_the_damage(bench: tuple[Made, Path], first: int) -> None:
    made, copy = bench
    findings = {}
    for seed in range(first, first + 25):
        what, _, found = tried(made, copy, seed)
        if found:
            findings[f"seed {seed}, {what}"] = found
    assert findings == {}


def copied(files: dict[str, bytes], directory: Path) -> Path:
    directory.mkdir(exist_ok=True)
    for name, raw in files.items():
        (directory / name).write_bytes(raw)
    return directory / FILE


def spoil(path: Path, at: int, raw: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(raw)


def test_a_damaged_page_of_the_package_is_reported_at_the_opening(bench: tuple[Made, Path], tmp_path: Path) -> None:
    path = copied(bench[0].closed, tmp_path)
    page = bench[0].pages["leaf of pubsub_outbox"][0]
    spoil(path, (page - 1) * PAGE_BYTES, b"\xff" * 8)
    with pytest.raises(StoreDamaged, match="restore it, or start with an empty directory"):
        opened(tmp_path)


def test_a_damaged_page_of_the_application_does_not_stop_the_client(bench: tuple[Made, Path], tmp_path: Path) -> None:
    path = copied(bench[0].closed, tmp_path)
    page = bench[0].pages["leaf of the application's"][0]
    spoil(path, (page - 1) * PAGE_BYTES, b"\xff" * 8)
    assert used(bench[0], tmp_path) == ""


@pytest.mark.parametrize("place", [3, 32 + 24 + 10])
def test_lost_commits_of_this_boot_are_reported(bench: tuple[Made, Path], tmp_path: Path, place: int) -> None:
    """Each message was kept for its caller, and used numbers would be used again."""
    copied(bench[0].killed, tmp_path)
    spoil(tmp_path / LOG, place, b"\xee")
    with pytest.raises(StoreDamaged, match="-wal cannot be read to its end"):
        opened(tmp_path)
    with pytest.raises(StoreDamaged):  # It has changed nothing.
        opened(tmp_path)


def test_the_last_commits_may_be_gone_after_another_boot(bench: tuple[Made, Path], tmp_path: Path) -> None:
    copied(bench[0].killed, tmp_path)
    spoil(tmp_path / LOG, 32 + 24 + 10, b"\xee")
    Store(tmp_path / FILE, "another boot").close()


def test_a_state_that_was_emptied_is_refused_and_an_empty_directory_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise the outbox and the taken counters would be forgotten without an error."""
    opened(tmp_path).close()
    path = tmp_path / FILE
    path.write_bytes(b"")
    says = f"{path}: damaged: it is empty; put a backup back, or delete it to begin anew"
    for _ in range(2):
        with pytest.raises(StoreDamaged) as error:
            opened(tmp_path)
        assert str(error.value) == says
    for command in (["get", "t"], ["flush"], ["dead-letters"]):
        where = ["--proxy", "tcp://127.0.0.1:9", "--dir", str(tmp_path)]
        assert main(["client", "c", *command, *where]) == 7
        printed = capsys.readouterr().err
        assert says in printed
        assert printed.count("\n") == 1
    assert path.read_bytes() == b""
    path.unlink()
    opened(tmp_path).close()


class Failing(apsw.VFS):
    """The operating system's file system, with failing fsyncs while `fails` is set."""

    def __init__(self) -> None:
        self.fails = False
        super().__init__("failing", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return FailingFile(self, name, flags)


class FailingFile(apsw.VFSFile):
    """A file of this file system."""

    def __init__(self, disk: Failing, name: Any, flags: list[int]) -> None:
        super().__init__("unix", name, flags)
        self._disk = disk

    def xSync(self, flags: int) -> None:  # noqa: N802
        if self._disk.fails:
            raise apsw.IOError("says the test")
        super().xSync(flags)


@pytest.mark.parametrize("heals", [False, True])
def test_commits_that_failed_one_after_the_other_are_not_taken_for_commits_that_were_lost(
    tmp_path: Path, heals: bool
) -> None:
    """Each overwrites the previous one, and leaves a rest that the next, shorter one does not reach."""
    disk = Failing()
    store = Store(tmp_path / FILE, "this boot")
    store.commit([row(1, 10)], fsync=True)
    disk.fails = True
    for counter, size in ((2, 90_000), (3, 50_000), (4, 10)):
        with pytest.raises(StorageError, match="cannot be used"):
            store.commit([row(counter, size)], fsync=True)
    disk.fails = False
    if heals:
        store.commit([row(5, 10)], fsync=True)
    copied(contents(tmp_path, FILE), tmp_path / "killed")
    again = Store(tmp_path / "killed" / FILE, "this boot")
    assert [counter for counter, *_ in again.rows()] == [1, 5] if heals else [1]
    again.close()
    store.close()
    disk.unregister()


def row(counter: int, size: int) -> c.RowAdded:
    return c.RowAdded("t", counter, counter - 1, 1, 0, 7, b"x" * size)


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, pytest.param(45, marks=pytest.mark.nightly)])
def test_a_client_opens_a_state_after_a_mishap_or_names_the_damage(bench: tuple[Made, Path], first: int) -> None:
    made, copy = bench
    findings = {}
    for seed in range(first, first + 45):
        what, _, found = tried(made, copy, seed, mishap)
        if found:
            findings[f"seed {seed}, {what}"] = found
    assert findings == {}


def test_a_file_without_its_format_is_not_treated_as_new(bench: tuple[Made, Path], tmp_path: Path) -> None:
    path = copied(bench[0].closed, tmp_path)
    db = apsw.Connection(str(path))
    db.pragma("user_version", 0)
    db.close()
    with pytest.raises(StoreDamaged, match="no format"):
        opened(tmp_path)


def locks(directory: Path) -> list[str]:
    """Return the locks of processes on the files of a directory, as the system lists them."""
    inodes = {str(file.stat().st_ino) for file in directory.iterdir()}
    lines = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    return sorted(line.split(": ", 1)[1] for line in lines if line.split()[5].rpartition(":")[2] in inodes)


@pytest.mark.parametrize("kind", [lambda path: Store(path / "c.db"), RoutesStore, Registry])
def test_a_second_opening_in_the_same_process_keeps_the_lock_of_the_first(
    tmp_path: Path, kind: Callable[[Path], Any]
) -> None:
    """A process has one lock on a file, and releases it by closing any descriptor of the file."""
    first = kind(tmp_path)
    before = locks(tmp_path)
    assert before
    for _ in range(2):
        with pytest.raises(StoreInUse):
            kind(tmp_path)
    assert locks(tmp_path) == before
    first.close()
    kind(tmp_path).close()
