from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.cluster import Cluster
from tests.gateway.browser import Browser
from tests.gateway.serving import Gateway


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster.run(1, 1)


@pytest.fixture(scope="session")
def gateway(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with Gateway(cluster, tmp_path_factory.mktemp("gateway") / "data") as gateway:
        yield gateway


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests: it takes longer to start than most of them to run."""
    with Browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def browser(chromium: Browser) -> Browser:
    """A window that no other module has used."""
    chromium.open_window()
    return chromium
