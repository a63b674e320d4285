"""The store's own time in seconds: it continues over restarts and ignores changes of the wall clock.

The machine's uptime (including suspension) measures time within one boot, also while the process is not running. It
cannot be set, so a change of the wall clock moves no try, no expiry and no tombstone.

Across a boot only the wall clock can tell the time that passed, and it may be wrong. A sender counts its difference,
from 0 to DOWNTIME_SECONDS_MAX: at worst a request expires too early, and its caller gets an error. A receiver counts
nothing: at worst a tombstone stays longer. If one expired too early, a late repeat would happen again.

The rule is docs/explanation/reliable-http.md, Q7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DOWNTIME_SECONDS_MAX: Final = 30 * 86_400.0
"""Longest time that counts for a machine that was off."""


@dataclass(frozen=True, slots=True)
class Anchor:
    """A moment by every clock.

    Attributes:
        elapsed: seconds of the store's own time; uptime: of the machine; boot: identity of the boot, "" if unknown;
            wall: seconds since 1970.
    """

    elapsed: float
    uptime: float
    boot: str
    wall: float


def resume(last: Anchor | None, uptime: float, boot: str, wall: float, *, counts_boots: bool) -> Anchor:
    """Return the present moment, from the last stored one.

    Args:
        last: None: nothing was stored, and time begins at 0.
        uptime, boot, wall: the clocks now.
        counts_boots: count the time while the machine was off, by its wall clock.
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
