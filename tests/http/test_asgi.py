"""The parts of a request that are read, and their limits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pubsub.http.asgi import kept_headers, refusal, respond
from pubsub.http.core.answers import Answer
from pubsub.web.problems import Refused


def scope(*fields: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"headers": list(fields)}


def test_headers_are_joined_by_name_and_credentials_are_omitted() -> None:
    found = kept_headers(scope((b"X-A", b"1"), (b"x-a", b"2"), (b"Authorization", b"secret"), (b"cookie", b"secret")))
    assert found == {"x-a": "1, 2"}


@pytest.mark.parametrize("fields", [[(f"x-{n}".encode(), b"") for n in range(65)], [(b"x", b"y" * 17_000)]])
def test_headers_are_bounded(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(Refused) as caught:
        kept_headers(scope(*fields))
    assert caught.value.status == 431


def test_an_answer_is_sent_with_its_length_and_204_without_a_body() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(respond(send, Answer(200, {"content-length": "99", "x": "y"}, b"body")))
    assert sent[0]["headers"] == [(b"x", b"y"), (b"content-length", b"4")]
    assert sent[1]["body"] == b"body"
    asyncio.run(respond(send, Answer(204, {}, b"body")))
    assert (sent[2]["headers"], sent[3]["body"]) == ([], b"")


def test_a_refusal_is_a_problem_with_its_headers() -> None:
    answer = refusal(Refused(503, "There is no room.", {"connection": "close"}))
    assert answer.headers == {"content-type": "application/problem+json", "connection": "close", "retry-after": "1"}
    assert json.loads(answer.body) == {"title": "Service Unavailable", "status": 503, "detail": "There is no room."}
