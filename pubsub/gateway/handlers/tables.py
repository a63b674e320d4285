"""`/topics/{topic}/table`: the last message of each key (docs/how-to/keep-the-latest.md)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from heapq import nsmallest
from typing import Any, Final, Protocol
from urllib.parse import quote_from_bytes, unquote_to_bytes

from starlette.responses import Response

from pubsub.base.limits import NUMBER_MAX
from pubsub.gateway import schemas
from pubsub.gateway.exchange import Exchange, answer
from pubsub.gateway.limits import POLL_RECORDS, POLL_RECORDS_MAX
from pubsub.gateway.messages import text_or_base64
from pubsub.gateway.problems import Problem

PAGE_BYTES: Final = 4 * 1024 * 1024
"""Bytes of keys and values on a page; one value is returned even if it is larger."""


class Latest(Protocol):
    """The last message of a key: its bytes, and its timestamp (microseconds since 1970)."""

    @property
    def body(self) -> bytes: ...
    @property
    def stamp(self) -> int: ...


Select = Callable[[Mapping[bytes, Latest]], Any]
"""Takes a part of a table."""


class TableReads(Protocol):
    """Reads of the cluster for a user; each blocks, and raises as the command of its name."""

    def table(self, user: str, topic: str, select: Select) -> Any:
        """Return what `select` takes from the last message of each key."""


class Tables:
    """Handlers that read a topic as a table.

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
        """Return the values by page, in the order of the keys. A search leaves out the others."""
        topic, most = self._readable(exchange), exchange.count("max", POLL_RECORDS, POLL_RECORDS_MAX)
        after, wanted = unquote_to_bytes(exchange.request.query_params.get("after", "")), _search(exchange)

        def page(values: Mapping[bytes, Latest]) -> schemas.Table:
            found, size = list[schemas.Value](), 0
            later = nsmallest(most + 1, (key for key in values if key > after and wanted(key, values[key])))
            for key in later[:most]:
                size += len(key) + len(values[key].body)
                if found and size > PAGE_BYTES:
                    break
                found.append(_value(key, values[key]))
            more = len(found) < len(later)
            following = quote_from_bytes(later[len(found) - 1], safe="") if more else None
            return schemas.Table(topic, len(values), found, following)

        return answer(await self._read(exchange, topic, page))

    async def get(self, exchange: Exchange) -> Response:
        """Return the value of one key."""
        topic, key = self._readable(exchange), exchange.names["key"].encode("latin-1")
        found = await self._read(exchange, topic, lambda values: values.get(key))
        if found is None:
            raise Problem("not-found", f"{topic} has no value of this key; GET /topics/{topic}/table lists the keys.")
        return answer(_value(key, found))

    async def _read(self, exchange: Exchange, topic: str, select: Select) -> Any:
        user = exchange.user.name
        return await self._run(lambda: self._reads.table(user, topic, select))


def _search(exchange: Exchange) -> Callable[[bytes, Latest], bool]:
    """Return whether a value has the key, the body and the time that the query asks for."""
    query = exchange.request.query_params
    part, text = query.get("key", "").encode(), query.get("text", "").encode()
    since, until = exchange.number("since", 0, NUMBER_MAX), exchange.number("until", NUMBER_MAX, NUMBER_MAX)
    return lambda key, value: part in key and text in value.body and since <= value.stamp <= until


def _value(key: bytes, value: Latest) -> schemas.Value:
    return schemas.Value(value.stamp, **text_or_base64("key", key), **text_or_base64("body", value.body))
