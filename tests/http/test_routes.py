"""The handler of a request, its arguments, and the answer made of its return value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pubsub.errors import CallerError, HandlerMisused
from pubsub.http.core.answers import Answer
from pubsub.http.core.incoming import Incoming
from pubsub.http.core.outgoing import Kind
from pubsub.http.routes import Routes, as_answer, as_request


def handler(request: Any, transaction: Any) -> None:
    pass


def other(request: Any, transaction: Any) -> None:
    pass


def test_the_first_matching_route_of_its_kind_is_used() -> None:
    routes = Routes()
    routes.add(Kind.PUT, "/orders/{number:int}", handler)
    routes.add(Kind.PUT, "/orders/{name}", other)
    routes.add(Kind.SEND, "/orders/{name}", other)
    found = routes.find(Kind.PUT, "/orders/17")
    assert found is not None
    assert (found[0].handler, found[1]) == (handler, {"number": 17})
    found = routes.find(Kind.PUT, "/orders/x")
    assert found is not None
    assert (found[0].handler, found[1]) == (other, {"name": "x"})
    assert routes.find(Kind.JOB, "/orders/17") is None
    assert routes.methods("/orders/17") == ["POST", "PUT"]
    assert routes.methods("/") == []


def test_the_kind_of_a_request_follows_from_method_and_response_url() -> None:
    routes = Routes()
    for kind in (Kind.PUT, Kind.SEND, Kind.JOB):
        routes.add(kind, "/all", handler)
    routes.add(Kind.SEND, "/message", handler)
    routes.add(Kind.JOB, "/job", handler)
    asked = [
        routes.classify(method, path, wants_result=wants)
        for method, path, wants in (
            ("PUT", "/all", True), ("POST", "/all", False), ("POST", "/all", True), ("POST", "/message", True),
            ("POST", "/job", False), ("GET", "/all", False),
        )
    ]  # fmt: skip
    assert asked == [Kind.PUT, Kind.SEND, Kind.JOB, Kind.SEND, None, None]


def _generator(request: Any, transaction: Any) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize("wrong", [_generator, None, 7])
def test_an_invalid_handler_is_refused(wrong: Any) -> None:
    with pytest.raises(CallerError):
        Routes().add(Kind.PUT, "/", wrong)


@pytest.mark.parametrize(
    ("returned", "answer"),
    [
        (None, Answer(204)),
        ("ä", Answer(200, {"content-type": "text/plain; charset=utf-8"}, "ä".encode())),
        (b"\xff", Answer(200, {"content-type": "application/octet-stream"}, b"\xff")),
        ({"a": "ä"}, Answer(200, {"content-type": "application/json"}, '{"a": "ä"}'.encode())),
        ([1], Answer(200, {"content-type": "application/json"}, b"[1]")),
        (Answer(201, {"x": "y"}, b"z"), Answer(201, {"x": "y"}, b"z")),
    ],
)
def test_the_value_of_a_handler_becomes_an_answer(returned: Any, answer: Answer) -> None:
    assert as_answer(returned, 100) == answer


@pytest.mark.parametrize("returned", [7, object(), {"a": object()}, Answer(503), Answer(99), b"x" * 101])
def test_an_answer_that_cannot_be_stored_is_refused(returned: Any) -> None:
    with pytest.raises(HandlerMisused):
        as_answer(returned, 100)


def test_a_handler_gets_all_facts_of_the_request() -> None:
    found = Incoming("alice", "k", Kind.PUT, "PUT", "/x", "a=1&b=&c=%20", {"h": "v"}, b'{"x": 1}', b"", 0.0, attempts=2)
    request = as_request(found, {"n": 7})
    assert (request.key, request.client, request.method, request.path) == ("k", "alice", "PUT", "/x")
    assert (request.params, request.query) == ({"n": 7}, {"a": "1", "b": "", "c": " "})
    assert (request.headers, request.json(), request.attempt) == ({"h": "v"}, {"x": 1}, 3)
