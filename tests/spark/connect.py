"""A server of Spark Connect, and a program that uses it, each a process of its own.

    python -m tests.spark.connect server PORT UI_PORT EVENTS
    python -m tests.spark.connect copy JSON

The program copies topic t to t.copy by a stream, with the progress of each batch on a line. Its facts: `url`, `options`
of source and sink, `checkpoint`, and `once`: it ends with the present messages. It then counts both topics by a batch
job, and reads one for which it has no right.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyspark

from pubsub.spark.session import LOGGING, find_java

SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


def serve(port: str, ui_port: str, events: str) -> None:
    """Become the server."""
    home = find_java() or os.environ.get("JAVA_HOME", "")
    java = f"{home}/bin/java" if home else "java"
    package = Path(pyspark.__file__).parent
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.ui.port": ui_port,
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": Path(events).as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    words = [java, "-cp", str(package / "jars" / "*"), "-Xmx1g", "--add-opens=java.base/java.nio=ALL-UNNAMED"]
    words += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED", f"-Dlog4j2.configurationFile={LOGGING.as_uri()}"]
    words += ["org.apache.spark.deploy.SparkSubmit", "--master", "local[2]", "--class", SERVER]
    words += [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    os.environ.update({"SPARK_HOME": str(package), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"})
    os.execvp(java, [*words, "spark-internal"])


def copy(facts: dict[str, Any]) -> None:
    """Run the stream, as any program of a user."""
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from pubsub.spark.holding import held
    from pubsub.spark.pipelines import failure
    from pubsub.spark.progress import records_behind

    def count(options: dict[str, str]) -> int:
        return spark.read.format("pubsub").options(**options).load().count()

    spark = SparkSession.builder.remote(facts["url"]).getOrCreate()
    keys = facts["options"]
    source = {"subscribe": "t", "subscription": "copy", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "100"}
    rows = spark.readStream.format("pubsub").options(**keys, **source).load()
    rows.explain(extended=True)
    writer = rows.select("value").writeStream.format("pubsub").options(**keys).option("topic", "t.copy")
    writer = writer.option("checkpointLocation", facts["checkpoint"])
    writer = writer.trigger(availableNow=True) if facts["once"] else writer.trigger(processingTime="0 seconds")
    query = writer.start()
    told = -1
    ended: bool | None = False
    while not ended:
        ended = query.awaitTermination(1)
        progress = query.lastProgress
        if progress is not None and progress.batchId > told:
            told = progress.batchId
            print(json.dumps({"batch": told, "behind": records_behind(progress)}), flush=True)
    with held(keys | {"subscribe": "t"}) as options:
        counts = [count(options), count(keys | {"subscribe": "t.copy"})]
    try:
        count(keys | {"subscribe": "private"})
    except PySparkException as error:
        print(
            json.dumps({"counts": counts, "exit": getattr(failure(error), "exit_code", 0), "said": str(failure(error))})
        )


if __name__ == "__main__":
    if sys.argv[1] == "server":
        serve(*sys.argv[2:])
    copy(json.loads(sys.argv[2]))
