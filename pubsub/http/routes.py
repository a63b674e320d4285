"""Finds the handler of a request by its kind (put, message, job) and its path, with Starlette's patterns."""

from __future__ import annotations

import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from re import Pattern
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.routing import compile_path

from pubsub.client.storage.transaction import Transaction
from pubsub.errors import CallerError, HandlerMisused
from pubsub.http.core.answers import Answer, is_again
from pubsub.http.core.incoming import Incoming
from pubsub.http.core.outgoing import Kind

METHODS: Final = {Kind.PUT: "PUT", Kind.SEND: "POST", Kind.JOB: "POST"}


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request for a handler, the same at each attempt and after a restart.

    Attributes:
        key: its Idempotency-Key; client: name of its token, "" without tokens.
        method, path: of the request, the path relative to the receiver; params: values of the path's `{…}`.
        query: of the URL; headers: names in lower case; body: complete.
        attempt: 1, or more if this handler has failed before.
    """

    key: str
    client: str
    method: str
    path: str
    params: Mapping[str, Any]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes
    attempt: int

    def json(self) -> Any:
        """Return the body as JSON.

        Raises:
            ValueError: it is not JSON, or nested too deeply for Python.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("the JSON is nested too deeply") from None


Returned = Answer | bytes | str | dict[str, Any] | list[Any] | None
Handler = Callable[[Request, Transaction], Returned | Awaitable[Returned]]
"""A plain handler is called on a thread, an `async` one on the event loop. An `async` handler must not await anything
after the first use of its transaction.
"""


@dataclass(frozen=True, slots=True)
class Route:
    kind: Kind
    pattern: Pattern[str]
    convertors: Mapping[str, Any]
    handler: Handler

    def params(self, path: str) -> dict[str, Any] | None:
        """Return the values of the path's `{…}`, None if the path differs."""
        found = self.pattern.match(path)
        if found is None:
            return None
        return {name: self.convertors[name].convert(value) for name, value in found.groupdict().items()}


class Routes:
    """The handlers of a receiver, in order of registration."""

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def add(self, kind: Kind, path: str, handler: Handler) -> None:
        """Register a handler.

        Raises:
            CallerError: the path is malformed, or the handler is not a function.
        """
        if not path.startswith("/"):
            raise CallerError(f"path {path!r} does not begin with /")
        if not callable(handler) or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise CallerError(f"the handler of {path} must be a function or an async function")
        try:
            pattern, _, convertors = compile_path(path)
        except (ValueError, AssertionError) as error:
            raise CallerError(f"path {path!r} is malformed: {error}") from None
        self._routes.append(Route(kind, pattern, convertors, handler))

    def find(self, kind: Kind, path: str) -> tuple[Route, dict[str, Any]] | None:
        """Return the handler and the path's values, None if there is no handler."""
        for route in self._routes:
            if route.kind is kind and (params := route.params(path)) is not None:
                return route, params
        return None

    def methods(self, path: str) -> list[str]:
        return sorted({METHODS[route.kind] for route in self._routes if route.params(path) is not None})

    def classify(self, method: str, path: str, *, wants_result: bool) -> Kind | None:
        """Return a request's kind: PUT a put, POST with a Response URL a job, other POST a message."""
        kinds = {"PUT": [Kind.PUT], "POST": [Kind.JOB, Kind.SEND] if wants_result else [Kind.SEND]}.get(method, [])
        return next((kind for kind in kinds if self.find(kind, path) is not None), None)


def as_request(found: Incoming, params: Mapping[str, Any]) -> Request:
    query = dict(parse_qsl(found.query, keep_blank_values=True))
    return Request(
        found.key, found.owner, found.method, found.path, params, query, found.headers, found.body, found.attempts + 1
    )


def as_answer(returned: Any, response_bytes_max: int) -> Answer:
    """Return a handler's return value as a response: text, bytes and JSON by type, None as 204.

    Raises:
        HandlerMisused: the value has another type, is too large, or has a status that asks for a repeat.
    """
    match returned:
        case Answer():
            answer = returned
        case None:
            answer = Answer(204)
        case str():
            answer = Answer(200, {"content-type": "text/plain; charset=utf-8"}, returned.encode())
        case bytes():
            answer = Answer(200, {"content-type": "application/octet-stream"}, returned)
        case dict() | list():
            try:
                text = json.dumps(returned, ensure_ascii=False)
            except (TypeError, ValueError) as error:
                raise HandlerMisused(f"the handler's return value cannot be written as JSON: {error}") from None
            answer = Answer(200, {"content-type": "application/json"}, text.encode())
        case _:
            raise HandlerMisused(
                f"a handler must return an Answer, str, bytes, dict, list or None, not {type(returned)}"
            )
    if not 200 <= answer.status < 600 or is_again(answer.status):
        raise HandlerMisused(
            f"status {answer.status} asks for a repeat, but a handler's answer is final; raise an exception instead"
        )
    if len(answer.body) > response_bytes_max:
        raise HandlerMisused(f"{len(answer.body):,} bytes returned, above response_bytes_max = {response_bytes_max:,}")
    return answer
