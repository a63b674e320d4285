from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.examples.programs import Programs
from tests.faults.cluster import Cluster
from tests.gateway.serving import Gateway


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.run(1, 1)


@pytest.fixture(scope="session")
def gateway(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(cluster, tmp_path_factory.mktemp("gateway") / "data") as gateway:
        yield gateway


@pytest.fixture
def programs(cluster: Cluster, tmp_path: Path) -> Iterator[Programs]:
    made = Programs(cluster.addresses, tmp_path)
    yield made
    made.close()
