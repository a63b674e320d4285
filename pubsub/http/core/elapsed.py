"""The store's own time: seconds that go on over restarts, and do not follow a wall clock that is set.

While a process runs, and while it is dead in the same boot, the machine's uptime (suspension included) says how much
time has passed; nobody can set that. So setting the wall clock moves no try, no expiry and no tombstone.
Across a boot only the wall clock knows, and it may be wrong. A sender counts its difference, never less than nothing
and never more than DOWNTIME_SECONDS_MAX: at worst a request expires too early, and its caller is told. A receiver
counts nothing: at worst a tombstone stays longer; one that went too early would let a late repeat happen again.
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


def resume(last: Anchor | None, uptime: float, boot: str, wall: float, *, counts_boots: bool) -> Anchor:
    """The present moment, from the last one that was stored.

    Args:
        last: None where nothing was stored yet: time begins at 0.
        uptime, boot, wall: the clocks now.
        counts_boots: whether time passes while the machine is off, as far as its wall clock says so.
    """
    if last is None:
        return Anchor(0.0, uptime, boot, wall)
    if boot and boot == last.boot and uptime >= last.uptime:
        passed = uptime - last.uptime
    elif not counts_boots:
        passed = 0.0
    else:
        passed = min(max(0.0, wall - last.wall), DOWNTIME_SECONDS_MAX)
    return Anchor(last.elapsed + passed, uptime, boot, wall)
