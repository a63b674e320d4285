"""One member's disk through its roles: confirmed entries are there, dropped ones are not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast
from zlib import crc32

import apsw
import pytest

from pubsub.base.database import Turns
from pubsub.config.settings import ServerSettings
from pubsub.errors import ConfigurationError, StoreFull
from pubsub.protocol.standby import ROOT, Entries, EntryId
from pubsub.server.standby.disk import member_disk as disks
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk, begin_pair, open_disk
from pubsub.server.standby.disk.segment import Segment
from pubsub.server.standby.replication.entries import Entry, make_entry
from pubsub.server.standby.replication.follower import Following
from pubsub.server.storage.local import begin_incarnation
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import NoteKept
from tests.standby.cast import STORE, A, B

TERM = 50


def entries(count: int, previous: EntryId = ROOT, form: int = 2) -> list[Entry]:
    out: list[Entry] = []
    for number in range(1, count + 1):
        out.append(make_entry(EntryId(TERM, number), previous, [NoteKept("n", number)], form))
        previous = out[-1].id
    return out


class Home:
    """A member's directory and its follower."""

    def __init__(self, directory: Path, **more: int) -> None:
        self.directory, self.more = directory, more
        self.file = LocalFile(directory)
        self.file.make(A)
        if not (directory / "server.db").exists():
            Store(directory).close()
        self.open()

    def open(self) -> None:
        self.disk = MemberDisk(self.directory, self.file, **self.more)
        end = self.disk.end
        self.following = Following("s1", STORE, A, end, self.disk.staged, Random(1), 0.0, 1.0)

    def hear(self, new: list[Entry], committed: EntryId = ROOT) -> None:
        end = new[-1].id if new else self.following.end
        self.following.entries(Entries("s1", STORE, B, TERM, 1, end, committed), new, 1.0)
        self.disk.write(self.following)

    def note(self) -> object:
        assert self.disk.store is not None
        return self.disk.store.notes().get("n")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.disk.close()


@pytest.mark.parametrize("form", [1, 2])
def test_confirmed_entries_are_staged_after_a_restart_and_applied_at_the_takeover(home: Home, form: int) -> None:
    new = entries(3, form=form)
    home.hear(new, committed=new[0].id)
    assert home.disk.apply(home.following)
    assert home.disk.end == new[0].id
    home.disk.close()
    home.open()
    assert home.following.end == home.following.durable == new[2].id
    assert home.disk.take(home.following) == new[2].id
    assert home.note() == 3


def test_a_primary_that_steps_down_drops_its_uncommitted_entries(home: Home) -> None:
    new = entries(3)
    home.hear(new, committed=new[1].id)
    home.disk.apply(home.following)
    assert home.disk.step_down() == new[1].id == home.disk.stream.end
    home.disk.stream.append(entries(3)[2:], own=True)


