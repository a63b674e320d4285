"""Servers and proxies of the simulated world: the shipped code on simulated sockets and disks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import apsw

from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.messenger.framing import pack
from pubsub.protocol import Merge, encode
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.outbox import ORIGIN_MARK, Send
from pubsub.proxy.process import ProxyProcess
from pubsub.proxy.routes import RoutesStore
from pubsub.server.links import LISTENER
from pubsub.server.serving import Serving
from pubsub.server.store import Store
from tests.simulation import memory
from tests.simulation.disk import NAME, Disk, Killed
from tests.simulation.situations import answered
from tests.simulation.world import Host, Process, World

DRAIN_MAX = 64
WAL_PAGES = 60
PEER_SECONDS = 10.0
TIGHT: dict[str, Any] = {"answer_bytes_max": 60, "backlog_bytes_max": 1500, "history_bytes_max": 300}
"""Limits that a run reaches, in bytes."""


class Reserve:
    """The reserve file of a server on a simulated disk."""

    def __init__(self, disk: Disk) -> None:
        self.disk, self.size = disk, 4096

    def make(self) -> bool:
        return not self.disk.full

    def release(self) -> None:
        pass


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
            **(TIGHT if fate.tight else {}),
        )
        self.serving: Serving
        self.kill_at_step = ""
        self.found: list[str] = []
        """What was otherwise in memory than in the store."""
        self._turning = False
        self.totals: Counter[str] = Counter()
        """What the processes that have ended counted, and what was answered."""

    def begin(self) -> None:
        host = self.host
        self.serving = self.make_serving(Store(Path(f"/{self.name}"), vfs=NAME), Reserve(host.disk))
        self.core = self.serving.core
        self.core.links.address = self.address
        network = self.world.network
        self._dealers = [
            network.connect(self, address, index, fifo=True) for index, address in enumerate(self.settings.proxies)
        ]
        self._peers: dict[str, tuple[Any, float]] = {}

    def make_serving(self, store: Store, reserve: Reserve) -> Serving:
        host = self.host
        return Serving(
            self.settings, store, reserve, Random(self.world.random.getrandbits(64)), host.monotonic(), host.wall()
        )

    def turn(self) -> None:
        now, core, serving = self.host.monotonic(), self.core, self.serving
        batch, self.inbox = self.inbox[:DRAIN_MAX], self.inbox[DRAIN_MAX:]
        for source, *frames in batch:
            if source == self.address:
                serving.handle(LISTENER, frames, now)
            elif isinstance(source, str):
                if source in self._peers:
                    self._peers[source] = (self._peers[source][0], now)
                serving.handle(source, [b"", *frames], now)
            else:
                serving.handle(source, frames, now)
        core.tick(now)
        if core.links.taken(now):
            self.host.disk.end_process()
            raise Killed
        self.step("before commit")
        self.commit_and_send(now)
        serving.check_full(now)
        self._checkpoint()

    def commit_and_send(self, now: float) -> None:
        """The order that everything rests on: commit, then send."""
        self.serving.commit(now)
        self.step("after commit")
        self._reconnect()
        for index, (out, frames) in enumerate(self.serving.outgoing(now)):
            answered(self.totals, out)
            if index:
                self.step("while sending")
            self._transmit(out.link, [bytes(frame) for frame in frames])

    def step(self, name: str) -> None:
        """Where a process may be killed."""
        if self.kill_at_step == name:
            self.kill_at_step = ""
            self.host.disk.end_process()
            raise Killed

    def _transmit(self, link: int | str, frames: list[bytes]) -> None:
        network = self.world.network
        if isinstance(link, str):
            network.to_router(self._peer(link), tuple(frames[1:]))
        elif link == LISTENER:
            network.to_dealer(self, frames[0], tuple(frames[1:]))
        else:
            network.to_router(self._dealers[link], tuple(frames))

    def _peer(self, address: str) -> Any:
        now, network = self.host.monotonic(), self.world.network
        known = self._peers.get(address)
        if known is not None and now - known[1] < PEER_SECONDS:
            return known[0]
        if known is not None:
            network.close(known[0])
        link = network.connect(self, address, address, fifo=False)
        self._peers[address] = (link, now)
        return link

    def _reconnect(self) -> None:
        network = self.world.network
        for proxy in self.core.links.reconnect:
            network.close(self._dealers[proxy])
            self._dealers[proxy] = network.connect(self, self.settings.proxies[proxy], proxy, fifo=True)
        self.core.links.reconnect.clear()

    def _checkpoint(self) -> None:
        wal = self.host.disk.files.get(f"/{self.name}/server.db-wal")
        if wal is not None and len(wal.data) > WAL_PAGES * 16_400:
            try:
                self.serving.store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.Error:
                return  # It is tried again; the shipped thread logs it.
            self.serving.store.db.pragma("journal_size_limit", 0)

    def deadline(self) -> float:
        if self.inbox:
            return float("-inf")
        return self.core.deadline()

    def store_id(self) -> str:
        """Of its store; its name until it has one."""
        return self.core.store_id if self.life and hasattr(self, "core") else self.name

    def witnessed(self) -> set[str]:
        """The other stores that this server knows of, durably."""
        return set(self.core.stores._stored[0]) if hasattr(self, "core") else set()

    def ended(self) -> None:
        self.kill_at_step = ""
        if hasattr(self, "core"):
            self.totals.update(self.core.counters)

    def _guarded(self, call: Callable[[], None]) -> None:
        self._turning = True
        super()._guarded(call)
        self._turning = False

    def end(self, how: str) -> None:
        self.compare()
        super().end(how)

    def compare(self) -> None:
        """See that the store has what is in memory, as it must between two turns."""
        if self.alive and not self._turning:
            self.found += memory.check(self)

    def expected(self, error: BaseException) -> bool:
        return self.host.disk.explains(error)


class _Proxy(ProxyProcess):
    """A proxy's process without its sockets: what it does with the routes file is as it ships."""

    def __init__(self, node: ProxyNode) -> None:
        self.settings = node.settings
        self._store = RoutesStore(node.settings.directory, vfs=NAME)
        self.core = ProxyCore(node.settings, node.host.monotonic(), node.host.wall(), self._store.load())
        self._retry_at = 0.0
        self._node = node

    def _deliver(self, send: Send, now: float) -> None:
        if not self._node.transmit(send.link, send.frames):
            self.core.undelivered(send, now, gone=True)

    def settle(self, now: float) -> None:
        self._settle(now)

    def retry(self, now: float) -> None:
        if self.core.suspended and now >= self._retry_at:
            self._retry(now)


