"""Due times of deliveries, and limits on how many run at once: for each place (such as a host) and in total."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from math import inf
from typing import Final, Generic, TypeVar

STALE_MAX: Final = 64
"""Outdated entries in the heap, beyond as many as there are valid ones, before the heap is rebuilt."""

Name = TypeVar("Name", bound=Hashable)


class Schedule(Generic[Name]):
    """Due times by name, and the names under way.

    Args:
        at_once: limit of names under way; each: the limit for one place. A full place delays no other place.
    """

    def __init__(self, at_once: int, each: int) -> None:
        self._at_once, self._each = at_once, each
        self._due: dict[Name, tuple[float, str]] = {}
        self._heap: list[tuple[float, int, Name]] = []
        self._count = 0
        self.busy: dict[Name, str] = {}
        self._places: dict[str, int] = {}
        self._held: dict[str, list[tuple[float, int, Name]]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, name: Name) -> bool:
        return name in self._due

    def set(self, name: Name, due: float, place: str = "") -> None:
        self._due[name] = (due, place)
        self._count += 1
        heapq.heappush(self._heap, (due, self._count, name))
        self._tidy()

    def drop(self, name: Name) -> None:
        self._due.pop(name, None)
        self._tidy()

    def _tidy(self) -> None:
        if len(self._heap) > 2 * len(self._due) + STALE_MAX:
            self._heap = [entry for entry in self._heap if self._current(entry)]
            heapq.heapify(self._heap)

    def deadline(self) -> float | None:
        """The earliest due time. None: no name is due, or as many as allowed are under way."""
        if len(self.busy) >= self._at_once:
            return None
        while self._heap and not self._current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def begin(self, now: float) -> list[Name]:
        """Begin the names that are due; each is busy until `end`."""
        begun: list[Name] = []
        while self._heap and len(self.busy) < self._at_once and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if not self._current(entry):
                continue
            name = entry[2]
            place = self._due[name][1]
            if self._places.get(place, 0) >= self._each:
                self._held.setdefault(place, []).append(entry)
                continue
            del self._due[name]
            self.busy[name] = place
            self._places[place] = self._places.get(place, 0) + 1
            begun.append(name)
        return begun

    def turn(self, now: float) -> tuple[list[Name], float | None]:
        """The names of `begin`, and the seconds until the next turn. None: the next turn is due when a name ends."""
        names, deadline = self.begin(now), self.deadline()
        return names, None if deadline is None else max(0.0, deadline - now)

    def end(self, name: Name) -> None:
        """End a name. It runs again only if it is set again."""
        place = self.busy.pop(name)
        self._places[place] -= 1
        if not self._places[place]:
            del self._places[place]
        for entry in self._held.pop(place, ()):
            if self._current(entry):
                heapq.heappush(self._heap, entry)
        if name in self._due:  # It was set while it was under way.
            self.set(name, *self._due[name])

    def _current(self, entry: tuple[float, int, Name]) -> bool:
        found = self._due.get(entry[2])
        return found is not None and found[0] == entry[0] and entry[2] not in self.busy


class Due(Generic[Name]):
    """The source of a `Pump`: a schedule with its clock.

    Args:
        schedule: the due times.
        now: the clock.
        again: seconds until a try that raised is repeated.
    """

    def __init__(self, schedule: Schedule[Name], now: Callable[[], float], again: float) -> None:
        self.schedule, self._now, self._again = schedule, now, again

    def begin(self) -> tuple[list[Name], float | None]:
        """The names to try now, and the seconds until the next turn, as `Schedule.turn`."""
        return self.schedule.turn(self._now())

    def later(self, name: Name) -> None:
        """A try raised, so its result is unknown: repeat it."""
        self.schedule.set(name, self._now() + self._again, self.schedule.busy[name])

    def end(self, name: Name) -> None:
        """A try ended, with any result."""
        self.schedule.end(name)

    def sweep(self) -> float:
        """Remove old entries, and return the seconds until the next removal."""
        return inf
