"""Batches in a Delta table: each once, whatever dies, as delta-rs and DuckDB count. Without Spark."""

from __future__ import annotations

import datetime
import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from pubsub.errors import StorageError
from pubsub.spark.delta.files import FileWriter, statistics
from pubsub.spark.delta.table import BatchesMissing, BatchOld, SecondWriter, Table, TableDiffers
from pubsub.spark.delta.tidying import tidy
from pubsub.spark.sink import publisher_of
from tests.spark.delta_batches import BATCHES, FIRST, QUERY, ROWS, TOPICS, rows_of, write

NAME = publisher_of(QUERY)
LISTED = """select distinct url_decode("add".path) from read_json($log, columns = {'add': 'struct(path varchar)'})"""


def by_delta_rs(directory: Path) -> Counter[tuple[str, str, int, bytes]]:
    rows = DeltaTable(str(directory)).to_pyarrow_table(columns=["topic", "date", "n", "value"]).to_pylist()
    return Counter((row["topic"], row["date"], row["n"], bytes(row["value"])) for row in rows)


def by_duckdb(directory: Path) -> Counter[int]:
    """DuckDB reads the table's log and the files that it lists, without delta-rs."""
    with duckdb.connect() as database:
        log = {"log": f"{directory}/_delta_log/*.json"}
        paths = [f"{directory}/{path}" for (path,) in database.execute(LISTED, log).fetchall() if path]
        assert all(Path(path).exists() for path in paths)
        rows = database.execute("select n from read_parquet($paths)", {"paths": paths}).fetchall()
        return Counter(n for (n,) in rows)


def expected(batches: int = BATCHES) -> Counter[tuple[str, str, int, bytes]]:
    return Counter((TOPICS[n % 2], f"2024-01-0{1 + n % 3}", n, b"%d" % n) for n in range(batches * ROWS))


def table(directory: Path, schema: pa.Schema = FIRST) -> Table:
    return Table(str(directory), QUERY, schema, ("topic", "date"))


def add(directory: Path, batch: int) -> bool:
    return table(directory, rows_of(batch).schema).commit(batch, write(str(directory), batch, 1))


DEATHS = ("begun:0", "written:0", "made:0", "columns:1", "committed:0", "committed:1")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[int]]]:
    """The directory of all tables, and how their writers ended."""
    directory = tmp_path_factory.mktemp("tables")
    command = [sys.executable, "-m", "tests.spark.delta_batches", str(directory), *DEATHS]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return directory, json.loads(done.stdout)


@pytest.mark.parametrize("death", DEATHS)
def test_a_writer_that_dies_at_a_step_leaves_each_row_once(
    killed: tuple[Path, dict[str, list[int]]], death: str
) -> None:
    directory, ended = killed[0] / death.replace(":", "-"), killed[1]
    assert ended[death] == [-signal.SIGKILL, 0]
    assert by_delta_rs(directory) == expected()
    assert by_duckdb(directory) == Counter(range(BATCHES * ROWS))
    files = len(list(directory.rglob("*.parquet")))
    listed = DeltaTable(str(directory)).file_uris()
    assert tidy(str(directory), QUERY, NAME) == files - len(listed) > 0
    assert sorted(map(str, directory.rglob("*.parquet"))) == sorted(listed)
    notes = DeltaTable(str(directory)).to_pyarrow_table(columns=["n", "note"]).to_pylist()
    assert {row["n"] for row in notes if row["note"]} == {n for n in range(ROWS, BATCHES * ROWS) if n % 5 == 0}


def test_a_repeated_batch_adds_nothing_and_a_batch_out_of_order_is_refused(tmp_path: Path) -> None:
    assert [add(tmp_path, 0), add(tmp_path, 1), add(tmp_path, 1)] == [True, True, False]
    assert by_delta_rs(tmp_path) == expected(2)
    with pytest.raises(BatchOld, match=r"batch 0 was committed before, and batch 1 after it: this checkpoint is"):
        add(tmp_path, 0)
    with pytest.raises(BatchesMissing, match=r"the next batch is 3, and the table has its batches up to 1 only"):
        add(tmp_path, 3)
    other = Table(str(tmp_path), "another query", FIRST, ("topic", "date"))
    with pytest.raises(BatchesMissing, match=r"the next batch is 1, and the table has no batch of this query"):
        other.commit(1, [])
    assert (BatchOld.exit_code, BatchesMissing.exit_code, SecondWriter.exit_code) == (10, 10, 9)
    assert by_delta_rs(tmp_path) == expected(2)


