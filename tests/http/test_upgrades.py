"""Requests that offer an upgrade, over the servers that serve a receiver: ours, and a user's own uvicorn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from pubsub.http import HttpSettings, Receiver
from tests.http.rig import counting, effects, serving, until

SECONDS = 20.0
OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n"
BODIES = {
    "length": (b"Content-Length: 5\r\n", b"hello"),
    "chunked": (b"Transfer-Encoding: chunked\r\n", b"5\r\nhello\r\n0\r\n\r\n"),
}


@asynccontextmanager
async def own(app: Any, http: str) -> AsyncIterator[int]:
    """A user's own uvicorn; its port."""
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, http=http, ws="none", lifespan="on", log_config=None, access_log=False)  # type: ignore[arg-type]
    )
    server.capture_signals = _nothing  # type: ignore[method-assign,assignment]
    task = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started, "it listens")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.force_exit = server.should_exit = True
        await task


@asynccontextmanager
async def ours(app: Any, http: str) -> AsyncIterator[int]:
    """Our server; its port."""
    del http
    async with serving(app) as url:
        yield int(url.rpartition(":")[2])


class _nothing:  # noqa: N801
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


async def answered(port: int, *packets: bytes) -> int:
    """The status of the first answer."""
    async with asyncio.timeout(SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for packet in packets:
                writer.write(packet)
                await writer.drain()
                await asyncio.sleep(0.02)
            return int((await reader.readline()).split()[1])
        finally:
            writer.close()


@pytest.mark.parametrize("packets", [1, 2])
@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(("server", "http", "status"), [(ours, "", 204), (own, "h11", 204), (own, "httptools", 501)])
def test_a_body_is_stored_completely_or_the_request_is_refused(
    tmp_path: Path, server: Any, http: str, status: int, body: str, packets: int
) -> None:
    receiver = counting(Receiver(tmp_path))
    fields, content = BODIES[body]

    def request(offer: bytes) -> list[bytes]:
        head = b"POST /message HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: one\r\n" + offer + fields + b"\r\n"
        return [head + content] if packets == 1 else [head, content]

    async def main() -> None:
        async with server(receiver, http) as port:
            assert await answered(port, *request(OFFER)) == status
            # The key stands for nothing that the sender did not send: the right repeat is stored.
            assert await answered(port, *request(b"")) == 204
            await until(lambda: effects(receiver) == [b"hello"], "it is handled once")

    asyncio.run(main())


@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_a_result_that_was_lost_is_refused_too(tmp_path: Path, http: str) -> None:
    from pubsub.http import AsyncReliableHttp

    async def main() -> None:
        settings = HttpSettings(backoff_seconds=0.02, try_seconds=5.0)
        async with AsyncReliableHttp(tmp_path, settings=settings) as sender, own(sender.results, http) as port:
            head = (
                b"POST /results/x HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: one\r\n" + OFFER + BODIES["length"][0]
            )
            # There is no such job; but the body is looked at before.
            assert await answered(port, head + b"\r\nhello") == (501 if http == "httptools" else 404)

    asyncio.run(main())
