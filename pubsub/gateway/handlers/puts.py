"""`POST /topics/{topic}/messages`: one message or many, on the server's disk when the answer says 201."""

from __future__ import annotations

from typing import Any, Final

from starlette.responses import Response

from pubsub.gateway import idempotency
from pubsub.gateway.clients import Clients
from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.ids import message_id, named
from pubsub.gateway.problems import Problem
from pubsub.gateway.publishing import Put, Written
from pubsub.gateway.splitting import LINES, media_type, split_lines

NOT_YET: Final = "pubsub-"
"""Headers that begin so are a message's key and headers, which a put does not carry yet: they are refused, not lost."""


class Puts:
    """Requests that put.

    Args:
        clients: whose clients put.

    Attributes:
        messages: that were put since the start.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.messages = 0

    async def post(self, exchange: Exchange) -> Response:
        """Put what the body holds."""
        topic, headers = exchange.topic, exchange.request.headers
        if not exchange.user.may_put(topic):
            raise Problem("not-allowed", f"This token may not put to {topic}.")
        for name in headers:
            if name.startswith(NOT_YET):
                raise Problem("bad-request", f"{name}: messages have no key and no headers yet; nothing was put.")
        lines = media_type(headers.get("content-type", "")) in LINES
        asked = headers.get("idempotency-key")
        key = "" if asked is None else idempotency.parse_key(asked)
        body, size = await exchange.body()
        try:
            bodies = split_lines(body) if lines else [body]
            if not bodies:
                raise Problem("bad-request", "The body holds no line.")
            put = Put(bodies, size, key, idempotency.fingerprint(lines, body) if key else b"")
            publishing = await self._clients.publishing(exchange.user.name)
            written = await publishing.put(topic, put)
        finally:
            exchange.release(size)
        if not written.replayed:
            self.messages += len(bodies)
        return answer(_facts(topic, written), 201, {"idempotency-replayed": "true"} if written.replayed else None)


def _facts(topic: str, written: Written) -> dict[str, Any]:
    runs = written.runs
    count = sum(length for _, length in runs)
    facts: dict[str, Any] = {"topic": topic, "count": count}
    if count == 1:
        facts["id"] = message_id(written.publisher, runs[0][0])
    return facts | {"publisher": written.publisher, "ids": named(written.publisher, runs)}