def test_a_full_disk_is_reported_and_entries_synced_before_stay(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    new = entries(2)
    home.hear(new[:1])
    with monkeypatch.context() as patch:
        patch.setattr(home.disk.stream, "append", _full)
        home.hear(new[1:])
    assert home.following.durable == home.following.end == new[0].id == home.disk.stream.end
    assert any(getattr(said, "full", 0) for said in home.following.outgoing(1.0))


def test_the_log_names_a_full_disk_once_and_the_end_of_it(
    home: Home, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "pubsub.server.standby.disk.member_disk")
    new = entries(2)
    with monkeypatch.context() as patch:
        patch.setattr(home.disk.stream, "append", _full)
        home.hear(new)
        home.hear(new)
    home.hear(new, committed=new[1].id)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", _full)
        assert not home.disk.apply(home.following)
        assert not home.disk.apply(home.following)
    assert home.disk.apply(home.following)
    said = [(record.levelname, "no space" in record.getMessage()) for record in caplog.records]
    assert said == [("ERROR", True), ("INFO", False), ("ERROR", True), ("INFO", False)]


def test_entries_refused_by_a_full_store_are_applied_later(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    new = entries(2)
    home.hear(new, committed=new[1].id)
    with monkeypatch.context() as patch:
        patch.setattr(Store, "commit", _full)
        assert not home.disk.apply(home.following)
    assert home.disk.apply(home.following)
    assert home.disk.end == new[1].id


@pytest.mark.parametrize("room", [True, False])
def test_a_start_without_space_for_its_stream_releases_the_reserved_space(
    home: Home, monkeypatch: pytest.MonkeyPatch, room: bool
) -> None:
    home.disk.close()
    for path in (home.directory / "stream").glob("*"):
        path.unlink()
    create, asked = Segment.create, []

    def create_if_there_is_room(*facts: Any) -> Segment:
        return create(*facts) if room and asked else _full()

    monkeypatch.setattr(Segment, "create", create_if_there_is_room)
    settings = ServerSettings(id="s1", proxies=("tcp://127.0.0.1:9",), directory=home.directory)
    if room:
        disk = open_disk(settings, home.file, lambda: asked.append(1))
        assert disk is not None
        disk.close()
    else:
        with pytest.raises(StoreFull):
            open_disk(settings, home.file, lambda: asked.append(1))
    assert asked == [1]
    monkeypatch.undo()
    home.open()


def test_a_stream_that_cannot_be_opened_leaves_no_file_open(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.hear(entries(1))
    home.disk.close()
    closed: list[Segment] = []

    def close(segment: Segment) -> None:  # Bound to the segment, as `closed.append` would not be.
        closed.append(segment)

    monkeypatch.setattr(Segment, "close", close)
    monkeypatch.setattr("pubsub.server.standby.disk.stream.sync_directory", _full)
    with pytest.raises(StoreFull):
        home.open()
    monkeypatch.undo()
    assert any(segment._file is not None for segment in closed)
    for segment in closed:
        segment.close()
    home.open()


def test_a_member_whose_stream_lost_confirmed_entries_remembers_the_loss(home: Home) -> None:
    home.hear(entries(1))
    home.hear(entries(2)[1:])
    home.disk.close()
    (file,) = (home.directory / "stream").glob("*.entries")
    data = bytearray(file.read_bytes())
    place = data.index(make_entry(EntryId(TERM, 1), ROOT, [NoteKept("n", 1)]).parts[0])
    data[place] ^= 0xFF
    file.write_bytes(data)
    home.open()
    found = LocalFile(home.directory).local
    assert found is not None
    assert found.lost
    assert home.following.end == ROOT


def test_confirmed_entries_are_staged_after_a_restart_above_the_size_limit(tmp_path: Path) -> None:
    home = Home(tmp_path, stream_bytes_max=1000)
    new = entries(100)
    home.hear(new)
    assert home.following.durable == new[-1].id
    home.disk.close()
    home.open()
    assert home.following.end == new[-1].id
    home.hear([], committed=new[-1].id)
    assert home.disk.apply(home.following)
    home.hear([make_entry(EntryId(TERM, 101), new[-1].id, [NoteKept("n", 101)])])
    assert home.disk.stream.size <= 1000
    home.disk.close()


def test_a_standby_whose_disk_has_no_room_for_its_log_continues(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        """The store's connection, on a full disk."""

        def __init__(self, db: apsw.Connection) -> None:
            self.db = db

        def wal_checkpoint(self, **_: object) -> None:
            raise apsw.FullError("database or disk is full")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.db, name)

    monkeypatch.setattr(disks, "LOG_BYTES_MAX", 1)
    new = entries(2)
    assert home.disk.store is not None
    db = home.disk.store.db
    home.disk.store.db = cast("apsw.Connection", Full(db))
    home.hear(new, committed=new[1].id)
    assert home.disk.apply(home.following)
    assert home.note() == 2
    home.disk.store.db = db


def test_entries_of_a_later_release_are_named_at_apply_and_at_takeover(home: Home) -> None:
    body = b"a change that nobody knows yet"
    home.hear([Entry(EntryId(TERM, 1), ROOT, len(body), crc32(body), (body,))], committed=EntryId(TERM, 1))
    with pytest.raises(ConfigurationError, match="of a later release; upgrade its standby first"):
        home.disk.take(home.following)
    with pytest.raises(ConfigurationError, match="of a later release; upgrade its standby first"):
        home.disk.apply(home.following)


def test_a_change_by_another_process_before_it_ended_counts(tmp_path: Path) -> None:
    directory = tmp_path / "a"
    directory.mkdir()
    LocalFile(directory).make(A)
    late = LocalFile(directory)
    LocalFile(directory).keep(registered=True)  # By the process that had the directory until a moment ago.
    disk = open_disk(ServerSettings(id="s1", proxies=("tcp://127.0.0.1:9",), directory=directory), late)
    assert disk is not None
    disk.close()
    assert late.local is not None
    assert late.local.registered


@pytest.mark.parametrize("place", ["stream", "store", "local"])
def test_a_server_becomes_one_of_two_members_completely_or_not_at_all(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, local, lock = Store(tmp_path), LocalFile(tmp_path), Turns()
    settings = ServerSettings(id="s1", proxies=("tcp://127.0.0.1:9",), directory=tmp_path)
    what = {"stream": (Segment, "create"), "store": (Store, "commit"), "local": (LocalFile, "_write")}[place]
    with monkeypatch.context() as patch:
        patch.setattr(*what, _full)
        for _ in range(2):
            with pytest.raises(StoreFull):
                begin_pair(settings, local, store, lock, TERM)
    assert not local.path.exists()
    disk = begin_pair(settings, local, store, lock, TERM)
    assert (disk.end, local.path.exists()) == (EntryId(TERM, 0), True)
    disk.close()


def test_the_history_of_a_store_with_one_member_cannot_be_followed_from_its_root(home: Home) -> None:
    assert home.disk.found(TERM) == EntryId(TERM, 0) == home.disk.end
    assert not home.disk.stream.holds(ROOT)
    assert home.disk.found(TERM + 1) == EntryId(TERM, 0)


def test_a_store_that_was_served_alone_since_its_last_entry_has_a_new_history(home: Home) -> None:
    """It ran without the file of its member: a member that ends with that entry lacks the later puts."""
    new = entries(1)
    home.hear(new, committed=new[0].id)
    assert home.disk.apply(home.following)
    assert home.disk.store is not None
    term = begin_incarnation(home.disk.store, TERM + 10, "s1")
    assert home.disk.found(term) == EntryId(term, 0) == home.disk.stream.end
    assert not home.disk.stream.holds(new[0].id)


def _full(*arguments: object, **named: object) -> None:
    raise StoreFull("disk", "no space, says the test")
