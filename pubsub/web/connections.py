"""Connections of the HTTP server, each bounded: headers, how long they take, how long nobody reads, and how many.

uvicorn serves and h11 parses; what they leave open is closed here. A peer that sends half a request, or headers without
end, or reads nothing of its answer, costs one connection for some seconds, and is counted. uvicorn's own timer is not
used: it is not armed again behind the rest of a body, and stays behind a connection that was reset.
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
"""A peer that still sends where nothing more is read has so long to read why, and to close."""

JOINED_BYTES_MAX: Final = 64 * 1024
"""Bytes of a head and a body that are copied together, so that they leave in one write."""

closed: Final[Counter[str]] = Counter()
"""Connections of this process that were closed for what their peers did: too_many, headers_too_large, …"""


_log: Final = logging.getLogger("pubsub.web.requests")
_log.setLevel(logging.ERROR)  # uvicorn has a warning for each request that cannot be read: a peer would write the log.


@dataclass(frozen=True, slots=True)
class Limits:
    """What the peers of one server can have it hold.

    Attributes:
        connections_max: connections at the same time; one more closes the one that is idle for longest, and is answered
            503 where none is.
        header_bytes_max: of a request's line and headers; beyond it 431.
        idle_seconds: a connection that asks for nothing more is kept so long.
        header_fields_max: headers of a request; beyond it 431.
        header_seconds: from a connection's or a request's first byte until its headers are whole, and for the rest of a
            body that nobody reads.
        write_seconds: a connection whose peer takes nothing of its answer is kept so long.
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
        problem: the body of an answer that says why not, as problem+json, from its status and a sentence.

    Attributes:
        connections_max: how many there may be: where the system allows few files, half of those, so that the rest of
            the process has some.
        idle: those that owe a request, in the order in which they began to.
    """

    def __init__(self, limits: Limits, problem: Callable[[int, str], bytes]) -> None:
        self.limits, self._problem = limits, problem
        self.connections_max = max(1, min(limits.connections_max, files_max() // 2))
        self.idle: dict[Connection, None] = {}
        self._open: set[Connection] = set()

    def enter(self, connection: Connection) -> bool:
        """Take a connection in; False: there is no room, even where one that is idle is closed."""
        if len(self._open) >= self.connections_max:
            closed["too_many"] += 1
            if not self.shed():
                return False
        self._open.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        """A connection ends."""
        self._open.discard(connection)
        self.idle.pop(connection, None)

    def shed(self) -> bool:
        """Close the connection that is idle for longest; False: none is."""
        longest = next(iter(self.idle), None)
        if longest is None:
            return False
        self.leave(longest)
        longest.end()
        return True

    def refusal(self, status: int, reason: str) -> bytes:
        """A whole answer behind which the connection is closed."""
        content = self._problem(status, reason)
        later = f"retry-after: {FULL_SECONDS}\r\n" if status == 503 else ""
        head = (
            f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\ncontent-type: {MEDIA_TYPE}\r\n{later}"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        return head.encode("ascii") + content


class _Transport:
    """A connection's transport: an answer leaves in one write, and uvicorn's `close` is the connection's.

    uvicorn writes the head and the body of an answer apart, each with a call of the system, and closes a connection
    while its peer may still send.
    """

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._transport, self.close = transport, close
        self._held: list[bytes] | None = None

    def hold(self, loop: asyncio.AbstractEventLoop) -> None:
        """Keep what is written until `flush`, or until the event loop's next turn."""
        self._held = []
        loop.call_soon(self.flush)

    def write(self, data: bytes) -> None:
        """Write, or keep."""
        if self._held is None:
            self._transport.write(data)
        elif data:
            self._held.append(data)

    def flush(self) -> None:
        """Write what is kept."""
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
    HEAD = auto()  # Part of a request is owed.
    WORK = auto()  # The application has it.
    IDLE = auto()  # Nothing is owed.


