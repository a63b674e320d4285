"""The proxy's process: sockets, the loop, signals and the routes file around a `ProxyCore`. It decides nothing.

    drain what the sockets hold (bounded)  ->  each message is forwarded as it is taken  ->  answers of the proxy itself
    ->  sleep until the next message or the core's deadline

A message that the core had to handle is settled before the next one is taken: changes of the routes are committed, then
its answers are sent. So whatever is forwarded finds all that came before it on the disk. The two paths that carry all
traffic, `_from_client` and `_from_server`, use pyzmq's frame calls directly: with `recv_multipart` a proxy forwards a
third less.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Container
from math import ceil
from typing import Any, Final

import zmq
import zmq.backend

from pubsub.base.clock import Clock, SystemClock
from pubsub.config.settings import ProxySettings
from pubsub.console.terminal import announce
from pubsub.errors import ConfigurationError, PubsubError, StoreFull
from pubsub.messenger.memory import MemoryGuard, once_free
from pubsub.messenger.sockets import FRAMES_MAX, Connections, allow_connections, open_router
from pubsub.messenger.unsent import LARGE_BYTES, Unsent
from pubsub.messenger.wakeup import Wakeup
from pubsub.protocol.batch import Buffer
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.in_flight import LARGE_BYTES as COUNTED_BYTES
from pubsub.proxy.notices import Routine
from pubsub.proxy.replies import ORIGIN_MARK, Send
from pubsub.proxy.routes_file import RoutesStore

DRAIN_MAX: Final = 256
"""Messages taken from one socket before the other, and the timers, have their turn."""

DRAIN_SECONDS: Final = 0.05
"""The turn ends earlier where messages take long, so that heartbeats leave in time."""

RETRY_SECONDS: Final = 1.0
"""Between tries to write the routes file on a full disk."""

LINGER_MS: Final = 200
"""How long the last messages of a proxy that stops may take."""

UNREAD_BYTES_MAX: Final = 32 * 1024 * 1024
"""Bytes of large answers that wait for one client to read them; a further one is dropped: it can be asked for again."""

UNREAD_TOTAL_MAX: Final = 256 * 1024 * 1024
"""The same of all clients; beyond it those come first who have read what they got, up to twice as much."""

CONNECTION_COUNTERS: Final = ("connections_accepted", "connections_established", "connections_ended")

_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.SNDMORE | zmq.NOBLOCK)
_RCVMORE: Final = int(zmq.RCVMORE)
_recv: Final = zmq.backend.Socket.recv
_send: Final = zmq.backend.Socket.send
_get: Final = zmq.backend.Socket.get
_MARK: Final = ORIGIN_MARK[0]

log = logging.getLogger("pubsub.proxy")

Socket = zmq.Socket[bytes]


class ProxyProcess:
    """One proxy, driven by the thread that calls `run`.

    Args:
        settings: its settings.
        context: a ZeroMQ context to share, which is left alone; None: one of its own.
        clock: where the core's time comes from.
        guard: tells when the process is too large; None: nobody does, since it is not the proxy's alone.

    Attributes:
        bind: the address where clients connect, its port filled in after `start`.
        servers: the address where servers connect; the same as `bind` where there is only one.
        core: the core, after `start`.
    """

    def __init__(
        self,
        settings: ProxySettings,
        *,
        context: zmq.Context[Any] | None = None,
        clock: Clock | None = None,
        guard: MemoryGuard | None = None,
    ) -> None:
        self.settings = settings
        self.bind = settings.bind
        self.servers = settings.servers or settings.bind
        self.core: ProxyCore
        self._clock = clock or SystemClock()
        self._own_context = context is None
        self._context: zmq.Context[Any] = context or zmq.Context()
        self._wakeup = Wakeup()
        self._stopping = self._closed = False
        self._store: RoutesStore | None = None
        self._sockets: list[Socket] = []
        self._connections: list[Connections] = []
        self._retry_at = 0.0
        self._guard = guard or MemoryGuard(0)
        self._unread = Unsent(UNREAD_BYTES_MAX, UNREAD_TOTAL_MAX)

    def start(self) -> None:
        """Open the routes file and bind.

        Raises:
            ConfigurationError: an address is in use, or is not one.
            StorageError: the routes file cannot be used.
        """
        try:
            self._store = RoutesStore(self.settings.directory)
            remembered = self._store.load()
            self._listen(self.settings.bind, self.settings.servers)
        except PubsubError:
            self.close()
            raise
        self.core = ProxyCore(self.settings, self._clock.monotonic(), self._clock.wall(), remembered)
        self._watch()

    def _listen(self, bind: str, servers: str | None) -> None:
        self._clients, self.bind = open_router(self._context, bind)
        self._sockets.append(self._clients)
        self._servers = self._clients
        # Two times "any free port" are two addresses; two times the same one is one.
        if servers is not None and (servers != bind or servers.endswith((":0", ":*"))):
            self._servers, self.servers = open_router(self._context, servers)
            self._sockets.append(self._servers)
        else:
            self.servers = self.bind

    def _watch(self) -> None:
        self._connections = [
            Connections(self._context, sock, self.core.counters, CONNECTION_COUNTERS) for sock in self._sockets
        ]
        self._poller = zmq.Poller()
        for sock in (*self._sockets, *(connections.sock for connections in self._connections)):
            self._poller.register(sock, zmq.POLLIN)
        self._poller.register(self._wakeup.fileno(), zmq.POLLIN)

    def _listen_anew(self, now: float) -> None:
        """Close all connections, with what waits in them."""
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
            StorageError: the disk failed, so that nothing can be promised any more.
        """
        clock, core, guard = self._clock.monotonic, self.core, self._guard
        while not self._stopping:
            wait = max(0, ceil((core.deadline - clock()) * 1000))
            wait = wait if guard.wait_ms is None else min(wait, guard.wait_ms)
            ready = [source for source, _ in self._poller.poll(wait)]
            now = clock()
            if guard.exceeded(now):
                self._listen_anew(now)
                continue
            if self._wakeup.fileno() in ready:
                self._wakeup.clear()
            self.turn(ready, now)
            for connections in self._connections:
                if connections.sock in ready:
                    connections.take()
        now = clock()
        core.leave(now)
        self._settle(now)

    def turn(self, ready: Container[object], now: float) -> None:
        """One turn of the loop, which is the simulation's too: it brings sockets and a clock of its own.

        Args:
            ready: the sockets that have something.
            now: monotonic seconds.

        Raises:
            StorageError: the disk failed, so that nothing can be promised any more.
        """
        core = self.core
        if now >= core.deadline:
            core.tick(now)
            self._unread.sweep()
            self._settle(now)
        if self._clients in ready:
            self._drain(self._clients)
        if self._servers is not self._clients and self._servers in ready:
            self._drain(self._servers)
        now = self._clock.monotonic()
        if core.suspended and now >= self._retry_at:
            self._retry(now)
        self._settle(now)
        for line in core.notices.take() if core.notices.lines else ():
            log.log(logging.INFO if isinstance(line, Routine) else logging.WARNING, "%s", line)

    def stop(self) -> None:
        """End `run` soon; any thread and any signal handler may."""
        self._stopping = True
        self._wakeup.set()

    def close(self) -> None:
        """Release sockets and file; only after `run` has ended."""
        if self._closed:
            return
        self._closed = True
        self._close_sockets(LINGER_MS)
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
        self._connections, self._sockets = [], []

    # The traffic ------------------------------------------------------------------------------------------------------

    def _drain(self, sock: Socket) -> None:
        """Take what the socket holds, within bounds, and pass it on message by message."""
        from_both = self._clients is self._servers
        from_servers = sock is self._servers and not from_both
        clock = self._clock.monotonic
        now = clock()
        end = now + DRAIN_SECONDS
        for _ in range(DRAIN_MAX):
            try:
                link = _recv(sock, _NOBLOCK)
            except zmq.Again:
                return
            first = _recv(sock, _NOBLOCK)
            if from_servers or (from_both and (not first or first[0] == _MARK)):
                usual = self._from_server(sock, link, first, now)
            else:
                usual = self._from_client(sock, link, first, now)
            if not usual:
                self._settle(now)
                now = clock()
                if now >= end:
                    return

    def _from_client(self, sock: Socket, client: bytes, head: bytes, now: float) -> bool:
        """Pass a request on; False where it took more than that."""
        body: Any = None
        if _get(sock, _RCVMORE):
            # A batch of many records is handed on as it lies in the message; to copy a small one is cheaper.
            body = _recv(sock, _NOBLOCK, b" count=1 " in head)
            if _get(sock, _RCVMORE):
                self.core.client_message(client, (head, b"", *self._rest(sock)), now)
                return False
        core = self.core
        server = core.route(head, now)
        if server is None:
            core.client_message(client, (head,) if body is None else (head, _buffer(body)), now)
            return False
        size = 0 if body is None else len(body)
        if size > COUNTED_BYTES and not core.room_for(server, client, (head, _buffer(body))):
            return False
        servers = self._servers
        try:
            _send(servers, server, _MORE)
        except zmq.ZMQError as error:
            frames = (ORIGIN_MARK + client, head) if body is None else (ORIGIN_MARK + client, head, _buffer(body))
            self._undelivered(Send(True, server, frames), error, now)
            return False
        _send(servers, ORIGIN_MARK + client, _MORE)
        if body is None:
            _send(servers, head, _NOBLOCK)
        else:
            _send(servers, head, _MORE)
            _send(servers, body, _NOBLOCK)
        if size > COUNTED_BYTES:
            core.went(server, client, size, now)
            return False
        return True

    def _from_server(self, sock: Socket, link: bytes, origin: bytes, now: float) -> bool:
        """Pass an answer on; False where it took more than that."""
        core = self.core
        if not _get(sock, _RCVMORE):
            core.server_message(link, (origin,), now)
            return False
        head = _recv(sock, _NOBLOCK)
        body: Any = None
        if _get(sock, _RCVMORE):
            body = _recv(sock, _NOBLOCK, b" records=" not in head)
            if _get(sock, _RCVMORE):
                core.server_message(link, (origin, head, b"", *self._rest(sock)), now)
                return False
        server = core.table.links.get(link)
        if server is None or not origin or origin[0] != _MARK or core.suspended:
            frames = (origin, head) if body is None else (origin, head, _buffer(body))
            core.server_message(link, frames, now)
            return False
        server.liveness.heard(now)
        clients = self._clients
        if body is not None and len(body) > LARGE_BYTES:
            return self._large_answer(origin[1:], head, body, now)
        try:
            _send(clients, origin[1:], _MORE)
        except zmq.ZMQError as error:
            self._undelivered(Send(False, origin[1:], (head,)), error, now)
            return False
        if body is None:
            _send(clients, head, _NOBLOCK)
        else:
            _send(clients, head, _MORE)
            _send(clients, body, _NOBLOCK)
        return True

    def _large_answer(self, client: bytes, head: bytes, body: Any, now: float) -> bool:
        """Pass on an answer with a large body, unless the client leaves too many unread."""
        unread = self._unread
        if not unread.has_room(client):
            self.core.counters["answers_dropped_unread"] += 1
            return False
        clients = self._clients
        try:
            _send(clients, client, _MORE)
        except zmq.ZMQError as error:
            self._undelivered(Send(False, client, (head,)), error, now)
            return False
        _send(clients, head, _MORE)
        _send(clients, unread.frame(client, _buffer(body)), _NOBLOCK)
        return True

    @staticmethod
    def _rest(sock: Socket) -> list[bytes]:
        """The frames that are left of a message with too many, so that the next one is not misread; a few are kept."""
        kept: list[bytes] = []
        while _get(sock, _RCVMORE):
            frame = _recv(sock, _NOBLOCK)
            if len(kept) < FRAMES_MAX:
                kept.append(frame)
        return kept

    # What is rare -----------------------------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        """Write what has to be remembered, then send what the core has to say."""
        core = self.core
        if core.table.changes and not core.suspended:
            self._commit(now)
        while core.replies.sends:
            for send in core.replies.take():
                self._deliver(send, now)

    def _commit(self, now: float) -> None:
        assert self._store is not None
        try:
            self._store.write(self.core.table.changes)
        except StoreFull as error:
            self._retry_at = now + RETRY_SECONDS
            self.core.suspend("the_disk_of_the_proxy_is_full", now)
            log.warning("%s", error)
        else:
            self.core.table.changes.clear()

    def _retry(self, now: float) -> None:
        assert self._store is not None
        self._retry_at = now + RETRY_SECONDS
        try:
            self._store.write(self.core.table.changes)
        except StoreFull:
            return
        self.core.table.changes.clear()
        self.core.resume(now)

    def _deliver(self, send: Send, now: float) -> None:
        """Send one message of the core's."""
        sock = self._servers if send.to_server else self._clients
        try:
            _send(sock, send.link, _MORE)
        except zmq.ZMQError as error:
            self._undelivered(send, error, now)
            return
        last = len(send.frames) - 1
        for index, frame in enumerate(send.frames):
            _send(sock, frame, _NOBLOCK if index == last else _MORE)

    def _undelivered(self, send: Send, error: zmq.ZMQError, now: float) -> None:
        """The first frame was not taken, so nothing of the message was: its link is closed, or its queue is full."""
        if error.errno not in {zmq.EHOSTUNREACH, zmq.EAGAIN}:
            raise error
        self.core.undelivered(send, now, gone=error.errno == zmq.EHOSTUNREACH)


def _buffer(body: Any) -> Buffer:
    """A body as the core takes it, whether it was copied or not."""
    buffer: Buffer = body if isinstance(body, bytes) else body.buffer
    return buffer


def run_proxy(settings: ProxySettings) -> None:
    """Run a proxy until SIGTERM or SIGINT; says on standard output when it is ready. For the main thread only.

    Raises:
        ConfigurationError: an address is in use, or is not one.
        StorageError: the routes file cannot be used.
    """
    allow_connections()
    process = ProxyProcess(settings, guard=MemoryGuard(settings.memory_bytes_max))
    process.start()
    before = {number: signal.signal(number, lambda *_: process.stop()) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        announce(f"proxy {settings.id} ready: clients {process.bind}, servers {process.servers}")
        process.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        process.close()
