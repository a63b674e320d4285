"""A server of ours on a thread, with small limits, and peers that speak to it in raw bytes."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

from pubsub.base.listening import listen_at
from pubsub.web.bodies import BodyGone, Held, read_body
from pubsub.web.connections import Limits
from pubsub.web.problems import Refused
from pubsub.web.serving import HttpServer, Tls
from tests.faults.cluster import until

LIMITS = Limits(
    connections_max=100,
    header_bytes_max=32 * 1024,
    header_fields_max=100,
    header_seconds=20.0,
    idle_seconds=20.0,
    write_seconds=20.0,
)
LARGE = b"x" * (8 << 20)
BODY_BYTES_MAX = 1 << 20
SECONDS = 20.0


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answers with the body, decoded; with LARGE at /large; endlessly at /stream; without reading at /early."""
    if scope["path"] == "/stream":
        await _stream(receive, send)
        return
    status, content = 200, b""
    if scope["path"] != "/early":
        try:
            content = await read_body(receive, scope["headers"], BODY_BYTES_MAX, Held(BODY_BYTES_MAX))
        except BodyGone:
            return
        except Refused as error:
            status, content = error.status, error.detail.encode()
    if scope["path"] == "/large":
        content = LARGE
    elif scope["path"] == "/seen":
        seen = {name.decode(): value.decode() for name, value in scope["headers"]}
        content = json.dumps({**seen, "raw_path": scope["raw_path"].decode()}).encode()
    head = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": content})


async def _stream(receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"data: 1\n\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


@contextmanager
def serving(app: Any = echo, certificate: str | None = None, **limits: Any) -> Iterator[int]:
    """A server's port; it is stopped at the end."""
    bounds = replace(LIMITS, **limits)
    with listen_at("127.0.0.1:0", insecure=False, remedy="") as listening:
        tls = Tls(certificate) if certificate else None
        server = HttpServer(app, listening, bounds, lambda status, reason: reason.encode(), tls=tls)

        async def serve() -> None:
            await server.start()
            await server.wait()

        thread = threading.Thread(target=lambda: asyncio.run(serve()))
        thread.start()
        try:
            until(lambda: server.started, "it listens")
            yield server.address[1]
        finally:
            server.force_exit = server.should_exit = True
            thread.join(SECONDS)
            assert not thread.is_alive()


def spoken(port: int, *parts: bytes) -> bytes:
    """What comes back until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as peer:
        found = b""
        try:
            for number, part in enumerate(parts):
                if number:
                    time.sleep(0.02)  # In a packet of its own; that it is read alone is not certain, nor needed.
                peer.sendall(part)
            while piece := peer.recv(1 << 16):
                found += piece
        except ConnectionError:
            pass
        return found


def statuses(answers: bytes) -> list[int]:
    """Of each answer of a connection."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 ([0-9]{3}) ", answers)]


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[str]:
    """A server that keeps its connections and writes one of these bytes for each request, in order; its URL."""
    left = list(answers)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while left:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                await reader.readexactly(int(head.partition(b"content-length:")[2].partition(b"\r\n")[0] or 0))
                writer.write(left.pop(0))
                await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()
