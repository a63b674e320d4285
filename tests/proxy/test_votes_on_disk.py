"""Votes and the disk under them: a proxy under a kill, a power cut, a failing or full disk, at any access.

The proxy's whole turn is as it ships, on sockets of a few lines and the simulation's virtual disk. What was told
binds the next life; what could not be written is told to nobody.
"""

from __future__ import annotations

import gc
import sys
from collections import deque
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest
import zmq

from pubsub.errors import StorageError
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.unsent import Unsent
from pubsub.protocol import decode, encode
from pubsub.protocol.register import Accept, Admit, Look, Prepare, View, Vote, VoteOutcome
from pubsub.proxy import traffic
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.process import ProxyProcess
from pubsub.proxy.routes_file import RoutesStore
from tests.proxy.stage import log_id, settings
from tests.simulation.disk import NAME, Disk, Killed, disks, untidy

STORE, IDENTITY, A, B = log_id("s1"), "e" * 16, "a" * 16, "b" * 16
FIRST = View(100, A, "tcp://a:1", (A, B), (A, B))
ALONE = FIRST._replace(in_sync=(A,))
TAKEN = View(300, B, "tcp://b:1", (A, B), (B,))


def look() -> Look:
    return Look("s1", STORE, 1)


def prepare(ballot: int, member: str = A) -> Prepare:
    return Prepare("s1", STORE, member, ballot, ballot, "resume")


SCRIPT = (
    Admit("s1", STORE, 2, IDENTITY, 150, 100, FIRST),
    prepare(200),
    Accept("s1", STORE, A, 200, 200, ALONE),
    prepare(300, B),
    Accept("s1", STORE, B, 300, 300, TAKEN),
    prepare(400),
)


class Link:
    """A ROUTER to which messages are given, and which keeps what is sent."""

    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.left = 0
        self.out: list[list[bytes]] = [[]]

    def recv(self, flags: int, copy: bool = True) -> bytes:
        if not self.waiting:
            raise zmq.Again
        self.left -= 1
        return self.waiting.popleft()

    def get(self, option: int) -> int:
        return self.left > 0

    def send(self, frame: Any, flags: int) -> None:
        self.out[-1].append(bytes(frame))
        if not flags & zmq.SNDMORE:
            self.out.append([])


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> float:
        return 1_700_000_000.0 + self.now


class Proxy(ProxyProcess):
    """One life of a proxy whose routes file is on the virtual disk."""

    def __init__(self, identity: str) -> None:
        self.settings = settings(directory=Path("/p1"))
        self._store = RoutesStore(self.settings.directory, vfs=NAME, identity=identity)
        self._clock = self.clock = Clock()
        remembered = self._store.load()
        self.core = ProxyCore(self.settings, self.clock.now, self.clock.wall(), remembered)
        self._retry_at, self._unread = 0.0, Unsent(1, 1)
        self.link = Link()
        self._clients, self._servers = Link(), self.link  # type: ignore[assignment]

    def votes(self, asked: Prepare | Accept | Look | Admit) -> list[Vote]:
        """One turn of the loop, and the votes that it sent."""
        header, _ = encode(asked)
        self.link.waiting.extend((b"a", b"", pack(1, 17, 0) + header))
        self.link.left = 3
        self.link.out = [[]]
        self.turn([self._servers], self.clock.now)
        return self.sent()

    def sent(self) -> list[Vote]:
        """The votes of the last turn, which may have been cut short."""
        said = [decode(frames[2][unpack(frames[2]).length :], b"") for frames in self.link.out if frames]
        return [one for one in said if isinstance(one, Vote)]


@pytest.fixture(autouse=True)
def wires(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, instead in (("_recv", Link.recv), ("_get", Link.get), ("_send", Link.send)):
        monkeypatch.setattr(traffic, name, instead)
    # What a dead process leaves behind is closed without its disk.
    monkeypatch.setattr(sys, "unraisablehook", lambda unraisable: None)
    with untidy():
        yield
        gc.collect()


def fresh() -> Disk:
    disk = disks().disks["p1"] = Disk()
    return disk


def lived(disk: Disk) -> tuple[list[Vote], bool]:
    """The votes that left in one life, and whether it came to its end."""
    told: list[Vote] = []
    epoch, proxy = disk.epoch, None
    try:
        proxy = Proxy(IDENTITY)
        for asked in SCRIPT:
            told += proxy.votes(asked)
    except (Killed, apsw.Error, StorageError):
        assert disk.troubled or disk.epoch > epoch, "nothing was done to the disk"
        return told + (proxy.sent() if proxy is not None else []), False
    return told, True


def check_bound(told: list[Vote]) -> None:
    """The next life, which would make a file with another identity where there is none, is bound by what was told."""
    proxy = Proxy("f" * 16)
    (now,) = proxy.votes(look())
    for vote in told:
        assert now.outcome is VoteOutcome.REPORTED
        assert now.identity == vote.identity == IDENTITY
        assert now.promised >= vote.promised
        assert now.ballot >= vote.ballot
        (again,) = proxy.votes(prepare(vote.promised))
        assert again.outcome is VoteOutcome.REFUSED
    if told and now.ballot == told[-1].ballot:
        assert now.view == told[-1].view


@pytest.mark.parametrize("power", [False, True])
def test_a_proxy_killed_at_any_disk_access_is_bound_by_its_sent_votes(power: bool) -> None:
    kills = 0
    for access in count():
        disk = fresh()
        disk.kill_in = access
        told, ended = lived(disk)
        disk.kill_in = None
        if power:
            disk.cut_power(Random(access))
        else:
            disk.end_process()
        check_bound(told)
        if ended:
            break
        kills += 1
    assert [vote.outcome.value for vote in told] == [
        "reported",
        "promised",
        "accepted",
        "promised",
        "accepted",
        "promised",
    ]
    assert kills > len(SCRIPT)


def test_a_disk_failure_at_any_access_ends_the_proxy_before_its_vote_is_sent() -> None:
    failures = 0
    for access in count():
        disk = fresh()
        disk.fail_in = access
        told, ended = lived(disk)
        disk.end_process()
        check_bound(told)
        if ended:
            break
        failures += 1
    assert failures > len(SCRIPT)


@pytest.mark.parametrize("place", range(len(SCRIPT)))
def test_no_vote_is_sent_on_a_full_disk_and_a_promise_is_reported_later(place: int) -> None:
    disk = fresh()
    proxy = Proxy(IDENTITY)
    for asked in SCRIPT[:place]:
        assert len(proxy.votes(asked)) == 1
    disk.full = True
    assert proxy.votes(SCRIPT[place]) == []
    assert proxy.votes(SCRIPT[place]) == []
    assert proxy.votes(look()) == []
    assert proxy.core.suspended
    disk.full = False
    proxy.clock.now += traffic.RETRY_SECONDS
    proxy.votes(look())
    (vote,) = proxy.votes(look())
    assert vote.outcome is VoteOutcome.REPORTED
    assert vote.promised == max(150, SCRIPT[place].promised if place == 0 else SCRIPT[place].ballot)  # type: ignore[union-attr]
    disk.end_process()
    check_bound([vote])


def test_a_proxy_killed_on_a_full_disk_is_bound_only_by_its_sent_votes() -> None:
    disk = fresh()
    proxy = Proxy(IDENTITY)
    told = proxy.votes(SCRIPT[0])
    disk.full = True
    assert proxy.votes(prepare(200)) == []
    disk.end_process()
    disk.full = False
    check_bound(told)
    (vote,) = Proxy("f" * 16).votes(prepare(200))
    assert vote.outcome is VoteOutcome.PROMISED
