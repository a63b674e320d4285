from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.datastructures import QueryParams
from starlette.requests import Request

from pubsub.gateway import exchange as module
from pubsub.gateway.exchange import Exchange, check_query
from pubsub.gateway.limits import PARSED_BYTES_MAX
from pubsub.gateway.problems import Problem
from pubsub.gateway.sessions import Sessions
from pubsub.web.bodies import Held
from pubsub.web.problems import Refused
from pubsub.web.tokens import ANYBODY, Users


def exchange(pieces: list[bytes], held: Held, *, length: str = "", query: str = "", ends: str = "whole") -> Exchange:
    waiting = list(pieces)

    async def receive() -> Any:
        if waiting:
            piece = waiting.pop(0)
            return {"type": "http.request", "body": piece, "more_body": bool(waiting) or ends != "whole"}
        if ends == "gone":
            return {"type": "http.disconnect"}
        return await asyncio.get_running_loop().create_future()

    headers = [(b"content-length", length.encode())] if length else []
    scope = {"type": "http", "method": "POST", "path": "/", "headers": headers, "query_string": query.encode()}
    return Exchange(Request(scope, receive), ANYBODY, {}, held, Sessions(Users()))


def read(one: Exchange) -> bytes:
    return asyncio.run(one.body())


def test_a_body_is_the_sum_of_its_pieces_and_counts_while_it_is_held() -> None:
    held = Held(1 << 30)
    one = exchange([b"ab", b"", b"c"], held)
    assert read(one) == b"abc"
    assert held.bytes == 3
    one.release(b"abc")
    assert held.bytes == 0


@pytest.mark.parametrize("length", ["101", "x", "-1"])
def test_a_length_that_is_too_large_is_refused_before_the_body_is_read(
    monkeypatch: pytest.MonkeyPatch, length: str
) -> None:
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 100)
    held = Held(1 << 30)
    with pytest.raises(Refused) as raised:
        read(exchange([], held, length=length))
    assert (raised.value.status, held.refused) == (413, 1)


def test_a_body_that_grows_too_large_is_refused_and_held_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_BYTES_MAX", 5)
    held = Held(1 << 30)
    with pytest.raises(Refused) as raised:
        read(exchange([b"abc", b"def"], held))
    assert (raised.value.status, held.bytes) == (413, 0)


def test_all_bodies_together_are_bounded() -> None:
    held = Held(5)
    read(exchange([b"abc"], held))
    with pytest.raises(Refused) as raised:
        read(exchange([b"d", b"ef"], held))
    assert (raised.value.status, held.bytes) == (503, 3)


def test_a_body_that_does_not_come_is_waited_for_only_to_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BODY_SECONDS", 0.01)
    held = Held(1 << 30)
    with pytest.raises(Refused) as raised:
        read(exchange([b"abc"], held, ends="never"))
    assert (raised.value.status, held.bytes) == (408, 0)


def test_a_sender_that_is_gone_puts_nothing() -> None:
    held = Held(1 << 30)
    with pytest.raises(Problem):
        read(exchange([b"abc"], held, ends="gone"))
    assert held.bytes == 0


@pytest.mark.parametrize(("query", "value"), [("", 7.0), ("n=3", 3.0), ("n=2.5", 2.5), ("n=1000", 100.0)])
def test_a_number_of_the_query_has_a_default_and_a_most(query: str, value: float) -> None:
    assert exchange([], Held(1 << 30), query=query).number("n", 7.0, 100.0) == value


@pytest.mark.parametrize(
    "query", ["n=0", "n=0.5", "n=-1", "n=x", "n=", "n=nan", "n=inf", "n=1_0", "n=%EF%BC%91", "n=%201", "n=1e1"]
)
def test_a_count_of_the_query_is_at_least_one(query: str) -> None:
    with pytest.raises(Problem, match="n must be a number from 1 to 100"):
        exchange([], Held(1 << 30), query=query).count("n", 7, 100)


@pytest.mark.parametrize(("query", "value"), [("", False), ("n=true", True), ("n=false", False)])
def test_a_truth_of_the_query_is_true_or_false(query: str, value: bool) -> None:
    assert exchange([], Held(1 << 30), query=query).truth("n") == value


@pytest.mark.parametrize("query", ["n=yes", "n=1", "n=", "n=True"])
def test_a_value_other_than_true_or_false_is_refused(query: str) -> None:
    with pytest.raises(Problem, match="n must be true or false"):
        exchange([], Held(1 << 30), query=query).truth("n")


@pytest.mark.parametrize(("query", "said"), [
    ("maxx=1", "'maxx' is not a parameter of this resource; use max, wait."), ("Max=1", "not a parameter"),
    ("max=1&wait=2&", ""), ("", ""), ("=1", "'' is not a parameter"), ("max", ""),
    ("max=1&max=1", "max is given twice"),
    ("%00%0a=1", "'??' is not a parameter"), ("max%3D1", "not a parameter"),
])  # fmt: skip
def test_a_query_accepts_known_parameters_once_each(query: str, said: str) -> None:
    def check() -> None:
        check_query(QueryParams(query), frozenset({"wait", "max"}))

    if not said:
        check()
        return
    with pytest.raises(Problem) as raised:
        check()
    assert said in str(raised.value)
    assert raised.value.status == 400


@pytest.mark.parametrize(("body", "name"), [
    (b"{", "bad-request"),
    (b"[" * 20_000, "bad-request"),
    (b'"' + b"x" * PARSED_BYTES_MAX + b'"', "too-large"),
])  # fmt: skip
def test_a_json_request_is_small_and_refused_in_one_sentence(body: bytes, name: str) -> None:
    held = Held(1 << 30)
    with pytest.raises(Refused) as raised:
        asyncio.run(exchange([body], held).json())
    assert isinstance(raised.value, Problem)
    assert (raised.value.name, held.bytes) == (name, 0)
