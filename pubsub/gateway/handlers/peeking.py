"""`GET /topics/{topic}/messages`: what a topic holds, looked at and not taken."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from starlette.responses import Response

from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.ids import message_id
from pubsub.gateway.limits import PEEK_BODY_BYTES, PEEK_KEY_BYTES, PEEK_RECORDS_MAX, PEEKS_MAX
from pubsub.gateway.messages import json_facts, text_or_base64
from pubsub.gateway.problems import Problem
from pubsub.protocol import check_topic
from pubsub.protocol.names import parse_position

Peek = Callable[[str, str, str | None, int], dict[str, Any]]
"""Called with user, topic, position (None: the newest) and how many messages; it blocks: called on a thread."""

CHARACTER_BYTES_MAX: Final = 4
"""Of UTF-8."""

_RECORDS: Final = 20
_SHOWN: Final = {"key": PEEK_KEY_BYTES, "body": PEEK_BODY_BYTES}
"""How many bytes of a message are shown; its headers are small, and all shown."""


class Peeking:
    """Requests that look at messages.

    Args:
        peek: asks the cluster.
    """

    def __init__(self, peek: Peek) -> None:
        self._peek = peek
        self._running = 0

    async def get(self, exchange: Exchange) -> Response:
        """Messages of a topic, the newest or those behind a position; nobody's position moves."""
        topic, after = check_topic(exchange.topic), exchange.request.query_params.get("after")
        if not exchange.user.may_get(topic):
            raise Problem("not-allowed", f"This token may not receive {topic}.")
        most = max(1, int(exchange.number("max", _RECORDS, PEEK_RECORDS_MAX)))
        try:
            parse_position(after or "-1")
        except ValueError:
            raise Problem("bad-request", "after is a message's position, or -1 for the oldest.") from None
        if self._running >= PEEKS_MAX:
            raise Problem("busy", f"{PEEKS_MAX} requests look at messages already.")
        self._running += 1
        try:
            found = await asyncio.to_thread(self._peek, exchange.user.name, topic, after, most)
        finally:
            self._running -= 1
        return answer({"topic": topic, **found, "messages": [_facts(one) for one in found["messages"]]})


def _facts(message: dict[str, Any]) -> dict[str, Any]:
    body, key = message["body"], message["key"]
    return {
        "id": message_id(message["publisher"], message["counter"]),
        "position": message["position"],
        "publisher": message["publisher"],
        "counter": str(message["counter"]),
        "stamp": message["stamp"],
        "bytes": len(body),
        "cut": [name for name, most in _SHOWN.items() if len(message[name]) > most],
        **json_facts(b"", message["headers"]),
        **(_beginning("key", key) if key else {}),
        **_beginning("body", body),
    }


def _beginning(name: str, value: bytes) -> dict[str, str]:
    """A value as JSON has it, as much of it as is shown; no character of a text is cut through."""
    most = _SHOWN[name]
    if len(value) > most:
        try:
            return {name: value[:most].decode()}
        except UnicodeDecodeError as error:
            if error.start > most - CHARACTER_BYTES_MAX and error.end == most:
                return {name: value[: error.start].decode()}
    return text_or_base64(name, value[:most])
