"""The faults of a run that is made for a rule."""

from __future__ import annotations

from random import Random


def drawn_faults(random: Random, *, some: dict[str, float], **always: float) -> dict[str, float]:
    """The given faults, and half of the others."""
    return always | {name: rate for name, rate in some.items() if random.random() < 0.5}
