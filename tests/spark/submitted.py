"""A program for `spark-submit`: it copies topic t to t.copy by a stream, and says where its workers' modules are.

spark-submit … tests/spark/submitted.py PROXIES CHECKPOINT
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

from pyspark.sql import SparkSession


def places(_: Iterator[int]) -> Iterator[tuple[str, str, str]]:
    import zmq

    import pubsub

    yield sys.executable, pubsub.__file__ or "", zmq.__file__ or ""


def main() -> None:
    proxies, checkpoint = sys.argv[1:]
    spark = SparkSession.builder.getOrCreate()
    found = spark.sparkContext.parallelize(range(2), 2).mapPartitions(places).distinct().collect()
    rows = spark.readStream.format("pubsub").option("proxies", proxies).option("subscribe", "t")
    rows = rows.option("subscription", "copy").option("startingOffsets", "earliest").option("minPartitions", "2")
    writer = rows.load().select("value").writeStream.format("pubsub").option("proxies", proxies)
    writer = writer.option("topic", "t.copy").option("checkpointLocation", checkpoint)
    writer.trigger(availableNow=True).start().awaitTermination()
    copied = spark.read.format("pubsub").option("proxies", proxies).option("subscribe", "t.copy").load()
    print(json.dumps({"places": sorted(map(list, found)), "copied": copied.select("value").distinct().count()}))


if __name__ == "__main__":
    main()
