"""Archives as Delta tables on real Spark: `pubsub pipeline archive --format delta`."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from pubsub.cli import main
from pubsub.spark.delta.table import Table
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
