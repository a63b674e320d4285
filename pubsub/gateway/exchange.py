"""One request as its handler uses it."""

from __future__ import annotations

import asyncio
import json
import math
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from pubsub.gateway.limits import BODY_BYTES_MAX, BODY_SECONDS, PARSED_BYTES_MAX
from pubsub.gateway.problems import Problem
from pubsub.gateway.sessions import Needs, Sessions
from pubsub.protocol import check_new_topic
from pubsub.protocol.patterns import check_new_pattern, is_pattern
from pubsub.web.bodies import BodyGone, Held, read_body
from pubsub.web.tokens import User

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")  # float() accepts more forms, such as 1e3 and nan.


@dataclass
class Exchange:
    """A request with the state that its handler needs.

    Attributes:
        user: the sender.
        names: path parameters.
        held: counts the bytes of all bodies.
        sessions: the rights of users at present.
        token: of the request.
    """

    request: Request
    user: User
    names: dict[str, str]
    held: Held
    sessions: Sessions
    token: str | None = None

    @property
    def topic(self) -> str:
        return self.names["topic"]

    @property
    def subscribable(self) -> str:
        """The topic to receive from, or the pattern of topics.

        Raises:
            InvalidName: it is no topic that may be created, and no pattern.
        """
        return check_new_pattern(self.topic) if is_pattern(self.topic) else check_new_topic(self.topic)

    def number(self, name: str, default: float, most: float, least: float = 0.0) -> float:
        """Return a number of the query, limited to `most`.

        Raises:
            Problem: the value is not a number, or below `least`.
        """
        text = self.request.query_params.get(name)
        if text is None:
            return default
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not least <= value < 1e18:
            raise Problem("bad-request", f"{name} must be a number from {least:g} to {most:g}.")
        return min(value, most)

    def count(self, name: str, default: int, most: int) -> int:
        """As `number`, for a whole number of at least 1."""
        return int(self.number(name, default, most, 1.0))

    def truth(self, name: str) -> bool:
        """Return a flag of the query, False if it is missing.

        Raises:
            Problem: the value is neither true nor false.
        """
        text = self.request.query_params.get(name, "false")
        if text not in {"true", "false"}:
            raise Problem("bad-request", f"{name} must be true or false.")
        return text == "true"

    def lasting(self, needs: Needs) -> AbstractContextManager[asyncio.Event]:
        return self.sessions.lasting(self.token, self.user, needs)

    def check(self, needs: Needs) -> None:
        """As `Sessions.check`: the right may have been lost while the body arrived slowly."""
        self.sessions.check(self.token, self.user, needs)

    async def body(self) -> bytes:
        """Return the decoded body. Its bytes count as held until `release`.

        Raises:
            Refused: as `read_body`, or the client has disconnected.
        """
        fields, seconds = self.request.scope["headers"], BODY_SECONDS
        try:
            return await read_body(self.request.receive, fields, BODY_BYTES_MAX, self.held, silence_seconds=seconds)
        except BodyGone:
            raise Problem("bad-request", "The connection ended before the body was complete.") from None

    def release(self, body: bytes) -> None:
        self.held.release(len(body))

    async def json(self, *, empty: Any = None) -> Any:
        """Return the body as JSON. It must be small, since it is parsed on the event loop.

        Args:
            empty: returned for an empty body; None: an empty body is refused.

        Raises:
            Problem: it is not JSON, or larger than PARSED_BYTES_MAX; as `body`.
        """
        body = await self.body()
        self.release(body)
        if len(body) > PARSED_BYTES_MAX:
            raise Problem("too-large", f"The JSON body is too large; the limit is {PARSED_BYTES_MAX:,} bytes.")
        if not body and empty is not None:
            return empty
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise Problem("bad-request", "The body is not JSON.") from None

    async def gone(self) -> None:
        """Return when the client has disconnected."""
        while True:
            message = await self.request.receive()
            if message["type"] == "http.disconnect":
                return


def check_query(given: QueryParams, known: frozenset[str]) -> None:
    """Check that a query has only known parameters, each once: a mistyped name would otherwise be ignored.

    Raises:
        Problem: it has others.
    """
    names = [name for name, _ in given.multi_items()]
    for name in names:
        if name not in known:
            shown = "".join(character if character.isprintable() else "?" for character in name[:50])
            there = f"use {', '.join(sorted(known))}" if known else "it has none"
            raise Problem("bad-request", f"{shown!r} is not a parameter of this resource; {there}.")
        if names.count(name) > 1:
            raise Problem("bad-request", f"{name} is given twice; send it once.")


def answer(facts: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return a JSON response: a struct of `schemas`, or report data of the same shape."""
    return Response(msgspec.json.encode(facts), status, headers, "application/json")


def nothing() -> Response:
    return Response(status_code=204)
