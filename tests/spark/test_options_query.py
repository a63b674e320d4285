"""Options and columns of Kafka's source in queries of Spark's, and what their progress shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from pubsub.spark.pipelines import failure
from pubsub.spark.progress import records_behind
from tests.spark.broker import Broker

pytestmark = pytest.mark.spark


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def test_a_query_from_kafka_runs_with_its_options_and_shows_its_backlog(
    session: Any, broker: Broker, tmp_path: Path
) -> None:
    broker.put("orders", numbers(0, 50))
    given = {"proxies": broker.address, "subscribe": "orders", "groupIdPrefix": "etl", "startingOffsets": "earliest"}
    given |= {"maxOffsetsPerTrigger": "30", "minOffsetsPerTrigger": "40", "maxTriggerDelay": "1h"}

    def run() -> Any:
        rows = session.readStream.format("pubsub").schema("timestamp timestamp, value binary").options(**given).load()
        chosen = rows.where("timestamp > '2020-01-01'").select("value")
        writer = (
            chosen.writeStream.format("pubsub").outputMode("append").options(proxies=broker.address, topic="copies")
        )
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        return query.recentProgress

    first = run()
    assert [(p.numInputRows, records_behind(p), p.sink.numOutputRows) for p in first] == [
        (0, {}, 0), (30, {"orders": 20}, 30), (20, {"orders": 0}, 20),
    ]  # fmt: skip
    assert json.loads(first[-1].sources[0].latestOffset)["orders"].endswith(".50")
    offsets = [(tmp_path / f"checkpoint/offsets/{batch}").read_text().splitlines()[-1] for batch in range(3)]
    names = {json.loads(offset)["subscription name"] for offset in offsets}
    assert len(names) == 1
    assert re.fullmatch("etl-[0-9a-f]{16}", names.pop())
    broker.put("orders", numbers(50, 55))
    assert [p.numInputRows for p in run() if p.numInputRows] == [5]
    assert sorted(broker.records("copies")) == sorted(numbers(0, 55))


def test_sql_reads_a_topic_by_a_view_and_a_table_says_why_not(session: Any, broker: Broker) -> None:
    broker.put("orders", numbers(0, 50))
    options = f"OPTIONS (proxies '{broker.address}', subscribe 'orders')"
    session.sql(f"CREATE TEMPORARY VIEW orders USING pubsub {options}")
    try:
        assert session.sql("SELECT count(*), count(timestamp) FROM orders").collect() == [(50, 50)]
    finally:
        session.sql("DROP VIEW orders")
    session.sql(f"CREATE TABLE orders USING pubsub {options}")
    try:
        with pytest.raises(PySparkException) as caught:
            session.sql("SELECT count(*) FROM orders").collect()
        assert "use CREATE TEMPORARY VIEW … USING pubsub OPTIONS (…)" in str(failure(caught.value))
        given = f"WITH (proxies = '{broker.address}', subscribe = 'orders')"
        assert session.sql(f"SELECT count(*) FROM orders {given}").collect() == [(50,)]
    finally:
        session.sql("DROP TABLE orders")
