"""The orders to a worker on its standard input while it works: `topic NAME`, `pause SECONDS`, `finish`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class Orders:
    """Reads them on a thread; the facts change by them.

    Attributes:
        topics: those to work on, in the order they were named.
        finishing: set by any other line; an end of the input is none.
    """

    def __init__(self, facts: dict[str, Any]) -> None:
        self._facts = facts
        self.topics: list[str] = list(facts["topics"])
        self.finishing = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    @contextmanager
    def finished(self) -> Iterator[None]:
        """What threads wait for comes at the end of the block at the latest, however it ends."""
        try:
            yield
        finally:
            self.finishing.set()

    @property
    def pause(self) -> float:
        """The longest pause between two steps, in seconds."""
        return float(self._facts.get("pause", 0.0))

    def _read(self) -> None:
        for line in iter(sys.stdin.readline, ""):
            word, _, rest = line.strip().partition(" ")
            if word == "topic":
                if rest not in self.topics:
                    self.topics.append(rest)
            elif word == "pause":
                self._facts["pause"] = float(rest)
            else:
                self.finishing.set()
