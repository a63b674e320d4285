"""One delivery: its time, its media type, and the meaning of an answer, against receivers that write raw bytes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from time import monotonic

import pytest

from pubsub.gateway.limits import PARSED_BYTES_MAX
from pubsub.gateway.webhooks import posting
from pubsub.gateway.webhooks.posting import Outcome, make_http_client, post
from tests.web.rig import answering

SECRET = "whsec_" + "A" * 32
SECONDS = 0.5
TAKEN = b"HTTP/1.1 204 No Content\r\n\r\n"

Write = Callable[[bytes], Awaitable[None]]
Answer = Callable[[bytes, Write], Awaitable[None]]


@pytest.fixture(scope="module", autouse=True)
def _looking() -> Iterator[None]:
    """A gateway's thread for large bodies lives as long as its process: here one that ends with these tests."""
    with ThreadPoolExecutor(1, "webhook-json") as looking, pytest.MonkeyPatch.context() as patch:
        patch.setattr(posting, "_LOOKING", looking)
        yield


@asynccontextmanager
async def receiver(answer: Answer) -> AsyncIterator[str]:
    """A receiver; the URL that reaches it. It answers by what `answer(request, write)` writes, then closes."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def write(piece: bytes) -> None:
            writer.write(piece)
            await writer.drain()

        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await answer(head + await reader.readexactly(size), write)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/hook"
    finally:
        server.close()


async def deliver(url: str, body: bytes = b"{}") -> Outcome:
    async with make_http_client() as http_client:
        return await post(http_client, url, [SECRET], "a-1", "t", body, {})


async def delivered_to(answer: Answer, body: bytes = b"{}") -> Outcome:
    async with receiver(answer) as url:
        return await deliver(url, body)


async def _trickle(write: Write, piece: bytes) -> None:
    while True:
        await write(piece)
        await asyncio.sleep(SECONDS / 10)


async def status_byte_by_byte(request: bytes, write: Write) -> None:
    for byte in b"HTTP/1.1 200 OK" + b" " * 1_000:
        await write(bytes([byte]))
        await asyncio.sleep(SECONDS / 10)


async def headers_without_end(request: bytes, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\n")
    await _trickle(write, b"x: y\r\n")


async def informed_without_end(request: bytes, write: Write) -> None:
    await _trickle(write, b"HTTP/1.1 103 Early Hints\r\n\r\n")


async def silent(request: bytes, write: Write) -> None:
    await asyncio.sleep(60)


def body_without_end(status: str, *, chunked: bool) -> Answer:
    async def answer(request: bytes, write: Write) -> None:
        kind = b"transfer-encoding: chunked" if chunked else b"content-length: 60000"
        await write(f"HTTP/1.1 {status}\r\nretry-after: 7\r\n".encode() + kind + b"\r\n\r\n")
        await _trickle(write, b"1\r\nx\r\n" if chunked else b"x")

    return answer


def answers(said: bytes) -> Answer:
    async def answer(request: bytes, write: Write) -> None:
        await write(said)

    return answer


async def broken_behind_its_status(request: bytes, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf")


async def larger_than_is_read(request: bytes, write: Write) -> None:
    await write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1_000_000)


LATE = Outcome(reason=f"no answer within {SECONDS:g} s")
ANSWERS: list[tuple[Answer, Outcome]] = [
    (status_byte_by_byte, LATE),
    (headers_without_end, LATE),
    (informed_without_end, LATE),
    (silent, LATE),
    (body_without_end("200 OK", chunked=True), Outcome(delivered=True)),
    (body_without_end("204 No Content", chunked=False), Outcome(delivered=True)),
    (body_without_end("200 OK", chunked=False), Outcome(delivered=True)),
    (body_without_end("503 No", chunked=True), Outcome(reason="status 503", retry_after=7.0)),
    (body_without_end("410 Gone", chunked=True), Outcome(ended=True, reason="status 410", retry_after=7.0)),
    (broken_behind_its_status, Outcome(delivered=True)),
    (larger_than_is_read, Outcome(delivered=True)),
]


@pytest.mark.parametrize(("answer", "outcome"), ANSWERS)
def test_a_delivery_ends_with_its_time_and_its_status_counts(
    answer: Answer, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posting, "WEBHOOK_SECONDS", SECONDS)
    started = monotonic()
    assert asyncio.run(delivered_to(answer)) == outcome
    assert monotonic() - started < 20 * SECONDS


def test_a_delivery_to_a_receiver_that_does_not_read_ends_with_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(posting, "WEBHOOK_SECONDS", SECONDS)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        assert asyncio.run(deliver(url, b"\x00" * (32 << 20))) == LATE


@pytest.mark.parametrize(
    "behind",
    [
        b"HTTP/1.1 204 No Content\r\n\r\nOK",
        b"HTTP/1.1 204 No Content\r\ncontent-length: 2\r\n\r\nOK",
        b"HTTP/1.1 204 No Content\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nOK\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nOK" + TAKEN,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n" + TAKEN,
    ],
)
def test_bytes_behind_an_answer_are_not_the_next_answer(behind: bytes) -> None:
    async def main() -> list[Outcome]:
        refused = b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n"
        async with answering(behind, refused, TAKEN) as url, make_http_client() as http_client:
            return [await post(http_client, url, [SECRET], f"a-{number}", "t", b"{}", {}) for number in range(3)]

    assert asyncio.run(main()) == [Outcome(delivered=True), Outcome(reason="status 500"), Outcome(delivered=True)]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"n": 1}', "application/json"),
        (b"no", "application/octet-stream"),
        (b"[" * 2_000, "application/octet-stream"),
        (b"[" * 2_000 + b"]" * 2_000, "application/json"),
        (b"[" * 100_000 + b"]" * 100_000, "application/json"),
        (b"[" * PARSED_BYTES_MAX + b"]", "application/octet-stream"),
        (b'"' + b"x" * PARSED_BYTES_MAX + b'"', "application/json"),
        (b'"' + b"\xff" * PARSED_BYTES_MAX + b'"', "application/octet-stream"),
    ],
)
def test_readable_json_has_the_json_content_type_at_any_depth(body: bytes, kind: str) -> None:
    requests: list[bytes] = []

    async def taking(request: bytes, write: Write) -> None:
        requests.append(request)
        await write(TAKEN)

    assert asyncio.run(delivered_to(taking, body)) == Outcome(delivered=True)
    assert f"content-type: {kind}\r\n".encode() in requests[0].lower()


def test_the_loop_goes_on_while_a_large_body_is_looked_at() -> None:
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def delivering() -> Outcome:
        turning = asyncio.create_task(turn())
        try:
            return await delivered_to(answers(TAKEN), b"[" + b"[[[]]]," * 60_000 + b"[]]")
        finally:
            turning.cancel()

    assert asyncio.run(delivering()) == Outcome(delivered=True)
    assert turns > 10
