"""Connections that do not behave, against a real server with small limits.

The rule is docs/explanation/gateway.md, H12.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from asyncio.selector_events import _SelectorSocketTransport
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub.web.connections import JOINED_BYTES_MAX, _Transport, numbers
from tests.faults.cluster import until
from tests.web.rig import SECONDS, serving, spoken, statuses

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving() as found:
        yield found


@pytest.fixture(scope="module")
def hurried() -> Iterator[int]:
    """A server without patience: on a busy machine it may be over before the first request was sent."""
    with serving(header_seconds=0.2, idle_seconds=0.2) as found:
        yield found


@pytest.fixture(scope="module")
def unread() -> Iterator[int]:
    """A server without patience with those who do not read."""
    with serving(write_seconds=0.2) as found:
        yield found


def connected(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), SECONDS)


def closed(peer: socket.socket) -> bool:
    try:
        return peer.recv(1 << 16) == b""
    except ConnectionError:
        return True


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
def test_endless_headers_are_refused_and_counted(port: int, flood: bytes) -> None:
    before = numbers()["headers_too_large"]
    answer = spoken(port, b"GET / HTTP/1.1\r\nhost: x\r\n", flood, b"\r\n\r\n")
    assert statuses(answer) == [431]
    until(lambda: numbers()["headers_too_large"] == before + 1, "it is counted")


@pytest.mark.parametrize("begun", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nhost: x\r\n"])
def test_an_incomplete_request_is_closed_and_counted(hurried: int, begun: bytes) -> None:
    before = numbers()["headers_too_slow"]
    assert spoken(hurried, begun) == b""
    assert numbers()["headers_too_slow"] == before + 1


@pytest.mark.parametrize("more", [b"", b"GET / HT", b"\r\n"])
def test_an_idle_connection_is_closed(hurried: int, more: bytes) -> None:
    until(lambda: statuses(spoken(hurried, GET, more)) == [200], "it is answered, and closed")


def test_the_unread_rest_of_a_body_has_a_deadline(hurried: int) -> None:
    head = b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n"
    until(lambda: statuses(spoken(hurried, head + b"ab", b"cd")) == [200], "it is answered, and closed")


def test_the_next_request_behind_the_rest_of_a_body_is_answered(port: int) -> None:
    head = b"POST /early HTTP/1.1\r\nhost: x\r\ncontent-length: 4\r\n\r\n"
    last = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    assert statuses(spoken(port, head + b"ab", b"cd" + last)) == [200, 200]


def test_a_peer_that_reads_nothing_is_closed_and_counted(unread: int) -> None:
    before = numbers()["unread"]
    with connected(unread) as peer:
        peer.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\n\r\n")
        until(lambda: numbers()["unread"] == before + 1, "it is counted")


def test_a_peer_that_does_not_read_the_last_answer_is_closed_too(unread: int) -> None:
    before = numbers()["unread"]
    with connected(unread) as peer:
        peer.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        until(lambda: numbers()["unread"] == before + 1, "it is counted")


def test_a_full_server_closes_the_connection_that_is_idle_for_longest() -> None:
    before = numbers()["too_many"]
    with serving(connections_max=3) as port:
        silent = [connected(port) for _ in range(2)]
        with connected(port) as stream, connected(port) as later:
            stream.sendall(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
            assert stream.recv(1)
            later.sendall(GET)
            assert statuses(later.recv(1 << 16)) == [200]
            assert closed(silent[0])
            with connected(port) as last:
                last.sendall(GET)
                assert statuses(last.recv(1 << 16)) == [200]
                assert closed(silent[1])
        assert numbers()["too_many"] == before + 2
        for peer in silent:
            peer.close()


def test_a_connection_beyond_the_limit_is_answered_503_if_none_is_idle() -> None:
    with serving(connections_max=2) as port:
        streams = [connected(port) for _ in range(2)]
        for stream in streams:
            stream.sendall(b"GET /stream HTTP/1.1\r\nhost: x\r\n\r\n")
            stream.recv(1)
        answer = spoken(port)
        assert statuses(answer) == [503]
        assert b"\r\nretry-after: 1\r\n" in answer
        for stream in streams:
            stream.close()


def test_a_connection_that_never_shakes_hands_is_closed() -> None:
    certificate = Path(__file__).parents[1] / "gateway" / "localhost.pem"
    with serving(certificate=str(certificate), header_seconds=0.3) as port:
        assert spoken(port) == b""
        assert spoken(port, b"\x16\x03\x01") == b""
    with serving(certificate=str(certificate)) as port:
        context = ssl.create_default_context(cafile=certificate)
        with connected(port) as bare, context.wrap_socket(bare, server_hostname="localhost") as peer:
            peer.sendall(GET)
            assert statuses(peer.recv(1 << 16)) == [200]


def test_connections_that_were_reset_leave_nothing_behind() -> None:
    with serving(connections_max=2) as port:
        for _ in range(10):
            with connected(port) as peer:
                peer.sendall(GET)
                assert statuses(peer.recv(1 << 16)) == [200]
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        assert statuses(spoken(port, GET.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))) == [200]


class Wire:
    """A transport that keeps each write."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.writes.append(data)


def test_the_head_and_the_body_of_an_answer_leave_in_one_write() -> None:
    wire = Wire()

    async def main() -> None:
        transport: Any = _Transport(wire, lambda: None)  # type: ignore[arg-type]
        loop = asyncio.get_running_loop()
        transport.write(b"0")
        transport.hold(loop)
        for piece in (b"head", b"body", b""):
            transport.write(piece)
        assert wire.writes == [b"0"]
        transport.flush()
        assert wire.writes == [b"0", b"headbody"]
        await asyncio.sleep(0)
        transport.hold(loop)
        transport.write(b"head")
        transport.write(bytes(JOINED_BYTES_MAX))  # Not copied.
        transport.flush()
        assert wire.writes[2:] == [b"head", bytes(JOINED_BYTES_MAX)]

    asyncio.run(main())


def test_a_head_whose_body_does_not_come_is_sent_alone() -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        while (await receive())["type"] != "http.disconnect":
            pass

    with serving(silent) as port, connected(port) as peer:
        peer.sendall(GET)
        assert statuses(peer.recv(1 << 16)) == [200]


def test_the_head_of_an_application_that_fails_after_it_is_sent() -> None:
    async def failing(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
        raise ValueError("on purpose")

    with serving(failing) as port:
        assert statuses(spoken(port, GET)) == [200]


def test_a_server_writes_each_answer_once(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[bytes] = []
    write = _SelectorSocketTransport.write

    def counting(transport: Any, data: bytes) -> None:
        written.append(bytes(data))
        write(transport, data)

    monkeypatch.setattr(_SelectorSocketTransport, "write", counting)
    asked = b"POST / HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 4\r\n\r\nbody"
    assert spoken(port, asked).endswith(b"body")
    (answer,) = written
    assert answer.endswith(b"\r\n\r\nbody")
