"""Random schedules of members, servers and an operator, with the auditor of effects."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.server.groups.world import World
from tests.server.moving import Pair


@pytest.mark.parametrize("seed", range(12))
def test_effects_happen_as_promised(tmp_path: Path, seed: int) -> None:
    pair = Pair(tmp_path, "s1", "s2")
    world = World(pair, seed).run(Random(seed).choice((60, 120, 240)))
    pair.close()
    assert world.violations == []
    assert world.effects
