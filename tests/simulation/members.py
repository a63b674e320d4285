"""A server with two members in the simulated world: the shipped process in both, on simulated sockets and disks.

`MemberNode` is one member's process, on its own host. `Paired` is the server of the two, for callers that ask the cast
for a server: its content is the memory of its primary.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from pubsub.base.database import Turns
from pubsub.protocol.standby import EntryId
from pubsub.server.core import ServerCore
from pubsub.server.group_commit import GroupCommit
from pubsub.server.loop import Loop
from pubsub.server.pair import Pair
from pubsub.server.process import ServerProcess
from pubsub.server.standby.disk.held_answers import HeldAnswers
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.state.replies import Outgoing
from pubsub.server.storage.checkpoint import Checkpointer
from pubsub.server.storage.store import Store
from tests.simulation.disk import NAME
from tests.simulation.files import DiskPath
from tests.simulation.nodes import WAL_PAGES, Reserve, ServerNode, SimulatedSockets, SteppedGroupCommit
from tests.simulation.world import Host, World

if TYPE_CHECKING:
    from tests.simulation.told import Told

STREAM_BYTES = 20_000
"""Bytes of entries that a member keeps: one that was away for long is copied."""

MemberStore = partial(Store, vfs=NAME)


def small_stream(directory: Path, end: EntryId, *, bytes_max: int, forget: bool) -> Stream:
    """A stream that keeps little."""
    return Stream(directory, end, bytes_max=STREAM_BYTES, forget=forget)


class MemberNode(ServerNode):
    """One member."""

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...], server: str, told: Told) -> None:
        super().__init__(world, host, proxies)
        self.server, self.told = server, told
        self.served: ServerCore | None = None
        self.settings = replace(
            self.settings,
            id=server,
            directory=DiskPath(f"/{host.name}"),
            standby_heartbeat_seconds=world.fate.heartbeat / 3,
        )

    def join(self, address: str) -> None:
        """Be a second member from the next start on, of the one at an address."""
        self.settings = replace(self.settings, standby_of=address)

    def begin(self) -> None:
        self.upgrade()
        self._sockets = SimulatedSockets(self)
        self.process = Member(self)
        self.process.open()
        self._note_copy()

    def _note_copy(self) -> None:
        if (pair := self.process.pair) is None or pair.disk.store is not None:
            self.note_store()  # Not before it has its first copy.

    @property
    def pair(self) -> Pair | None:
        """The state of one of two members; None while it does not run, or is alone."""
        return self.process.pair if self.alive and self.life else None

    @property
    def serves(self) -> bool:
        """Whether it is alive and serves: alone, or as the primary."""
        return self.alive and hasattr(self, "process") and self.process.serves

    @property
    def core(self) -> ServerCore:  # type: ignore[override]
        """Of the present or last primary."""
        if self.served is None:
            raise AttributeError("core")
        return self.served

    @property
    def group_commit(self) -> GroupCommit:  # type: ignore[override]
        """Of a server that serves."""
        return self.process.group_commit

    @property
    def loop(self) -> Loop:  # type: ignore[override]
        """Of a server that serves."""
        return self.process.loop

    def turn(self) -> None:
        self.process.act(self._sockets.arrived(), self.host.monotonic())

    def deadline(self) -> float:
        if self.inbox or self._sockets.waiting:
            return float("-inf")
        return self.process.deadline

    def compare(self) -> None:
        if self.serves:
            super().compare()

    def has_begun(self) -> bool:
        if self.pair is not None:
            self._note_copy()
        return super().has_begun()

    def end(self, how: str) -> None:
        if self.pair is not None:
            self._note_copy()
        super().end(how)


class Member(ServerProcess):
    """A member's process as it ships, on simulated sockets."""

    def __init__(self, node: MemberNode) -> None:
        self._node = node
        self.settings, self._clock = node.settings, node.host
        self._keys = self._access = None
        self.address = self._told = node.address
        self._random = Random(node.world.random.getrandbits(64))
        self._stopping = self._serving = self._asked_to_pair = self._unpaired = False
        self._closers = []
        self._pair = None
        self._counters = Counter()
        self._links: Any = node._sockets
        self._listener: Any = node.address

    def open(self) -> None:
        """Start, as far as that is not about sockets."""
        self._open_disk()
        if self._disk is None:
            self._serve(None)
        else:
            self._start_member(self._disk)

    def act(self, ready: Any, now: float) -> None:
        """One turn."""
        self._act(ready, now)

    @property
    def pair(self) -> Pair | None:
        """The state of one of two members."""
        return self._pair

    @property
    def serves(self) -> bool:
        """Whether it serves."""
        return self._serving

    @property
    def group_commit(self) -> GroupCommit:
        """Of a server that serves."""
        return self._group_commit

    @property
    def loop(self) -> Loop:
        """Of a server that serves."""
        return self._loop

    # The parts that differ in this world

    def _watch_listener(self) -> None:
        pass

    _unwatch_listener = _watch_listener

    def _make_group_commit(self, loops: HeldAnswers | None, lock: Turns | None) -> GroupCommit:
        node, host, reserve = self._node, self._node.host, self._reserve()
        now, wall = host.monotonic(), host.wall()
        return MemberGroupCommit(node, self.settings, self._store, reserve, self._random, now, wall, loops, lock)

    def _reserve(self) -> Reserve:
        return Reserve(self._node.host.disk)

    def _make_checkpointer(self) -> Any:
        return Checkpoints(self._node, self._store, self._group_commit.lock)


