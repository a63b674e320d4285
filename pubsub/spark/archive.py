"""An archive: topics as Parquet files by topic and date, and the log of the valid files.

Spark first writes the files of a batch, and then its entry in the log `_spark_metadata`. A file without an entry
belongs to a killed batch, which was written again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name
from pyspark.sql.streaming.query import StreamingQuery

from pubsub.errors import ConfigurationError
from pubsub.protocol.names import topic_of
from pubsub.spark.arrow import SCHEMA
from pubsub.spark.pipelines import COMPACT, LOG, Place, begin, source
from pubsub.spark.storage import open_storage


def archive(
    spark: SparkSession,
    place: Place,
    topics: Sequence[str],
    to: str,
    *,
    name: str,
    checkpoint: str,
    once: bool = False,
    seconds: float = 10.0,
    records: int = 0,
) -> StreamingQuery:
    """Write topics to Parquet files under `to/topic=…/date=…`, by the date (UTC) of the server's timestamp.

    A reader of the directory through Spark sees each message once: the directory's log lists the files of a batch only
    when all of them are complete.
    """
    tidy(spark, to)
    rows = source(spark, place, topics, name, records).withColumn("date", F.date_format("stamp", "yyyy-MM-dd"))
    writer = rows.writeStream.format("parquet").partitionBy("topic", "date").option("path", to)
    return begin(writer, name, checkpoint, once=once, seconds=seconds)


def archived_files(spark: SparkSession, directory: str) -> list[str]:
    """Return the valid files of an archive as paths below its directory; the archive may have been moved.

    Raises:
        ConfigurationError: the directory is not an archive.
    """
    log = open_storage(spark, f"{directory}/{LOG}")
    numbers = {int(name.removesuffix(COMPACT)): name for name in log.names() if name.removesuffix(COMPACT).isdigit()}
    if not numbers:
        raise ConfigurationError(f"{directory} is not an archive: it has no {LOG} that lists its files")
    compacted = max((number for number, name in numbers.items() if name.endswith(COMPACT)), default=0)
    found = []
    for number in sorted(numbers):
        if number >= compacted:
            for line in log.read(numbers[number]).splitlines()[1:]:  # The first line is the version.
                found.append(_below(unquote(json.loads(line)["path"])))
    return found


def _below(path: str) -> str:
    """Return `topic=…/date=…/name` of a full path."""
    return "/".join(path.split("/")[-3:])


def topic_and_date(file: str) -> tuple[str, str]:
    """Return the topic and the date in an archived file's path."""
    topic, date, _ = file.split("/")
    return topic_of(topic.removeprefix("topic=")), date.removeprefix("date=")


def tidy(spark: SparkSession, directory: str) -> int:
    """Remove the files of killed batches, which other readers than Spark would take for messages; return their number.

    Only files older than the log's last entry are removed. A newer file may belong to a batch that another process is
    writing now, before its entry.
    """
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
