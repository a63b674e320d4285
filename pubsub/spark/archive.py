"""An archive: topics as Parquet files by topic and date, and the log of the valid files.

The log of plain Parquet files is Spark's `_spark_metadata`. Spark first writes the files of a batch, and then its entry
there. A file without an entry belongs to a killed batch, which was written again. An archive may also be a Delta table,
whose log lists its files (`delta`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from pubsub.errors import ConfigurationError
from pubsub.protocol.names import topic_of
from pubsub.spark.arrow import SCHEMA
from pubsub.spark.delta import files as delta_files
from pubsub.spark.delta import table as delta_table
from pubsub.spark.delta import tidying
from pubsub.spark.delta.writer import FORMAT, DeltaDataSource
from pubsub.spark.pipelines import COMPACT, LOG
from pubsub.spark.sink import publisher_of
from pubsub.spark.storage import is_local, open_storage

PARQUET: Final = "parquet"
DELTA: Final = "delta"
FORMATS: Final = (PARQUET, DELTA)
BY: Final = ("topic", "date")
"""Columns by which an archive is partitioned."""

_BY: Final = re.compile(r"topic=(?P<topic>[^/]+)/date=(?P<date>[^/]+)/[^/]+$")


def writer(spark: SparkSession, rows: DataFrame, form: str, to: str, by: Sequence[str]) -> DataStreamWriter:
    """Return the writer of a stream to a directory in one of FORMATS, partitioned by columns."""
    if form == DELTA:
        spark.dataSource.register(DeltaDataSource)
        return rows.writeStream.format(FORMAT).options(path=to, partitionBy=",".join(by))
    return rows.writeStream.format("parquet").partitionBy(*by).option("path", to)


def check_format(form: str, to: str) -> None:
    """Check that a directory may get data in one of FORMATS.

    Raises:
        ConfigurationError: it has data in another format, or a Delta table cannot be there.
    """
    if form == DELTA:
        delta_table.check_installed()
        if not is_local(to):
            raise ConfigurationError(
                f"{to} is a URL, and a Delta table needs a directory that all machines of Spark reach by the same path"
            )
    elif is_local(to) and delta_table.is_table(to):
        raise ConfigurationError(f"{to} has a Delta table, not plain Parquet files: give --format delta")
    if form == DELTA and open_storage(None, f"{to}/{LOG}").names():
        raise ConfigurationError(f"{to} has plain Parquet files, not a Delta table: give --format parquet")


def archived_files(spark: SparkSession, directory: str) -> list[str]:
    """Return the valid files of an archive as paths below its directory; the archive may have been moved.

    Raises:
        ConfigurationError: the directory is not an archive, or its Delta table has files of other writers.
    """
    if is_local(directory) and delta_table.is_table(directory):
        return _files_of_table(directory)
    log = open_storage(spark, f"{directory}/{LOG}")
    numbers = {int(name.removesuffix(COMPACT)): name for name in log.names() if name.removesuffix(COMPACT).isdigit()}
    if not numbers:
        raise ConfigurationError(
            f"{directory} is not an archive: it has no {LOG} or {delta_table.LOG} that lists its files"
        )
    compacted = max((number for number, name in numbers.items() if name.endswith(COMPACT)), default=0)
    found = []
    for number in sorted(numbers):
        if number >= compacted:
            for line in log.read(numbers[number]).splitlines()[1:]:  # The first line is the version.
                found.append(_below(unquote(json.loads(line)["path"])))
    return found


def _files_of_table(directory: str) -> list[str]:
    """Return the files of a Delta table that this package wrote.

    A compaction writes messages to new files. A replay that knows the old ones by their names would put these messages
    again.
    """
    delta_table.check_installed()
    found = [_below(path) for path in delta_table.files(directory)]
    for path in found:
        if not delta_files.NAME.fullmatch(path.rpartition("/")[2]):
            raise ConfigurationError(
                f"{directory}: file {path} is of another writer, such as a compaction; a replay needs the archive's own"
            )
    return found


def _below(path: str) -> str:
    """Return `topic=…/date=…/name` of a full path."""
    return "/".join(path.split("/")[-3:])


def topic_and_date(file: str) -> tuple[str, str]:
    """Return the topic and the date in an archived file's path.

    Raises:
        ConfigurationError: the path has none, since the file is of another pipeline.
    """
    found = _BY.match(file)
    if found is None:
        raise ConfigurationError(f"file {file} is not of an archive by topic and date; give the directory of one")
    return topic_of(found["topic"]), found["date"]


def tidy(spark: SparkSession, directory: str, checkpoint: str) -> int:
    """Remove the files of killed batches, which other readers than Spark would take for messages; return their number.

    Of plain Parquet files only those older than the log's last entry are removed. A newer file may belong to a batch
    that another process is writing now, before its entry. For a Delta table see `delta.tidying`.
    """
    if is_local(directory) and delta_table.is_table(directory):
        progress = open_storage(spark, checkpoint)
        query = json.loads(progress.read("metadata"))["id"] if progress.has("metadata") else ""
        return tidying.tidy(directory, query, publisher_of(query)) if query else 0
    storage = open_storage(spark, directory)
    found = dict(storage.files()) if storage.has(LOG) else {}
    last = max((at for file, at in found.items() if file.startswith(f"{LOG}/")), default=0)
    if not last:
        return 0  # No batch is complete yet.
    listed = set(archived_files(spark, directory))
    stray = [file for file, at in found.items() if file.startswith("topic=") and at < last and file not in listed]
    for file in stray:
        storage.remove(file)
    return len(stray)


def messages(spark: SparkSession, directory: str, files: Sequence[str]) -> DataFrame:
    """Return the messages in these files of an archive."""
    reader = spark.read.schema(f"{SCHEMA}, date string").option("basePath", directory)
    return reader.parquet(*(f"{directory}/{file}" for file in files))