class MemberGroupCommit(SteppedGroupCommit):
    """Records each answer with the time at which it was computed."""

    def __init__(self, node: MemberNode, *arguments: Any) -> None:
        super().__init__(node, *arguments)
        self._member, node.served = node, self.core
        node.told.begins(node, self.core)
        computed = self.core.outgoing

        def outgoing(now: float) -> list[Outgoing]:
            out = computed(now)
            node.told.computed(self.core, out)
            return out

        self.core.outgoing = outgoing  # type: ignore[method-assign]

    def outgoing(self, now: float) -> list[tuple[Outgoing, list[bytes | memoryview]]]:
        out = super().outgoing(now)
        self._member.told.left(self._member, self.core, [one for one, _ in out])
        return out


class Checkpoints:
    """The work of the checkpoint thread meanwhile; not while a copy reads the store, which SQLite would spare."""

    def __init__(self, node: MemberNode, store: Store, lock: Turns) -> None:
        self._node, self._store = node, store
        self._checkpointer = Checkpointer(store, lock, lambda: None)

    def start(self) -> None:
        """It has no thread."""

    stop = start

    def check(self) -> None:
        """As a server alone."""
        node, db = self._node, self._store.db
        wal = node.host.disk.files.get(f"/{node.name}/server.db-wal")
        pair = node.process.pair
        if wal is not None and len(wal.data) > WAL_PAGES * 16_400 and (pair is None or not pair.giving.busy):
            self._checkpointer.attempt(db)
            db.pragma("journal_size_limit", 0)
        self._checkpointer.check()


class Paired:
    """A server of two members.

    Attributes:
        members: both.
        last: the member that served last.
    """

    def __init__(self, name: str, members: tuple[MemberNode, MemberNode]) -> None:
        self.name, self.members = name, members
        self.last = members[0]
        members[1].join(members[0].address)

    def other(self, member: MemberNode) -> MemberNode:
        """The other one."""
        return self.members[1] if member is self.members[0] else self.members[0]

    @property
    def active(self) -> MemberNode:
        """The primary; of two that believe to be it, the one with the higher term; without one, the last one."""
        serving = [member for member in self.members if member.serves]
        if serving:
            self.last = max(serving, key=lambda member: member.core.state.incarnation)
        return self.last

    @property
    def alive(self) -> bool:
        """Whether somebody serves."""
        return self.active.serves

    @property
    def core(self) -> ServerCore:
        """Of the primary."""
        return self.active.core

    @property
    def host(self) -> Host:
        """Of the primary."""
        return self.active.host

    @property
    def address(self) -> str:
        """Of the primary."""
        return self.active.address

    @property
    def settings(self) -> Any:
        """Of the primary."""
        return self.active.settings

    @property
    def restarting(self) -> bool:
        """Whether somebody is to start it."""
        return any(member.restarting for member in self.members)

    @restarting.setter
    def restarting(self, so: bool) -> None:
        for member in self.members:
            member.restarting = so

    @property
    def found(self) -> list[str]:
        """The differences between memory and store."""
        return [line for member in self.members for line in member.found]

    @property
    def totals(self) -> Counter[str]:
        """The counts of all ended processes."""
        return self.members[0].totals + self.members[1].totals

    def end(self, how: str) -> None:
        """Both are gone."""
        for member in self.members:
            member.end(how)

    def pause(self, seconds: float) -> None:
        """The primary is paused."""
        self.active.pause(seconds)

    def compare(self) -> None:
        """Check that the store equals the memory."""
        for member in self.members:
            member.compare()

    def store_id(self) -> str:
        """Of its store."""
        return self.active.store_id() if hasattr(self.active, "core") else self.name

    def witnessed(self) -> set[str]:
        """The other stores that it knows of, durably."""
        return self.active.witnessed()


Server = ServerNode | Paired
"""A server of the cast: one process, or two."""


def members_of(server: Server) -> tuple[ServerNode, ...]:
    """The processes of a server."""
    return server.members if isinstance(server, Paired) else (server,)
