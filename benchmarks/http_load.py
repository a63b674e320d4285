"""For `scripts/bench --http`: a server that does nothing, as fast as uvicorn is, and a client that costs little.

`python -m benchmarks.http_load` is that server; it prints its port and goes on until its standard input ends.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import uvicorn


async def nothing(scope: Any, receive: Any, send: Any) -> None:
    """Reads the body and answers 201."""
    del scope
    while (await receive()).get("more_body"):
        pass
    head = [(b"content-length", b"2"), (b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 201, "headers": head})
    await send({"type": "http.response.body", "body": b"{}"})


def serve_nothing() -> None:
    """Serve that until standard input ends."""
    config = uvicorn.Config(nothing, http="h11", ws="none", lifespan="off", log_config=None, access_log=False)
    server = uvicorn.Server(config)

    async def whole() -> None:
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # As the gateway has it.
        sys.stdout.write(f"{listening.getsockname()[1]}\n")
        sys.stdout.flush()
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        await asyncio.to_thread(sys.stdin.read)
        server.force_exit = server.should_exit = True
        await serving

    asyncio.run(whole())


class _Connection(asyncio.Protocol):
    """One connection that sends its next request when the last one is answered."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._transport.write(self._load.request())

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, rest = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        fields = head.lower()
        place = fields.find(b"content-length:")
        length = int(fields[place + 15 :].split(b"\r\n", 1)[0]) if place >= 0 else 0
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        self._load.answered(head, rest[:length])
        self._transport.write(self._load.request())

    def connection_lost(self, error: Exception | None) -> None:
        self._load.lost(error)


class Load:
    """Requests over some connections, each sent when the one before on its connection is answered.

    Args:
        make: makes the next request.

    Attributes:
        count: answers that have come.
    """

    def __init__(self, make: Callable[[], bytes]) -> None:
        self.request = make
        self.count = 0
        self._error = ""

    def answered(self, head: bytes, body: bytes) -> None:
        """An answer has come."""
        self.count += 1
        if not head.startswith(b"HTTP/1.1 2"):
            self._error = f"{head.splitlines()[0]!r}: {body[:200]!r}"

    def lost(self, error: Exception | None) -> None:
        """A connection has ended."""
        self._error = self._error or f"a connection ended: {error}"

    async def _rate(self, port: int, connections: int, secs: float) -> float:
        loop = asyncio.get_running_loop()
        opened = [
            await loop.create_connection(lambda: _Connection(self), "127.0.0.1", port) for _ in range(connections)
        ]
        while self.count < connections and not self._error:
            await asyncio.sleep(0.001)
        begun, before = time.perf_counter(), self.count
        while not self._error and (self.count == before or time.perf_counter() < begun + secs):
            await asyncio.sleep(min(secs, 0.005))
        rate = (self.count - before) / (time.perf_counter() - begun)
        error = self._error
        for transport, _ in opened:
            transport.abort()
        if error:
            raise RuntimeError(error)
        return rate

    def rate(self, port: int, connections: int, secs: float) -> float:
        """Answers a second, once every connection has had one.

        Raises:
            RuntimeError: an answer was no success, or a connection ended.
        """
        return asyncio.run(self._rate(port, connections, secs))


def post(path: str, bodies: Sequence[bytes], *, lines: bool = False, key: Callable[[], str] | None = None) -> Load:
    """POSTs of one body, or of lines, to a path; each with a key of its own where `key` makes them."""
    body = b"\n".join(bodies)
    kind = b"content-type: application/x-ndjson\r\n" if lines else b""
    head = b"POST %s HTTP/1.1\r\nhost: localhost\r\n%scontent-length: %d\r\n" % (path.encode(), kind, len(body))
    whole = head + b"\r\n" + body

    def plain() -> bytes:
        return whole

    def keyed() -> bytes:
        assert key is not None
        return b"%sidempotency-key: %s\r\n\r\n%s" % (head, key().encode(), body)

    return Load(plain if key is None else keyed)


if __name__ == "__main__":
    serve_nothing()