class Connection(H11Protocol):
    """A connection.

    Args:
        room: of its server.
    """

    def __init__(self, *args: Any, room: Room, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room, self.logger = room, _log
        self.conn = self._parser = Parser(room.limits.header_bytes_max, room.limits.header_fields_max)
        self._phase = _Phase.NEW
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._deaf = False  # What comes is thrown away.
        self._ended = False  # The peer has sent its last byte, and reads.
        self._app, self.app = self.app, self._serve

    # asyncio

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A peer has connected."""
        super().connection_made(transport)
        self._wire = transport
        self.transport: Any = _Transport(transport, self._close)
        if self._room.enter(self):
            self._settle()
        else:
            self._refuse(503, "As many connections are open as may be; try again.")

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._stop(self._deadline)
        self._stop(self._unread)
        self._room.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._deaf or self.transport.is_closing():
            return
        super().data_received(data)
        self._settle()

    def eof_received(self) -> bool:  # type: ignore[override]
        """The peer has sent its last byte; True: it may read what is answered still (RFC 9112, 9.6)."""
        if self._deaf or not self._wire.can_write_eof():  # TLS ends both directions at once.
            return False
        if self._answering() and not self.cycle.more_body:
            self._ended = True
            self.cycle.message_event.set()
            return True
        self._check_end()
        return False

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is written to."""
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        """The peer reads again."""
        if not self.transport.is_closing():
            self._stop(self._unread)
            self._unread = None
        super().resume_writing()

    # uvicorn

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        """The application, to which a peer that has sent its last byte is gone, though it is answered."""
        whole = False

        async def receiving() -> Any:
            nonlocal whole
            if not (whole and self._ended):
                message = await receive()
                if not (whole and self._ended):
                    whole = not message.get("more_body", False)
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
        """An answer was the last one. While its peer still sends a body, it is closed in two steps."""
        self.transport.flush()
        if not self._wire.is_closing() and self.cycle is not None and self.cycle.more_body:
            self._linger()
        else:
            self._shut()

    def _should_upgrade(self) -> bool:
        """No offer is taken, and the application sees none: uvicorn's own warns of each."""
        if any(name == b"upgrade" for name, _ in self.headers):
            self.headers[:] = [field for field in self.headers if field[0] != b"upgrade"]
        return False

    def on_response_complete(self) -> None:
        """A request is answered."""
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
        """What came is no request."""
        del msg
        if self._parser.status == 431:
            closed["headers_too_large"] += 1
        self._refuse(self._parser.status, self._parser.reason)

    def shutdown(self) -> None:
        """The server stops."""
        if self.cycle is None or self.cycle.response_complete:
            self.end()
        else:
            self.cycle.keep_alive = False

    # Ours

    def end(self) -> None:
        """Close it; what was written still leaves, if the peer takes it in time."""
        self._shut()
        self._expect_reading()

    def _shut(self) -> None:
        self.transport.flush()
        if not self._wire.is_closing():  # asyncio's transport of TLS is of no use behind a second close.
            self._wire.close()

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _check_end(self) -> None:
        """Say what a peer left unfinished that has sent its last byte."""
        if self._answering() or self.conn.trailing_data[0].strip(b"\r\n"):
            self._refuse(400, "The request ended in its midst.")

    def _settle(self) -> None:
        """Give the peer a deadline for what it owes now."""
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
        if 0 < self._wire.get_write_buffer_size() < before:  # Slowly, but it reads.
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
        """Throw away what the peer still sends: closed at once, it would be reset, and not see why (RFC 9112, 9.6)."""
        self._deaf = True
        self.transport.flush()
        if not self._wire.can_write_eof():
            self.end()
            return
        try:
            self.flow.resume_reading()
            self._wire.write_eof()
        except OSError:  # It is gone.
            self.end()
            return
        self._stop(self._deadline)
        self._deadline = self.loop.call_later(min(LINGER_SECONDS, self._room.limits.header_seconds), self.end)

    @staticmethod
    def _stop(timer: asyncio.TimerHandle | None) -> None:
        if timer is not None:
            timer.cancel()


def numbers() -> dict[str, int]:
    """How many connections were closed, by why."""
    return {name: closed[name] for name in ("too_many", "headers_too_large", "headers_too_slow", "unread")}
