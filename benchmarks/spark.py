"""The measures of `scripts/bench --spark`: Spark reads and writes topics of the cluster under measurement."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.measures import Measure
from benchmarks.stage import Stage, cpu_seconds
from pubsub.cli.bench import BATCH
from pubsub.cli.bench.measures import CONSUME_BATCH, Figures
from pubsub.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.spark_queries import Write

ROWS_PER_SECOND: Final = 500_000
"""Rows that a query is given for each second of a measure, where they are small."""

SMALL_BYTES: Final = 300
"""Above this size of a body there are fewer, in proportion."""

MICRO_BATCH: Final = 5_000
MICRO_BATCHES: Final = 20
MICRO_BATCHES_MIN: Final = 4
BROKER_ROWS: Final = 2_000_000

_RATE: Final = {"rate": "records/s", "floor": "records/s", "ratio": "times"}
"""Figures of a query, of the same query with Parquet files in place of topics, and the first to the second."""


@contextmanager
def measures() -> Iterator[list[Measure]]:
    """The measures, while Spark runs.

    Raises:
        ConfigurationError: it is not installed.
    """
    if find_spec("pyspark") is None or find_spec("pyarrow") is None:
        raise ConfigurationError("--spark needs PySpark: pip install '.[spark]' in a clone")
    with ExitStack() as stack:
        found = Spark(stack)
        yield [
            Measure("spark-noop", found.noop, _RATE),
            Measure("spark-parquet", found.parquet, _RATE),
            *([Measure("spark-delta", found.delta, _RATE)] if find_spec("deltalake") else []),
            Measure("spark-sink", found.sink, _RATE),
            Measure("spark-values", found.values, _RATE),
            Measure("spark-micro-batch", found.micro_batch, {"noop": "ms", "sink": "ms"}),
            Measure("broker-per-row", broker, {"consume": "µs", "range": "µs", "ratio": "times"}),
        ]


def rows_of(size: int, secs: float) -> int:
    """How many rows a query is given."""
    return max(BATCH, int(secs * ROWS_PER_SECOND / max(1.0, size / SMALL_BYTES)) // BATCH * BATCH)


def _fill(stage: Stage, topic: str, size: int, rows: int) -> None:
    """Put rows with different random bodies: files would store equal ones only once."""
    with stage.client("filler") as filler:
        for _ in range(rows // BATCH):
            data = os.urandom(BATCH * size)
            filler.put_many(topic, [data[size * row : size * (row + 1)] for row in range(BATCH)], wait=False)
        filler.flush()


class Spark:
    """The measures that need a session, which the first of them starts; the first query of each is a warm-up.

    Args:
        stack: ends the session.
    """

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._warm: set[str] = set()

    @cached_property
    def _session(self) -> SparkSession:
        from pubsub.spark.pipelines import running

        return self._stack.enter_context(running("local[*]", {}))

    def noop(self, stage: Stage, size: int, secs: float) -> Figures:
        """From a topic to nowhere."""
        from benchmarks.spark_queries import to_noop

        return self._rate("noop", stage, size, secs, lambda _: to_noop, lambda _: to_noop)

    def parquet(self, stage: Stage, size: int, secs: float) -> Figures:
        """From a topic to Parquet files."""
        from benchmarks.spark_queries import to_parquet

        return self._rate("parquet", stage, size, secs, to_parquet, to_parquet)

    def delta(self, stage: Stage, size: int, secs: float) -> Figures:
        """From a topic to a Delta table; the floor is that of Parquet files."""
        from benchmarks.spark_queries import to_delta, to_parquet

        return self._rate("delta", stage, size, secs, to_delta, to_parquet)

    def sink(self, stage: Stage, size: int, secs: float) -> Figures:
        """From a topic to a topic."""
        from benchmarks.spark_queries import to_topic, values_to_parquet

        return self._rate("sink", stage, size, secs, lambda place: to_topic(stage.proxy, place.name), values_to_parquet)

    def values(self, stage: Stage, size: int, secs: float) -> Figures:
        """From a topic to a topic by a source that reads the values only, as its floor does."""
        from benchmarks.spark_queries import to_topic, values_to_parquet

        def write(place: Path) -> Write:
            return to_topic(stage.proxy, place.name)

        return self._rate("values", stage, size, secs, write, values_to_parquet, "value binary")

    def _rate(
        self,
        name: str,
        stage: Stage,
        size: int,
        secs: float,
        write: Callable[[Path], Write],
        floor: Callable[[Path], Write],
        columns: str = "",
    ) -> Figures:
        """Measure a query over a topic, and then its floor over files with the same rows."""
        from benchmarks import spark_queries as bench
        from pubsub.spark.arrow import SCHEMA

        rate = least = 0.0
        for rows in (rows_of(size, secs),) if name in self._warm else (rows_of(size, secs / 4), rows_of(size, secs)):
            topic, place, files, other = (
                stage.name("topic"), *(stage.directory / stage.name(each) for each in ("out", "files", "floor"))
            )  # fmt: skip
            checkpoints = [stage.directory / stage.name("checkpoint") for _ in range(2)]
            bench.hold(stage.proxy, topic)
            _fill(stage, topic, size, rows)
            bench.copy_to_files(self._session, stage.proxy, topic, files)
            stream = bench.from_topic(self._session, stage.proxy, topic, columns or SCHEMA)
            rate = bench.rate(stream, rows, write(place), checkpoints[0])
            least = bench.rate(bench.from_files(self._session, files), rows, floor(other), checkpoints[1])
            for each in (place, files, other):
                shutil.rmtree(each, ignore_errors=True)
        self._warm.add(name)
        return {"rate": rate, "floor": least, "ratio": rate / least}

    def micro_batch(self, stage: Stage, size: int, secs: float) -> Figures:
        """Batches of MICRO_BATCH rows, to nowhere and to a topic."""
        from benchmarks import spark_queries as bench

        figures = {}
        for name, write in (("noop", bench.to_noop), ("sink", bench.to_topic(stage.proxy, stage.name("out")))):
            topic = stage.name("topic")
            bench.hold(stage.proxy, topic)
            _fill(stage, topic, size, MICRO_BATCH * max(MICRO_BATCHES_MIN, int(MICRO_BATCHES * min(1.0, secs))))
            checkpoint = stage.directory / stage.name("checkpoint")
            figures[name] = bench.micro_batch(self._session, stage.proxy, topic, MICRO_BATCH, write, checkpoint)
        return figures


def broker(stage: Stage, size: int, secs: float) -> Figures:
    """Processor time of server and proxy for a row that is consumed, and for one that is read by range."""
    from benchmarks import spark_queries as bench

    rows = int(BROKER_ROWS * min(1.0, secs) / max(1.0, size / SMALL_BYTES)) // BATCH * BATCH + BATCH
    topic = stage.name("topic")
    bench.hold(stage.proxy, topic)
    with stage.client("taker") as client:
        client.subscribe(topic)
        _fill(stage, topic, size, rows)
        begun = _processor(stage)
        taken = 0
        while taken < rows:
            taken += len(client.get_many(topic, CONSUME_BATCH))
    consumed = _processor(stage)
    if bench.read_ranges(stage.proxy, topic) != rows:
        raise ConfigurationError(f"not all of {rows} rows were read")
    consume, by_range = (1e6 * used / rows for used in (consumed - begun, _processor(stage) - consumed))
    return {"consume": consume, "range": by_range, "ratio": by_range / consume if consume else 0.0}


def _processor(stage: Stage) -> float:
    return sum(cpu_seconds(process) for process in stage.processes.values())