class ProxyNode(Process):
    """A proxy."""

    def __init__(self, world: World, host: Host) -> None:
        super().__init__(world, host)
        self.addresses = list(proxy_addresses(self.name))
        self.settings = ProxySettings(
            id=self.name,
            bind=self.addresses[0],
            servers=self.addresses[1],
            directory=Path(f"/{self.name}"),
            heartbeat_seconds=world.fate.heartbeat,
        )

    def begin(self) -> None:
        self._process = _Proxy(self)
        self.core = self._process.core

    def turn(self) -> None:
        now, core, process = self.host.monotonic(), self.core, self._process
        batch, self.inbox = self.inbox[:DRAIN_MAX], self.inbox[DRAIN_MAX:]
        if now >= core.deadline:
            core.tick(now)
            process.settle(now)
        for source, link, *frames in batch:
            usual = (
                self._from_client(link, frames, now)
                if source == self.addresses[0]
                else self._from_server(link, frames, now)
            )
            if not usual:
                process.settle(now)
        process.retry(now)
        process.settle(now)
        core.notices.take()

    def _from_client(self, client: bytes, frames: list[bytes], now: float) -> bool:
        core = self.core
        server = core.route(frames[0], now)
        if server is None:
            core.client_message(client, tuple(frames), now)
            return False
        send = Send(True, server, (ORIGIN_MARK + client, *frames))
        if not self.transmit(server, send.frames):
            core.undelivered(send, now, gone=True)
            return False
        return True

    def _from_server(self, link: bytes, frames: list[bytes], now: float) -> bool:
        core = self.core
        server = core.table.links.get(link)
        if len(frames) < 2 or server is None or frames[0][:1] != ORIGIN_MARK or core.suspended:
            core.server_message(link, tuple(frames), now)
            return False
        server.liveness.heard(now)
        send = Send(False, frames[0][1:], tuple(frames[1:]))
        if not self.transmit(send.link, send.frames):
            core.undelivered(send, now, gone=True)
            return False
        return True

    def transmit(self, link: bytes, frames: tuple[Any, ...]) -> bool:
        return self.world.network.to_dealer(self, link, tuple(bytes(frame) for frame in frames))

    def merge(self, giver: str, topic: str, address: str) -> None:
        """An operator's move: have a server give a topic to the one at an address."""
        server = self.core.table.named(giver)
        if server is not None and server.link is not None:
            head, _ = encode(Merge(self.name, topic, address))
            self.transmit(server.link, (b"", pack(0, 0, 0) + head))

    def deadline(self) -> float:
        if self.inbox:
            return float("-inf")
        retry = self._process._retry_at if self.core.suspended else float("inf")
        return min(self.core.deadline, retry)

    def expected(self, error: BaseException) -> bool:
        return self.host.disk.explains(error)
