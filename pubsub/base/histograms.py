"""Histograms of durations and sizes in a core or a loop. Only their owner writes to them.

They have no lock, no clock and no registry, so an observation costs a search in a short tuple and two additions. Other
threads get `counted`, an immutable copy. `metrics.exposition` shows it.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import Final

SECONDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""Upper bounds of durations: from an fsync of a fast disk to a request with many attempts."""

AGES: Final = (*SECONDS[3:], 60.0, 300.0, 1_800.0, 7_200.0, 86_400.0)
"""Upper bounds of ages: a message may wait for days for a subscriber."""

COUNTS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 50_000, 100_000, 1_000_000)
"""Upper bounds of counts."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The contents of a histogram at one moment.

    Attributes:
        bounds: the upper bounds of its buckets, rising; a value equal to a bound is within it.
        counts: the number of values in each bucket, and at the end the number above all bounds.
        total: the sum of all values.
    """

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Histogram:
    """Numbers of values between bounds.

    Args:
        bounds: upper bounds of the buckets, rising.
    """

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds, self._counts, self._total = bounds, [0] * (len(bounds) + 1), 0.0

    def observe(self, value: float, count: int = 1) -> None:
        """Count a value.

        Args:
            value: in the unit of the bounds.
            count: how often it occurred.
        """
        self._counts[bisect_left(self._bounds, value)] += count
        self._total += value * count

    def counted(self) -> Counted:
        """Return an immutable copy, for another thread."""
        return Counted(self._bounds, tuple(self._counts), self._total)
