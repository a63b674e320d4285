"""A client's record in Parquet; no Spark is started."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from pyarrow import parquet

from pubsub import embedded
from pubsub.client.storage.recorder import open_record
from pubsub.errors import StorageError
from pubsub.spark.records import SCHEMA, ParquetRecord


def test_a_closed_clients_record_is_parquet(tmp_path: Path) -> None:
    record = tmp_path / "record.parquet"
    with embedded() as cluster:
        for name in ("alice", "bob"):
            with cluster.client(name, recorder=record) as client:
                client.subscribe("t")
                counters = client.put_many("t", [b"x"] * 100)
    assert len(list(record.iterdir())) == 2
    table = parquet.read_table(record)
    assert table.schema.equals(SCHEMA)
    puts = [row for row in table.to_pylist() if row["kind"] == "put" and row["client"] == "bob"]
    assert [(row["first"], row["count"], row["result"]) for row in puts] == [
        (counters[0], 100, "begun"),
        (counters[0], 100, "acknowledged"),
    ]


def test_written_lines_are_there_before_the_end(tmp_path: Path) -> None:
    sink = open_record(tmp_path / "r.parquet")
    assert isinstance(sink, ParquetRecord)
    sink.write(b'{"client":"c","n":1}\n')
    (path,) = (tmp_path / "r.parquet").iterdir()
    assert json.loads(path.read_text()) == {"client": "c", "n": 1}
    sink.close()
    (path,) = (tmp_path / "r.parquet").iterdir()
    assert path.suffix == ".parquet"


def test_a_record_with_an_incomplete_line_is_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    sink = ParquetRecord(tmp_path / "r.parquet")
    sink.write(b'{"client":"c"}\n{"cl\n{"client":"d"}\n')
    with caplog.at_level(logging.WARNING):
        sink.close()
    (path,) = (tmp_path / "r.parquet").iterdir()
    assert path.suffix == ".jsonl"
    assert "stays as it is" in caplog.text


def test_the_lines_stay_until_the_parquet_is_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut takes them all, of which it would have taken the last."""
    record = tmp_path / "r.parquet"
    sink = ParquetRecord(record)
    sink.write(b'{"client":"c","n":1}\n')
    synced: list[tuple[bool, list[str]]] = []

    def fsync(file: int) -> None:
        synced.append((os.path.isdir(f"/proc/self/fd/{file}"), sorted(path.suffix for path in record.iterdir())))

    monkeypatch.setattr(os, "fsync", fsync)
    sink.close()
    assert synced == [(False, [".fresh", ".jsonl"]), (True, [".jsonl", ".parquet"])]
    assert [path.suffix for path in record.iterdir()] == [".parquet"]


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot hold records"):
        open_record(tmp_path / "none" / "r.parquet")
