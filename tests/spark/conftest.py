from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark.broker import Broker


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "broker")
    yield made
    made.close()


@pytest.fixture(scope="session", autouse=True)
def _classes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Every Java that is started here takes its classes from the archive, where scripts/test has made it.

    Its Python workers are forked off one that has loaded what they would load.
    """
    from tests.spark.classes import options
    from tests.spark.workers import write_script

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", options())
        patch.setenv("PYSPARK_PYTHON", str(write_script(tmp_path_factory.mktemp("workers") / "python")))
        yield


@pytest.fixture(scope="session")
def session(_classes: None) -> Iterator[Any]:
    """One Spark for all tests: it takes longer to start than most of them to run."""
    from pubsub.spark.session import start

    made = start(
        "local[2,4]",
        spark_sql_streaming_checkpoint_fileChecksum_enabled="false",
    )
    yield made
    made.stop()
