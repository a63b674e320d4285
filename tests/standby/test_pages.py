"""A copy by pages of a store under writes: it equals the snapshot after any interruption."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from pubsub.base.database import Turns, open_database
from pubsub.errors import StorageError, StoreDamaged, StoreFull
from pubsub.protocol import decode, encode
from pubsub.protocol.standby import Copy, EntryId
from pubsub.server.standby.disk import pages as paging
from pubsub.server.standby.disk import snapshot as snapshots
from pubsub.server.standby.disk.applied import applied_entry, keep_entry
from pubsub.server.standby.disk.pages import COPIED, GROWING, PageCopy, install
from pubsub.server.standby.disk.snapshot import Snapshot
from pubsub.server.storage.checkpoint import Checkpointer, grow_log
from pubsub.server.storage.store import Store
from pubsub.server.topic import changes as c
from tests.standby.twins import rows

NAMES = ("s1", "0" * 16, "a" * 16)


class Primary:
    """A store that is written, checkpointed and copied."""

    def __init__(self, directory: Path, random: Random) -> None:
        self.store = Store(directory)
        grow_log(self.store, 1 << 20)
        self.random, self.number = random, 0
        self.checkpointer = Checkpointer(self.store, Turns(), lambda: None)
        self.other = open_database(self.store.path, (("wal_autocheckpoint", 0),))

    def write(self, count: int = 1, size: int = 4000) -> None:
        """Some commits: batches are appended, others deleted, and the store's own facts change."""
        for _ in range(count):
            self.number += 1
            body = self.random.randbytes(self.random.randrange(size))
            changes: list[c.Change] = [
                c.BatchAppended(1, self.number, 1, 1, self.number, 9, 5, 0, body),
                c.LastMoved(1, self.random.randrange(50), self.number),
            ]
            if self.random.random() < 0.2:
                changes.append(c.BatchesDiscarded(1, self.random.randrange(self.number + 1), False))
            with self.store.guarded():
                self.store.apply(changes)
                keep_entry(self.store, EntryId(1, self.number))

    def live(self) -> None:
        """Random acts meanwhile."""
        self.write(self.random.choice((0, 1, 5)))
        if self.random.random() < 0.4:
            assert self.checkpointer.attempt(self.other)

    def close(self) -> None:
        self.other.close()
        self.store.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges, messages and pieces so small that a store of some hundred pages has several."""
    for module in (snapshots, paging):
        monkeypatch.setattr(module, "RANGE_PAGES", 16)
    monkeypatch.setattr(snapshots, "MESSAGE_BYTES", 3 * 16384)
    monkeypatch.setattr(paging, "PIECE_BYTES", 5 * 16384)


@pytest.fixture
def primary(tmp_path: Path, small: None) -> Iterator[Primary]:
    primary = Primary(tmp_path / "primary", Random(1))
    primary.write(300)
    yield primary
    primary.close()


def travelled(message: Copy) -> Copy:
    found = decode(*encode(message))
    assert isinstance(found, Copy)
    return found


def steps(copy: PageCopy, snapshot: Snapshot, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Every step of a copy, up to where it is whole."""
    while not copy.complete:
        asked = travelled(copy.request(*NAMES))
        yield
        for answer in snapshot.answers(asked, *NAMES):
            meanwhile()
            assert len(answer.body) <= 4 * 16384
            copy.take(travelled(answer))
            yield


def state(directory: Path) -> Any:
    store = Store(directory)
    try:
        assert store.db.pragma("integrity_check") == "ok"
        return applied_entry(store), rows(store)
    finally:
        store.close()


