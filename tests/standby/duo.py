"""Two members, composed as shipped, and the proxies' registers: no sockets, and disks of a few lines.

Each message goes through the codec, and arrives at once unless the link is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from pubsub.protocol import decode, encode
from pubsub.protocol.batch import Buffer
from pubsub.protocol.register import View, VoteOutcome
from pubsub.protocol.standby import EntryId
from pubsub.proxy.register import Registers
from pubsub.proxy.remembered import RegisterRow, RouteChanges
from pubsub.server.standby.election.failure_detector import Times
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.standby.member import Member, Role
from pubsub.server.standby.replication.entries import Entry, changes_of
from pubsub.server.topic.changes import NoteKept
from tests.standby.cast import BOTH, STORE, A, B

TIMES = Times(heartbeat=1.0, patience=3.0, beat=0.25, silence=0.625, switch=3.0, doubt=0.5, take=1.0, sticky=0.5)
STEP = 0.05
BASE = EntryId(100, 0)
C = "c" * 16


def travelled(message: Any) -> Any:
    return decode(*encode(message))


class Disk:
    """A member's: the entries behind `base`, up to where the store has them."""

    def __init__(self) -> None:
        self.base = BASE
        self.chain: list[Entry] = []
        self.applied = BASE

    @property
    def end(self) -> EntryId:
        return self.chain[-1].id if self.chain else self.base

    def holds(self, entry: EntryId) -> bool:
        return entry == self.base or any(one.id == entry for one in self.chain)

    def behind(self, entry: EntryId) -> list[Entry]:
        return [one for one in self.chain if one.id > entry]

    def read(self, after: EntryId, bytes_max: int, entries_max: int) -> list[Entry]:
        return self.behind(after)[:entries_max]

    def cut(self, end: EntryId) -> None:
        self.chain = [one for one in self.chain if one.id <= end]

    def values(self) -> list[int]:
        changes = [change for one in self.chain for change in changes_of(one)]
        return [one.value for one in changes if isinstance(one, NoteKept) and isinstance(one.value, int)]


class Node:
    """A member and its shell's work."""

    def __init__(self, duo: Duo, name: str, store: str = STORE) -> None:
        self.duo, self.name, self.store, self.disk = duo, name, store, Disk()
        self.up, self.silent = False, False
        self.terms: list[int] = []
        self.released: list[int] = []

    def start(self, *, eligible: bool = True) -> None:
        duo = self.duo
        identity = Identity("s1", self.store, self.name, f"tcp://{self.name[0]}:1")
        self.member = Member(identity, duo.names, TIMES, Random(self.name), duo.now, registered=True, eligible=eligible)
        self.up = True
        self.member.follow(self.disk.applied, self.disk.behind(self.disk.applied), duo.now, duo.wall_ms)
        self.told_at = duo.now

    def crash(self) -> None:
        """The primary's own commits are on its disk, and its later writes are not."""
        self.up = False
        if self.member.leading is not None:
            self.disk.cut(self.disk.applied)

    @property
    def serves(self) -> bool:
        return self.up and self.member.role is Role.PRIMARY and not self.member.over

    def put(self, value: int) -> None:
        """One loop of a primary; the value is in `released` when a client would be answered."""
        leading = self.member.leading
        assert leading is not None
        self.loop([value], [NoteKept("n", value)])

    def loop(self, out: list[int], changes: Sequence[Any]) -> None:
        leading = self.member.leading
        assert leading is not None
        entry = leading.begin(changes)
        if entry is not None:
            self.disk.chain.append(entry)
        self.duo.exchange()
        self.disk.applied = self.disk.end
        leading.committed()
        leading.hold(out, 1)

    def turn(self) -> None:
        member, now = self.member, self.duo.now
        member.tick(now, self.duo.wall_ms)
        if member.role is Role.TAKING:
            assert member.following is not None
            self.disk.applied = self.disk.end
            self.terms.append(member.term)
            member.lead(self.disk.end, self.disk, now)
            self.loop([], [])
        if member.over:
            self.disk.cut(self.disk.applied)
            member.follow(self.disk.applied, [], now, self.duo.wall_ms)
        if member.role is Role.PRIMARY and now >= self.told_at and not self.silent:
            self.told_at = now + TIMES.heartbeat
            for place, proxy in enumerate(self.duo.proxies):
                if (self.name, place) not in self.duo.cut and not proxy.received(STORE, self.name, member.term, now):
                    member.deposed_by(member.term + 1)
        if member.leading is not None:
            self.released += member.leading.released()

    def write(self) -> None:
        following = self.member.following
        if following is None:
            return
        write = following.to_write()
        if write is not None:
            if write.cut is not None:
                self.disk.cut(write.cut)
            self.disk.chain += write.entries
            following.synced(self.disk.end)
        while entries := following.to_apply():
            self.disk.applied = entries[-1].id
            following.applied_to(entries[-1].id)


