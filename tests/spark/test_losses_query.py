"""A query gets an error for silent losses: two with one subscription, a batch number that is used again."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from pubsub.cli import main
from pubsub.errors import StateCopied, Superseded
from pubsub.spark.pipelines import failure
from pubsub.spark.ranges import CHECKPOINT
from tests.spark.broker import Broker

pytestmark = pytest.mark.spark


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def test_the_second_of_two_queries_with_one_subscription_is_refused(
    session: Any, broker: Broker, tmp_path: Path
) -> None:
    broker.put("orders", numbers(0, 2100))
    broker.put("other", [b"first"])
    given = {"proxies": broker.address, "subscribe": "orders", "subscription": "billing", "startingOffsets": "earliest"}

    def copy(to: str, **options: str) -> None:
        rows = session.readStream.format("pubsub").options(**given, maxRecordsPerBatch="1000", **options).load()
        writer = rows.select("value").writeStream.format("pubsub").options(proxies=broker.address, topic=to)
        query = writer.option("checkpointLocation", str(tmp_path / to)).trigger(availableNow=True).start()
        query.awaitTermination()

    copy("one")
    assert Counter(broker.records("one")) == Counter(numbers(0, 2100))
    offsets = [json.loads((tmp_path / "one/offsets" / name).read_text().splitlines()[-1]) for name in "012"]
    assert len({offset[CHECKPOINT] for offset in offsets}) == 1
    with pytest.raises(StreamingQueryException) as caught:
        copy("other")
    told = failure(caught.value)
    assert str(told).startswith("orders: subscription billing belongs to another query's checkpoint, and rows would be")
    assert told.exit_code == Superseded.exit_code  # type: ignore[attr-defined]
    assert broker.records("other") == [b"first"]
    broker.put("orders", numbers(2100, 2200))
    copy("one")
    assert Counter(broker.records("one")) == Counter(numbers(0, 2200))
    broker.put("orders", numbers(2200, 2300))
    copy("other", takeOver="true")
    assert set(numbers(2200, 2300)) <= set(broker.records("other")) <= {b"first", *numbers(2100, 2300)}


def test_a_batch_job_that_reuses_a_number_learns_that_its_rows_are_not_written(session: Any, broker: Broker) -> None:
    def write(batch: int, first: int, stop: int) -> None:
        rows = session.range(first, stop, numPartitions=2).selectExpr("cast(id as string) value")
        options = {"proxies": broker.address, "topic": "out", "sink": "daily", "batchId": str(batch)}
        rows.write.format("pubsub").options(**options).mode("append").save()

    for batch in range(2):
        write(batch, batch * 500, batch * 500 + 500)
    write(1, 500, 1000)
    for batch, said in (
        (0, "batch 0 was published before, and batch 1 after it"),
        (1, "published before with other rows"),
    ):
        with pytest.raises(PySparkException) as caught:
            write(batch, 1000, 1400)
        told = failure(caught.value)
        assert said in str(told)
        assert told.exit_code == StateCopied.exit_code  # type: ignore[attr-defined]
    assert Counter(broker.records("out")) == Counter(numbers(0, 1000))


def test_a_pipeline_with_a_fresh_checkpoint_takes_a_name_over_only_with_the_option(
    session: Any, broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def archive(to: str, *words: str) -> int:
        given = ["archive", "orders", "--to", str(tmp_path / to), "--name", "mine", "--once", "--batch", "100"]
        return main(["pipeline", *given, "--proxy", broker.address, *words])

    broker.put("orders", numbers(0, 200))
    assert archive("one") == 0
    broker.put("orders", numbers(200, 300))
    assert archive("other") == Superseded.exit_code
    assert "orders: subscription mine belongs to another query's checkpoint" in capsys.readouterr().err
    assert archive("other", "--take-over") == 0
    found = session.read.parquet(str(tmp_path / "other")).select("value").collect()
    assert set(numbers(200, 300)) <= {bytes(row.value) for row in found} <= set(numbers(100, 300))
    assert archive("one") == Superseded.exit_code
