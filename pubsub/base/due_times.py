"""Keys by the time at which each is due, such as the topics that a server has to look at.

A heap has an entry for each time that a key was given. An entry of a time that was replaced stays in the heap until its
turn, and is then skipped. Beyond two entries for each key, and `SPARE` more, the heap is made anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator, Mapping
from typing import Final, Generic, TypeVar

SPARE: Final = 1_000
"""Entries of the heap beyond two for each key, above which it is made anew."""

Key = TypeVar("Key", bound=Hashable)


class DueTimes(Generic[Key]):
    """The keys, each with one time.

    Args:
        times: of keys that are due from the begin.
    """

    def __init__(self, times: Mapping[Key, float] | None = None) -> None:
        self._at = dict[Key, float](times or {})
        self._heap: list[tuple[float, Key]] = []
        self._make_heap()

    def __contains__(self, key: Key) -> bool:
        return key in self._at

    def __len__(self) -> int:
        return len(self._at)

    @property
    def entries(self) -> int:
        """Number of entries of the heap."""
        return len(self._heap)

    def hasten(self, key: Key, at: float) -> None:
        """Make a key due at this time, unless it is due earlier."""
        if at < self._at.get(key, float("inf")):
            self.set(key, at)

    def set(self, key: Key, at: float) -> None:
        """Make a key due at this time, which replaces any other."""
        self._at[key] = at
        heapq.heappush(self._heap, (at, key))
        if len(self._heap) > 2 * len(self._at) + SPARE:
            self._make_heap()

    def discard(self, key: Key) -> None:
        """Forget a key."""
        self._at.pop(key, None)
        if not self._at:
            self._heap.clear()

    def deadline(self) -> float:
        """Return the time from which on `take` has something to do; infinity for none. No key is due earlier."""
        return self._heap[0][0] if self._heap else float("inf")

    def take(self, now: float, most: int | None = None) -> Iterator[Key]:
        """Remove and yield the keys that are due at `now`, the first one first.

        Args:
            most: limit of the entries that are looked at; None: no limit.
        """
        looked = 0
        while self._heap and self._heap[0][0] <= now and (most is None or looked < most):
            looked += 1
            at, key = heapq.heappop(self._heap)
            if self._at.get(key) == at:
                del self._at[key]
                if not self._at:  # Entries of replaced times would wake a caller that skips `take` without keys.
                    self._heap.clear()
                yield key

    def _make_heap(self) -> None:
        self._heap = [(at, key) for key, at in self._at.items()]
        heapq.heapify(self._heap)