def own_store(directory: Path, random: Random, like: Primary | None = None) -> None:
    """A member's own store: of other entries, or the first ones of a primary's."""
    if like is None:
        one = Primary(directory, random)
        one.write(random.randrange(200))
        one.close()
    else:
        snapshot = Snapshot(like.store)
        directory.mkdir()
        with (directory / "server.db").open("wb") as file:
            for number in range(1, snapshot.pages + 1):
                file.write(snapshot.page(number))
        snapshot.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_copy_of_a_store_under_load_equals_the_snapshot(
    tmp_path: Path, seed: int, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(seed)
    primary = Primary(tmp_path / "primary", random)
    primary.write(random.choice((1, 50, 400)))
    directory = tmp_path / "standby"
    directory.mkdir()
    if random.random() < 0.7:
        own_store(tmp_path / "standby", random)
    if random.random() < 0.5:
        assert primary.checkpointer.attempt(primary.other)  # All of the log is in the file: it may begin anew.
    snapshot = Snapshot(primary.store)
    expected = applied_entry(primary.store), rows(primary.store)
    own = Store(directory) if (directory / "server.db").exists() else None
    begin = travelled(snapshot.begin(*NAMES, 3, 77))
    copy = PageCopy(directory, begin, own.db if own else None)
    for _ in steps(copy, snapshot, primary.live):
        primary.live()
    primary.write(50)
    if own is not None:
        own.close()
    copy.finish()
    assert install(directory)
    assert not install(directory)
    assert state(directory) == expected
    assert expected[0] == begin.snapshot
    assert [(directory / "server.db").stat().st_size] == [snapshot.pages * snapshot.page_bytes]
    snapshot.close()
    log = primary.store.sizes()["log"]
    for _ in range(30):  # The log begins anew when no reader needs it.
        primary.write(30)
        assert primary.checkpointer.attempt(primary.other)
    assert primary.store.sizes()["log"] <= max(log, 1 << 21) + (1 << 22)
    primary.close()


@pytest.mark.slow
def test_a_copy_interrupted_at_any_step_continues_and_is_never_half_installed(tmp_path: Path, primary: Primary) -> None:
    own_store(tmp_path / "old", Random(5))
    before = state(tmp_path / "old")
    snapshot = Snapshot(primary.store)
    expected = applied_entry(primary.store), rows(primary.store)
    begin = snapshot.begin(*NAMES, 3, 77)
    complete, stop = False, 0
    received = []
    while not complete:
        directory = tmp_path / f"{stop}"
        directory.mkdir()
        (directory / "server.db").write_bytes((tmp_path / "old" / "server.db").read_bytes())
        own = Store(directory)
        copy = PageCopy(directory, begin, own.db)
        complete = True
        for place, _ in enumerate(steps(copy, snapshot, lambda: None)):
            if place == stop:
                complete = False
                break
        copy.close()
        first = copy.received_bytes
        own.close()
        assert not install(directory)
        assert state(directory) == before
        own = Store(directory)
        again = PageCopy(directory, begin, own.db)
        for _ in steps(again, snapshot, lambda: None):
            pass
        own.close()
        received.append(first + again.received_bytes)
        again.finish()
        install(directory)
        assert state(directory) == expected
        stop += 1
    assert stop > 10
    assert max(received) <= min(received) + 4 * 16384  # Arrived pages are not sent again.
    snapshot.close()


CALLS = ("ftruncate", "fsync", "rename", "unlink", "replace")


@pytest.mark.slow
def test_a_store_is_the_old_or_the_new_one_after_an_end_at_any_last_step(
    tmp_path: Path, primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = Snapshot(primary.store)
    expected = applied_entry(primary.store), rows(primary.store)
    begin = snapshot.begin(*NAMES, 3, 77)
    seen = set()
    for stop in range(40):
        directory = tmp_path / f"{stop}"
        own = Primary(directory, Random(5))
        own.write(20)
        before = applied_entry(own.store), rows(own.store)
        copy = PageCopy(directory, begin, own.store.db)
        for _ in steps(copy, snapshot, lambda: None):
            pass
        own.store.keep_log()  # As after a crash: the last commits are in the log only.
        own.close()
        assert (directory / "server.db-wal").stat().st_size
        calls = 0

        def counted(call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any, **more: Any) -> Any:
                nonlocal calls
                calls += 1
                if calls > stop:  # noqa: B023 - called within this round
                    raise KeyboardInterrupt
                return call(*arguments, **more)

            return run

        with monkeypatch.context() as patched:
            for name in CALLS:
                patched.setattr(os, name, counted(getattr(os, name)))
            try:
                copy.finish()
                install(directory)
                done = True
            except KeyboardInterrupt:
                done = False
        install(directory)
        found = state(directory)
        assert found in (before, expected)
        seen.add(found == expected)
        if done:
            break
    assert seen == {False, True}
    snapshot.close()


def test_a_complete_copy_is_synced_before_it_gets_its_final_name(
    tmp_path: Path, primary: Primary, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot = Snapshot(primary.store)
    copy = PageCopy(tmp_path, snapshot.begin(*NAMES, 3, 77), None)
    for _ in steps(copy, snapshot, lambda: None):
        pass
    calls: list[str] = []

    def noted(name: str) -> Callable[..., None]:
        call = getattr(os, name)

        def run(what: Any, *arguments: Any, **more: Any) -> None:
            folder = isinstance(what, int) and stat.S_ISDIR(os.fstat(what).st_mode)
            calls.append(f"{name} of the directory" if folder else name)
            call(what, *arguments, **more)

        return run

    with monkeypatch.context() as patched:
        for name in ("ftruncate", "fsync", "rename"):
            patched.setattr(os, name, noted(name))
        copy.finish()
    assert calls == ["ftruncate", "fsync", "rename", "fsync of the directory"]
    snapshot.close()


def test_the_remains_of_a_longer_copy_are_reused_and_truncated(tmp_path: Path, primary: Primary) -> None:
    snapshot = Snapshot(primary.store)
    expected = applied_entry(primary.store), rows(primary.store)
    (tmp_path / GROWING).write_bytes(Random(1).randbytes((snapshot.pages + 50) * snapshot.page_bytes))
    copy = PageCopy(tmp_path, snapshot.begin(*NAMES, 3, 77), None)
    for _ in steps(copy, snapshot, lambda: None):
        pass
    copy.finish()
    install(tmp_path)
    assert (tmp_path / "server.db").stat().st_size == snapshot.pages * snapshot.page_bytes
    assert state(tmp_path) == expected
    snapshot.close()


def test_only_pages_that_differ_are_sent(tmp_path: Path, primary: Primary) -> None:
    primary.write(600, 20_000)
    own_store(tmp_path / "standby", Random(0), primary)
    primary.write(3)
    snapshot = Snapshot(primary.store)
    own = Store(tmp_path / "standby")
    copy = PageCopy(tmp_path / "standby", snapshot.begin(*NAMES, 3, 77), own.db)
    for _ in steps(copy, snapshot, lambda: None):
        pass
    assert snapshot.pages > 100
    assert 0 < copy.received_bytes <= 20 * 16384
    own.close()
    copy.close()
    snapshot.close()


def test_an_answer_to_another_question_or_of_another_snapshot_is_ignored(tmp_path: Path, primary: Primary) -> None:
    snapshot = Snapshot(primary.store)
    copy = PageCopy(tmp_path, snapshot.begin(*NAMES, 3, 77), None)
    asked = copy.request(*NAMES)
    for wrong in (
        Copy(*NAMES, "hashes", 77, 0, EntryId(1, 1), 1, 16),
        Copy(*NAMES, "hashes", 77, 0, snapshot.entry, 1, 17),
        Copy(*NAMES, "hashes", 77, 0, snapshot.entry, 1, 0),
    ):
        assert [answer.step for answer in snapshot.answers(wrong, *NAMES)] == ["gone"]
    for answer in list(snapshot.answers(asked, *NAMES)):
        for name, value in (("token", 78), ("snapshot", EntryId(1, 1)), ("first", 17), ("step", "begin")):
            other = Copy(**{field: getattr(answer, field) for field in Copy.__slots__})  # type: ignore[attr-defined]
            setattr(other, name, value)
            assert not copy.take(other)
    assert (copy.first, copy.received_bytes) == (1, 0)
    assert (tmp_path / GROWING).stat().st_size == 0
    copy.close()
    snapshot.close()


def test_a_disk_that_loses_written_pages_ends_the_copy(tmp_path: Path, primary: Primary) -> None:
    snapshot = Snapshot(primary.store)
    copy = PageCopy(tmp_path, snapshot.begin(*NAMES, 3, 77), None)
    with pytest.raises(StorageError, match="does not keep"):
        for _ in steps(copy, snapshot, lambda: (tmp_path / GROWING).write_bytes(bytes(16384))):
            pass
    copy.close()
    snapshot.close()


def test_lost_pages_are_requested_again_until_they_arrive(tmp_path: Path, primary: Primary) -> None:
    snapshot = Snapshot(primary.store)
    copy = PageCopy(tmp_path, snapshot.begin(*NAMES, 3, 77), None)
    for _ in range(10):  # A link that comes and goes takes all but the last answer.
        assert copy.take(list(snapshot.answers(copy.request(*NAMES), *NAMES))[-1])
        assert not copy.complete
    while not copy.complete:
        for answer in list(snapshot.answers(copy.request(*NAMES), *NAMES)):
            copy.take(answer)
    copy.close()
    snapshot.close()


def test_a_full_disk_is_reported_and_the_copy_continues_when_there_is_space(tmp_path: Path, primary: Primary) -> None:
    snapshot = Snapshot(primary.store)
    expected = applied_entry(primary.store), rows(primary.store)
    copy = PageCopy(tmp_path, snapshot.begin(*NAMES, 3, 77), None)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20 * 16384 + 100, hard))
    try:
        with pytest.raises(StoreFull):
            for _ in steps(copy, snapshot, lambda: None):
                pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert copy.first == 17
    for _ in steps(copy, snapshot, lambda: None):
        pass
    copy.finish()
    install(tmp_path)
    assert state(tmp_path) == expected
    snapshot.close()


@pytest.mark.parametrize(("pages", "page_bytes"), [(0, 16384), (1 << 32, 16384), (5, 0), (5, 1 << 20)])
def test_a_copy_of_impossible_pages_is_refused(tmp_path: Path, pages: int, page_bytes: int) -> None:
    with pytest.raises(StorageError):
        PageCopy(tmp_path, Copy(*NAMES, "begin", 1, 1, EntryId(1, 1), 1, pages, page_bytes), None)
    assert not (tmp_path / COPIED).exists()


def test_a_snapshot_reads_the_same_pages_through_a_checkpoint_and_a_new_log(primary: Primary) -> None:
    for full in (True, False):
        primary.write(5)
        if full:
            assert primary.checkpointer.attempt(primary.other)
        snapshot = Snapshot(primary.store)
        pages = [snapshot.page(number) for number in range(1, snapshot.pages + 1)]
        for _ in range(5):
            primary.write(20)
            assert primary.checkpointer.attempt(primary.other)
        later = Snapshot(primary.store)
        assert [snapshot.page(number) for number in range(1, snapshot.pages + 1)] == pages
        assert later.entry.number == snapshot.entry.number + 100
        assert snapshot.log_bytes() > 0
        later.close()
        snapshot.close()


def test_a_store_that_cannot_be_read_is_an_error(primary: Primary, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Snapshot(primary.store)
    snapshot.close()
    with pytest.raises((StorageError, apsw.ConnectionClosedError)):
        snapshot.page(1)
    with primary.store.guarded():
        primary.store.db.execute("update meta set value = 'x' where name = 'term'")
    with pytest.raises(StoreDamaged):
        Snapshot(primary.store)
