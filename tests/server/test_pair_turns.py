"""Turns of a member, one by one: the order of a standby's acts and messages, and a primary's trust in members."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pubsub.config.settings import ServerSettings
from pubsub.protocol.messages import Message
from pubsub.protocol.standby import ROOT, Entries, EntryId, Repair
from pubsub.server.group_commit import GroupCommit
from pubsub.server.pair import APPLY_SECONDS, Pair, decoded
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.member_disk import MemberDisk
from pubsub.server.standby.replication.entries import Entry, make_entry
from pubsub.server.state.replies import LISTENER, Origin
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import NoteKept
from tests.server.stage import Reserve

MEMBER, PRIMARY = "a" * 16, "b" * 16
TERM = 50
FIRST = make_entry(EntryId(TERM, 1), ROOT, [NoteKept("n", 1)])
SECOND = make_entry(EntryId(TERM, 2), FIRST.id, [NoteKept("n", 2)])


class Wires:
    """Sockets that nothing comes over."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def dealer(self, address: str) -> Any:
        return object()

    to_member = dealer

    def ended(self, sock: Any) -> bool:
        return False

    def close(self, sock: Any, linger_ms: int = 0) -> None:
        pass

    def receive(self, sock: Any) -> None:
        return None

    def send(self, sock: Any, frames: list[Any]) -> bool:
        self.sent.append(decoded(frames[:2]))
        return True


class Standby:
    """A member that follows, and is given entries at once."""

    def __init__(self, directory: Path, *, lost: bool = False) -> None:
        Store(directory).close()
        local = LocalFile(directory)
        local.make(MEMBER, registered=True)
        local.keep(lost=lost)
        settings = ServerSettings(
            id="s1", proxies=("tcp://127.0.0.1:9",), directory=directory, standby_of="tcp://127.0.0.1:8"
        )
        self.disk, self.wires = MemberDisk(directory, local), Wires()
        self.pair = Pair(settings, "tcp://127.0.0.1:7", local, self.disk, self.wires, Random(1), 0.0)
        self.pair.follow(0.0, 0)
        self.turn(0.0)

    def turn(self, now: float) -> None:
        self.pair.turn((), now, 0)

    @property
    def store(self) -> str:
        return self.pair.member.identity.store

    def hear(self, entry: Entry, now: float) -> None:
        following = self.pair.member.following
        assert following is not None
        following.entries(Entries("s1", self.store, PRIMARY, TERM, 1, entry.id, entry.id), [entry], now)


@pytest.fixture
def standby(tmp_path: Path) -> Iterator[Standby]:
    standby = Standby(tmp_path)
    yield standby
    standby.disk.close()


def test_an_entry_soon_after_another_is_applied_when_its_time_comes(standby: Standby) -> None:
    standby.hear(FIRST, 1.0)
    standby.turn(1.0)
    assert standby.disk.end == FIRST.id
    standby.hear(SECOND, 1.001)
    standby.turn(1.001)
    assert standby.disk.end == FIRST.id
    assert standby.pair.deadline == 1.0 + APPLY_SECONDS
    standby.turn(1.0 + APPLY_SECONDS)
    assert standby.disk.end == SECOND.id
    assert standby.pair.deadline > 1.0 + APPLY_SECONDS


def test_a_repair_is_answered_in_the_turn_that_applies_the_primarys_entries(standby: Standby) -> None:
    standby.hear(FIRST, 1.0)
    standby.turn(1.0)
    standby.hear(SECOND, 1.001)
    asked = Repair("s1", standby.store, PRIMARY, "wanted", TERM, 1, 1, end=SECOND.id)
    standby.pair.batch_repairs.receive(asked, standby.pair.member)
    standby.turn(1.001)
    assert not [said for said in standby.wires.sent if isinstance(said, Repair)]
    standby.turn(1.0 + APPLY_SECONDS)
    assert [said.step for said in standby.wires.sent if isinstance(said, Repair)] == ["none"]


@pytest.mark.parametrize("lost", [False, True])
def test_a_member_that_lost_confirmed_entries_starts_no_ballot_after_its_next_start(tmp_path: Path, lost: bool) -> None:
    standby = Standby(tmp_path, lost=lost)
    standby.turn(60.0)
    asked = standby.pair.member.proposer.attempt is not None
    standby.disk.close()
    assert asked is not lost


class Primary:
    """A member that serves, alone so far, and hears what the test says."""

    def __init__(self, directory: Path) -> None:
        settings = ServerSettings(id="s1", proxies=("tcp://127.0.0.1:9",), directory=directory)
        local, store = LocalFile(directory), Store(directory)
        local.make(MEMBER)
        self.disk = MemberDisk(directory, local, store=store)
        self.pair = Pair(settings, "tcp://127.0.0.1:7", local, self.disk, Wires(), Random(1), 0.0)
        loops = self.pair.found(TERM, 0.0)
        loops.begin_term(store, "s1")
        self.core = GroupCommit(settings, store, Reserve(), Random(1), 0.0, 1e9, loops).core
        self.pair.serve(self.core, object(), [])

    def hear(self, message: Message, speaker: str | None) -> None:
        assert self.pair.intercept(Origin(LISTENER, b"link", 0, speaker), message, 1.0)


def test_a_primary_ignores_a_member_with_another_servers_key(tmp_path: Path) -> None:
    """It would be deposed by anybody who has a key, or take for confirmed what is on no other disk."""
    primary = Primary(tmp_path)
    store, end = primary.pair.member.identity.store, primary.disk.end
    later = Entries("s1", store, PRIMARY, TERM + 1, 1, end, end)
    for speaker in ("s2", ""):
        primary.hear(later, speaker)
    assert not primary.pair.member.over
    assert primary.core.state.counters["servers_under_a_wrong_name"] == 2
    primary.hear(later, "s1")
    assert primary.pair.member.over
    primary.disk.close()
