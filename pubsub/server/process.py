"""The server's process: sockets, the loop, the store. It decides nothing (docs/architecture.md, *Cores and shells*).

One loop: drain what the sockets hold, let the core handle it, commit once, send the answers, sleep until the next
message or the core's deadline. A commit that finds the disk full is taken back and answered so; any other failure of
the disk ends the process before it answers, and the next start recovers from what is on the disk.
"""

from __future__ import annotations

import contextlib
import logging
import signal
from collections.abc import Callable, Iterator
from random import SystemRandom
from typing import Any, Final

import apsw
import zmq

from pubsub.clock import Clock, SystemClock
from pubsub.config.settings import ServerSettings
from pubsub.console import announce
from pubsub.errors import ConfigurationError, StorageError, StoreFull
from pubsub.messenger.memory import MemoryGuard, once_free
from pubsub.messenger.sockets import (
    LARGE_BYTES,
    Connections,
    Unsent,
    Wakeup,
    allow_connections,
    open_dealer,
    open_router,
    receive,
    send,
)
from pubsub.protocol.names import check_id
from pubsub.server.changes import NoteKept
from pubsub.server.checkpoint import Checkpointer, grow_log
from pubsub.server.database import translate
from pubsub.server.links import LISTENER
from pubsub.server.serving import ReserveFile, Serving
from pubsub.server.store import Store

DRAIN_MAX: Final = 256
"""Messages taken from one proxy before the loop commits."""

DRAIN_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes after which no more is taken from it in this loop."""

TRANSFER_DRAIN_MAX: Final = 8
"""Messages taken from other servers before the loop commits: chunks are large, and clients wait."""

TRANSFERS_RECEIVED_MAX: Final = 32
"""Messages of one other server that wait to be taken: more than one sends before it is answered."""

PEERS_MAX: Final = 256
"""Other servers that this one has a socket to; for one more, the one that was silent for longest is closed."""

PEER_SECONDS: Final = 10.0
"""Silence of another server after which the link to it is made anew, or after twice as long given up."""

PORT: Final = "port"
"""The name of the note that says which port it had."""

UNSENT_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of large answers that wait to be sent to one client, or to one other server; a further one is dropped."""

UNSENT_TOTAL_MAX: Final = 256 * 1024 * 1024
"""The same of all; beyond it those come first who have nothing waiting, up to twice as much."""

CONNECTION_COUNTERS: Final = ("connections accepted", "connections established", "connections ended")

_log: Final = logging.getLogger(__name__)

GOODBYE_MS: Final = 200
"""How long a stopping server's last messages may take to leave."""


