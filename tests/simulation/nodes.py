"""Servers and proxies of the simulated world: the shipped code on simulated sockets and disks."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Container
from hashlib import blake2b
from pathlib import Path
from random import Random
from typing import Any

import apsw
import zmq

from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.errors import ConfigurationError, StoreFull
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import Frames
from pubsub.messenger.unsent import Unsent
from pubsub.protocol import Merge, encode
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.process import UNREAD_BYTES_MAX, UNREAD_TOTAL_MAX, ProxyProcess
from pubsub.proxy.routes_file import RoutesStore
from pubsub.server.group_commit import GroupCommit
from pubsub.server.loop import Loop, check_stale
from pubsub.server.state.replies import Origin, Outgoing
from pubsub.server.storage.checkpoint import Checkpointer
from pubsub.server.storage.schema import FILE
from pubsub.server.storage.store import Store
from pubsub.server.topic.commits import Commit
from tests.simulation import memory
from tests.simulation.disk import NAME, Disk, File, Killed
from tests.simulation.situations import answered
from tests.simulation.world import Host, Process, World

WAL_PAGES = 60
MORE = int(zmq.SNDMORE)
"""As a number: an enumeration's member costs ten times as much."""
SECOND = (b"\x94", b"\x92")
"""The first byte of an entry and of a chunk in the second form."""
_FORMED = {b"ENTRY ": "entries", b"TRANSFER ": "chunks"}
"""The messages that carry bytes of either form, and the kind of these bytes."""
_FORM = re.compile(rb" form=[234](?= )")
_HEAD_BYTES = 120
TIGHT: dict[str, Any] = {"answer_bytes_max": 60, "backlog_bytes_max": 1500, "history_bytes_max": 300}
"""Limits that a run reaches, in bytes."""


