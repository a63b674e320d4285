from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.programs import Programs
from tests.faults.cluster import Cluster
from tests.gateway.conftest import cluster, gateway

__all__ = ["cluster", "gateway", "programs"]


@pytest.fixture
def programs(cluster: Cluster, tmp_path: Path) -> Iterator[Programs]:
    made = Programs(cluster.addresses, tmp_path)
    yield made
    made.close()
