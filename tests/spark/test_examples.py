"""The programs of examples/ that need Spark, in this process: they take the Spark that runs here."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from pubsub.cli import main
from tests.examples.programs import EXAMPLES
from tests.spark.broker import Broker

pytestmark = pytest.mark.spark


@pytest.fixture(autouse=True)
def _place(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proxies").write_text(f"{broker.address}\n")
    monkeypatch.setenv("PUBSUB_PROXIES_FILE", str(tmp_path / "proxies"))
    monkeypatch.setenv("PUBSUB_CLIENT_DIRECTORY", str(tmp_path / "clients"))


def test_a_topic_is_archived_as_parquet_files_and_a_second_run_adds_the_rest(
    session: Any, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = runpy.run_path(str(EXAMPLES / "to_parquet.py"))["main"]
    broker.put("orders", [b"%d" % number for number in range(20)])
    run("orders", tmp_path / "lake")
    assert capsys.readouterr().out == "20 messages, 20 different\n"
    broker.put("orders", [b"%d" % number for number in range(20, 25)])
    run("orders", tmp_path / "lake")
    assert capsys.readouterr().out == "25 messages, 25 different\n"
    values = session.read.parquet(str(tmp_path / "lake/data")).select("value").collect()
    assert sorted(int(row["value"]) for row in values) == list(range(25))


def test_a_topic_is_in_an_iceberg_table_once_although_a_commit_is_repeated(
    session: Any, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = runpy.run_path(str(EXAMPLES / "to_iceberg.py"))
    to = tmp_path / "ice berg"
    broker.put("orders", [b"%d" % number for number in range(20)])
    program["main"]("orders", to)
    assert capsys.readouterr().out == "20 messages, 20 different\n"
    broker.put("orders", [b"%d" % number for number in range(20, 25)])
    names = program["main"].__globals__
    real = names["add"]

    def dies(*arguments: Any) -> None:
        real(*arguments)
        raise OSError("killed here")

    names["add"] = dies  # As by a kill between the transaction and Spark's own note of it.
    with pytest.raises(StreamingQueryException, match="killed here"):
        program["main"]("orders", to)
    names["add"] = real
    program["main"]("orders", to)
    assert capsys.readouterr().out == "25 messages, 25 different\n"
    read = program["opened"](to).scan(row_filter="offset > 20").to_arrow()
    assert sorted(bytes(value) for value in read["value"].to_pylist()) == [b"20", b"21", b"22", b"23", b"24"]


def test_the_audit_of_recorded_clients_finds_no_flaw(
    session: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = tmp_path / "records"
    runpy.run_path(str(EXAMPLES / "audited.py"))["main"](records)
    assert "1000 messages handled" in capsys.readouterr().out
    assert main(["pipeline", "audit", str(records), "--drained", "--json"]) == 0
    counts = json.loads(capsys.readouterr().out)
    assert (counts["put"], counts["delivered"], counts["not_due"]) == (1000, 1000, 0)