class Reserve:
    """The reserve file of a server on a simulated disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk, self.size = disk, 4096

    def make(self) -> bool:
        self.disk.reserved = self.disk.keeps_reserve and not self.disk.full
        if not self.disk.full:
            self.disk.spare = False
        return not self.disk.full

    def release(self) -> None:
        self.disk.spare = self.disk.spare or self.disk.reserved
        self.disk.reserved = False


def proxy_addresses(name: str) -> tuple[str, str]:
    """Where clients and where servers connect to a proxy."""
    return f"tcp://{name}:1", f"tcp://{name}:2"


class ServerNode(Process):
    """A server."""

    def __init__(self, world: World, host: Host, proxies: tuple[str, ...]) -> None:
        super().__init__(world, host)
        fate = world.fate
        self.address = f"tcp://{self.name}:3"
        self.addresses = [self.address]
        hold = 2 * fate.skew + 3 * fate.heartbeat + 0.2
        self.settings = ServerSettings(
            id=self.name,
            bind=self.address,
            proxies=tuple(proxy_addresses(name)[1] for name in proxies),
            directory=Path(f"/{self.name}"),
            heartbeat_seconds=fate.heartbeat,
            announce_seconds=fate.announce,
            retention_hold_seconds=hold,
            skew_seconds=fate.skew,
            answer_records_max=20,
            topics_auto=fate.auto,
            member_liveness_seconds=fate.member_liveness,
            **(TIGHT if fate.tight else {}),
        )
        self.group_commit: GroupCommit
        self.kill_at_step = ""
        self.found: list[str] = []
        """The differences between memory and store."""
        self.older = False
        """Whether it is of a release that knows neither trains nor the second form of chunks and entries."""
        self.unheard = False
        """Whether its next word on topics that it holds gets lost."""
        self._turning = False
        self._opened: File | None = None
        self.totals: Counter[str] = Counter()
        """The counts of the ended processes, and of their answers."""

    def begin(self) -> None:
        host = self.host
        self.upgrade()
        self.group_commit = self.make_group_commit(Store(Path(f"/{self.name}"), vfs=NAME), Reserve(host.disk))
        self.core = self.group_commit.core
        check_stale(self.settings, self.core)
        self.core.proxies.address = self.address
        self._checkpointer = Checkpointer(self.group_commit.store, self.group_commit.lock, lambda: None)
        self._sockets = SimulatedSockets(self)
        self.loop = Loop(self.settings, self.group_commit, self._sockets, self.address, self._check)
        self.note_store()

    def upgrade(self) -> None:
        """Be of this release from the second start on, where the run upgrades."""
        self.older = self.older and not (self.life > 1 and self.world.fate.upgrades)

    def make_group_commit(self, store: Store, reserve: Reserve) -> GroupCommit:
        host = self.host
        random = Random(self.world.random.getrandbits(64))
        return SteppedGroupCommit(self, self.settings, store, reserve, random, host.monotonic(), host.wall())

    def turn(self) -> None:
        self.loop.turn(self._sockets.arrived(), self.host.monotonic())

    def step(self, name: str) -> None:
        """Where a process may be killed."""
        if self.kill_at_step == name:
            self.kill_at_step = ""
            self.host.disk.end_process()
            raise Killed

    def _check(self) -> None:
        """The work of the checkpoint thread meanwhile, and the loop's question to it."""
        wal = self.host.disk.files.get(f"/{self.name}/server.db-wal")
        db = self.group_commit.store.db
        if wal is not None and len(wal.data) > WAL_PAGES * 16_400:
            self._checkpointer.attempt(db)
            db.pragma("journal_size_limit", 0)
        self._checkpointer.check()

    def deadline(self) -> float:
        if self.inbox or self._sockets.waiting:
            return float("-inf")
        return self.core.deadline()

    def store_id(self) -> str:
        """Of its store; its name until it has one."""
        return self.core.state.store_id if self.life and hasattr(self, "core") else self.name

    def witnessed(self) -> set[str]:
        """The other stores that this server knows of, durably."""
        return set(self.core.stores.announced[0]) if hasattr(self, "core") else set()

    def ended(self) -> None:
        self.kill_at_step = ""
        if hasattr(self, "core"):
            self.totals.update(self.core.state.counters)

    def _guarded(self, call: Callable[[], None]) -> None:
        self._turning = True
        super()._guarded(call)
        self._turning = False

    def end(self, how: str) -> None:
        self.compare()
        super().end(how)

    def compare(self) -> None:
        """Check that the store equals the memory, as it must between two turns."""
        if self.alive and not self._turning:
            self.found += memory.check(self)

    def note_store(self) -> None:
        """A store is open: from here on its file is one."""
        self._opened = self._store_file()

    def _store_file(self) -> File | None:
        return self.host.disk.files.get(f"/{self.name}/{FILE}")

    def has_begun(self) -> bool:
        """Whether it has a store with a possible reserve: a file that was never opened may be just begun."""
        return self._opened is not None and self._store_file() is self._opened

    def expected(self, error: BaseException) -> bool:
        # Its ID may be taken by its own earlier life, which does not count as silent yet.
        disk, full = self.host.disk, isinstance(error, StoreFull | apsw.FullError)
        if full and disk.keeps_reserve and not disk.broken and self.has_begun():
            self.found.append(f"{self.name} ended on a full disk: {type(error).__name__}: {error}")
        return isinstance(error, ConfigurationError) or self.host.disk.explains(error)


