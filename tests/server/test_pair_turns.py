"""Turns of a standby, one by one: what it applies when, and what it says after that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pubsub.config.settings import ServerSettings
from pubsub.protocol.standby import ROOT, Entries, EntryId, Repair
from pubsub.server.pair import APPLY_SECONDS, Pair, decoded
from pubsub.server.standby.disk import MemberDisk
from pubsub.server.standby.entries import Entry, make_entry
from pubsub.server.standby.local_file import LocalFile
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import NoteKept

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

    def __init__(self, directory: Path) -> None:
        Store(directory).close()
        local = LocalFile(directory)
        local.make(MEMBER, registered=True)
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


def test_what_comes_soon_after_is_applied_when_its_time_has_come(standby: Standby) -> None:
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


def test_what_the_primary_asks_for_is_told_in_the_turn_that_applies_what_it_had(standby: Standby) -> None:
    standby.hear(FIRST, 1.0)
    standby.turn(1.0)
    standby.hear(SECOND, 1.001)
    asked = Repair("s1", standby.store, PRIMARY, "wanted", TERM, 1, 1, SECOND.id)
    standby.pair.mending.hear(asked, standby.pair.member)
    standby.turn(1.001)
    assert not [said for said in standby.wires.sent if isinstance(said, Repair)]
    standby.turn(1.0 + APPLY_SECONDS)
    assert [said.step for said in standby.wires.sent if isinstance(said, Repair)] == ["none"]
