"""A topic to an Iceberg table by Spark and PyIceberg, each message once, and a count of them. No JVM library is needed.

    pip install '.[spark,java]' 'pyiceberg[sql-sqlite]'
    PUBSUB_PROXIES_FILE=cluster/proxies python to_iceberg.py orders lake

Run it again to add later messages. It may be killed at any time. Executors write the files of a batch. Then the driver
adds them and the batch's number to the table in one transaction. A batch that is repeated after a kill finds its number
there. Of two programs with one checkpoint, one ends with PyIceberg's CommitFailedException.

The catalog here is a SQLite file. For another one, change `catalog`: https://py.iceberg.apache.org/configuration/.
"""

import os
import sys
import uuid
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import BinaryType, LongType, NestedField, StringType, TimestamptzType
from pyspark.sql import DataFrame

from pubsub.spark.session import start

COLUMNS = {
    "topic": StringType(), "message_id": StringType(), "log": StringType(), "offset": LongType(),
    "stamp": TimestamptzType(), "key": BinaryType(), "value": BinaryType(),
}  # fmt: skip


def catalog(directory: Path) -> Catalog:
    return load_catalog("lake", type="sql", uri=f"sqlite:///{directory}/catalog.db", warehouse=f"file://{directory}")


def opened(directory: Path) -> Table:
    held = catalog(directory)
    held.create_namespace_if_not_exists("messages")
    fields = [NestedField(number, name, kind) for number, (name, kind) in enumerate(COLUMNS.items(), 1)]
    return held.create_table_if_not_exists("messages.archive", Schema(*fields), location=f"file://{directory}/archive")


def add(directory: Path, query: str, rows: DataFrame, batch: int) -> None:
    table = opened(directory)
    done = f"pubsub.batch.{query}"
    if int(table.properties.get(done, -1)) >= batch:
        return
    folder = directory / "archive" / "data" / f"{query}-{batch}-{uuid.uuid4().hex}"
    rows.write.parquet(str(folder))
    with table.transaction() as transaction:
        transaction.set_properties({done: str(batch)})
        transaction.add_files([f"file://{path}" for path in sorted(folder.glob("*.parquet"))])


def archive(spark: Any, topic: str, directory: Path) -> None:
    rows = (
        spark.readStream.format("pubsub")
        .option("proxiesFile", os.environ["PUBSUB_PROXIES_FILE"])
        .option("subscribe", topic)
        .option("subscription", "iceberg")
        .option("startingOffsets", "earliest")
        .load()
        .select(*COLUMNS)
    )
    # The name of the query must be that of its checkpoint: a new checkpoint counts its batches from 0 on.
    name = directory / "query"
    if not name.exists():
        name.write_text(uuid.uuid4().hex)
    query = (
        rows.writeStream.foreachBatch(lambda batch, number: add(directory, name.read_text(), batch, number))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .trigger(availableNow=True)  # The messages of now, then end; `processingTime="10 seconds"` goes on.
        .start()
    )
    query.awaitTermination()


def main(topic: str, directory: Path) -> None:
    directory = directory.absolute()
    directory.mkdir(parents=True, exist_ok=True)
    spark = start("local[2]")
    spark.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")  # Iceberg knows no other.
    archive(spark, topic, directory)
    messages = opened(directory).scan(selected_fields=("message_id",)).to_arrow()
    print(messages.num_rows, "messages,", len(messages["message_id"].unique()), "different")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