class SimulatedSockets:
    """A server's sockets on the simulated network: its own address, and links to others."""

    def __init__(self, node: ServerNode) -> None:
        self._node = node
        self.waiting: dict[Any, deque[list[bytes | memoryview]]] = {}
        """Arrived and untaken messages, by socket."""
        self._sent = False

    def arrived(self) -> Container[Any]:
        """Take over arrived messages; returns the sockets that have some."""
        node, waiting = self._node, self.waiting
        batch, node.inbox = node.inbox, []
        for source, *frames in batch:
            waiting.setdefault(source, deque()).append(frames)
        self._sent = False
        return waiting

    def dealer(self, address: str) -> Any:
        """A link; that to a proxy is one TCP connection, in order."""
        link = self._node.world.network.connect(self._node, address, None, fifo=address in self._node.settings.proxies)
        link.key = link
        return link

    to_server = dealer

    def to_member(self, address: str) -> Any:
        """A link to the other member: one TCP connection, in order."""
        link = self._node.world.network.connect(self._node, address, None, fifo=True)
        link.key = link
        return link

    def receive_known(self, listener: Any) -> tuple[None, list[bytes | memoryview]] | None:
        frames = self.receive(listener)
        return None if frames is None else (None, frames)

    def ended(self, sock: Any) -> bool:
        """Never: the other member is only silent, as where its host is gone."""
        return False

    def close(self, sock: Any, linger_ms: int = 0) -> None:
        self._node.world.network.close(sock)
        self.waiting.pop(sock, None)

    def receive(self, sock: Any) -> list[bytes | memoryview] | None:
        queue = self.waiting.get(sock)
        if not queue:
            return None
        frames = queue.popleft()
        if not queue:
            del self.waiting[sock]
        self._look_at_forms(frames)
        return self._as_older(frames) if self._node.older else frames

    def _look_at_forms(self, frames: list[Any]) -> None:
        """Count the forms that arrive; an older release must be sent none that it cannot read."""
        node = self._node
        name = next((name for name in _FORMED if any(name in bytes(frame[:_HEAD_BYTES]) for frame in frames[:2])), None)
        if name is None:
            return
        kind = _FORMED[name]
        for frame in frames[1:]:
            form = 1 if bytes(frame[:1]) == b"{" else 2 if bytes(frame[:1]) in SECOND else 0
            if form == 2 and node.older:
                node.found.append(f"{node.name}, of an older release, was sent {kind} of the second form")
            elif form and not (form == 1 and node.older):
                node.totals[f"{kind} of form {form} taken by this release"] += 1
            elif form:
                node.totals[f"{kind} taken by an older release"] += 1

    @staticmethod
    def _as_older(frames: list[Any]) -> list[Any]:
        """A message as an older release writes and reads it: without the forms that the sender reads."""
        return [_FORM.sub(b"", bytes(frame)) if len(frame) < 4 * _HEAD_BYTES else frame for frame in frames]

    def send(self, sock: Any, frames: list[Any]) -> bool:
        node = self._node
        frames = self._as_older(frames) if node.older else frames
        if self._sent:
            node.step("while sending")
        self._sent = True
        network = node.world.network
        if node.unheard and len(frames) > 2 and b"PERIODIC " in bytes(frames[1])[:60]:
            node.unheard = False  # The connection is reset, and carries the later messages.
            return True
        if sock is node.address:
            return network.to_dealer(node, frames[0], tuple([bytes(frame) for frame in frames[1:]]))
        network.to_router(sock, tuple([bytes(frame) for frame in frames]))
        return True


