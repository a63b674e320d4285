"""The proxy's process: sockets, loop, signals and routes file around a `ProxyCore`. It decides nothing.

    accept or reject new connections  ->  take messages from the sockets (bounded), forward each one as it is taken  ->
    send the proxy's own answers  ->  sleep until the next message, or the deadline of the core or of `access`

`traffic` moves the messages, and `keyed` if sockets require keys.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable
from functools import partial
from math import ceil
from typing import Any, Final

import zmq

from pubsub.base.clock import Clock, SystemClock, valid_wall
from pubsub.base.open_files import check_files
from pubsub.base.patched import refuse_patched
from pubsub.base.resources import allow_connections, used
from pubsub.base.supervision import OFF, Watchdog
from pubsub.config.addresses import reaches_out
from pubsub.config.settings import ProxySettings
from pubsub.console.terminal import announce
from pubsub.errors import ConfigurationError, PubsubError
from pubsub.messenger.curve import CurveServer
from pubsub.messenger.memory import MemoryGuard, once_free
from pubsub.messenger.sockets import Connections, open_router
from pubsub.messenger.unsent import Unsent
from pubsub.messenger.wakeup import Wakeup
from pubsub.metrics.serving import Metrics, open_metrics, said
from pubsub.proxy.access import ProxyAccess
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.keyed import KeyedTraffic
from pubsub.proxy.metrics import snapshot
from pubsub.proxy.routes_file import RoutesStore
from pubsub.proxy.samples import Samples
from pubsub.proxy.traffic import Socket
from pubsub.security.access import BOTH, CLIENTS, SERVERS
from pubsub.security.audit import Audit
from pubsub.security.process_keys import ProcessKeys, find_keys

LINGER_MS: Final = 200
"""Time for the last messages of a proxy that stops."""

UNREAD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of large answers that one client may leave unread. Further answers are dropped; the client asks again."""

UNREAD_TOTAL_MAX: Final = 256 * 1024 * 1024
"""The same for all clients. Beyond it, up to twice as much, only clients that have read their answers get more."""

CONNECTION_COUNTERS: Final = ("connections_accepted", "connections_established", "connections_ended")

HANDSHAKES_FAILED: Final = "handshakes_failed"

log = logging.getLogger("pubsub.proxy")


