"""One request as handlers see it, and how its body is read: in pieces, bounded, and not for ever."""

from __future__ import annotations

import asyncio
import json
import math
import re
from contextlib import AbstractContextManager, aclosing
from dataclasses import dataclass
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from pubsub.gateway.limits import BODIES_BYTES_MAX, BODY_BYTES_MAX, BODY_SECONDS, PARSED_BYTES_MAX
from pubsub.gateway.problems import Problem
from pubsub.gateway.sessions import Needs, Sessions
from pubsub.gateway.tokens import User
from pubsub.web.bodies import BodyGone, BodyRefused, pieces

_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?")  # Python's numbers have more forms.
_CLOSE = {"connection": "close"}
_REFUSED = {413: "too-large", 415: "unsupported-media-type", 501: "not-implemented"}


class Held:
    """Bytes of bodies that all requests hold together.

    Attributes:
        bytes: now; refused: requests that were answered 413 or 503 for their size.
    """

    def __init__(self) -> None:
        self.bytes = self.refused = 0

    def add(self, count: int) -> None:
        """Hold so many more.

        Raises:
            Problem: there is no room.
        """
        if self.bytes + count > BODIES_BYTES_MAX:
            self.refused += 1
            raise Problem("busy", "The gateway holds as many bytes of bodies as it may; try again.", _CLOSE)
        self.bytes += count


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

    async def body(self) -> tuple[bytes, int]:
        """The request's body, decoded, and how many bytes `release` is to give back.

        Raises:
            Problem: it is too large, there is no room for it, it cannot be decoded, it does not come, or its sender is
                gone.
        """
        found: list[bytes] = []
        size = 0
        try:
            async with aclosing(pieces(self._receive, self.request.scope["headers"], BODY_BYTES_MAX)) as coming:
                async for piece in coming:
                    self.held.add(len(piece))
                    size += len(piece)
                    found.append(piece)
        except BaseException as error:
            self.held.bytes -= size
            if isinstance(error, BodyGone):
                raise Problem("bad-request", "The connection ended in the midst of the body.") from None
            if isinstance(error, BodyRefused):
                self.held.refused += error.status == 413
                raise Problem(_REFUSED.get(error.status, "bad-request"), error.reason, error.headers) from None
            raise
        return (found[0] if len(found) == 1 else b"".join(found)), size

    def release(self, size: int) -> None:
        """A body is needed no longer."""
        self.held.bytes -= size

    async def json(self) -> Any:
        """The body as JSON, which is small: it is parsed on the event loop.

        Raises:
            Problem: it is none, or larger than PARSED_BYTES_MAX; as `body`.
        """
        body, size = await self.body()
        self.release(size)
        if size > PARSED_BYTES_MAX:
            raise Problem("too-large", f"JSON that says what to do may have {PARSED_BYTES_MAX:,} bytes.")
        try:
            return json.loads(body)
        except (ValueError, RecursionError):
            raise Problem("bad-request", "The body is not JSON.") from None

    async def _receive(self) -> Any:
        try:
            async with asyncio.timeout(BODY_SECONDS):
                return await self.request.receive()
        except TimeoutError:
            raise Problem("too-slow", f"Nothing of the body came for {BODY_SECONDS:g} s.", _CLOSE) from None

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
    """An answer of JSON."""
    body = json.dumps(facts, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(body, status, headers, "application/json")


def nothing() -> Response:
    """An answer without content."""
    return Response(status_code=204)
