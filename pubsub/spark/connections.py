"""Connections to the proxies that a Python worker of Spark keeps from one task to the next.

Spark gives one worker process many tasks, one after the other. A connection, most of all one with keys, costs more than
a small task. So a task borrows a connection and gives it back. A connection counts for one key: a replaced key file
takes effect with the next task. A task that fails, or is given up by Spark, closes its connection, because requests
may be under way on it. Idle connections are closed after `IDLE_SECONDS`. A forked child begins with none.

The rule is docs/explanation/spark-exchange.md, K16.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock, Timer
from typing import Final

from pubsub.client.requests import Proxies
from pubsub.security.pairs import Pair
from pubsub.spark.identity import Identity

IDLE_SECONDS: Final = 20.0
"""Time after which an unused connection is closed; shorter than Spark's limit for an idle worker, one minute."""

KEPT_MAX: Final = 4
"""Maximum number of unused connections of a process; beyond that the oldest one is closed."""

Key = tuple[Identity, Pair | None, tuple[str, ...], float]


@dataclass(frozen=True, slots=True)
class _Kept:
    key: Key
    link: Proxies
    since: float


class Connections:
    """Lends connections to tasks, and keeps those that come back; any thread may call it.

    Args:
        idle_seconds: time after which an unused connection is closed.
        clock: monotonic time in seconds.
    """

    def __init__(self, idle_seconds: float = IDLE_SECONDS, clock: Callable[[], float] = time.monotonic) -> None:
        self._idle_seconds, self._clock = idle_seconds, clock
        self._begin()

    def _begin(self) -> None:
        self._lock, self._process = Lock(), os.getpid()
        self._kept: list[_Kept] = []
        self._timer: Timer | None = None

    @contextmanager
    def lend(self, identity: Identity, proxies: Sequence[str], timeout_seconds: float) -> Iterator[Proxies]:
        """Lend a connection for the time of a `with` block; a block that raises closes it.

        Raises:
            ConfigurationError: see `Identity.connect`.
        """
        if self._process != os.getpid():
            self._begin()  # The parent's connections are not ours to close (docs/explanation/client-session.md).
        key = (identity, identity.pair(), tuple(proxies), timeout_seconds)
        link = self._take(key) or identity.connect(proxies, timeout_seconds)
        try:
            yield link
        except BaseException:
            link.close()
            raise
        self._give_back(key, link)

    @property
    def kept(self) -> int:
        """Number of unused connections."""
        return len(self._kept)

    def _take(self, key: Key) -> Proxies | None:
        with self._lock:
            found = next((kept for kept in self._kept if kept.key == key), None)
            if found is None:
                return None
            self._kept.remove(found)
            return found.link

    def _give_back(self, key: Key, link: Proxies) -> None:
        with self._lock:
            self._kept.append(_Kept(key, link, self._clock()))
            beyond, self._kept = self._kept[:-KEPT_MAX], self._kept[-KEPT_MAX:]
            self._arm()
        for kept in beyond:
            kept.link.close()

    def _arm(self) -> None:
        if self._kept and self._timer is None:
            self._timer = Timer(self._idle_seconds, self.close_idle)
            self._timer.daemon = True
            self._timer.start()

    def close_idle(self) -> None:
        """Close the connections that were unused for the time; a timer calls it."""
        with self._lock:
            until = self._clock() - self._idle_seconds
            idle = [kept for kept in self._kept if kept.since <= until]
            self._kept = [kept for kept in self._kept if kept.since > until]
            self._timer = None
            self._arm()
        for kept in idle:
            kept.link.close()


_connections: Final = Connections()

lend: Final = _connections.lend
"""Lends a connection of this process; see `Connections.lend`."""
