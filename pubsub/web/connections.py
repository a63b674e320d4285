"""Limits on the HTTP server's connections: number, size and time of headers, and time without reading.

uvicorn serves and h11 parses, but neither limits these. A peer may send half a request or endless headers, or read
nothing of its response. It then costs one connection for some seconds, and is counted. uvicorn's own timer is not used:
it is not set again after the rest of a body, and it outlives a connection that was reset.

The rule is docs/explanation/gateway.md, H12.
"""

from __future__ import annotations

import asyncio
import http
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from pubsub.base.resources import files_max
from pubsub.web.parsing import Parser
from pubsub.web.problems import FULL_SECONDS, MEDIA_TYPE

LINGER_SECONDS: Final = 2.0
"""Time for a peer that still sends to read its error response and close, while its bytes are dropped."""

JOINED_BYTES_MAX: Final = 64 * 1024
"""Largest head and body that are copied together, so that they leave in one write."""

closed: Final[Counter[str]] = Counter()
"""Connections of this process that were closed because of their peers' behaviour, by reason; see `numbers`."""


_log: Final = logging.getLogger("pubsub.web.requests")
_log.setLevel(logging.ERROR)  # uvicorn warns of each malformed request, so a peer could fill the log.


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the peers of one server.

    Attributes:
        connections_max: connections at the same time. A further one closes the connection that has been idle longest,
            or is answered 503 if none is idle.
        header_bytes_max: bytes of a request's line and headers; beyond it 431.
        idle_seconds: lifetime of a connection without a request.
        header_fields_max: headers of a request; beyond it 431.
        header_seconds: time from the first byte of a connection or a request until its headers are complete, and time
            for the rest of a body that the application does not read.
        write_seconds: lifetime of a connection whose peer reads nothing of its response.
    """

    connections_max: int
    header_bytes_max: int
    idle_seconds: float
    header_fields_max: int = 100
    header_seconds: float = 10.0
    write_seconds: float = 60.0


class Room:
    """The connections of one server.

    Args:
        limits: of each, and of all.
        problem: makes the problem+json body of an error response from its status and a sentence.

    Attributes:
        connections_max: at most half of the open files that the system allows, so that the rest of the process has
            some.
        idle: connections that owe a request, oldest first.
    """

    def __init__(self, limits: Limits, problem: Callable[[int, str], bytes]) -> None:
        self.limits, self._problem = limits, problem
        self.connections_max = max(1, min(limits.connections_max, files_max() // 2))
        self.idle: dict[Connection, None] = {}
        self._open: set[Connection] = set()

    def enter(self, connection: Connection) -> bool:
        """Add a connection. Return False if the limit is reached and no connection is idle."""
        if len(self._open) >= self.connections_max:
            closed["too_many"] += 1
            if not self.shed():
                return False
        self._open.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        self._open.discard(connection)
        self.idle.pop(connection, None)

    def shed(self) -> bool:
        """Close the connection that has been idle longest. Return False if none is idle."""
        longest = next(iter(self.idle), None)
        if longest is None:
            return False
        self.leave(longest)
        longest.end()
        return True

    def refusal(self, status: int, reason: str) -> bytes:
        """Return a complete response that announces the end of the connection."""
        content = self._problem(status, reason)
        later = f"retry-after: {FULL_SECONDS}\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n{later}"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode("ascii") + content


class _Transport:
    """A transport that sends a response in one write and closes through the connection.

    uvicorn writes the head and the body of a response with one system call each, and closes a connection while its peer
    may still send.
    """

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport, self.close = transport, close
        self._held: list[bytes] | None = None

    def hold(self, loop: asyncio.AbstractEventLoop) -> None:
        """Collect writes until `flush`, or until the event loop's next turn."""
        self._held = []
        loop.call_soon(self.flush)

    def write(self, data: bytes) -> None:
        if self._held is None:
            self._transport.write(data)
        elif data:
            self._held.append(data)

    def flush(self) -> None:
        held, self._held = self._held, None
        if not held:
            return
        if sum(map(len, held)) <= JOINED_BYTES_MAX:
            held = [b"".join(held)]
        for data in held:
            self._transport.write(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Phase(Enum):
    NEW = auto()
    HEAD = auto()  # The peer has sent part of a request.
    WORK = auto()  # The application handles a request.
    IDLE = auto()  # No request has begun.


class Connection(H11Protocol):
    def __init__(self, *args: Any, room: Room, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room, self.logger = room, _log
        self.conn = self._parser = Parser(room.limits.header_bytes_max, room.limits.header_fields_max)
        self._phase = _Phase.NEW
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._deaf = False  # Incoming bytes are dropped.
        self._ended = False  # The peer has sent its last byte and still reads.
        self._app, self.app = self.app, self._serve

    # asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wire = transport
        self.transport: Any = _Transport(transport, self._close)
        if self._room.enter(self):
            self._settle()
        else:
            self._refuse(503, "The server has reached its limit of connections; try again.")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop(self._deadline)
        self._stop(self._unread)
        self._room.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf or self.transport.is_closing():
            return
        super().data_received(data)
        self._settle()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Handle the peer's last byte. True: the peer may still read its response (RFC 9112, 9.6)."""
        if self._deaf or not self._wire.can_write_eof():  # TLS ends both directions at once.
            return False
        if self._answering() and not self.cycle.more_body:
            self._ended = True
            self.cycle.message_event.set()
            return True
        self._check_end()
        return False

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        if not self.transport.is_closing():
            self._stop(self._unread)
            self._unread = None
        super().resume_writing()

    # uvicorn

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        """Run the application; after the peer's last byte it sees a disconnect, but can still answer."""
        complete = False

        async def receiving() -> Any:
            nonlocal complete
            if not (complete and self._ended):
                message = await receive()
                if not (complete and self._ended):
                    complete = not message.get("more_body", False)
                    return message
            return {"type": "http.disconnect"}

        async def sending(message: Any) -> None:
            begins = message["type"] == "http.response.start"
            if begins:
                self.transport.hold(self.loop)
            await send(message)
            if not begins:
                self.transport.flush()

        await self._app(scope, receiving, sending)

    def _close(self) -> None:
        """Close after the last response; in two steps if the peer still sends a body."""
        self.transport.flush()
        if not self._wire.is_closing() and self.cycle is not None and self.cycle.more_body:
            self._linger()
        else:
            self._shut()

    def _should_upgrade(self) -> bool:
        """Ignore an offer of an upgrade, and hide it from the application. uvicorn's own method logs a warning each
        time.
        """
        if any(name == b"upgrade" for name, _ in self.headers):
            self.headers[:] = [field for field in self.headers if field[0] != b"upgrade"]
        return False

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self._deaf:
            return
        if self.transport.is_closing():
            self._expect_reading()
            return
        self.flow.resume_reading()
        if self.conn.our_state is h11.DONE and self.conn.their_state is h11.DONE:
            self.conn.start_next_cycle()
            self.handle_events()
        self._settle()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not a request."""
        del msg
        if self._parser.status == 431:
            closed["headers_too_large"] += 1
        self._refuse(self._parser.status, self._parser.reason)

    def shutdown(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.end()
        else:
            self.cycle.keep_alive = False

    # Ours

    def end(self) -> None:
        """Close the connection. Written bytes are still sent if the peer reads them in time."""
        self._shut()
        self._expect_reading()

    def _shut(self) -> None:
        self.transport.flush()
        if not self._wire.is_closing():  # A second close breaks asyncio's TLS transport.
            self._wire.close()

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _check_end(self) -> None:
        """Answer 400 if the peer closed its side in the middle of a request."""
        if self._answering() or self.conn.trailing_data[0].strip(b"\r\n"):
            self._refuse(400, "The request is not complete.")

    def _settle(self) -> None:
        """Set the deadline that fits the connection's phase."""
        if self._deaf or self.transport.is_closing():
            return
        if self._ended and not (self._answering() and not self.cycle.more_body):
            self._check_end()
            self.end()
            return
        if self._answering():
            phase = _Phase.WORK
        elif self.cycle is None or self.conn.their_state is not h11.IDLE or self.conn.trailing_data[0]:
            phase = _Phase.HEAD
        else:
            phase = _Phase.IDLE
        if phase is self._phase:
            return
        self._phase = phase
        self._stop(self._deadline)
        self._deadline = None
        self._room.idle.pop(self, None)
        if phase is not _Phase.WORK:
            self._room.idle[self] = None
            limits = self._room.limits
            seconds = limits.header_seconds if phase is _Phase.HEAD else limits.idle_seconds
            self._deadline = self.loop.call_later(seconds, self._too_slow)

    def _too_slow(self) -> None:
        if self._phase is _Phase.HEAD:
            closed["headers_too_slow"] += 1
        self.end()

    def _expect_reading(self) -> None:
        if self._unread is None:
            self._look_later()

    def _look_later(self) -> None:
        left = self._wire.get_write_buffer_size()
        self._unread = self.loop.call_later(self._room.limits.write_seconds, self._look_for_reading, left)

    def _look_for_reading(self, before: int) -> None:
        if 0 < self._wire.get_write_buffer_size() < before:  # The peer reads slowly.
            self._look_later()
            return
        closed["unread"] += 1
        self._wire.abort()

    def _refuse(self, status: int, reason: str) -> None:
        self._deaf = True
        begun = False
        if self._answering():
            begun = self.cycle.response_started
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.flush()
        if not begun:
            self.transport.write(self._room.refusal(status, reason))
        if begun or status == 503:
            self.end()
        else:
            self._linger()

    def _linger(self) -> None:
        """Drop the peer's further bytes: an immediate close would reset the connection, and the reason would be lost.

        See RFC 9112, 9.6.
        """
        self._deaf = True
        self.transport.flush()
        if not self._wire.can_write_eof():
            self.end()
            return
        try:
            self.flow.resume_reading()
            self._wire.write_eof()
        except OSError:  # The peer has disconnected.
            self.end()
            return
        self._stop(self._deadline)
        self._deadline = self.loop.call_later(min(LINGER_SECONDS, self._room.limits.header_seconds), self.end)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def numbers() -> dict[str, int]:
    return {name: closed[name] for name in ("too_many", "headers_too_large", "headers_too_slow", "unread")}
