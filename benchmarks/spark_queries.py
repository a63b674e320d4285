"""What `scripts/bench --spark` measures: queries from start to end, as a user has them, over a topic that is filled."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pubsub.client.requests import Proxies
from pubsub.errors import ConfigurationError
from pubsub.spark.archive import DELTA, writer
from pubsub.spark.arrow import SCHEMA
from pubsub.spark.options import source_options
from pubsub.spark.pipelines import Place, begin, follow, source
from pubsub.spark.ranges import Topics
from pubsub.spark.reading import parts_of, read_part

Write = Callable[[DataFrame], DataStreamWriter]

NAME: Final = "bench"
WARM_UP: Final = 2
"""Micro-batches that are not counted."""


def hold(proxy: str, topic: str) -> None:
    """Have what comes to a topic kept for a query."""
    with Proxies([proxy], 30.0) as link:
        Topics(link, NAME).subscribe(topic, "earliest")


def from_topic(spark: SparkSession, proxy: str, topic: str, columns: str = SCHEMA) -> DataFrame:
    """What a topic holds, as a stream."""
    return source(spark, Place(proxies=(proxy,)), [topic], NAME, 0, columns)


def copy_to_files(spark: SparkSession, proxy: str, topic: str, directory: Path) -> None:
    """Write what a topic holds to Parquet files, one for each core."""
    options = Place(proxies=(proxy,)).options | {"subscribe": topic, "subscription": NAME}
    spark.read.format("pubsub").options(**options).load().write.parquet(str(directory))


def from_files(spark: SparkSession, directory: Path) -> DataFrame:
    """The same rows by Spark's own source of files, as a stream."""
    return spark.readStream.schema(SCHEMA).parquet(str(directory))


def rate(stream: DataFrame, rows: int, write: Write, checkpoint: Path) -> float:
    """Rows a second of one query, its start and its end included.

    Raises:
        ConfigurationError: it was not these many.
    """
    begun = time.perf_counter()
    totals = follow(begin(write(stream), checkpoint.name, str(checkpoint), once=True, seconds=0), lambda _: None)
    taken = time.perf_counter() - begun
    if totals.messages != rows:
        raise ConfigurationError(f"{totals.messages} rows of {rows} were read")
    return rows / taken


def to_noop(stream: DataFrame) -> DataStreamWriter:
    """Rows to nowhere."""
    return stream.writeStream.format("noop")


def to_parquet(directory: Path) -> Write:
    """Rows to files."""
    return lambda stream: stream.writeStream.format("parquet").option("path", str(directory))


def to_delta(directory: Path) -> Write:
    """Rows to a Delta table."""
    return lambda stream: writer(stream.sparkSession, stream, DELTA, str(directory), ())


def values_to_parquet(directory: Path) -> Write:
    """The values of rows to files."""
    return lambda stream: stream.select("value").writeStream.format("parquet").option("path", str(directory))


def to_topic(proxy: str, topic: str) -> Write:
    """Rows to a topic."""
    return lambda stream: (
        stream.select("value").writeStream.format("pubsub").options(topic=topic, **Place(proxies=(proxy,)).options)
    )


def micro_batch(spark: SparkSession, proxy: str, topic: str, records: int, write: Write, checkpoint: Path) -> float:
    """Milliseconds of a micro-batch of so many records, the median over a topic."""
    stream = source(spark, Place(proxies=(proxy,)), [topic], NAME, records)
    query = begin(write(stream), checkpoint.name, str(checkpoint), once=True, seconds=0)
    follow(query, lambda _: None)
    full: list[Any] = [batch for batch in query.recentProgress if batch["numInputRows"] == records]
    return median([float(batch["durationMs"]["triggerExecution"]) for batch in full[WARM_UP:]])


def read_ranges(proxy: str, topic: str) -> int:
    """Read a topic by ranges as tasks do, without Spark; how many rows."""
    options = source_options({"proxies": proxy, "subscribe": topic, "subscription": NAME}, stream=False)
    with Proxies([proxy], 30.0) as link:
        parts = parts_of(options, {topic: (None, Topics(link, NAME).plan(topic, None))})
    return sum(batch.num_rows for part in parts for batch in read_part(options, part.range))
