"""What of a request is read, and how much of it at most."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pubsub.http.asgi import BadRequest, Disconnected, header, header_values, kept_headers, read_body, respond
from pubsub.http.core.answers import Answer


def scope(*fields: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"headers": list(fields)}


def reading(messages: list[dict[str, Any]], limit: int = 10, *fields: tuple[bytes, bytes]) -> bytes:
    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    return asyncio.run(read_body(receive, scope(*fields), limit, 5.0))


def part(body: bytes, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_is_joined_from_its_parts_up_to_its_limit() -> None:
    assert reading([part(b"12345"), part(b"67890", more=False)]) == b"1234567890"
    with pytest.raises(BadRequest) as caught:
        reading([part(b"12345"), part(b"678901")])
    assert caught.value.answer.status == 413
    with pytest.raises(BadRequest):
        reading([], 10, (b"content-length", b"11"))
    with pytest.raises(BadRequest):
        reading([], 10, (b"content-length", b"9" * 5000))


def test_who_goes_before_the_end_is_noticed() -> None:
    with pytest.raises(Disconnected):
        reading([part(b"1"), {"type": "http.disconnect"}])


def test_headers_are_joined_by_name_and_what_names_a_client_is_left_out() -> None:
    found = kept_headers(scope((b"X-A", b"1"), (b"x-a", b"2"), (b"Authorization", b"secret"), (b"cookie", b"secret")))
    assert found == {"x-a": "1, 2"}
    assert header_values(scope((b"X-A", b"1"), (b"x-a", b"2")), "x-a") == ["1", "2"]
    assert header(scope(), "x-a") == ""


@pytest.mark.parametrize("fields", [[(f"x-{n}".encode(), b"") for n in range(65)], [(b"x", b"y" * 17_000)]])
def test_headers_are_bounded(fields: list[tuple[bytes, bytes]]) -> None:
    with pytest.raises(BadRequest) as caught:
        kept_headers(scope(*fields))
    assert caught.value.answer.status == 431


def test_an_answer_goes_out_with_its_length_and_204_with_nothing() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    asyncio.run(respond(send, Answer(200, {"content-length": "99", "x": "y"}, b"body")))
    assert sent[0]["headers"] == [(b"x", b"y"), (b"content-length", b"4")]
    assert sent[1]["body"] == b"body"
    asyncio.run(respond(send, Answer(204, {}, b"body")))
    assert (sent[2]["headers"], sent[3]["body"]) == ([], b"")
