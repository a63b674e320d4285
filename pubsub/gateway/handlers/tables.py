"""`/topics/{topic}/table`: the last message of each key (docs/how-to/keep-the-latest.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from heapq import nsmallest
from typing import Any, Final, Protocol
from urllib.parse import quote_from_bytes, unquote_to_bytes

from starlette.responses import Response

from pubsub.gateway import schemas
from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.limits import POLL_RECORDS, POLL_RECORDS_MAX
from pubsub.gateway.messages import text_or_base64
from pubsub.gateway.problems import Problem

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of keys and values on a page; one value is returned even if it is larger."""


class TableReads(Protocol):
    """Reads of the cluster for a user; each blocks, and raises as the command of its name."""

    def table(self, user: str, topic: str) -> Mapping[bytes, bytes]:
        """Return the last message of each key."""


class Tables:
    """Handlers that read a topic as a table. Each request reads the topic from its begin.

    Args:
        reads: reads the cluster.
        readable: returns the topic of a request; raises Problem if the user may not get from it.
        run: calls a blocking function on a thread; raises Problem if too many run already.
    """

    def __init__(
        self,
        reads: TableReads,
        readable: Callable[[Exchange], str],
        run: Callable[[Callable[[], Any]], Awaitable[Any]],
    ) -> None:
        self._reads, self._readable, self._run = reads, readable, run

    async def list(self, exchange: Exchange) -> Response:
        """Return the values by page, in the order of the keys."""
        topic, most = self._readable(exchange), exchange.count("max", POLL_RECORDS, POLL_RECORDS_MAX)
        after = unquote_to_bytes(exchange.request.query_params.get("after", ""))
        values = await self._read(exchange, topic)
        found, size = list[schemas.Value](), 0
        later = nsmallest(most + 1, (key for key in values if key > after))
        for key in later[:most]:
            size += len(key) + len(values[key])
            if found and size > PAGE_BYTES:
                break
            found.append(_value(key, values[key]))
        more = len(found) < len(later)
        return answer(schemas.Table(topic, found, quote_from_bytes(later[len(found) - 1], safe="") if more else None))

    async def get(self, exchange: Exchange) -> Response:
        """Return the value of one key."""
        topic, key = self._readable(exchange), exchange.names["key"].encode("latin-1")
        values = await self._read(exchange, topic)
        if key not in values:
            raise Problem("not-found", f"{topic} has no value of this key; GET /topics/{topic}/table lists the keys.")
        return answer(_value(key, values[key]))

    async def _read(self, exchange: Exchange, topic: str) -> Mapping[bytes, bytes]:
        user = exchange.user.name
        values: Mapping[bytes, bytes] = await self._run(lambda: self._reads.table(user, topic))
        return values


def _value(key: bytes, value: bytes) -> schemas.Value:
    return schemas.Value(**text_or_base64("key", key), **text_or_base64("body", value))