class ProxyProcess(KeyedTraffic):
    """One proxy, driven by the thread that calls `run`.

    Args:
        context: a ZeroMQ context to share, which stays open; None to create one.
        clock: the clock for the core.
        guard: reports that the process uses too much memory; None if the process is shared with other roles.
        keys: key pair and access list of a caller that has them in memory; None to load them as the settings say.

    Attributes:
        bind: the address for clients, with its port after `start`.
        servers: the address for servers; the same as `bind` if there is only one.
        core: available after `start`.
        metrics: the metrics endpoint; None if there is none.
        watchdog: reports the loop's turns.
    """

    watchdog = OFF

    def __init__(
        self,
        settings: ProxySettings,
        *,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        guard: MemoryGuard | None = None,
        keys: ProcessKeys | None = None,
    ) -> None:
        super().__init__()
        refuse_patched("a proxy")
        check_files()
        self.settings = settings
        self.bind = settings.bind
        self.servers = settings.servers or settings.bind
        self._keys = keys
        self._clock = clock or SystemClock()
        self._own_context = context is None
        self._context: zmq.Context[Any] = context or zmq.Context()
        self._wakeup = Wakeup()
        self._stopping = self._closed = False
        self._store: RoutesStore | None = None
        self._sockets: list[Socket] = []
        self._connections: list[Connections] = []
        self._retry_at = 0.0
        self.metrics: Metrics | None = None
        self._closers: list[Callable[[], Any]] = []
        self._guard = guard or MemoryGuard(0)
        self._unread = Unsent(UNREAD_BYTES_MAX, UNREAD_TOTAL_MAX)

    def start(self) -> None:
        """Load the keys, open the routes file and bind the sockets.

        Raises:
            ConfigurationError: an address is invalid or in use, keys are incomplete, or keys are missing although
                others can reach the proxy.
            StorageError: the routes file cannot be used.
        """
        settings = self.settings
        valid_wall(self._clock.wall())
        try:
            self.metrics = open_metrics(settings.metrics, settings.insecure, self._wakeup.set, self._closers)
            self._open_access()
            self._store = RoutesStore(settings.directory)
            remembered = self._store.load()
            self._listen(settings.bind, settings.servers)
        except PubsubError:
            self.close()
            raise
        self.core = ProxyCore(settings, self._clock.monotonic(), self._clock.wall(), remembered)
        self.core.process = partial(used, settings.directory)
        self.core.servers.last_reports.asks = True
        if self._access is not None:
            self.core.keys = self._access.report
            self.core.patterns.may_get = self._access.rights.access.may_get
            self.core.may_name = self._access.rights.may_name
            self.core.members.keyed = True
        if self.metrics is not None:
            self.core.metrics, self._samples = self.metrics.url, Samples()
        self._watch()

    def _open_access(self) -> None:
        """Install the ZAP handler before the first socket is bound, if there are keys."""
        settings, name = self.settings, f"proxy {self.settings.id}"
        addresses = (settings.bind, settings.servers or settings.bind)
        outside = next(filter(reaches_out, addresses), "")
        keys = self._keys or find_keys(
            "proxy",
            settings.id,
            settings.key_file,
            settings.directory / "key",
            settings.authorized,
            outside,
            settings.insecure,
        )
        if keys is None:
            if outside:
                self._insecure(name, outside)
        elif any(map(_leaves, addresses)):
            self._access = ProxyAccess(keys, Audit(settings.audit_file, name), self._context, self._clock)

    def _insecure(self, name: str, outside: str) -> None:
        """Record in the audit that any client is accepted."""
        log.warning("%s listens on %s without keys, for anyone who reaches it", name, outside)
        audit = Audit(self.settings.audit_file, name)
        audit.write(self._clock.wall(), "insecure", address=outside)
        audit.close()

    def _listen(self, bind: str, servers: str | None) -> None:
        # If both addresses say "any free port", they are two sockets. Otherwise two equal addresses are one socket.
        two = servers is not None and (servers != bind or servers.endswith((":0", ":*")))
        self._clients, self.bind = self._open(bind, CLIENTS if two else BOTH)
        self._servers, self.servers = self._clients, self.bind
        if two:
            assert servers is not None
            self._servers, self.servers = self._open(servers, SERVERS)

    def _open(self, address: str, door: str) -> tuple[Socket, str]:
        access = self._access if _leaves(address) else None
        curve: CurveServer | None = None if access is None else access.curve(door)
        sock, bound = open_router(self._context, address, curve=curve)
        self._sockets.append(sock)
        if curve is not None:
            self._locked |= {sock}
        return sock, bound

    def _watch(self) -> None:
        self._connections = [
            Connections(
                self._context,
                sock,
                self.core.counters,
                CONNECTION_COUNTERS,
                HANDSHAKES_FAILED if sock in self._locked else "",
            )
            for sock in self._sockets
        ]
        self._poller = zmq.Poller()
        for sock in (*self._sockets, *(connections.sock for connections in self._connections)):
            self._poller.register(sock, zmq.POLLIN)
        if self._access is not None:
            self._poller.register(self._access.sock, zmq.POLLIN)
        self._poller.register(self._wakeup.fileno(), zmq.POLLIN)

    def _listen_anew(self, now: float) -> None:
        """Close all connections, with the messages that wait in them, and bind again."""
        self.core.counters["memory_limit_reached"] += 1
        self.core.notices.say("memory", "memory_bytes_max is reached: all connections are closed", now)
        self._close_sockets(0)
        bind, servers = self.bind, self.servers
        once_free(lambda: self._listen_both(bind, servers if servers != bind else None))
        self._unread = Unsent(UNREAD_BYTES_MAX, UNREAD_TOTAL_MAX)
        self._watch()

    def _listen_both(self, bind: str, servers: str | None) -> None:
        try:
            self._listen(bind, servers)
        except ConfigurationError:
            self._close_sockets(0)
            raise

    def run(self) -> None:
        """Serve until `stop`.

        Raises:
            StorageError: the disk failed, so that no change can be made durable.
        """
        clock, core, guard, access = self._clock.monotonic, self.core, self._guard, self._access
        handover = None if self.metrics is None else self.metrics.handover
        if handover is not None:
            handover.started = True
        while not self._stopping:
            due = core.deadline if access is None else min(core.deadline, access.deadline)
            wait = min(ceil(max(0.0, due - clock()) * 1000), self.watchdog.wait_ms)
            wait = wait if guard.wait_ms is None else min(wait, guard.wait_ms)
            ready = [source for source, _ in self._poller.poll(wait)]
            now = clock()
            self.watchdog.turned(now)
            if guard.exceeded(now):
                self._listen_anew(now)
                continue
            if self._wakeup.fileno() in ready:
                self._wakeup.clear()
            if access is not None:
                if access.sock in ready:
                    access.take()
                self._look(now)
            self.turn(ready, now)
            for connections in self._connections:
                if connections.sock in ready:
                    connections.take()
            if handover is not None and handover.wanted:
                assert self._samples is not None
                handover.give(snapshot(core, self._samples, self._unread.size, now))
        now = clock()
        core.leave(now)
        self._settle(now)

    def stop(self) -> None:
        """End `run` soon. Any thread and any signal handler may call it."""
        self._stopping = True
        self._wakeup.set()

    def hang_up(self) -> None:
        """Reload the access list and reopen the audit soon. Any thread and any signal handler may call it."""
        if self._access is not None:
            self._access.authorizer.hang_up()
        self._wakeup.set()

    def close(self) -> None:
        """Release sockets and file. Call it after `run` has ended."""
        if self._closed:
            return
        self._closed = True
        for closer in self._closers:
            closer()
        self._close_sockets(LINGER_MS)
        if self._access is not None:
            self._access.close()
        if self._own_context:
            self._context.term()
        if self._store is not None:
            self._store.close()
        self._wakeup.close()

    def _close_sockets(self, linger_ms: int) -> None:
        for connections in self._connections:
            connections.close()
        for sock in self._sockets:
            sock.close(linger_ms)
        self._connections, self._sockets, self._locked = [], [], frozenset()


def _leaves(address: str) -> bool:
    """Return whether other processes can reach the address, so that it needs keys."""
    return not address.startswith("inproc://")


def run_proxy(settings: ProxySettings) -> None:
    """Run a proxy until SIGTERM or SIGINT, and print a line when it is ready. Call it in the main thread.

    With keys, SIGHUP makes the proxy reload the access list at once. Without keys, SIGHUP ends the process as usual.

    Raises:
        ConfigurationError: see `ProxyProcess.start`.
        StorageError: the routes file cannot be used.
    """
    allow_connections()
    process = ProxyProcess(settings, guard=MemoryGuard(settings.memory_bytes_max))
    process.watchdog = Watchdog()
    before: dict[signal.Signals, Any] = {}
    if settings.authorized is not None:  # Without a key `start` raises.
        before[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda *_: process.hang_up())
    try:
        process.start()
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, lambda *_: process.stop())
        announce(f"proxy {settings.id} ready: clients {process.bind}, servers {process.servers}{said(process.metrics)}")
        process.run()
        process.watchdog.stopping()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        process.close()
