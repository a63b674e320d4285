"""The message loop of a proxy: two fast paths for nearly all messages, and the slow path. It decides nothing.

After each message that the core had to handle, changes of the routes are committed and then the core's answers are
sent. Only then is the next message taken. So all changes that precede a forwarded message are on the disk.

The fast paths, `_from_client` and `_from_server`, use pyzmq's frame calls directly: with `recv_multipart` a proxy
forwards a third fewer messages.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import Any, Final

import zmq
import zmq.backend

from pubsub.base.clock import Clock
from pubsub.errors import StoreFull
from pubsub.messenger.sockets import FRAMES_MAX
from pubsub.messenger.unsent import LARGE_BYTES, Unsent
from pubsub.protocol.batch import Buffer
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.in_flight import LARGE_BYTES as COUNTED_BYTES
from pubsub.proxy.notices import Routine
from pubsub.proxy.replies import ORIGIN_MARK, Send
from pubsub.proxy.routes_file import RoutesStore
from pubsub.proxy.samples import Samples

DRAIN_MAX: Final = 256
"""Messages taken from one socket before the other socket and the timers are served."""

DRAIN_SECONDS: Final = 0.05
"""Time limit for the same, so that heartbeats leave in time if messages take long."""

RETRY_SECONDS: Final = 1.0
"""Time between attempts to write the routes file on a full disk."""

_NOBLOCK: Final = int(zmq.NOBLOCK)
_MORE: Final = int(zmq.SNDMORE | zmq.NOBLOCK)
_RCVMORE: Final = int(zmq.RCVMORE)
_recv: Final = zmq.backend.Socket.recv
_send: Final = zmq.backend.Socket.send
_get: Final = zmq.backend.Socket.get
_MARK: Final = ORIGIN_MARK[0]

log = logging.getLogger("pubsub.proxy")

Socket = zmq.Socket[bytes]


class Traffic:
    """The part of a proxy's process that moves messages; its owner provides sockets, clock and store."""

    core: ProxyCore
    _clock: Clock
    _clients: Socket
    _servers: Socket
    _store: RoutesStore | None
    _retry_at: float
    _unread: Unsent
    _samples: Samples | None = None

    def turn(self, ready: Container[object], now: float) -> None:
        """Run one turn of the loop. The simulation calls it too, with its own sockets and clock.

        Args:
            ready: the sockets that can be read.
            now: monotonic seconds.

        Raises:
            StorageError: the disk failed, so that no change can be made durable.
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

    def _drain(self, sock: Socket) -> None:
        """Take messages from the socket, within the limits, and pass each one on."""
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
        """Forward a request; return False if the core had to handle it."""
        body: Any = None
        if _get(sock, _RCVMORE):
            # The body of a batch with several records is not copied. Copying is cheaper for a single record.
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
        samples = self._samples
        if samples is not None and now >= samples.due:
            samples.forwarded(ORIGIN_MARK + self._link(client), head, self._clock.monotonic())
        return True

    def _from_server(self, sock: Socket, link: bytes, origin: bytes, now: float) -> bool:
        """Forward an answer; return False if the core had to handle it."""
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
        server.liveness.received(now)
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
        samples = self._samples
        if samples is not None and origin in samples.waiting:
            samples.answered(origin, head, self._clock.monotonic())
        return True

    def _link(self, client: bytes) -> bytes:
        """Return the link as the core and the servers know it. A keyed proxy prepends a tag."""
        return client

    def _large_answer(self, client: bytes, head: bytes, body: Any, now: float) -> bool:
        """Forward an answer with a large body, unless the client has too many large answers unread."""
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
        """Take the remaining frames of a message that has too many, so that the next message starts at its first frame.

        At most FRAMES_MAX frames are kept.
        """
        kept: list[bytes] = []
        while _get(sock, _RCVMORE):
            frame = _recv(sock, _NOBLOCK)
            if len(kept) < FRAMES_MAX:
                kept.append(frame)
        return kept

    # The slow path ----------------------------------------------------------------------------------------------------

    def _settle(self, now: float) -> None:
        """Write the changes, then send the core's messages."""
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
        """Report a message of which nothing was sent: its link is closed, or its queue is full."""
        if error.errno not in {zmq.EHOSTUNREACH, zmq.EAGAIN}:
            raise error
        self.core.undelivered(send, now, gone=error.errno == zmq.EHOSTUNREACH)


def _buffer(body: Any) -> Buffer:
    """Return a body as the core takes it, whether it was copied or not."""
    buffer: Buffer = body if isinstance(body, bytes) else body.buffer
    return buffer
