"""How connections end: peers that send no more, wait before they send, still send, or read slowly."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.web.rig import LARGE, SECONDS, serving, spoken, statuses

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc"
READ = GET.replace(b"/ ", b"/read ")
CHUNKED = b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"


async def patient(scope: Any, receive: Any, send: Any) -> None:
    """Answers once its peer is gone; /read once it has read, and /early and /closing, which is the last, before."""
    close: list[tuple[bytes, bytes]] = []
    if scope["path"] == "/closing":
        close = [(b"connection", b"close")]
    elif scope["path"] != "/early":
        message = await receive()
        while message.get("more_body") if scope["path"] == "/read" else message["type"] != "http.disconnect":
            message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2"), *close]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(patient) as found:
        yield found


def ended(port: int, *parts: bytes) -> bytes:
    """What comes back to a peer that has sent its last byte and says so."""
    with socket.create_connection(("127.0.0.1", port), SECONDS) as peer:
        for part in parts:
            peer.sendall(part)
            time.sleep(0.02)  # In a packet of its own; that it is read alone is not certain, nor needed.
        peer.shutdown(socket.SHUT_WR)
        found = b""
        while piece := peer.recv(1 << 16):
            found += piece
        return found


@pytest.mark.parametrize("request_", [GET, POST, CHUNKED, POST.replace(b"1.1", b"1.0")])
def test_a_peer_that_ends_its_side_is_answered_and_the_application_learns_so(port: int, request_: bytes) -> None:
    answer = ended(port, request_)
    assert statuses(answer) == [200]
    assert answer.endswith(b"ok")


def test_an_empty_line_behind_a_request_hides_no_end(port: int) -> None:
    assert statuses(ended(port, GET, b"\r\n")) == [200]
    assert statuses(ended(port, POST, b"\r\n")) == [200]


def test_every_request_before_the_end_is_answered(port: int) -> None:
    assert statuses(ended(port, READ, READ + CHUNKED)) == [200, 200, 200]


@pytest.mark.parametrize("begun", [POST[:-1], CHUNKED[:-3], POST[:40], GET[:5]])
def test_an_incomplete_request_is_answered_400(port: int, begun: bytes) -> None:
    assert statuses(ended(port, begun)) == [400]
    assert statuses(ended(port, READ, begun)) == [200, 400]


def test_a_peer_that_never_asked_is_not_answered(port: int) -> None:
    assert ended(port) == b""
    assert ended(port, b"\r\n") == b""


def test_an_unwanted_awaited_body_is_no_next_request(port: int) -> None:
    head = b"POST /early HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: %d\r\n\r\n" % len(GET)
    answer = spoken(port, head, GET)
    assert statuses(answer) == [200]
    assert b"\r\nconnection: close\r\n" in answer.lower()


def test_an_unrequested_body_leaves_the_connection_open(port: int) -> None:
    head = b"POST /early HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 3\r\n\r\nabc"
    assert statuses(ended(port, head + GET)) == [200, 200]


def test_a_peer_that_still_sends_reads_the_last_answer(port: int) -> None:
    head = b"POST /closing HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(LARGE)
    with socket.create_connection(("127.0.0.1", port), SECONDS) as peer:
        peer.sendall(head)
        answer = peer.recv(1 << 16)
        peer.sendall(LARGE)
        peer.shutdown(socket.SHUT_WR)
        while piece := peer.recv(1 << 16):
            answer += piece
    assert statuses(answer) == [200]
    assert answer.endswith(b"ok")


def test_a_slow_reader_reads_the_complete_answer() -> None:
    with serving(write_seconds=2.0) as port, socket.socket() as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        peer.settimeout(SECONDS)
        peer.connect(("127.0.0.1", port))
        peer.sendall(b"GET /large HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        began, size = time.monotonic(), 0
        while piece := peer.recv(1 << 16):
            size += len(piece)
            while size > (time.monotonic() - began) * (2 << 20):  # 2 MB/s: much longer than its patience.
                time.sleep(0.01)
        assert size > len(LARGE)
