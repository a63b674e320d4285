"""The source begins at a timestamp: as a batch, as a stream, and in a query of Spark's."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pubsub.errors import Refused
from pubsub.spark.starts import between
from tests.spark.broker import Broker
from tests.spark.test_checkpoints import batches
from tests.spark.test_source import batch, stream, values

pytestmark = pytest.mark.spark


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def stamp_of(broker: Broker, value: bytes, topic: str = "t") -> datetime:
    """The timestamp of a stored message."""
    reader = batch(broker, subscribe=topic)
    for part in reader.partitions():
        for rows in reader.read(part):
            for row in rows.to_pylist():
                if row["value"] == value:
                    return row["stamp"]  # type: ignore[no-any-return]
    raise AssertionError(value)


def test_a_batch_has_the_rows_from_the_timestamp_on(broker: Broker) -> None:
    for first in range(0, 30, 10):
        broker.put("t", numbers(first, first + 10))
    moment = stamp_of(broker, b"10")
    for at, first in (
        (moment, 10), (moment + timedelta(microseconds=1), 20), (moment - timedelta(microseconds=1), 10),
        (moment - timedelta(days=1), 0), (moment + timedelta(minutes=5), 30),
    ):  # fmt: skip
        reader = batch(broker, startingTimestamp=at.isoformat())
        assert values(reader, reader.partitions()) == numbers(first, 30)
    milliseconds = int(stamp_of(broker, b"0").timestamp() * 1000)  # Rounded down.
    reader = batch(broker, startingTimestamp=str(milliseconds))
    assert values(reader, reader.partitions()) == numbers(0, 30)


def test_a_batch_ends_before_the_rows_of_the_ending_timestamp(broker: Broker) -> None:
    for first in range(0, 30, 10):
        broker.put("t", numbers(first, first + 10))
    moment, later = stamp_of(broker, b"10"), stamp_of(broker, b"20")
    hour = timedelta(hours=1)
    for start, stop, found in (
        (None, moment, (0, 10)), (None, later, (0, 20)), (moment, later, (10, 20)), (moment, moment, (0, 0)),
        (later, moment, (0, 0)), (None, moment - hour, (0, 0)), (None, later + hour, (0, 30)),
        (moment, later + hour, (10, 30)), (later + hour, later + hour, (0, 0)),
    ):  # fmt: skip
        given = {"endingTimestamp": stop.isoformat()} | ({"startingTimestamp": start.isoformat()} if start else {})
        reader = batch(broker, **given)
        assert values(reader, reader.partitions()) == numbers(*found), given
    reader = batch(broker, startingTimestamp=moment.isoformat(), endingTimestamp=later.isoformat())
    reader.options = replace(reader.options, columns=("value", "offset"))
    assert [rows.schema.names for part in reader.partitions() for rows in reader.read(part)] == [["value", "offset"]]
    log = stream(broker).initialOffset()["t"].split(".")[0]
    reader = batch(broker, endingTimestamp=later.isoformat(), startingOffsets=json.dumps({"t": f"{log}.4"}))
    assert values(reader, reader.partitions()) == numbers(4, 20)


def test_a_stream_begins_at_the_timestamp_and_continues_where_it_was(broker: Broker) -> None:
    broker.put("t", numbers(0, 10))
    broker.put("t", numbers(10, 20))
    given = {"startingTimestamp": stamp_of(broker, b"10").isoformat()}
    reader = stream(broker, **given)
    start = reader.initialOffset()
    assert stream(broker, **given).initialOffset() == start
    rows, end = batches(reader, start)
    assert rows == numbers(10, 20)
    broker.put("t", numbers(20, 25))
    assert batches(stream(broker, **given), end)[0] == numbers(20, 25)


def test_a_timestamp_in_the_future_ends_a_stream(broker: Broker) -> None:
    later = datetime.now(UTC) + timedelta(days=2)
    with pytest.raises(Refused, match="lies in the future"):
        stream(broker, startingTimestamp=later.isoformat()).initialOffset()


def test_earlier_rows_behind_the_place_are_left_out() -> None:
    stamps = [5, 9, 7, 8]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(stamps, pa.timestamp("us", tz="UTC")), pa.array(numbers(0, 4))], ["stamp", "value"]
    )
    assert [one.column("value").to_pylist() for one in between(iter([rows]), 8, "latest")] == [[b"1", b"3"]]
    assert [one.column("value").to_pylist() for one in between(iter([rows]), 6, 9)] == [[b"2", b"3"]]
    assert [one.column("value").to_pylist() for one in between(iter([rows]), "earliest", 8)] == [[b"0", b"2"]]
    assert [one.num_rows for one in between(iter([rows]), 5, 10)] == [4]


def test_a_query_begins_at_the_timestamp(session: Any, broker: Broker, tmp_path: Path) -> None:
    broker.put("orders", numbers(0, 50))
    broker.put("orders", numbers(50, 80))
    place = {"proxies": broker.address, "subscribe": "orders"}
    given = place | {"startingTimestamp": stamp_of(broker, b"50", "orders").isoformat()}
    found = session.read.format("pubsub").options(**given).load().select("value").collect()
    assert sorted(bytes(row["value"]) for row in found) == numbers(50, 80)
    rows = session.readStream.format("pubsub").options(**given, subscription="late").load()
    writer = rows.select("value").writeStream.format("pubsub").options(proxies=broker.address, topic="copies")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(broker.records("copies")) == numbers(50, 80)
