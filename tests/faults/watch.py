"""The reports of the proxies, requested all the time by threads: a look at them never waits."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import zmq

from pubsub.protocol import Report
from tests.faults.wire import Wire

ASK_SECONDS = 0.2
PATIENCE_MS = 1000


class Watch:
    """Asks each of the proxies; a context manager.

    Args:
        addresses: of the proxies.
        wire: makes a link to one, by its number and address.

    Attributes:
        reports: the last answer of each, in order; None while it does not answer.
    """

    def __init__(
        self, addresses: Sequence[str], wire: Callable[[int, str], Wire] = lambda _, address: Wire(address)
    ) -> None:
        self.reports: list[dict[str, Any] | None] = [None for _ in addresses]
        self._wire = wire
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._follow, args=item, daemon=True) for item in enumerate(addresses)]

    def __enter__(self) -> Watch:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def holders(self, proxy: int) -> dict[str, list[str]]:
        """By topic, who holds it, as this proxy sees it; nothing while it does not answer."""
        report = self.reports[proxy] or {"topics": []}
        return {topic["topic"]: [holder["server"] for holder in topic["holders"]] for topic in report["topics"]}

    def settled(self, topics: Iterable[str], servers: int) -> bool:
        """Whether all proxies hear all servers, and name one holder for each of these topics, the same one."""
        alive = [sum(server["alive"] for server in (report or {"servers": []})["servers"]) for report in self.reports]
        seen = [self.holders(number) for number in range(len(self.reports))]
        return all(count == servers for count in alive) and all(
            len(seen[0].get(topic, [])) == 1 and all(one.get(topic) == seen[0][topic] for one in seen)
            for topic in topics
        )

    def _follow(self, number: int, address: str) -> None:
        while not self._ended.is_set():
            with suppress(AssertionError, zmq.ZMQError, ValueError), self._wire(number, address) as wire:
                while not self._ended.is_set():
                    status = wire.answer(wire.send(Report("watch", "-")), PATIENCE_MS)
                    self.reports[number] = json.loads(bytes(status.body))
                    self._ended.wait(ASK_SECONDS)
            self.reports[number] = None
