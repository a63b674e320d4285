from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.moving import Pair
from tests.server.stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    stage.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path, "s1", "s2")
    yield made
    made.close()
