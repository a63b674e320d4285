"""`POST /topics/{topic}/messages`: one message or many, on the server's disk when the response is 201.

The rule is docs/explanation/gateway.md, H2.
"""

from __future__ import annotations

import asyncio
import time

from msgspec import UNSET
from starlette.responses import Response

from pubsub.client.batch_contents import BatchContents
from pubsub.gateway import idempotency, schemas
from pubsub.gateway.clients import Clients
from pubsub.gateway.delays import read_delay
from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.ids import message_id
from pubsub.gateway.limits import PARSED_BYTES_MAX
from pubsub.gateway.messages import Wanted, read_http, read_lines
from pubsub.gateway.problems import Problem
from pubsub.gateway.publishing import Put, Written
from pubsub.gateway.splitting import LINES, MESSAGES, media_type, split_lines
from pubsub.gateway.ttl import read_ttl
from pubsub.web.idempotency import read_key


class Puts:
    """Handler of puts.

    Args:
        clients: the clients that put.

    Attributes:
        messages: number of messages put since the start.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self.messages = 0

    async def post(self, exchange: Exchange) -> Response:
        topic, headers = exchange.topic, exchange.request.headers
        if not exchange.user.may_put(topic):
            raise Problem("not-allowed", f"This token may not put to {topic}; it needs the right put.")
        delayed = read_delay(exchange.request.query_params, time.time())
        lives = read_ttl(exchange.request.query_params)
        metadata = read_http(headers.items())
        kind = _kind(headers.get("content-type", ""))
        if kind == "messages" and any(metadata):
            raise Problem(
                "bad-request", "With this Content-Type write keys and headers into the lines; nothing was put."
            )
        asked = headers.get("idempotency-key")
        key = "" if asked is None else read_key(asked, verbatim=True)
        body = await exchange.body()
        try:
            exchange.check(lambda user: user.may_put(topic))
            contents = await _contents(kind, body, *metadata)
            if not contents.bodies:
                raise Problem("bad-request", "The body has no line, so nothing was put; write one message per line.")
            contents = lives.added(contents)
            told_by = idempotency.fingerprint(f"{kind}{delayed.text}{lives.text}", body, *metadata) if key else b""
            columns = contents.bodies, contents.keys, contents.headers
            size = sum(sum(map(len, column)) for column in columns)
            put = Put(contents._replace(due=delayed.due), size, key, told_by)
            publishing = await self._clients.publishing(exchange.user.name)
            written = await publishing.put(topic, put)
        finally:
            exchange.release(body)
        if not written.replayed:
            self.messages += put.count
        return answer(_answer(topic, written), 201, {"idempotency-replayed": "true"} if written.replayed else None)


def _kind(content_type: str) -> str:
    """Return the form of a body: one message, one message per line, or one description per line."""
    found = media_type(content_type)
    return "lines" if found in LINES else "messages" if found == MESSAGES else "one"


async def _contents(kind: str, body: bytes, key: bytes, headers: bytes) -> BatchContents:
    """Return the messages of a body.

    Args:
        kind: its form.
        body: as received.
        key, headers: of each message, if the request names them.

    Raises:
        Problem: a line does not describe a message.
    """
    if kind == "messages":
        lines = split_lines(body)
        wanted = read_lines(lines) if len(body) <= PARSED_BYTES_MAX else await asyncio.to_thread(read_lines, lines)
        return _columns(wanted)
    bodies = split_lines(body) if kind == "lines" else [body]
    count = len(bodies)
    return BatchContents(bodies, [key] * count if key else (), [headers] * count if headers else ())


def _columns(wanted: list[Wanted]) -> BatchContents:
    bodies, keys, headers = ([one[place] for one in wanted] for place in range(3))
    return BatchContents(bodies, keys if any(keys) else (), headers if any(headers) else ())


def _answer(topic: str, written: Written) -> schemas.Put:
    publisher, count = written.publisher, sum(length for _, length in written.runs)
    ids = [
        schemas.Run(message_id(publisher, first), message_id(publisher, first + length - 1), length)
        for first, length in written.runs
    ]
    return schemas.Put(topic=topic, count=count, id=ids[0].first if count == 1 else UNSET, publisher=publisher, ids=ids)
