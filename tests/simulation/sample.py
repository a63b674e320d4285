"""The breakages that the simulation tries each time: some of each kind, and the others by night.

The rules that they take out have separate unit tests; a breakage shows that the simulation would find it too. By day
every breakage is put into the code, which fails if it does not fit any more, and a sample is run until it is caught.
`scripts/test -m nightly` runs the others, and `scripts/simulate --mutants` runs all of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterable
from functools import cache
from typing import Any

import pytest

from tests.simulation.breakages.table import broken
from tests.simulation.fate import Fate
from tests.simulation.simulation import Result, simulate


def sampled(titles: Iterable[str], each_time: Collection[str]) -> list[Any]:
    """Parameters of a test: those that are not run each time are marked for the night."""
    every = list(titles)
    assert set(each_time) <= set(every), set(each_time) - set(every)
    return [pytest.param(title, marks=() if title in each_time else pytest.mark.nightly) for title in every]


@cache
def run_once(made: Callable[[int], Fate], seed: int) -> Result:
    """The run of a seed in a made world, as several tests look at it."""
    return simulate(seed, made(seed))


def is_caught(title: str, seed: int, made: Callable[[int], Fate], *, compared: bool = True) -> bool:
    """Whether a seed finds a violation with a breakage, and, if it is compared, none without it."""
    try:
        with broken(title):
            violations = simulate(seed, made(seed), whole=False).violations
    except (AttributeError, NameError, TypeError):
        raise  # The breakage does not fit the code any more.
    except Exception as error:  # noqa: BLE001 - code that stumbles over what was broken is caught too.
        violations = [str(error)]
    return bool(violations) and not (compared and run_once(made, seed).violations)


def require_caught(title: str, made: Callable[[int], Fate], seeds: Iterable[int], *, compared: bool = True) -> None:
    """Fail unless one of these seeds catches a breakage. Warn if the first ones do not, since each costs a run.

    The complete run without the breakage costs more than the one with it, which ends at its first violation. A test
    that leaves it out has another one, by night, that runs its named seeds without the breakage.
    """
    for tried, seed in enumerate(seeds):
        if is_caught(title, seed, made, compared=compared):
            if tried > 2:
                warnings.warn(f"name seed {seed} for: {title}", stacklevel=2)
            return
    pytest.fail(f"none of the seeds shows it; try scripts/simulate --mutants '{title}'")
