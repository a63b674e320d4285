"""Archives as Delta tables on real Spark: `pubsub pipeline archive --format delta`, and drivers that are killed."""

from __future__ import annotations

import json
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from pubsub.cli import main
from pubsub.spark.archive import tidy
from pubsub.spark.delta.table import Table
from tests.faults.cluster import SPARK_SECONDS, Process
from tests.spark import delta_query
from tests.spark.broker import Broker
from tests.spark.delta_batches import FIRST
from tests.spark.test_pipelines import Run, numbers, run  # noqa: F401 - a fixture

pytestmark = pytest.mark.spark


def archived(directory: Path) -> dict[str, Counter[bytes]]:
    """The messages by topic, as delta-rs and DuckDB see them."""
    table = DeltaTable(str(directory))
    found: dict[str, Counter[bytes]] = {}
    for row in table.to_pyarrow_table(columns=["topic", "value"]).to_pylist():
        found.setdefault(row["topic"], Counter())[bytes(row["value"])] += 1
    with duckdb.connect() as database:
        every = database.execute("select value from read_parquet($files)", {"files": table.file_uris()}).fetchall()
    assert Counter(value for (value,) in every) == sum(found.values(), Counter())
    return found


def test_an_archive_as_a_delta_table_has_each_message_once_and_can_be_replayed(
    broker: Broker,
    run: Run,  # noqa: F811
    session: Any,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    to = tmp_path / "lake"
    broker.put("a", numbers(0, 2500))
    broker.put("b/1", numbers(0, 500))
    words = ("archive", "a", "b/1", "--to", str(to), "--format", "delta", "--once")
    assert run(*words, "--batch", "1500")["messages"] == 3000
    broker.put("a", numbers(2500, 2600))
    assert run(*words)["messages"] == 100
    assert archived(to) == {"a": Counter(numbers(0, 2600)), "b/1": Counter(numbers(0, 500))}
    table = DeltaTable(str(to))
    assert table.metadata().partition_columns == ["topic", "date"]
    rows = table.to_pyarrow_table(filters=[("topic", "=", "a"), ("offset", "=", 8)]).to_pylist()
    assert [(row["value"], row["counter"], row["date"]) for row in rows] == [
        (b"7", 8, rows[0]["stamp"].strftime("%Y-%m-%d"))
    ]
    assert run("replay", str(to), "--to", "back", "--topic", "a")["messages"] == 2600
    assert broker.records("back") == numbers(0, 2600)
    table.optimize.compact()
    assert main(["pipeline", "replay", str(to), "--to", "again", "--proxy", broker.address]) == 8
    assert "is of another writer, such as a compaction" in capsys.readouterr().err


def test_a_directory_has_one_format(broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Table(str(tmp_path / "delta"), "query", FIRST, ("topic", "date")).commit(0, [])
    (tmp_path / "parquet" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "parquet" / "_spark_metadata" / "0").touch()
    for to, form, code, said in (
        (tmp_path / "parquet", "delta", 8, "has plain Parquet files, not a Delta table: give --format parquet"),
        (tmp_path / "delta", "parquet", 8, "has a Delta table, not plain Parquet files: give --format delta"),
        (tmp_path / "x", "csv", 2, "--format csv: give parquet or delta"),
        (f"file://{tmp_path}/x", "delta", 8, "is a URL, and a Delta table needs a directory"),
    ):
        words = ["archive", "a", "--to", str(to), "--format", form, "--once", "--proxy", broker.address]
        assert main(["pipeline", *words]) == code
        assert said in capsys.readouterr().err


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
