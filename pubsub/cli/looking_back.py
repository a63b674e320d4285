"""Reads stored messages and times of topics for the users of a gateway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from pubsub.cli.times import times_as_json
from pubsub.client.look_back import Page, RangeReader, parse_place, read_times
from pubsub.client.requests import Proxies
from pubsub.client.table_cache import TableCache
from pubsub.config.settings import ClientSettings
from pubsub.errors import CallerError, DataLoss
from pubsub.gateway.handlers.tables import Select
from pubsub.gateway.mailbox import Mail
from pubsub.protocol.names import Start, check_topic, is_service_topic

BYTES_MAX: Final = 1024 * 1024
"""Bytes of a page; one batch is returned even if it is larger."""

TABLE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of one table. `CACHE_BYTES_MAX` limits those that are kept."""

SECONDS: Final = 10.0
"""Time limit for an answer."""


class ClusterReads:
    """Reads the cluster that the settings name.

    Args:
        settings: the proxies, and the key for users without a key of their own.
        keys: directory with the users' own keys, `USER.key`.
    """

    def __init__(self, settings: ClientSettings, keys: Path) -> None:
        self._settings, self._keys = settings, keys
        self._tables = TableCache(TABLE_BYTES_MAX)

    def records(self, user: str, topic: str, start: Start, stop: Start, after: str, most: int) -> dict[str, Any]:
        """Return a page of messages; raises as `pubsub topic read`.

        Args:
            after: `next` of the page before; "": the first page.
        """
        _check(topic)
        try:
            place = parse_place(after) if after else None
        except ValueError:
            raise CallerError("after is not valid; send the next of the page before") from None
        with self._proxies(user) as proxies:
            reader = RangeReader(proxies, f"{user}.read", topic, start, stop, place)
            try:
                page = reader.page(most, BYTES_MAX)
                while not page.batch and not page.ended:
                    page = reader.page(most, BYTES_MAX)
            except DataLoss as loss:
                lost = Mail(0, f"{loss.first}..{loss.last}", "", 0, 0, b"", None, loss.reason, 0, 0.0)
                return {"messages": [lost], "next": str(reader.place)}
        return {"messages": list(_mail(page)), "next": None if page.ended else str(page.place)}

    def times(self, user: str, topic: str) -> dict[str, Any]:
        """Return the times of a topic as JSON; raises as `pubsub topic times`."""
        _check(topic)
        with self._proxies(user) as proxies:
            return times_as_json(read_times(proxies, f"{user}.read", topic))

    def table(self, user: str, topic: str, select: Select) -> Any:
        """Return what `select` takes from the last message of each key; raises as `pubsub topic table`."""
        _check(topic)
        with self._proxies(user) as proxies:
            return self._tables.read(proxies, f"{user}.read", topic, select)

    @contextmanager
    def _proxies(self, user: str) -> Iterator[Proxies]:
        own = self._keys / f"{user}.key"
        with Proxies.of(replace(self._settings, key_file=own) if own.exists() else self._settings) as proxies:
            proxies.timeout_seconds = SECONDS
            yield proxies


def _check(topic: str) -> None:
    if is_service_topic(check_topic(topic)):
        raise CallerError(f"{topic} belongs to a service, and its calls are not read")


def _mail(page: Page) -> Iterator[Mail]:
    for m in page.batch:
        yield Mail(0, m.id, m.publisher, m.counter, m.stamp, m.key, m.body, "", 0, 0.0, m.header_bytes)
