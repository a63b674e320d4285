"""A streaming query that copies topics, and a format that dies or waits at a named step of it.

    python -m tests.spark.query JSON      runs it in a Spark of its own, which the step kills

Steps: `partitions`, `write` (in a task, after some rows are staged), `commit` (before the first publish), `between`
(after the first topic's) and `published` (after the last, before Spark knows). The event there is `do`: "kill" the
driver, Python and JVM (its Python workers live on), "fail" the task once, or "wait" until the test has done something.
Each happens once: a file says that it has.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pubsub.client.requests import Proxies
from pubsub.protocol import Status
from pubsub.spark import sink
from pubsub.spark.datasource import PubsubDataSource
from pubsub.spark.options import SinkOptions, sink_options, source_options
from pubsub.spark.sink import StreamWriter
from pubsub.spark.source import StreamReader
from tests.faults.cluster import SPARK_SECONDS
from tests.spark.pages import shown


class Step:
    """One step of a query at which something happens, once, in the process that comes there first."""

    def __init__(self, facts: dict[str, Any]) -> None:
        self.facts = facts

    def reach(self, name: str, batch: int) -> None:
        facts = self.facts
        if name != facts.get("step") or batch < facts.get("batch", 0):
            return
        directory = Path(facts["directory"])
        try:
            (directory / "reached").touch(exist_ok=False)
        except FileExistsError:
            return
        if facts["do"] == "kill":
            for pid in json.loads((directory / "pids").read_text()):
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.2)  # An orphan goes on from here after its driver is dead.
        elif facts["do"] == "fail":
            raise OSError("this task fails, says the test")
        elif facts["do"] == "wait":
            end = time.monotonic() + SPARK_SECONDS
            while not (directory / "go").exists():
                assert time.monotonic() < end, "the test did not say go"
                time.sleep(0.02)


class StepReader(StreamReader):
    step: Step

    def partitions(self, start: dict[str, str], end: dict[str, str]) -> Any:
        self.step.reach("partitions", self.step.facts.get("batch", 0) if self._acknowledged else 0)
        return super().partitions(start, end)


class StepWriter(StreamWriter):
    step: Step

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty(sink.BATCH_PROPERTY) or 0)

        def rows() -> Iterator[pa.RecordBatch]:
            for index, each in enumerate(iterator):
                if index:
                    self.step.reach("write", batch)
                yield from (each.slice(0, 100), each.slice(100)) if each.num_rows > 100 else (each,)
                self.step.reach("write", batch)

        return super().write(rows())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.step.reach("commit", batchId)
        original = Proxies.ask
        published = []

        def ask(link: Proxies, request: Any) -> Status:
            if published:
                self.step.reach("between", batchId)
            answer = original(link, request)
            published.append(answer)
            return answer

        Proxies.ask = ask  # type: ignore[method-assign]
        try:
            super().commit(messages, batchId)
        finally:
            Proxies.ask = original  # type: ignore[method-assign]
        self.step.reach("published", batchId)


class StepDataSource(PubsubDataSource):
    """The format `stepping`: option `step` says where something happens."""

    @classmethod
    def name(cls) -> str:
        return "stepping"

    def _split(self) -> tuple[Step, dict[str, str]]:
        given = {name.lower(): value for name, value in dict(self.options).items()}
        return Step(json.loads(given.pop("step", "{}"))), given

    def streamReader(self, schema: StructType) -> StepReader:  # noqa: N802
        step, given = self._split()
        reader = StepReader(source_options(given, stream=True))
        reader.step = step
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> StepWriter:  # noqa: N802
        step, given = self._split()
        options: SinkOptions = sink_options(given)
        writer = StepWriter(options)
        writer.step = step
        return writer


def drawn(frames: Iterator[Any]) -> Iterator[Any]:
    """Append something to each value that is another one each time."""
    for frame in frames:
        yield frame.assign(value=[bytes(value) + b" " + uuid.uuid4().hex.encode() for value in frame["value"]])


def start(spark: SparkSession, facts: dict[str, Any]) -> StreamingQuery:
    """Starts the query; it ends when it has copied all present messages.

    Args:
        facts: proxies, subscribe, checkpoint; step, do, batch, directory; shuffle and options of source and sink;
            `pandas`: values go through a function of it that draws; further options of both by their names in
            `options`; `secret`: the file of the key that is option secretKey; `seconds`: of the trigger, for a query
            that goes on.
            Of a Spark of its own: master, conf and log, the level of its log; `explain`: print its plans, and what SQL
            says of its source as a view; `pages`: write what the web interface shows to a file of that name.
    """
    spark.dataSource.register(StepDataSource)
    step = json.dumps({name: facts[name] for name in ("step", "do", "batch", "directory") if name in facts})
    both = dict(facts.get("options", {}))
    if "secret" in facts:
        both["secretKey"] = Path(facts["secret"]).read_text().strip()
    rows = (
        spark.readStream.format("stepping")
        .option("proxies", facts["proxies"])
        .option("subscribe", facts["subscribe"])
        .option("subscription", "copy")
        .option("startingOffsets", "earliest")
        .option("maxRecordsPerBatch", str(facts.get("records", 4000)))
        .option("minPartitions", str(facts.get("partitions", 2)))
        .option("step", step)
        .options(**both)
        .load()
    )
    if facts.get("shuffle"):
        rows = rows.repartition(int(facts["shuffle"]))
    chosen = rows.selectExpr("value") if "topic" in facts else rows.selectExpr("concat(topic, '.copy') topic", "value")
    if facts.get("pandas"):
        chosen = chosen.mapInPandas(drawn, chosen.schema)
    writer = chosen.writeStream.format("stepping").option("proxies", facts["proxies"]).option("step", step)
    if "topic" in facts:
        writer = writer.option("topic", facts["topic"])
    if facts.get("explain"):
        rows.explain(extended=True)
        rows.createOrReplaceTempView("rows")
        for statement in ("DESCRIBE EXTENDED rows", "EXPLAIN EXTENDED SELECT * FROM rows", "SHOW VIEWS"):
            print(statement, spark.sql(statement).collect())
    writer = writer.options(**both).option("checkpointLocation", facts["checkpoint"])
    if "seconds" in facts:
        return writer.trigger(processingTime=f"{facts['seconds']} seconds").start()
    return writer.trigger(availableNow=True).start()


def main() -> None:
    from pubsub.spark.session import start as start_session
    from tests.spark.classes import FEW_ROWS

    facts = json.loads(sys.argv[1])
    spark = start_session(facts.get("master", "local[2,4]"), facts.get("conf", FEW_ROWS))
    jvm = spark.sparkContext._gateway.proc.pid  # type: ignore[union-attr]
    (Path(facts["directory"]) / "pids").write_text(json.dumps([jvm, os.getpid()]))
    if "log" in facts:
        spark.sparkContext.setLogLevel(facts["log"])
    print("running", flush=True)
    query = start(spark, facts)
    query.awaitTermination()
    if facts.get("explain"):
        query.explain(extended=True)
        print(query.lastProgress)
    if facts.get("pages"):
        address = spark.sparkContext.uiWebUrl
        assert address is not None
        (Path(facts["directory"]) / "pages").write_text(json.dumps(shown(address)))
    print("ended", flush=True)


if __name__ == "__main__":
    main()
