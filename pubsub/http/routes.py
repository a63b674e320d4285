"""Which handler a request is for: by what is asked (a put, a message, a job) and by its path, as Starlette has them."""

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
    """What a handler gets of an HTTP request, the same at each attempt, and after a restart.

    Attributes:
        key: its Idempotency-Key; client: whose token it came with, "" where there are no tokens.
        method, path: of the request, the path within the receiver; params: what the path's `{…}` hold.
        query: of the URL; headers: names in lower case; body: all of it.
        attempt: 1, and more where this handler has failed before.
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
        """The body as JSON.

        Raises:
            ValueError: it is none, or nested too deeply for Python.
        """
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None


Returned = Answer | bytes | str | dict[str, Any] | list[Any] | None
Handler = Callable[[Request, Transaction], Returned | Awaitable[Returned]]
"""Plain: called on a thread. Or `async`: called on the event loop; it must not await anything once it has used its
transaction."""


@dataclass(frozen=True, slots=True)
class Route:
    """A path and who handles what comes there."""

    kind: Kind
    pattern: Pattern[str]
    convertors: Mapping[str, Any]
    handler: Handler

    def params(self, path: str) -> dict[str, Any] | None:
        """What the `{…}` of the path hold; None where the path is another."""
        found = self.pattern.match(path)
        if found is None:
            return None
        return {name: self.convertors[name].convert(value) for name, value in found.groupdict().items()}


class Routes:
    """The handlers of a receiver, in the order in which they were named."""

    def __init__(self) -> None:
        self._routes: list[Route] = []

    def add(self, kind: Kind, path: str, handler: Handler) -> None:
        """Have a handler called for what comes to a path.

        Raises:
            CallerError: the path is none, or the handler cannot be called.
        """
        if not path.startswith("/"):
            raise CallerError(f"path {path!r} does not begin with /")
        if not callable(handler) or inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
            raise CallerError(f"the handler of {path} is not a function, or a generator")
        try:
            pattern, _, convertors = compile_path(path)
        except (ValueError, AssertionError) as error:
            raise CallerError(f"path {path!r} is malformed: {error}") from None
        self._routes.append(Route(kind, pattern, convertors, handler))

    def find(self, kind: Kind, path: str) -> tuple[Route, dict[str, Any]] | None:
        """Who handles it, with what the path holds; None: nobody."""
        for route in self._routes:
            if route.kind is kind and (params := route.params(path)) is not None:
                return route, params
        return None

    def methods(self, path: str) -> list[str]:
        """The HTTP methods that somebody handles at a path."""
        return sorted({METHODS[route.kind] for route in self._routes if route.params(path) is not None})

    def classify(self, method: str, path: str, *, wants_result: bool) -> Kind | None:
        """What is asked: PUT a put; POST a job where it names a Response URL, else a message; None: nothing here."""
        kinds = {"PUT": [Kind.PUT], "POST": [Kind.JOB, Kind.SEND] if wants_result else [Kind.SEND]}.get(method, [])
        return next((kind for kind in kinds if self.find(kind, path) is not None), None)


def as_request(found: Incoming, params: Mapping[str, Any]) -> Request:
    """What a handler gets."""
    query = dict(parse_qsl(found.query, keep_blank_values=True))
    return Request(
        found.key, found.owner, found.method, found.path, params, query, found.headers, found.body, found.attempts + 1
    )


def as_answer(returned: Any, response_bytes_max: int) -> Answer:
    """What a handler returned, as the answer that is stored: text, bytes and JSON by their types, None as 204.

    Raises:
        HandlerMisused: it is nothing of that, too large, or has a status at which a sender would try again.
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
                raise HandlerMisused(f"what the handler returned is no JSON: {error}") from None
            answer = Answer(200, {"content-type": "application/json"}, text.encode())
        case _:
            raise HandlerMisused(f"a handler returns an Answer, str, bytes, dict, list or None, not {type(returned)}")
    if not 200 <= answer.status < 600 or is_again(answer.status):
        raise HandlerMisused(
            f"status {answer.status} asks for another try, but what a handler returns is stored for good: raise instead"
        )
    if len(answer.body) > response_bytes_max:
        raise HandlerMisused(f"{len(answer.body):,} bytes returned, above response_bytes_max = {response_bytes_max:,}")
    return answer
