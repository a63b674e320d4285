"""Pauses between tries: they grow, have a random part, and are longer if the peer asks for it by `Retry-After`.

Within a process only the monotonic clock counts. A store that has no clock of its own uses the wall clock after a
restart. The wall clock may be wrong, so the remaining pause is limited to the range from 0 to one whole pause.
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
        pauses: seconds after the first failed try, the second, and so on; the last value is used for all later tries.
        certain: fraction of a pause that is always waited.
        drawn: largest random fraction on top, so that tries that failed together do not repeat together.
        asked_max: upper limit in seconds for a pause that the peer asks for.
    """

    pauses: tuple[float, ...]
    certain: float = 0.5
    drawn: float = 0.5
    asked_max: float = math.inf

    @classmethod
    def doubling(cls, first: float, longest: float) -> Self:
        return cls(tuple(min(first * float(1 << tries), longest) for tries in range(41)))

    def seconds(self, attempts: int, chance: float, asked: float = 0.0) -> float:
        """Return the seconds until the next try.

        Args:
            attempts: failed tries, 1 or more.
            chance: 0 to 1.
            asked: seconds that the peer asked for.
        """
        pause = self.pauses[min(attempts, len(self.pauses)) - 1]
        return max(pause * (self.certain + self.drawn * chance), min(asked, self.asked_max))

    def left(self, attempts: int, due: float, wall: float) -> float:
        """Return the seconds that remain of a pause after a restart.

        Args:
            attempts: failed tries.
            due: stored end of the pause, in seconds since 1970.
            wall: the wall clock now, which may be wrong.
        """
        if not attempts:
            return 0.0
        return min(max(0.0, due - wall), self.seconds(attempts, 1.0, self.asked_max if due > wall else 0.0))


def retry_after(value: str, sent: str, wall: float | None = None) -> float:
    """Return the seconds that a response asks to wait (RFC 9110, 10.2.3), 0 if it does not ask.

    Args:
        value: its `Retry-After`.
        sent: its `Date`. A date in `value` is measured from here, so that our clock does not matter.
        wall: seconds since 1970, used as the start if the response has no `Date`.
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
