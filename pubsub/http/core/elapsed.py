"""The store's own time: seconds that go on over restarts, and do not follow a wall clock that is set.

While a process runs, and while it is dead in the same boot, the machine's uptime (suspension included) says how much
time has passed; nobody can set that. Across a boot only the wall clock knows: its difference counts, but never less
than nothing and never more than DOWNTIME_SECONDS_MAX. So setting the clock while anything runs moves neither the next
try nor an expiry nor a tombstone, and a clock that is wrong after a boot moves them by a bounded time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DOWNTIME_SECONDS_MAX: Final = 30 * 86_400.0
"""A machine that was off counts as having been off no longer than this."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A moment, by every clock.

    Attributes:
        elapsed: seconds of the store's own time; uptime: of the machine; boot: which start of the machine it was, ""
            where that is not known; wall: seconds since 1970.
    """

    elapsed: float
    uptime: float
    boot: str
    wall: float


def resume(last: Anchor | None, uptime: float, boot: str, wall: float) -> Anchor:
    """The present moment, from the last one that was stored.

    Args:
        last: None where nothing was stored yet: time begins at 0.
        uptime, boot, wall: the clocks now.
    """
    if last is None:
        return Anchor(0.0, uptime, boot, wall)
    if boot and boot == last.boot and uptime >= last.uptime:
        passed = uptime - last.uptime
    else:
        passed = min(max(0.0, wall - last.wall), DOWNTIME_SECONDS_MAX)
    return Anchor(last.elapsed + passed, uptime, boot, wall)
