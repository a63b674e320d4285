"""A topic to Parquet files by Spark, each message once, and a count of them.

    pip install '.[spark,java]'
    PUBSUB_PROXIES_FILE=cluster/proxies python to_parquet.py orders lake

Run it again to add the messages that were put since. It may be killed at any time: the checkpoint in the directory and
the subscription `lake` go on where it ended. `pubsub pipeline archive` is a command that does the same; begin with this
program to change it.
"""

import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, to_date

from pubsub.spark.session import start


def source(spark: Any, topic: str) -> DataFrame:
    rows: DataFrame = (
        spark.readStream.format("pubsub")
        .option("proxiesFile", os.environ["PUBSUB_PROXIES_FILE"])
        .option("subscribe", topic)
        .option("subscription", "lake")
        .option("startingOffsets", "earliest")
        .load()
    )
    return rows.select(
        "topic",
        "message_id",
        "stamp",
        col("key").cast("string").alias("key"),
        col("value").cast("string").alias("value"),
        to_date("stamp").alias("date"),
    )


def archive(spark: Any, topic: str, directory: Path) -> None:
    query = (
        source(spark, topic)
        .writeStream.format("parquet")
        .option("path", str(directory / "data"))
        .option("checkpointLocation", str(directory / "checkpoint"))
        .partitionBy("date")
        .trigger(availableNow=True)  # The messages of now, then end; `processingTime="10 seconds"` goes on.
        .start()
    )
    query.awaitTermination()


def main(topic: str, directory: Path) -> None:
    spark = start("local[2]")
    archive(spark, topic, directory)
    rows = spark.read.parquet(str(directory / "data"))
    print(rows.count(), "messages,", rows.select("message_id").distinct().count(), "different")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