@pytest.mark.parametrize("when", ["before its columns", "after its columns", "before its files"])
def test_of_two_processes_with_one_checkpoint_one_fails(tmp_path: Path, when: str) -> None:
    add(tmp_path, 0)

    class Late(Table):
        def _add_columns(self, held: DeltaTable) -> bool:
            if when == "before its columns":
                assert add(tmp_path, 1)
            new = super()._add_columns(held)
            if when == "after its columns":
                assert add(tmp_path, 1)
            return new

        def _add_files(self, held: DeltaTable, batch: int, files: Any) -> None:
            if when == "before its files":
                assert add(tmp_path, 1)
            super()._add_files(held, batch, files)

    files = write(str(tmp_path), 1, 2)
    with pytest.raises(SecondWriter, match=r"another process committed batch 1 at the same time; let one process run"):
        Late(str(tmp_path), QUERY, rows_of(1).schema, ("topic", "date")).commit(1, files)
    assert by_delta_rs(tmp_path) == expected(2)
    assert tidy(str(tmp_path), QUERY, NAME) == len(files)


def test_other_writers_of_the_table_disturb_no_batch(tmp_path: Path) -> None:
    """A table may be compacted, and appended to, between the moment that it is read and the commit."""
    add(tmp_path, 0)

    class Beside(Table):
        def _add_files(self, held: DeltaTable, batch: int, files: Any) -> None:
            DeltaTable(str(tmp_path)).optimize.compact()
            super()._add_files(held, batch, files)

    assert Beside(str(tmp_path), QUERY, rows_of(1).schema, ("topic", "date")).commit(1, write(str(tmp_path), 1, 1))
    assert by_delta_rs(tmp_path) == expected(2)


def test_files_of_a_batch_being_written_and_of_earlier_versions_stay(tmp_path: Path) -> None:
    add(tmp_path, 0)
    add(tmp_path, 1)
    running = write(str(tmp_path), 2, 1)
    foreign = tmp_path / "mine.parquet"
    foreign.write_bytes(b"")
    held = DeltaTable(str(tmp_path))
    held.optimize.compact()
    assert tidy(str(tmp_path), QUERY, NAME) == 0
    assert table(tmp_path, rows_of(2).schema).commit(2, running)
    assert by_delta_rs(tmp_path) == expected(3)
    assert held.to_pyarrow_table().num_rows == 2 * ROWS, "the version before the compaction can be read"
    other = tmp_path / running[0].path  # Of another query, with the number of a batch that this one has committed.
    other = other.with_name(other.name.replace(NAME, "f" * len(NAME)))
    other.write_bytes(b"")
    killed = write(str(tmp_path), 1, 2)
    assert tidy(str(tmp_path), QUERY, NAME) == len(killed)
    assert other.exists()
    assert foreign.exists()
    assert tidy(str(tmp_path / "none"), QUERY, NAME) == 0


def test_a_table_knows_its_batches_after_its_log_was_shortened(tmp_path: Path) -> None:
    for batch in range(3):
        add(tmp_path, batch)
    DeltaTable(str(tmp_path)).create_checkpoint()
    for entry in sorted((tmp_path / "_delta_log").glob("*.json"))[:-1]:
        entry.unlink()
    assert not add(tmp_path, 2)
    assert add(tmp_path, 3)
    assert by_delta_rs(tmp_path) == expected(4)


def test_rows_that_do_not_fit_the_table_are_refused_in_one_line(tmp_path: Path) -> None:
    add(tmp_path, 0)
    changed = FIRST.set(2, pa.field("n", pa.string()))
    with pytest.raises(TableDiffers, match="column n is long in the table and string in the rows; cast it"):
        table(tmp_path, changed).commit(1, [])
    for kind in (pa.duration("us"), pa.null()):
        new = FIRST.append(pa.field("x", kind))
        with pytest.raises(TableDiffers, match=r"column x is .*, and Delta has no such type; cast it"):
            table(tmp_path, new).commit(1, [])
    with pytest.raises(TableDiffers, match="partitioned by topic, date, and not by date; give another directory"):
        Table(str(tmp_path), QUERY, FIRST, ("date",)).commit(1, [])
    (tmp_path / "_delta_log" / "00000000000000000000.json").write_text("{")
    with pytest.raises(StorageError, match="batch 1 could not be committed") as caught:
        table(tmp_path).commit(1, [])
    assert "\n" not in str(caught.value)


