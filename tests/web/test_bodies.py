"""A body is read completely and decoded, or the reason is given."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from typing import Any

import pytest

from pubsub.web.bodies import BodyGone, Held, is_coded, read_body
from pubsub.web.problems import Refused

LIMIT = 100_000


def read(
    parts: list[bytes], ends: str = "whole", held: Held | None = None, patience: dict[str, float] | None = None,
    **fields: str,
) -> bytes:  # fmt: skip
    """What is read; it is held no longer where it is refused."""
    waiting = list(parts)
    held = held or Held(1 << 30)
    before = held.bytes

    async def receive() -> Any:
        if not waiting and ends == "never":
            return await asyncio.get_running_loop().create_future()
        if not waiting:
            return {"type": "http.disconnect"} if ends == "gone" else {"type": "http.request"}
        piece = waiting.pop(0)
        return {"type": "http.request", "body": piece, "more_body": bool(waiting) or ends != "whole"}

    async def whole() -> bytes:
        named = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
        return await read_body(receive, named, LIMIT, held, **(patience or {}))

    try:
        body = asyncio.run(whole())
    except BaseException:
        assert held.bytes == before
        raise
    assert held.bytes == before + len(body)
    return body


def refused(parts: list[bytes], **fields: str) -> Refused:
    with pytest.raises(Refused) as raised:
        read(parts, **fields)
    return raised.value


def test_a_body_is_the_sum_of_its_pieces() -> None:
    assert read([b"ab", b"", b"c"], content_length="3") == b"abc"
    assert read([]) == b""
    assert read([b"x" * LIMIT]) == b"x" * LIMIT


def test_a_body_in_a_coding_is_decoded_within_the_limit() -> None:
    for coding, body in (("gzip", gzip.compress(b"x" * LIMIT)), ("Deflate", zlib.compress(b"x" * LIMIT))):
        assert read([body[:20], body[20:]], content_encoding=coding) == b"x" * LIMIT
    assert read([], content_encoding="gzip") == b""
    assert is_coded([(b"Content-Encoding", b"gzip")])
    assert not is_coded([(b"content-encoding", b"identity")])


def test_a_too_large_body_is_413_in_every_form() -> None:
    assert refused([], content_length=str(LIMIT + 1)).status == 413
    assert refused([], content_length="9" * 5000).status == 413
    assert refused([b"x" * LIMIT, b"x"]).status == 413
    assert refused([gzip.compress(b"x" * (LIMIT + 1))], content_encoding="gzip").status == 413
    assert refused([gzip.compress(bytes(1 << 25), 1)], content_encoding="gzip").status == 413
    assert refused([b"\x1f\x8b" + b"x" * LIMIT], content_encoding="gzip").status in {400, 413}


def test_a_body_that_does_not_fit_its_coding_is_400() -> None:
    assert refused([b"plain"], content_encoding="gzip").status == 400
    assert refused([gzip.compress(b"x")[:-1]], content_encoding="gzip").status == 400


def test_an_unknown_coding_is_415_with_the_known_ones() -> None:
    error = refused([b"x"], content_encoding="br")
    assert (error.status, error.headers["accept-encoding"]) == (415, "gzip, deflate")


def test_all_bodies_together_are_bounded_and_refusals_for_size_are_counted() -> None:
    held = Held(5)
    read([b"abc"], held=held)
    with pytest.raises(Refused) as raised:
        read([b"d", b"ef"], held=held)
    assert (raised.value.status, held.bytes, held.refused) == (503, 3, 1)
    assert raised.value.headers == {"connection": "close", "retry-after": "1"}
    held.release(3)
    assert read([b"d", b"ef"], held=held) == b"def"
    with pytest.raises(Refused):
        read([], held=held, content_length=str(LIMIT + 1))
    assert held.refused == 2


@pytest.mark.parametrize(
    ("patience", "said"), [({"silence_seconds": 0.01}, "No byte"), ({"seconds": 0.01}, "complete")]
)
def test_a_body_that_does_not_come_is_408(patience: dict[str, float], said: str) -> None:
    with pytest.raises(Refused, match=said) as raised:
        read([b"abc"], "never", patience=patience)
    assert (raised.value.status, raised.value.headers) == (408, {"connection": "close"})


class _Clock(asyncio.SelectorEventLoop):
    """An event loop whose time a test sets forward."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead


def test_a_slow_body_has_its_time_and_no_more() -> None:
    async def dripping(**patience: float) -> bytes:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Clock)
        pieces = 0

        async def receive() -> Any:
            nonlocal pieces
            pieces += 1
            loop.ahead += 20.0
            await asyncio.sleep(0)
            return {"type": "http.request", "body": b"x", "more_body": pieces < 20}

        return await read_body(receive, [], LIMIT, Held(LIMIT), **patience)

    with asyncio.Runner(loop_factory=_Clock) as runner:
        assert runner.run(dripping(silence_seconds=30.0)) == b"x" * 20
        with pytest.raises(Refused, match="within 60 s"):
            runner.run(dripping(silence_seconds=30.0, seconds=60.0))


def test_a_sender_that_is_gone_has_sent_no_body() -> None:
    with pytest.raises(BodyGone):
        read([b"abc"], ends="gone")


@pytest.mark.parametrize("fields", [{"content_length": "5"}, {"transfer_encoding": "chunked"}])
def test_a_body_that_the_server_lost_to_an_upgrade_is_501(fields: dict[str, str]) -> None:
    error = refused([b""], upgrade="h2c", **fields)
    assert (error.status, error.headers) == (501, {"connection": "close"})
    assert "--http h11" in error.detail
    assert read([b"hello"], upgrade="h2c", **fields) == b"hello"
    assert read([b""], **fields) == b""


def test_an_offer_without_a_body_has_an_empty_body() -> None:
    assert read([b""], upgrade="h2c") == b""
    assert read([b""], upgrade="h2c", content_length="0") == b""
