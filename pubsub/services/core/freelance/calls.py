"""The calls of a caller whose replies bear a number: many are under way at once, and each has its time."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from pubsub.services.core.interface import NEVER, Frames, Patience


@dataclass(slots=True, eq=False)
class Call:
    """A call that is under way.

    Attributes:
        number: on the wire; used once.
        token: the shell's.
        begun, ends: when it was made, and when it is given up at the latest; `due`: when its present try is over.
        tries: so far.
        at: which server the present try went to; -1: none, or all of them.
    """

    number: int
    token: int
    body: Frames
    patience: Patience
    begun: float
    ends: float
    due: float = 0.0
    tries: int = 1
    at: int = -1
    over: bool = False


class Calls:
    """All calls that are under way, by number and by when they are due."""

    def __init__(self) -> None:
        self._by_number: dict[int, Call] = {}
        self._by_token: dict[int, Call] = {}
        self._dues: list[tuple[float, int, Call]] = []
        self.last = 0
        """The last number that was given out."""

    def __len__(self) -> int:
        return len(self._by_number)

    def under_way(self) -> list[Call]:
        """All of them, the oldest first."""
        return list(self._by_number.values())

    def add(self, token: int, body: Frames, patience: Patience, now: float) -> Call:
        """A call begins, with its first try."""
        self.last += 1
        call = Call(self.last, token, body, patience, now, now + patience.try_seconds * patience.tries)
        self._by_number[call.number] = self._by_token[token] = call
        self.try_until(call, now + patience.try_seconds)
        return call

    def try_until(self, call: Call, when: float) -> None:
        """The present try of a call is over then, or when the call is given up."""
        call.due = min(when, call.ends)
        heappush(self._dues, (call.due, call.number, call))

    def end(self, number: int) -> Call | None:
        """A call is over; None where there is none of this number."""
        call = self._by_number.pop(number, None)
        if call is not None:
            del self._by_token[call.token]
            call.over = True
        return call

    def cancel(self, token: int) -> None:
        """A call is over, by the shell's token; nothing where it was."""
        call = self._by_token.get(token)
        if call is not None:
            self.end(call.number)

    def timer(self) -> float | None:
        """When the next try is over."""
        while self._dues and self._stale(self._dues[0]):
            heappop(self._dues)
        return self._dues[0][0] if self._dues else None

    def due(self, now: float) -> list[Call]:
        """The calls whose try is over; each is to be tried on (`try_until`) or ended."""
        found = []
        while (due := self.timer()) is not None and due <= now:
            call = heappop(self._dues)[2]
            call.due = NEVER  # Of two entries for one time the other is stale now.
            found.append(call)
        return found

    def _stale(self, entry: tuple[float, int, Call]) -> bool:
        return entry[2].over or entry[2].due != entry[0]
