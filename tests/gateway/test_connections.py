"""Connections that do not behave, against a real server with small limits."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from pubsub.gateway import connections
from pubsub.gateway.connections import Connection, numbers
from tests.faults.cluster import until

LARGE = b"x" * (8 << 20)


async def app(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    more = True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    content = LARGE if scope["path"] == "/large" else body
    head = [(b"content-length", str(len(content)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": content})


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(connections, "HEADER_SECONDS", 0.3)
    monkeypatch.setattr(connections, "WRITE_SECONDS", 0.3)
    monkeypatch.setattr(connections, "CONNECTIONS_MAX", 4)
    config = uvicorn.Config(app, http=Connection, ws="none", lifespan="off", log_config=None)
    server = uvicorn.Server(config)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve(sockets=[listening])))
        thread.start()
        until(lambda: server.started, "it listens")
        yield listening.getsockname()[1]
        server.force_exit = server.should_exit = True
        thread.join()


def spoken(port: int, *pieces: bytes) -> bytes:
    """What comes back, until the other side closes."""
    with socket.create_connection(("127.0.0.1", port), 20) as peer:
        try:
            for piece in pieces:
                peer.sendall(piece)
            found = b""
            while piece := peer.recv(1 << 16):
                found += piece
        except ConnectionError:
            pass
        return found


def test_a_request_in_pieces_is_answered(port: int) -> None:
    parts = [b"POST / HTT", b"P/1.1\r\nhost: x\r\nconnection: close\r\ncontent-le", b"ngth: 3\r\n\r\na", b"bc"]
    answer = spoken(port, *parts)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"abc")


def test_large_bodies_may_come_along_with_headers(port: int) -> None:
    body = b"y" * 200_000
    head = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert spoken(port, head + body).endswith(body)


@pytest.mark.parametrize(
    "flood",
    [
        b"".join(b"h%d: x\r\n" % number for number in range(200)),
        b"".join(b"h%d: %s\r\n" % (number, b"x" * 1000) for number in range(60)),
        b"h: " + b"x" * 100_000,
    ],
)
def test_headers_without_end_are_refused_and_counted(port: int, flood: bytes) -> None:
    before = numbers()["headers_too_large"]
    answer = spoken(port, b"GET / HTTP/1.1\r\nhost: x\r\n", flood, b"\r\n\r\n")
    assert answer == b"" or b" 431 " in answer.partition(b"\r\n")[0]
    until(lambda: numbers()["headers_too_large"] == before + 1, "it is counted")


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_half_a_request_is_closed_and_counted(port: int, begun: bytes) -> None:
    before = numbers()["headers_too_slow"]
    assert spoken(port, begun) == b""
    assert numbers()["headers_too_slow"] == before + 1


def test_who_reads_nothing_is_closed_and_counted(port: int) -> None:
    before = numbers()["unread"]
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        until(lambda: numbers()["unread"] == before + 1, "it is counted")


def test_one_connection_too_many_is_closed_and_counted(port: int) -> None:
    before = numbers()["too_many"]
    peers = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
    until(lambda: numbers()["too_many"] > before, "it is counted")
    for peer in peers:
        peer.close()
