"""`GET /topics/{topic}/messages`: stored messages, read without a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response

from pubsub.base.limits import NUMBER_MAX
from pubsub.gateway import schemas
from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.ids import message_id
from pubsub.gateway.limits import PEEK_RECORDS_MAX, PEEKS_MAX
from pubsub.gateway.messages import preview
from pubsub.gateway.problems import Problem
from pubsub.protocol import check_topic
from pubsub.protocol.names import parse_position

Peek = Callable[[str, str, str | None, int], dict[str, Any]]
"""Called on a thread with user, topic, position (None: the newest) and number of messages; it blocks."""

_RECORDS: Final = 20


class Peeking:
    """Handler that shows stored messages.

    Args:
        peek: asks the cluster.
    """

    def __init__(self, peek: Peek) -> None:
        self._peek = peek
        self._running = 0

    async def get(self, exchange: Exchange) -> Response:
        """Return messages of a topic, the newest or those after a position. No subscriber's position changes.

        A search leaves out the others of those messages.
        """
        topic, after = check_topic(exchange.topic), exchange.request.query_params.get("after")
        if not exchange.user.may_get(topic):
            raise Problem("not-allowed", f"This token may not receive {topic}; it needs the right get.")
        most, wanted = exchange.count("max", _RECORDS, PEEK_RECORDS_MAX), _search(exchange)
        try:
            parse_position(after or "-1")
        except ValueError:
            raise Problem("bad-request", "after must be a message's position, or -1 for the oldest.") from None
        if self._running >= PEEKS_MAX:
            raise Problem("busy", f"{PEEKS_MAX} requests are reading messages, which is the limit; try again.")
        self._running += 1
        try:
            found = await asyncio.to_thread(self._peek, exchange.user.name, topic, after, most)
        finally:
            self._running -= 1
        messages = [_beginning(one) for one in found["messages"] if wanted(one)]
        return answer(schemas.Peeked(topic, found["held"], messages, len(found["messages"]), found["next"]))


def _search(exchange: Exchange) -> Callable[[dict[str, Any]], bool]:
    """Return whether a message has the key, the body and the time that the query asks for."""
    query = exchange.request.query_params
    key, text = query.get("key", "").encode(), query.get("text", "").encode()
    since, until = exchange.number("since", 0, NUMBER_MAX), exchange.number("until", NUMBER_MAX, NUMBER_MAX)
    return lambda one: key in one["key"] and text in one["body"] and since <= one["stamp"] <= until


def _beginning(message: dict[str, Any]) -> schemas.Beginning:
    publisher, counter = message["publisher"], message["counter"]
    contents = preview(message["key"], message["headers"], message["body"])
    name = message_id(publisher, counter)
    return schemas.Beginning(name, message["position"], publisher, str(counter), message["stamp"], **contents)
