from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cluster import SPARK_SECONDS
from tests.spark.broker import Broker


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test with Spark waits for one driver behind another, each until its own deadline."""
    for item in items:
        if item.get_closest_marker("spark") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1.5 * SPARK_SECONDS))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "broker")
    yield made
    made.close()


@pytest.fixture(scope="session", autouse=True)
def _classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every Java that is started here takes its classes from the archive, where scripts/test has made it."""
    from tests.spark import worker_server
    from tests.spark.classes import options

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", options())
        patch.setenv("PYSPARK_PYTHON", str(worker_server.write_script(tmp_path_factory.mktemp("workers") / "python")))
        patch.setenv(worker_server.PLACE, "")
        worker_server.start()
        yield


@pytest.fixture(scope="session")
def session(_classes: None) -> Iterator[Any]:
    """One Spark for all tests: it takes longer to start than most of them to run."""
    from pubsub.spark.session import start
    from tests.spark.classes import FEW_ROWS

    made = start("local[2,4]", FEW_ROWS)
    yield made
    made.stop()
