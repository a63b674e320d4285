"""The calls of a caller with numbered replies. Numbers allow many calls under way at once."""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from pubsub.services.core.interface import NEVER, Frames, Patience


@dataclass(slots=True, eq=False)
class Call:
    """A call that is under way.

    Attributes:
        number: number on the wire, used once.
        token: token of the shell.
        begun, ends: when the call was made, and when it is given up at the latest.
        due: when its present try is over.
        tries: number of tries so far.
        at: index of the server of the present try; -1: none, or all of them.
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
    """The calls that are under way, by number and by time."""

    def __init__(self) -> None:
        self._by_number: dict[int, Call] = {}
        self._by_token: dict[int, Call] = {}
        self._dues: list[tuple[float, int, Call]] = []
        self.last = 0
        """The last number in use."""

    def __len__(self) -> int:
        return len(self._by_number)

    def under_way(self) -> list[Call]:
        """All calls, the oldest first."""
        return list(self._by_number.values())

    def add(self, token: int, body: Frames, patience: Patience, now: float) -> Call:
        """Add a call with its first try."""
        self.last += 1
        call = Call(self.last, token, body, patience, now, now + patience.try_seconds * patience.tries)
        self._by_number[call.number] = self._by_token[token] = call
        self.try_until(call, now + patience.try_seconds)
        return call

    def try_until(self, call: Call, when: float) -> None:
        """Set the end of the present try, at the latest the end of the call."""
        call.due = min(when, call.ends)
        heappush(self._dues, (call.due, call.number, call))

    def end(self, number: int) -> Call | None:
        """Remove a call; None if there is none with this number."""
        call = self._by_number.pop(number, None)
        if call is not None:
            del self._by_token[call.token]
            call.over = True
        return call

    def cancel(self, token: int) -> None:
        """Remove the call with this token, if there is one."""
        call = self._by_token.get(token)
        if call is not None:
            self.end(call.number)

    def timer(self) -> float | None:
        """End of the next try."""
        while self._dues and self._stale(self._dues[0]):
            heappop(self._dues)
        return self._dues[0][0] if self._dues else None

    def due(self, now: float) -> list[Call]:
        """Return the calls with an ended try. Call `try_until` or `end` for each."""
        found = []
        while (due := self.timer()) is not None and due <= now:
            call = heappop(self._dues)[2]
            call.due = NEVER  # Makes a second entry for the same time stale.
            found.append(call)
        return found

    def _stale(self, entry: tuple[float, int, Call]) -> bool:
        return entry[2].over or entry[2].due != entry[0]
