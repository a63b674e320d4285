"""The pages `/metrics`, `/livez` and `/readyz`, served by a thread of their own, so that peers cannot slow the process.

The thread uses only the `Handover` of the process. Each connection carries one request and is then closed. Its number,
the time for its request and the time for its answer are limited (`limits`). A request waits for the loop's next turn,
and all requests meanwhile get the same snapshot: more scrapes cost the loop no more. Pages of other sites cannot read
anything (`base.sites`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from typing import Final, NamedTuple

from pubsub.base.listening import quiet
from pubsub.base.sites import Asked, Sites, asked, opens_document
from pubsub.metrics.handover import Handover
from pubsub.metrics.limits import (
    ANSWER_SECONDS,
    BACKLOG,
    CONNECTIONS_MAX,
    HEAD_BYTES_MAX,
    REQUEST_SECONDS,
    SNAPSHOT_SECONDS,
    WRITE_SECONDS,
)
from pubsub.metrics.snapshot import Snapshot

TEXT: Final = "text/plain; charset=utf-8"

_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Page(NamedTuple):
    """An answer.

    Attributes:
        status: HTTP status.
    """

    status: int
    body: bytes
    media_type: str = TEXT


class Pages:
    """The metrics pages of one process.

    Args:
        listening: a bound socket.
        handover: gives snapshots of the process.
        written: writes a snapshot as text.
        media_type: of that text.
        sites: hosts and origins from which requests are answered.
    """

    def __init__(
        self,
        listening: socket.socket,
        handover: Handover,
        written: Callable[[Snapshot], bytes],
        media_type: str,
        sites: Sites,
    ) -> None:
        self._socket, self._handover, self._written, self._media_type = listening, handover, written, media_type
        self._sites = sites
        self._open: dict[asyncio.StreamWriter, None] = {}
        """Connections, oldest first."""
        self._silent: dict[asyncio.StreamWriter, None] = {}
        """The connections that have sent no request yet."""
        self._asking: asyncio.Task[Snapshot] | None = None
        self._made: tuple[float, Snapshot, bytes] | None = None
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    # The thread

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        quiet(self._loop)
        server = await asyncio.start_server(
            self._connected, sock=self._socket, limit=HEAD_BYTES_MAX, backlog=BACKLOG, start_serving=True
        )
        await self._stopping.wait()
        server.close()
        for writer in list(self._open):
            writer.transport.abort()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._open) >= CONNECTIONS_MAX:
            oldest = next(iter(self._silent or self._open))
            del self._open[oldest]
            self._silent.pop(oldest, None)
            oldest.transport.abort()
        self._open[writer] = self._silent[writer] = None
        try:
            with contextlib.suppress(OSError, TimeoutError):
                await self._converse(reader, writer)
        finally:
            self._open.pop(writer, None)
            self._silent.pop(writer, None)
            writer.transport.abort()  # The answer is sent, or its time is over.

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            await _answer(writer, Page(431, b"the request's headers are larger than 8 KiB\n"))
            return
        except asyncio.IncompleteReadError:
            return
        self._silent.pop(writer, None)
        method, path = _request(head)
        reason = self._refusal(method, head, writer.get_extra_info("sockname")[0])
        if reason:
            page = Page(403, f"{reason}\n".encode())
        elif method not in {b"GET", b"HEAD"}:
            page = Page(405 if method else 400, b"use GET /metrics, /livez or /readyz\n")
        else:
            page = await self._page(path)
        await _answer(writer, page, body=method != b"HEAD")

    def _refusal(self, method: bytes, head: bytes, reached: str) -> str:
        """Return the reason to reject a request, "" if it is accepted."""
        headers = _headers(head)
        request = asked(headers)
        if method == b"GET" and opens_document(headers):
            request = Asked(request.host, request.origin, ())
        return self._sites.refusal(request, reached)

    async def _page(self, path: bytes) -> Page:
        if path not in {b"/metrics", b"/livez", b"/readyz"}:
            return Page(404, b"no such path; use /metrics, /livez or /readyz\n")
        if not self._handover.started:
            return Page(200, b"starting\n") if path == b"/livez" else Page(503, b"starting\n")
        try:
            snapshot = await self._snapshot()
        except TimeoutError:
            return Page(503, f"the process's loop has not answered for {ANSWER_SECONDS:g} s\n".encode())
        if path == b"/livez":
            return Page(200, b"alive\n")
        if path == b"/readyz":
            return Page(503, f"{snapshot.unready}\n".encode()) if snapshot.unready else Page(200, b"ready\n")
        assert self._made is not None
        return Page(200, self._made[2], self._media_type)

    async def _snapshot(self) -> Snapshot:
        """Return the last snapshot, or a new one if that is too old.

        Raises:
            TimeoutError: the loop gave none in time.
        """
        if self._made is not None and self._loop.time() - self._made[0] < SNAPSHOT_SECONDS:
            return self._made[1]
        if self._asking is None or self._asking.done():
            self._asking = self._loop.create_task(self._ask())
            self._asking.add_done_callback(_looked_at)
        return await asyncio.shield(self._asking)

    async def _ask(self) -> Snapshot:
        given: asyncio.Future[Snapshot] = self._loop.create_future()
        self._handover.ask(lambda snapshot: _tell(self._loop, given, snapshot))
        async with asyncio.timeout(ANSWER_SECONDS):
            snapshot = await given
        self._made = self._loop.time(), snapshot, self._written(snapshot)
        return snapshot


def _looked_at(task: asyncio.Task[Snapshot]) -> None:
    """Mark a task's error as seen: a request that was waiting for it may have gone."""
    if not task.cancelled():
        task.exception()


def _tell(loop: asyncio.AbstractEventLoop, given: asyncio.Future[Snapshot], snapshot: Snapshot) -> None:
    """Pass a snapshot to the waiting thread. Called in the loop's thread, which continues at once."""

    def take() -> None:
        if not given.done():
            given.set_result(snapshot)

    with contextlib.suppress(RuntimeError):  # The thread has ended meanwhile.
        loop.call_soon_threadsafe(take)


def _request(head: bytes) -> tuple[bytes, bytes]:
    """Return method and path of a request, (b"", b"") if its first line is malformed."""
    words = head.split(b"\r\n", 1)[0].split(b" ")
    if len(words) != 3 or not words[2].startswith(b"HTTP/1."):
        return b"", b""
    return words[0], words[1].split(b"?", 1)[0]


def _headers(head: bytes) -> list[tuple[bytes, bytes]]:
    """Return the header fields of a request, names in lower case."""
    fields = (line.partition(b":") for line in head.split(b"\r\n")[1:] if line)
    return [(name.strip().lower(), value.strip()) for name, _, value in fields]


async def _answer(writer: asyncio.StreamWriter, page: Page, *, body: bool = True) -> None:
    head = (
        f"HTTP/1.1 {page.status} {_REASONS[page.status]}\r\ncontent-type: {page.media_type}\r\n"
        f"content-length: {len(page.body)}\r\ncache-control: no-store\r\nconnection: close\r\n\r\n"
    )
    writer.transport.set_write_buffer_limits(0)  # `drain` then returns when the system has all bytes.
    writer.write(head.encode() + (page.body if body else b""))
    async with asyncio.timeout(WRITE_SECONDS):
        await writer.drain()
        writer.close()
        await writer.wait_closed()