class ServerProcess:
    """A server, in this process.

    Args:
        settings: its configuration.
        context: the ZeroMQ context, where it is shared (inproc); None: one of its own.
        clock: where the time comes from.
        guard: tells when the process is too large; None: nobody does, since it is not the server's alone.
    """

    def __init__(
        self,
        settings: ServerSettings,
        *,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        guard: MemoryGuard | None = None,
    ) -> None:
        self.settings = settings
        self.address = ""
        self._own_context = context is None
        self._context: zmq.Context[Any] = zmq.Context() if context is None else context
        self._clock = clock or SystemClock()
        self._wakeup = Wakeup()
        self._guard = guard or MemoryGuard(0)
        self._stopping = False
        self._closers: list[Any] = []

    def start(self) -> None:
        """Open the store and the sockets.

        Raises:
            ConfigurationError, StorageError: what of the configuration or the directory cannot be used.
        """
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        settings = check_settings(self.settings)
        self._store = Store(settings.directory, bytes_max=settings.store_bytes_max)
        self._closers.append(self._store.close)
        self._listener, self.address = self._listen(settings.bind)
        self._closers.append(lambda: self._close_listener())  # noqa: PLW0108 - `_close_listener` may be replaced
        reserve_bytes = min(settings.reserve_bytes, (settings.store_bytes_max or 1 << 60) // 8)
        self._serving = Serving(
            settings,
            self._store,
            ReserveFile(settings.directory / "reserve", reserve_bytes),
            SystemRandom(),
            self._clock.monotonic(),
            self._clock.wall(),
        )
        self.core = self._serving.core
        self._check_stale()
        self.core.links.address = settings.advertise or self.address
        with self._translated():
            grow_log(self._store)
        self._checkpointer = Checkpointer(self._store, self._serving.lock, self._wakeup.set)
        self._checkpointer.start()
        self._closers.append(self._checkpointer.stop)
        self._poller = zmq.Poller()
        self._poller.register(self._wakeup.fileno(), zmq.POLLIN)
        self._watch_listener()
        self._unsent = Unsent(UNSENT_BYTES_MAX, UNSENT_TOTAL_MAX)
        self._servers: dict[str, tuple[zmq.Socket[bytes], float]] = {}
        self._dealers: list[zmq.Socket[bytes]] = []
        for proxy in settings.proxies:
            self._dealers.append(open_dealer(self._context, proxy))
            self._poller.register(self._dealers[-1], zmq.POLLIN)

    def _check_stale(self) -> None:
        """Refuse to run on what was found to be an older copy: its change numbers may have caught up by now."""
        if self.core.quarantine.stale:
            why = self.core.quarantine.stale.replace("_", " ")
            raise ConfigurationError(
                f"server {self.settings.id} runs on an older copy of its store ({why}); where there is no newer one:"
                f" pubsub server restored --data {self.settings.directory}"
            )

    def _watch_listener(self) -> None:
        self._connections = Connections(self._context, self._listener, self.core.counters, CONNECTION_COUNTERS)
        for sock in (self._listener, self._connections.sock):
            self._poller.register(sock, zmq.POLLIN)

    def _close_listener(self) -> None:
        if hasattr(self, "_connections"):
            self._connections.close()
        self._listener.close(0)

    def _connect_anew(self) -> None:
        """Close all connections, with what waits in them, and open them again."""
        self.core.counters["memory limit reached"] += 1
        _log.warning("memory_bytes_max is reached: all connections are closed")
        for sock in (self._listener, self._connections.sock):
            self._poller.unregister(sock)
        self._close_listener()
        for address in list(self._servers):
            self._close_server(address)
        self._listener, _ = once_free(
            lambda: open_router(self._context, self.address, received_max=TRANSFERS_RECEIVED_MAX)
        )
        self._watch_listener()
        self._unsent = Unsent(UNSENT_BYTES_MAX, UNSENT_TOTAL_MAX)
        self.core.links.connect_anew(self._clock.monotonic())
        self._reconnect()

    def _listen(self, bind: str) -> tuple[zmq.Socket[bytes], str]:
        """Bind; where the port is left to chance, to the one it had before, if that is free.

        A server that was giving a topic to this one when it died knows no other address to go on with.
        """
        if not bind.startswith("tcp://") or bind[-2:] not in {":0", ":*"}:
            return open_router(self._context, bind, received_max=TRANSFERS_RECEIVED_MAX)
        before = self._store.notes().get(PORT)
        if isinstance(before, int):
            with contextlib.suppress(ConfigurationError):
                return open_router(self._context, f"{bind[:-1]}{before}", received_max=TRANSFERS_RECEIVED_MAX)
        listener, address = open_router(self._context, bind, received_max=TRANSFERS_RECEIVED_MAX)
        try:
            with self._translated():
                self._store.begin()
                self._store.apply([NoteKept(PORT, int(address.rpartition(":")[2]))])
                self._store.commit()
        except StoreFull:  # What is there can be served all the same.
            self._store.roll_back()
        except BaseException:
            listener.close(0)
            raise
        return listener, address

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise translate(error, self._store.path) from None

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`.

        Args:
            ready: called once, when a proxy has taken this server over, or none answers.

        Raises:
            StorageError: the disk failed; nothing was answered that is not on it.
            ConfigurationError: another server has this one's ID.
        """
        told = refused = False
        try:
            while not self._stopping:
                self._turn()
                if not told and self.core.links.is_ready(self._clock.monotonic()):
                    told = True
                    ready()
                elif not (told or refused) and (refusal := self.core.links.refusal()):
                    refused = True
                    _log.warning("server %s is not ready, it waits: %s", self.settings.id, refusal.replace("_", " "))
        except StorageError:
            self._store.keep_log()
            raise
        now = self._clock.monotonic()
        self.core.leave(now)
        self._send(now)

    def _turn(self) -> None:
        core = self.core
        wait = core.deadline() - self._clock.monotonic()
        most = 1000 if self._guard.wait_ms is None else self._guard.wait_ms
        ready = dict(self._poller.poll(max(0, min(most, int(wait * 1000) + 1)) if wait > 0 else 0))
        if ready.pop(self._wakeup.fileno(), None):
            self._wakeup.clear()
        now = self._clock.monotonic()
        if self._guard.exceeded(now):
            self._connect_anew()
            return
        for proxy, dealer in enumerate(self._dealers):
            if dealer in ready:
                self._drain(proxy, dealer, now)
        if self._connections.sock in ready:
            self._connections.take()
        if self._listener in ready:
            self._drain(LISTENER, self._listener, now)
        for address, (peer, _) in list(self._servers.items()):
            if peer in ready:
                self._servers[address] = (peer, now)
                self._drain(address, peer, now)
        core.tick(now)
        taken = core.links.taken(now)
        if taken:
            raise ConfigurationError(f"server {self.settings.id} cannot join: {taken.replace('_', ' ')}")
        self._serving.commit(now)
        self._check_stale()  # once that is durable
        self._checkpointer.check()
        self._give_up_silent(now)
        if self._unsent.size:
            self._unsent.sweep()
        self._reconnect()  # first, so that what is sent goes through the new sockets
        self._send(now)
        self._serving.check_full(now)

    def _drain(self, link: int | str, sock: zmq.Socket[bytes], now: float) -> None:
        size = 0
        for _ in range(DRAIN_MAX if link != LISTENER else TRANSFER_DRAIN_MAX):
            frames = receive(sock) if size < DRAIN_BYTES_MAX else None
            if frames is None:
                return
            size += sum(map(len, frames))
            self._serving.handle(link, [b"", *frames] if isinstance(link, str) else frames, now)

    def _send(self, now: float) -> None:
        for out, frames in self._serving.outgoing(now):
            try:
                sock = self._socket(out.link)
            except ConfigurationError:  # An address that another process gave us, and that is none.
                self.core.counters["bad addresses"] += 1
                continue
            if len(frames[-1]) > LARGE_BYTES:
                whom = out.link, out.origin
                if not self._unsent.has_room(whom):
                    self.core.counters["not sent"] += 1
                    continue
                last: bytes | memoryview | zmq.Frame = self._unsent.frame(whom, frames[-1])
            else:
                last = frames[-1]
            if not send(sock, [*frames[isinstance(out.link, str) : -1], last]):
                self.core.counters["not sent"] += 1

    def _socket(self, link: int | str) -> zmq.Socket[bytes]:
        if isinstance(link, str):
            return self._server(link)
        return self._listener if link == LISTENER else self._dealers[link]

    def _server(self, address: str) -> zmq.Socket[bytes]:
        """The socket to another server; a new one where the old one has been silent for long."""
        now = self._clock.monotonic()
        known = self._servers.get(address)
        if known is not None and now - known[1] < PEER_SECONDS:
            return known[0]
        self._close_server(address)
        if len(self._servers) >= PEERS_MAX:
            self.core.counters["servers forgotten"] += 1
            self._close_server(min(self._servers, key=lambda one: self._servers[one][1]))
        peer = open_dealer(self._context, address)
        self._servers[address] = (peer, now)
        self._poller.register(peer, zmq.POLLIN)
        return peer

    def _close_server(self, address: str) -> None:
        if address in self._servers:
            peer, _ = self._servers.pop(address)
            self._poller.unregister(peer)
            peer.close(0)

    def _give_up_silent(self, now: float) -> None:
        """Close the sockets to servers that may never be there again: chunks that wait in one are memory."""
        for address in [one for one, (_, heard) in self._servers.items() if now - heard >= 2 * PEER_SECONDS]:
            self._close_server(address)

    def _reconnect(self) -> None:
        for proxy in self.core.links.reconnect:
            old = self._dealers[proxy]
            try:
                self._dealers[proxy] = open_dealer(self._context, self.settings.proxies[proxy])
            except ConfigurationError:  # No file is left for it: the old one may still do, or will be tried again.
                self.core.counters["sockets not opened"] += 1
                continue
            self._poller.unregister(old)
            old.close(0)
            self._poller.register(self._dealers[proxy], zmq.POLLIN)
        self.core.links.reconnect.clear()

    def stop(self) -> None:
        """Have `run` return after the current commit; any thread and any signal handler may."""
        self._stopping = True
        self._wakeup.set()

    def close(self) -> None:
        """Release everything; what was not committed is lost."""
        for dealer in getattr(self, "_dealers", []):
            dealer.close(GOODBYE_MS)
        for peer, _ in getattr(self, "_servers", {}).values():
            peer.close(0)
        for closer in reversed(self._closers):
            closer()
        self._closers.clear()
        self._wakeup.close()
        if self._own_context:
            self._context.term()


def check_settings(settings: ServerSettings) -> ServerSettings:
    """The settings themselves.

    Raises:
        ConfigurationError, InvalidName: they contradict each other.
    """
    check_id("server ID", settings.id)
    if not settings.proxies:
        raise ConfigurationError(f"server {settings.id} has no proxy: name one with --proxy")
    least = 2 * settings.skew_seconds + settings.patience_seconds
    if settings.retention_hold_seconds < least:
        raise ConfigurationError(
            f"retention_hold_seconds = {settings.retention_hold_seconds:g} is less than twice skew_seconds"
            f" plus one liveness = {least:g}"
        )
    return settings


def run_server(settings: ServerSettings) -> None:
    """Run a server until SIGTERM or SIGINT.

    Raises:
        PubsubError: why it could not start, or had to end.
    """
    allow_connections()
    process = ServerProcess(settings, guard=MemoryGuard(settings.memory_bytes_max))
    process.start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.stop())
    try:
        process.run(lambda: announce(f"server {settings.id} ready: {process.address}"))
    finally:
        process.close()