SCHEMA = pa.schema(
    [
        ("p", pa.string()), ("d", pa.date32()), ("i", pa.int64()), ("t", pa.timestamp("us", "UTC")),
        ("s", pa.string()), ("f", pa.float64()), ("b", pa.binary()), ("l", pa.list_(pa.int32())),
        ("none", pa.int64()), ("flag", pa.bool_()), ("day", pa.date32()),
    ]
)  # fmt: skip
MOMENT = datetime.datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=datetime.UTC)


def sample(**more: Any) -> dict[str, Any]:
    row = {"p": "x", "d": MOMENT.date(), "i": 7, "t": MOMENT, "s": "é", "f": float("nan"), "b": b"\xff", "l": [1, None]}
    return row | {"none": None, "flag": True, "day": MOMENT.date()} | more


def one_commit(directory: Path, rows: list[dict[str, Any]], by: tuple[str, ...]) -> list[Any]:
    files = FileWriter(str(directory), SCHEMA, by, NAME, 0, 0)
    files.write(pa.RecordBatch.from_pylist(rows, SCHEMA))
    done = files.finish()
    Table(str(directory), QUERY, SCHEMA, by).commit(0, done)
    return done


def test_statistics_say_what_is_certain(tmp_path: Path) -> None:
    rows = [
        sample(),
        sample(i=None, s=None, t=None, flag=None),
        sample(i=-3, s="a", t=MOMENT.replace(year=2023, day=1)),
    ]
    (one,) = one_commit(tmp_path, rows, ("p",))
    assert json.loads(one.stats) == {
        "numRecords": 3,
        "minValues": {"d": "2024-02-29", "i": -3, "t": "2023-02-01T23:59:59.999Z", "s": "a", "day": "2024-02-29"},
        "maxValues": {"d": "2024-02-29", "i": 7, "t": "2024-03-01T00:00:00.000Z", "s": "é", "day": "2024-02-29"},
        "nullCount": {"d": 0, "i": 1, "t": 1, "s": 1, "f": 0, "b": 0, "none": 3, "flag": 1, "day": 0},
    }
    found = DeltaTable(str(tmp_path))
    for column, value in (("t", MOMENT), ("i", 7), ("s", "é"), ("day", MOMENT.date()), ("p", "x")):
        assert found.to_pyarrow_table(filters=[(column, "=", value)]).num_rows > 0, column
    assert found.to_pyarrow_table(filters=[("i", ">", 7)]).num_rows == 0


def test_a_text_that_is_too_long_and_a_file_without_rows_have_no_bounds(tmp_path: Path) -> None:
    (one,) = one_commit(tmp_path, [sample(s="x" * 65)], ())
    assert "s" not in json.loads(one.stats)["minValues"].keys() | json.loads(one.stats)["maxValues"].keys()
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "empty")
    facts = statistics(pq.read_metadata(tmp_path / "empty"))
    assert (facts["numRecords"], facts["minValues"]) == (0, {})


def test_each_partition_has_a_file_and_reads_back_its_values(tmp_path: Path) -> None:
    """More partitions than files may be open at a time, and values that need an escape in a path."""
    values = [*map(str, range(70)), "a/b", "ü %", "..", 'q"\\', "x=y", None]
    days = [None, MOMENT.date()]
    rows = [sample(p=value, d=day, i=index) for index, value in enumerate(values) for day in days] * 2
    done = one_commit(tmp_path, rows, ("p", "d"))
    assert len(done) >= len(values) * len(days)
    read = DeltaTable(str(tmp_path)).to_pyarrow_table(columns=["p", "d", "i"]).to_pylist()
    assert Counter((row["p"], row["d"], row["i"]) for row in read) == Counter((r["p"], r["d"], r["i"]) for r in rows)
    assert all(path.is_relative_to(tmp_path) and ".." not in path.parts for path in tmp_path.rglob("*.parquet"))


def test_files_of_a_task_that_fails_are_removed(tmp_path: Path) -> None:
    files = FileWriter(str(tmp_path), SCHEMA, ("p",), NAME, 0, 0)
    files.write(pa.RecordBatch.from_pylist([sample()], SCHEMA))
    assert list(tmp_path.rglob("*.parquet"))
    files.abandon()
    assert not list(tmp_path.rglob("*.parquet"))
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="file"):
        FileWriter(str(tmp_path / "file"), SCHEMA, (), NAME, 0, 0).write(pa.RecordBatch.from_pylist([sample()], SCHEMA))
