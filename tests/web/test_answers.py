"""Answers of peers that send more bytes than announced, and of peers that do not."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from pubsub.web import answers
from pubsub.web.answers import REASON_LENGTH_MAX, answer_pieces, reason_of
from tests.web.rig import answering

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nno"


async def _asked(*said: bytes) -> tuple[list[bytes], int]:
    """The bodies of these answers, one request each, and on how many connections they came."""
    found: list[bytes] = []
    ports: set[int] = set()
    async with answering(*said) as url, httpx2.AsyncClient(trust_env=False) as client:
        for _ in said:
            async with client.stream("POST", url, content=b"x") as answer:
                ports.add(answer.extensions["network_stream"].get_extra_info("client_addr")[1])
                found.append(b"".join([piece async for piece in answer_pieces(answer)]))
    return found, len(ports)


def test_a_connection_is_used_again() -> None:
    chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nyes\r\n0\r\n\r\n"
    assert asyncio.run(_asked(ANSWER, chunked, ANSWER)) == ([b"no", b"yes", b"no"], 1)


def test_a_connection_with_further_bytes_is_not_used_again() -> None:
    assert asyncio.run(_asked(ANSWER + ANSWER.replace(b"no", b"xx"), ANSWER, ANSWER)) == ([b"no"] * 3, 2)


def test_no_connection_is_used_again_without_the_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_PARSER", ("stream", "renamed"))
    assert asyncio.run(_asked(ANSWER, ANSWER)) == ([b"no", b"no"], 2)


def test_the_reason_of_a_missing_answer_is_one_line_without_the_secrets_of_the_url() -> None:
    error = OSError("no way\nto https://me:secret-word@host/x" + "y" * 1_000)
    said = reason_of(error, "https://me:secret-word@host/x")
    assert said.startswith("OSError: no way to ")
    assert "secret-word" not in said
    assert len(said) <= len("OSError: ") + REASON_LENGTH_MAX
    assert reason_of(TimeoutError(), "http://host/") == "TimeoutError"
