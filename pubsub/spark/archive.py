"""An archive: topics as Parquet files by topic and date, and the list of those that count.

Spark writes a batch's files first and its entry in the log `_spark_metadata` then; what is in no entry is of a batch
that was killed, and was written anew.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
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
    """Topics as Parquet files under `to/topic=…/date=…`, by the date (UTC) at which the server took a message.

    What a reader of the directory through Spark sees is each message once: the directory's log lists a batch's files
    when all of them are there.
    """
    tidy(spark, to)
    rows = source(spark, place, topics, name, records).withColumn("date", F.date_format("stamp", "yyyy-MM-dd"))
    writer = rows.writeStream.format("parquet").partitionBy("topic", "date").option("path", to)
    return begin(writer, name, checkpoint, once=once, seconds=seconds)


def archived_files(spark: SparkSession, directory: str) -> list[str]:
    """The files of an archive that count, below its directory; as its log lists them, wherever it was moved since.

    Raises:
        ConfigurationError: it is no archive.
    """
    log = open_storage(spark, f"{directory}/{LOG}")
    numbers = {int(name.removesuffix(COMPACT)): name for name in log.names() if name.removesuffix(COMPACT).isdigit()}
    if not numbers:
        raise ConfigurationError(f"{directory} is no archive: it has no {LOG} that lists its files")
    compacted = max((number for number, name in numbers.items() if name.endswith(COMPACT)), default=0)
    found = []
    for number in sorted(numbers):
        if number >= compacted:
            for line in log.read(numbers[number]).splitlines()[1:]:  # The first is the version.
                found.append(_below(unquote(json.loads(line)["path"])))
    return found


def _below(path: str) -> str:
    """`topic=…/date=…/name` of a whole path."""
    return "/".join(path.split("/")[-3:])


def topic_and_date(file: str) -> tuple[str, str]:
    """What the folders of an archived file say."""
    topic, date, _ = file.split("/")
    return topic_of(topic.removeprefix("topic=")), date.removeprefix("date=")


def tidy(spark: SparkSession, directory: str) -> int:
    """Remove the files of killed batches, which readers other than Spark would take for messages; how many.

    Only what is older than the log's last entry: a later file may be of a batch that is being written now, by another
    process even, and is not in the log yet.
    """
    storage = open_storage(spark, directory)
    found = dict(storage.files()) if storage.has(LOG) else {}
    last = max((at for file, at in found.items() if file.startswith(f"{LOG}/")), default=0)
    if not last:
        return 0  # The first batch is not through.
    listed = set(archived_files(spark, directory))
    stray = [file for file, at in found.items() if file.startswith("topic=") and at < last and file not in listed]
    for file in stray:
        storage.remove(file)
    return len(stray)


def messages(spark: SparkSession, directory: str, files: Sequence[str]) -> DataFrame:
    """The messages in some files of an archive."""
    reader = spark.read.schema(f"{SCHEMA}, date string").option("basePath", directory)
    return reader.parquet(*(f"{directory}/{file}" for file in files))
