"""One request as handlers see it."""

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
from pubsub.web.bodies import BodyGone, Held, read_body
from pubsub.web.tokens import User

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")  # Python's numbers have more forms.


@dataclass
class Exchange:
    """A request on its way to an answer.

    Attributes:
        request: as Starlette has it.
        user: who asks.
        names: what stands for the names in its path.
        held: the bytes of all bodies.
        sessions: who may do what by now.
        token: that it came with.
    """

    request: Request
    user: User
    names: dict[str, str]
    held: Held
    sessions: Sessions
    token: str | None = None

    @property
    def topic(self) -> str:
        """The topic in the path."""
        return self.names["topic"]

    def number(self, name: str, default: float, most: float, least: float = 0.0) -> float:
        """A number of the query, not above the most that is allowed.

        Raises:
            Problem: it is none, or below the least.
        """
        text = self.request.query_params.get(name)
        if text is None:
            return default
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not least <= value < 1e18:
            raise Problem("bad-request", f"{name} is a number from {least:g} to {most:g}.")
        return min(value, most)

    def count(self, name: str, default: int, most: int) -> int:
        """As `number`, of what there is at least one."""
        return int(self.number(name, default, most, 1.0))

    def truth(self, name: str) -> bool:
        """Whether the query says `true`; where it says nothing: no.

        Raises:
            Problem: it says something else than true or false.
        """
        text = self.request.query_params.get(name, "false")
        if text not in {"true", "false"}:
            raise Problem("bad-request", f"{name} is true or false.")
        return text == "true"

    def lasting(self, needs: Needs) -> AbstractContextManager[asyncio.Event]:
        """As `Sessions.lasting`, of this request."""
        return self.sessions.lasting(self.token, self.user, needs)

    def check(self, needs: Needs) -> None:
        """As `Sessions.check`, of this request: a body may come slowly."""
        self.sessions.check(self.token, self.user, needs)

    async def body(self) -> bytes:
        """The request's body, decoded; `release` gives its bytes back.

        Raises:
            Refused: as `read_body`, or its sender is gone.
        """
        fields, seconds = self.request.scope["headers"], BODY_SECONDS
        try:
            return await read_body(self.request.receive, fields, BODY_BYTES_MAX, self.held, silence_seconds=seconds)
        except BodyGone:
            raise Problem("bad-request", "The connection ended in the midst of the body.") from None

    def release(self, body: bytes) -> None:
        """A body is needed no longer."""
        self.held.release(len(body))

    async def json(self) -> Any:
        """The body as JSON, which is small: it is parsed on the event loop.

        Raises:
            Problem: it is none, or larger than PARSED_BYTES_MAX; as `body`.
        """
        body = await self.body()
        self.release(body)
        if len(body) > PARSED_BYTES_MAX:
            raise Problem("too-large", f"JSON that says what to do may have {PARSED_BYTES_MAX:,} bytes.")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise Problem("bad-request", "The body is not JSON.") from None

    async def gone(self) -> None:
        """Returns when whoever asked has gone."""
        while True:
            message = await self.request.receive()
            if message["type"] == "http.disconnect":
                return


def check_query(given: QueryParams, known: frozenset[str]) -> None:
    """See that a query has nothing but what is known, once: a mistyped name would be taken for none.

    Raises:
        Problem: it has.
    """
    names = [name for name, _ in given.multi_items()]
    for name in names:
        if name not in known:
            shown = "".join(character if character.isprintable() else "?" for character in name[:50])
            there = f"there are {', '.join(sorted(known))}" if known else "there are none"
            raise Problem("bad-request", f"{shown!r} is no parameter of this resource; {there}.")
        if names.count(name) > 1:
            raise Problem("bad-request", f"{name} is given twice.")


def answer(facts: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer of JSON: one of `schemas`, or what it describes as a report has it."""
    return Response(msgspec.json.encode(facts), status, headers, "application/json")


def nothing() -> Response:
    """An answer without content."""
    return Response(status_code=204)
