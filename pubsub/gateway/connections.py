"""Connections of the HTTP server, each bounded: headers, how long they take, how long nobody reads, and how many.

uvicorn parses and serves; what it leaves open is closed here. A peer that sends half a request, or headers without end,
or reads nothing of its answer, costs one connection for some seconds, and is counted.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pubsub.gateway.limits import (
    CONNECTIONS_MAX,
    HEADER_BYTES_MAX,
    HEADER_FIELDS_MAX,
    HEADER_SECONDS,
    WRITE_SECONDS,
)
from pubsub.gateway.problems import MEDIA_TYPE, TITLES, body

closed: Counter[str] = Counter()
"""Connections that were closed for what their peers did: too_many, headers_too_large, headers_too_slow, unread."""


class Connection(HttpToolsProtocol):
    """A connection."""

    _deadline: asyncio.TimerHandle | None = None
    _unread: asyncio.TimerHandle | None = None
    _in_headers = False
    _header_bytes = _header_fields = _raw_bytes = 0
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A peer has connected."""
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX:
            closed["too_many"] += 1
            transport.abort()
            return
        self._expect_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is over."""
        self._stop()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        if self._refused:
            return
        if self._deadline is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_headers()
        if self._in_headers:
            # A field is told when it is whole; until then only the bytes show how long it grows.
            self._raw_bytes += len(data)
            if self._raw_bytes > HEADER_BYTES_MAX and b"\r\n\r\n" not in data:
                self._refuse("headers-too-large", "headers_too_large")
                return
        super().data_received(data)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_headers, self._header_fields, self._header_bytes, self._raw_bytes = True, 0, 0, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header has come."""
        self._header_fields += 1
        self._header_bytes += len(name) + len(value)
        if self._header_fields > HEADER_FIELDS_MAX or self._header_bytes > HEADER_BYTES_MAX:
            if not self._refused:
                self._refuse("headers-too-large", "headers_too_large")
            return
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A request's headers are whole."""
        self._in_headers = False
        self._stop()
        if not self._refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Some of a body has come."""
        if not self._refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        """A request is whole."""
        if not self._refused:
            super().on_message_complete()

    def pause_writing(self) -> None:
        """The peer does not read as fast as it is written to."""
        super().pause_writing()
        if self._unread is None:
            self._unread = self.loop.call_later(WRITE_SECONDS, self._nobody_reads)

    def resume_writing(self) -> None:
        """The peer reads again."""
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        super().resume_writing()

    def _expect_headers(self) -> None:
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._too_slow)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _too_slow(self) -> None:
        closed["headers_too_slow"] += 1
        self._deadline = None
        self.transport.close()

    def _nobody_reads(self) -> None:
        closed["unread"] += 1
        self._unread = None
        self.transport.abort()

    def _refuse(self, problem: str, counter: str) -> None:
        self._refused = True
        closed[counter] += 1
        content = body(problem, "A request's headers may have 32 KiB in 100 fields.")
        head = (
            f"HTTP/1.1 {TITLES[problem][0]} Refused\r\ncontent-type: {MEDIA_TYPE}\r\n"
            f"content-length: {len(content)}\r\nconnection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + content)
        self.transport.close()


def numbers() -> dict[str, Any]:
    """How many connections were closed, by why."""
    return {name: closed[name] for name in ("too_many", "headers_too_large", "headers_too_slow", "unread")}