class SteppedGroupCommit(GroupCommit):
    """A server between its sockets and its disk, which may be killed around its commit, and counts its answers."""

    def __init__(self, node: ServerNode, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._node = node

    def handle(self, link: int | str, frames: Frames, now: float, speaker: str | None = None) -> int:
        """Take a message; an older release insists on knowing every field that is mandatory."""
        head = bytes(frames[1]) if len(frames) > 1 else b""
        if self._node.older and b" !rows=" in head:
            origin = Origin(link, bytes(frames[0]), unpack(head).source, speaker)
            self._node.totals["trains refused by an older server"] += 1
            self.core.refuse(origin, "PUT insists on '!rows=2', which is not known here", now)
            return 1
        return super().handle(link, frames, now, speaker)

    def commit(self, now: float) -> Commit | None:
        self._node.step("before commit")
        committed = super().commit(now)
        self._node.step("after commit")
        return committed

    def outgoing(self, now: float) -> list[tuple[Outgoing, list[bytes | memoryview]]]:
        out = super().outgoing(now)
        for one, _ in out:
            answered(self._node.totals, one)
        return out


class Router:
    """One ROUTER of a simulated proxy, frame by frame, as the proxy's process uses pyzmq's calls."""

    __slots__ = ("_node", "_out", "_rest", "waiting")

    def __init__(self, node: ProxyNode) -> None:
        self._node = node
        self.waiting: deque[list[bytes]] = deque()
        """Messages that have arrived, each with its last frame first."""
        self._rest: list[bytes] = []
        self._out: list[bytes] = []

    def recv(self, flags: int, copy: bool = True) -> bytes:
        """The next frame."""
        if not self._rest:
            if not self.waiting:
                raise zmq.Again
            self._rest = self.waiting.popleft()
        return self._rest.pop()

    def get(self, option: int) -> int:
        """Whether more frames of the message are to be taken."""
        return bool(self._rest)

    def send(self, frame: Any, flags: int) -> None:
        """Send a frame; the first one names the target, and is refused if the target is known to be gone."""
        out = self._out
        network = self._node.world.network
        if not out and not network.reaches(frame):
            raise zmq.ZMQError(zmq.EHOSTUNREACH)
        out.append(bytes(frame))
        if not flags & MORE:
            network.to_dealer(self._node, out[0], tuple(out[1:]))
            out.clear()


class _Proxy(ProxyProcess):
    """A proxy's process as it ships, on simulated sockets."""

    def __init__(self, node: ProxyNode) -> None:
        self.settings = node.settings
        # Another one for each life of the file, and the same in each run of a seed.
        identity = blake2b(f"{node.name} {node.host.wall()}".encode(), digest_size=8).hexdigest()
        self._store = RoutesStore(node.settings.directory, vfs=NAME, identity=identity)
        self.core = ProxyCore(node.settings, node.host.monotonic(), node.host.wall(), self._store.load())
        self._retry_at = 0.0
        self._clock = node.host
        self._unread = Unsent(UNREAD_BYTES_MAX, UNREAD_TOTAL_MAX)
        self._clients, self._servers = node.routers  # type: ignore[assignment]


class ProxyNode(Process):
    """A proxy."""

    def __init__(self, world: World, host: Host, *, witness: bool = False) -> None:
        super().__init__(world, host)
        self.addresses = list(proxy_addresses(self.name))
        self.settings = ProxySettings(
            id=self.name,
            bind=self.addresses[0],
            servers=self.addresses[1],
            directory=Path(f"/{self.name}"),
            heartbeat_seconds=world.fate.heartbeat,
            witness=witness,
            topics_auto=world.fate.auto,
        )

    def begin(self) -> None:
        self.routers = Router(self), Router(self)
        self._process = _Proxy(self)
        self.core = self._process.core

    def turn(self) -> None:
        batch, self.inbox = self.inbox, []
        clients, servers = self.routers
        for source, *frames in batch:
            (clients if source == self.addresses[0] else servers).waiting.append(frames[::-1])
        self._process.turn([router for router in self.routers if router.waiting], self.host.monotonic())

    def transmit(self, link: bytes, frames: tuple[Any, ...]) -> bool:
        return self.world.network.to_dealer(self, link, tuple(bytes(frame) for frame in frames))

    def merge(self, giver: str, topic: str, address: str) -> None:
        """An operator's move: have a server give a topic to the one at an address."""
        server = self.core.table.named(giver)
        if server is not None and server.link is not None:
            head, _ = encode(Merge(self.name, topic, address))
            self.transmit(server.link, (b"", pack(0, 0, 0) + head))

    def deadline(self) -> float:
        if self.inbox or any(router.waiting for router in self.routers):
            return float("-inf")
        return self.core.deadline

    def expected(self, error: BaseException) -> bool:
        return self.host.disk.explains(error)
