"""Tables that are kept between two reads, so that the next one reads only what came since.

The least recently read tables go when all together exceed a limit. Each read asks a server with the rights of its own
sender, so a table that is kept shows nobody more than a table that is read anew.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from pubsub.client.requests import Proxies
from pubsub.client.table_view import Entry, View
from pubsub.client.tables import read_on
from pubsub.errors import KeyRefused, NotAllowed, Unavailable

CACHE_BYTES_MAX: Final = 128 * 1024 * 1024
"""Bytes of all tables that are kept, as `TABLE_BYTES_MAX` counts them. Those that are being read come on top."""

CACHE_TABLES_MAX: Final = 1_000
"""Number of tables that are kept."""

Selected = TypeVar("Selected")


class _Kept:
    def __init__(self, view: View) -> None:
        self.view, self.size = view, 0
        self.lock = threading.Lock()
        """Held while the table is read. Other reads of the topic wait."""


class TableCache:
    """The tables of a process that reads for others. Its calls may come from any thread.

    Args:
        table_bytes_max: limit of the bytes of one table.
        bytes_max, tables_max: limits of the tables that are kept.
    """

    def __init__(
        self, table_bytes_max: int, bytes_max: int = CACHE_BYTES_MAX, tables_max: int = CACHE_TABLES_MAX
    ) -> None:
        self._table_bytes_max, self._bytes_max, self._tables_max = table_bytes_max, bytes_max, tables_max
        self._tables = OrderedDict[str, _Kept]()
        self._lock = threading.Lock()

    def __contains__(self, topic: str) -> bool:
        return topic in self._tables

    def read(
        self, proxies: Proxies, sender: str, topic: str, select: Callable[[Mapping[bytes, Entry]], Selected]
    ) -> Selected:
        """Bring a table up to date, and return what `select` takes from it.

        Args:
            proxies: connections with the key of the sender.
            sender: the client ID.
            topic: its name.
            select: called with the values; it must keep no reference to them.

        Raises:
            PubsubError: as `read_on`.
        """
        with self._lock:
            kept = self._tables.setdefault(topic, _Kept(View(sender, topic, self._table_bytes_max)))
            self._tables.move_to_end(topic)
        with kept.lock:
            kept.view.sender = sender
            try:
                read_on(proxies, kept.view)
            except (NotAllowed, KeyRefused, Unavailable):  # The next read may go on.
                raise
            except BaseException:
                self._drop(topic, kept)
                raise
            finally:
                self._measure(kept)
            return select(kept.view.values)

    def _measure(self, kept: _Kept) -> None:
        with self._lock:
            kept.size = kept.view.size
            while len(self._tables) > self._tables_max or sum(x.size for x in self._tables.values()) > self._bytes_max:
                self._tables.popitem(last=False)

    def _drop(self, topic: str, kept: _Kept) -> None:
        with self._lock:
            if self._tables.get(topic) is kept:
                del self._tables[topic]
