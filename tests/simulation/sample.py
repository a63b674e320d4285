"""The breakages that the simulation tries each time: some of each kind, and the others by night.

The rules that they take out have separate unit tests; a breakage shows that the simulation would find it too. By day
every breakage is put into the code, which fails if it does not fit any more, and a sample is run until it is caught.
`scripts/test -m nightly` runs the others, and `scripts/simulate --mutants` runs all of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def sampled(titles: Iterable[str], each_time: Collection[str]) -> list[Any]:
    """Parameters of a test: those that are not run each time are marked for the night."""
    every = list(titles)
    assert set(each_time) <= set(every), set(each_time) - set(every)
    return [pytest.param(title, marks=() if title in each_time else pytest.mark.nightly) for title in every]
