"""Drivers that are killed while they write a Delta table: each message is there once."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pubsub.spark.archive import tidy
from tests.faults.cluster import SPARK_SECONDS, Process
from tests.spark import delta_query
from tests.spark.broker import Broker
from tests.spark.test_delta import archived
from tests.spark.test_pipelines import numbers

pytestmark = pytest.mark.spark

NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    "step", [pytest.param("write", marks=NIGHTLY), pytest.param("commit", marks=NIGHTLY), "committed"]
)
def test_a_driver_that_is_killed_leaves_each_message_in_the_table_once(
    broker: Broker, session: Any, tmp_path: Path, step: str
) -> None:
    for topic in ("a", "b"):
        broker.put(topic, numbers(0, 3000))
    facts = {"proxies": broker.address, "to": str(tmp_path / "lake"), "checkpoint": str(tmp_path / "checkpoint")}
    facts |= {"directory": str(tmp_path), "step": step, "batch": 1, "do": "kill"}
    driver = Process("driver", tmp_path, ["-m", "tests.spark.delta_query", json.dumps(facts)]).start()
    assert driver.wait(SPARK_SECONDS) == -signal.SIGKILL, driver.errors.read_text()[-2000:]
    assert (tmp_path / "reached").exists()
    files = len(list((tmp_path / "lake").rglob("*.parquet")))
    query = delta_query.start(session, facts)
    assert query.awaitTermination(SPARK_SECONDS)
    assert query.exception() is None
    assert archived(tmp_path / "lake") == {topic: Counter(numbers(0, 3000)) for topic in ("a", "b")}
    assert files
    tidy(session, facts["to"], facts["checkpoint"])
    listed = DeltaTable(facts["to"]).file_uris()
    assert sorted(map(str, (tmp_path / "lake").rglob("*.parquet"))) == sorted(listed)
