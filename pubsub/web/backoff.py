"""How long is waited between tries: a growing pause, partly drawn by chance, longer where the other side asks for it.

Within a process only the monotonic clock counts. Over a restart a store without a time of its own has the wall clock,
which is not trusted: what is left to wait is never taken for more than the whole pause, nor for less than nothing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final, Self

_SECONDS: Final = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between tries.

    Attributes:
        pauses: seconds after the first try that failed, the second …; the last one is for all that follow.
        certain: the part of a pause that is always waited.
        drawn: the part that chance adds up to, so that tries that failed together do not come back together.
        asked_max: seconds that the other side may ask for; more count as so many.
    """

    pauses: tuple[float, ...]
    certain: float = 0.5
    drawn: float = 0.5
    asked_max: float = math.inf

    @classmethod
    def doubling(cls, first: float, longest: float) -> Self:
        """Twice the pause after each try, up to the longest."""
        return cls(tuple(min(first * float(1 << tries), longest) for tries in range(41)))

    def seconds(self, attempts: int, chance: float, asked: float = 0.0) -> float:
        """Seconds until the next try.

        Args:
            attempts: tries that failed, 1 or more.
            chance: 0 to 1.
            asked: seconds that the other side asked for.
        """
        pause = self.pauses[min(attempts, len(self.pauses)) - 1]
        return max(pause * (self.certain + self.drawn * chance), min(asked, self.asked_max))

    def left(self, attempts: int, due: float, wall: float) -> float:
        """Seconds that are left of a pause after a restart.

        Args:
            attempts: tries that failed.
            due: when the pause is over, seconds since 1970, as it was written down.
            wall: the wall clock now, which may be wrong.
        """
        if not attempts:
            return 0.0
        return min(max(0.0, due - wall), self.seconds(attempts, 1.0, self.asked_max if due > wall else 0.0))


def retry_after(value: str, sent: str, wall: float | None = None) -> float:
    """Seconds that an answer asks to wait (RFC 9110, 10.2.3); 0 where it does not.

    Args:
        value: its `Retry-After`.
        sent: its own `Date`. A date is measured from there, so that no clock of ours has to be right.
        wall: seconds since 1970, from which a date is measured where the answer has none of its own.
    """
    if _SECONDS.fullmatch(value.strip()):
        return float(value)
    then, since = _date(value.strip()), _date(sent)
    if since is None and wall is not None:
        since = datetime.fromtimestamp(wall, UTC)
    return max(0.0, (then - since).total_seconds()) if then is not None and since is not None else 0.0


def _date(value: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(value)
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
