from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cluster import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """No process yet; all that the test starts are ended with it."""
    with Cluster(tmp_path) as made:
        yield made