class Duo:
    """Both members and three proxies, or as many as are asked for."""

    def __init__(self, view: View | None = BOTH, proxies: int = 3) -> None:
        self.now = 50.0
        self.names = [f"tcp://p{place}:2" for place in range(proxies)]
        rows = [] if view is None else [RegisterRow(STORE, 100, 100, view)]
        self.proxies = [Registers(f"p{n}", f"{n:016x}", rows, RouteChanges(), 3.0) for n in range(proxies)]
        self.a, self.b = Node(self, A), Node(self, B)
        self.cut: set[Any] = set()
        """Names of members whose link to the other is cut, or (member, place of a proxy)."""

    @property
    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def exchange(self) -> None:
        for node, other in ((self.a, self.b), (self.b, self.a)):
            if not node.up:
                continue
            for place, message in node.member.to_proxies():
                if (node.name, place) not in self.cut:
                    vote = self.proxies[place].handle(travelled(message), self.now)
                    self.answered(place, node)
                    if "votes" not in self.cut or vote.outcome is not VoteOutcome.ACCEPTED:
                        node.member.vote(place, travelled(vote), self.now)
            for said, entries in node.member.to_other(self.now):
                frames: list[Buffer] = [bytes(part) for entry in entries for part in entry.parts]
                if other.up and node.name not in self.cut:
                    other.member.receive(travelled(said), frames, self.now)
                    other.write()

    def answered(self, place: int, asking: Node) -> None:
        """A proxy that is asked has the primary answer at once."""
        for node in (self.a, self.b):
            if node is not asking and node.serves and not node.silent and (node.name, place) not in self.cut:
                self.proxies[place].received(STORE, node.name, node.member.term, self.now)

    def run(self, seconds: float) -> None:
        for _ in range(round(seconds / STEP)):
            self.now += STEP
            for node in (self.a, self.b):
                if node.up:
                    node.turn()
            for _ in range(3):
                self.exchange()
            self.copy()
            assert not (self.a.serves and self.b.serves) or self.a.member.term != self.b.member.term
            for node in (self.a, self.b):
                leading = node.member.leading if node.up else None
                if leading is not None and not leading.deposed:
                    assert {*node.member.proposer.required} <= {node.name, *leading.required}

    def copy(self) -> None:
        """A copy by the primary is complete at once."""
        for one, other in ((self.a, self.b), (self.b, self.a)):
            leading = one.member.leading if one.serves and other.up and not self.cut & {A, B} else None
            wanted = None if leading is None else leading.to_copy()
            if wanted is None or wanted[0] != other.name or other.member.following is None:
                continue
            following, end = other.member.following, one.disk.applied
            if following.begin_copy(one.member.term, wanted[1], end) and following.copied(wanted[1]):
                other.disk.chain, other.disk.applied = [entry for entry in one.disk.chain if entry.id <= end], end

    def forget(self, place: int, life: int) -> None:
        """A proxy loses its data."""
        self.proxies[place] = Registers(f"p{place}", f"{life:016x}", [], RouteChanges(), 3.0)

    def restart(self, place: int) -> None:
        """A proxy starts again with the content of its disk."""
        proxy = self.proxies[place]
        rows = list(proxy.rows.values())
        self.proxies[place] = Registers(f"p{place}", proxy._identity, rows, RouteChanges(), 3.0)

    def settled(self) -> bool:
        """Whether one serves, both are in sync, and all proxies vote."""
        serving = [node.member.leading for node in (self.a, self.b) if node.serves]
        votes = all(STORE in proxy.rows for proxy in self.proxies)
        return votes and len(serving) == 1 and serving[0] is not None and serving[0].in_sync == {A, B}

    def until_serves(self, node: Node, seconds: float = 30.0) -> None:
        for _ in range(round(seconds / STEP)):
            if node.serves:
                return
            self.run(STEP)
        raise AssertionError("does not serve")

    def started(self) -> Duo:
        self.a.start()
        self.b.start()
        self.until_serves(self.a)
        self.run(5.0)
        return self


def views(duo: Duo) -> set[tuple[str, tuple[str, ...]]]:
    return {(row.view.primary, row.view.in_sync) for one in duo.proxies if (row := one.rows[STORE]).view is not None}
