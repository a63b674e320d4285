"""The source's answers to the engine, rule by rule, without an engine; the broker is real."""

from __future__ import annotations

import json
import logging
import pickle
from typing import Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from pubsub.base.limits import OFFSET_BITS
from pubsub.errors import CallerError, DataLoss, NotKnown, Unavailable
from pubsub.spark.batch_source import BatchReader
from pubsub.spark.options import source_options
from pubsub.spark.ranges import read_offsets
from pubsub.spark.source import StreamReader
from tests.faults.cluster import until
from tests.spark.broker import Broker

ALL = ReadAllAvailable()


def stream(broker: Broker, **options: str) -> StreamReader:
    given = {"proxies": broker.address, "subscription": "x", "startingOffsets": "earliest", "timeout": "10"} | options
    if "startingTimestamp" in given:
        del given["startingOffsets"]
    if "subscribePattern" not in given:
        given.setdefault("subscribe", "t")
    return StreamReader(source_options(given, stream=True))


def batch(broker: Broker, **options: str) -> BatchReader:
    given = {"proxies": broker.address, "subscribe": "t", "timeout": "10"} | options
    return BatchReader(source_options(given, stream=False))


def values(reader: Any, parts: Any) -> list[bytes]:
    """All rows of some parts, each part read by a copy of the reader, as on an executor."""
    out: list[bytes] = []
    for part in parts:
        other, its = pickle.loads(pickle.dumps((reader, part)))
        for rows in other.read(its):
            out += rows.column("value").to_pylist()
    return out


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def stands(broker: Broker, topic: str = "t") -> str:
    """Where the subscription stands, as a driver that starts anew sees it."""
    return stream(broker, subscribe=topic).initialOffset()[topic]


def test_the_initial_offset_is_the_same_at_each_request(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    first = stream(broker, startingOffsets="latest").initialOffset()
    broker.put("t", numbers(5, 8))
    for _ in range(3):
        reader = stream(broker, startingOffsets="latest")
        assert reader.initialOffset() == first
        assert reader.initialOffset() == first
    end = reader.latestOffset(first, ALL)
    assert values(reader, reader.partitions(first, end)) == numbers(5, 8)


def test_a_batch_requested_again_has_the_same_records(broker: Broker) -> None:
    broker.put("t", numbers(0, 5000))
    reader = stream(broker)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    parts = reader.partitions(start, end)
    broker.put("t", numbers(5000, 6000))
    again = stream(broker).partitions(json.loads(json.dumps(start)), json.loads(json.dumps(end)))
    assert [part.range for part in again] == [part.range for part in parts]
    assert values(reader, again) == numbers(0, 5000)


def test_other_parallelism_gives_the_same_records_in_other_parts(broker: Broker) -> None:
    broker.put("t", numbers(0, 5000))
    one, many = stream(broker, minPartitions="1"), stream(broker, minPartitions="7")
    start = one.initialOffset()
    end = one.latestOffset(start, ALL)
    assert (len(one.partitions(start, end)), len(many.partitions(start, end))) == (1, 7)
    assert values(one, one.partitions(start, end)) == values(many, many.partitions(start, end))


def test_a_small_batch_is_not_split_into_tiny_parts(broker: Broker) -> None:
    broker.put("t", numbers(0, 50))
    reader = stream(broker)
    start = reader.initialOffset()
    assert len(reader.partitions(start, reader.latestOffset(start, ALL))) == 1


def test_a_batch_holds_as_many_records_as_the_limit_says_over_all_topics(broker: Broker) -> None:
    broker.put("t", numbers(0, 900))
    broker.put("u", numbers(0, 100))
    reader = stream(broker, subscribe="t,u", maxRecordsPerBatch="100")
    assert reader.getDefaultReadLimit() == ReadMaxRows(100)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert sum(part.range.records for part in reader.partitions(start, end)) == 100
    sizes = []
    while start != end:
        sizes.append(len(values(reader, reader.partitions(start, end))))
        start, end = end, reader.latestOffset(end, ReadMaxRows(100))
    assert sizes == [100] * 10


def test_read_all_available_reads_all_despite_the_options(broker: Broker) -> None:
    broker.put("t", numbers(0, 500))
    reader = stream(broker, maxRecordsPerBatch="10", maxBytesPerBatch="10")
    start = reader.initialOffset()
    assert len(values(reader, reader.partitions(start, reader.latestOffset(start, ALL)))) == 500


def test_a_batch_holds_as_many_bytes_as_the_limit_says(broker: Broker) -> None:
    broker.put("t", [b"x" * 100] * 1000, batch=10)
    broker.put("u", [b"x" * 100] * 1000, batch=10)
    reader = stream(broker, subscribe="t,u", maxBytesPerBatch="50000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(50_000)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    total = sum(map(len, values(reader, reader.partitions(start, end))))
    assert 30_000 < total <= 50_000
    done = []
    while start != end:
        done += values(reader, reader.partitions(start, end))
        start, end = end, reader.latestOffset(end, ReadMaxBytes(50_000))
    assert len(done) == 2000


def test_the_end_without_new_messages_has_the_same_text_as_the_start(broker: Broker) -> None:
    broker.put("u", numbers(0, 5))
    broker.put("t", numbers(0, 5))
    reader = stream(broker, subscribe="u,t")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    again = stream(broker, subscribe="t,u").latestOffset(dict(reversed(end.items())), ALL)
    assert json.dumps(again) == json.dumps(end)
    assert reader.partitions(end, again) == []


def test_a_batch_in_the_checkpoint_is_acknowledged_at_the_request_for_the_next(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    reader = stream(broker)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert stands(broker) == start["t"], "a batch that is only planned may be replayed"
    reader.partitions(start, end)
    assert stands(broker) == start["t"]
    reader.latestOffset(end, ALL)
    assert stands(broker) == end["t"]


def test_commit_acknowledges_and_may_come_late_or_twice_or_never(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    reader = stream(broker)
    first = reader.latestOffset(reader.initialOffset(), ALL)
    broker.put("t", numbers(5, 8))
    second = reader.latestOffset(first, ALL)
    for end in (first, first, second, second):
        reader.commit(end)
    assert stands(broker) == second["t"]


def test_an_impossible_commit_is_logged_and_replaced_by_the_next(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.put("t", numbers(0, 5))
    reader = stream(broker, timeout="1")
    end = reader.latestOffset(reader.initialOffset(), ALL)
    broker.stop_server()
    with caplog.at_level(logging.WARNING):
        reader.commit(end)
    assert "not acknowledged now" in caplog.text
    broker.start_server()
    stream(broker).latestOffset(end, ALL)
    assert stands(broker) == end["t"]


def test_available_now_ends_where_the_topics_end_now(broker: Broker) -> None:
    broker.put("t", numbers(0, 10))
    reader = stream(broker)
    reader.prepareForTriggerAvailableNow()
    broker.put("t", numbers(10, 20))
    broker.put("new", numbers(0, 5))
    start = reader.initialOffset()
    middle = reader.latestOffset(start, ReadMaxRows(4))
    first = values(reader, reader.partitions(start, middle))
    end = reader.latestOffset(middle, ALL)
    assert first + values(reader, reader.partitions(middle, end)) == numbers(0, 10)
    assert reader.latestOffset(end, ALL) == end


def test_a_pattern_finds_later_topics_from_their_beginning(broker: Broker) -> None:
    broker.put("orders.a", numbers(0, 3))
    broker.put("other", numbers(0, 3))
    reader = stream(broker, subscribePattern=r"orders\..*", startingOffsets="latest")
    start = reader.initialOffset()
    assert list(start) == ["orders.a"]
    broker.put("orders.b", numbers(0, 3))
    end = until(lambda: "orders.b" in (found := reader.latestOffset(start, ALL)) and found, "the new topic is found")
    assert list(read_offsets(end)) == ["orders.a", "orders.b"]
    parts = reader.partitions(start, end)
    assert values(reader, parts) == numbers(0, 3)
    assert values(reader, stream(broker, subscribePattern=r"orders\..*").partitions(start, end)) == numbers(0, 3)


def test_available_now_reads_a_newly_matching_topic_from_its_beginning(broker: Broker) -> None:
    broker.put("orders.a", numbers(0, 3))
    options = {"subscribePattern": r"orders\..*", "startingOffsets": "latest"}
    first = stream(broker, **options)
    first.prepareForTriggerAvailableNow()
    start = first.initialOffset()
    assert first.latestOffset(start, ALL) == start
    broker.put("orders.b", numbers(0, 3))
    until(lambda: "orders.b" in stream(broker, **options).named(), "the new topic is listed")
    second = stream(broker, **options)
    second.prepareForTriggerAvailableNow()
    end = second.latestOffset(start, ALL)
    assert values(second, second.partitions(start, end)) == numbers(0, 3)
    broker.put("orders.a", numbers(3, 5))
    broker.put("orders.b", numbers(3, 5))
    assert second.latestOffset(end, ALL) == end, "this run ends where the topics ended"


def test_a_pattern_without_a_match_is_reported(broker: Broker) -> None:
    broker.put("t", numbers(0, 3))
    with pytest.raises(CallerError, match="no topic matches subscribePattern x"):
        stream(broker, subscribePattern="x").initialOffset()


def test_a_stream_begins_behind_a_named_position(broker: Broker) -> None:
    broker.put("t", numbers(0, 10))
    log = stands(broker).split(".")[0]
    reader = stream(broker, startingOffsets=json.dumps({"t": f"{log}.4"}))
    start = reader.initialOffset()
    assert values(reader, reader.partitions(start, reader.latestOffset(start, ALL))) == numbers(4, 10)
    with pytest.raises(DataLoss, match="not in the topic"):
        stream(broker, startingOffsets=json.dumps({"t": f"{log}.44"})).initialOffset()


def test_an_added_topic_begins_behind_a_named_position(broker: Broker) -> None:
    broker.put("t", numbers(0, 3))
    reader = stream(broker)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    broker.put("u", numbers(0, 10))
    log = stream(broker, subscribe="u", subscription="other").initialOffset()["u"].split(".")[0]
    for _ in range(2):  # The second is a driver that starts anew before this is in the checkpoint.
        added = stream(broker, subscribe="t,u", startingOffsets=json.dumps({"u": f"{log}.4"}))
        end = added.latestOffset(start, ALL)
    assert values(added, added.partitions(start, end)) == numbers(4, 10)


# Batches


def test_a_batch_reads_the_stored_messages_and_acknowledges_nothing(broker: Broker) -> None:
    broker.put("t", numbers(0, 3000))
    start = stands(broker)
    reader = batch(broker)
    for _ in range(2):
        assert values(reader, reader.partitions()) == numbers(0, 3000)
    assert stands(broker) == start


def test_a_batch_reads_between_positions(broker: Broker) -> None:
    broker.put("t", numbers(0, 10))
    log = stands(broker).split(".")[0]
    middle = json.dumps({"t": f"{log}.4"})
    for options, expected in (
        ({"startingOffsets": middle}, numbers(4, 10)),
        ({"endingOffsets": middle}, numbers(0, 4)),
        ({"startingOffsets": "latest"}, []),
        ({"endingOffsets": "earliest"}, []),
    ):
        reader = batch(broker, **options)
        assert values(reader, reader.partitions()) == expected


def test_a_batch_with_a_subscription_reads_from_its_position(broker: Broker) -> None:
    broker.put("t", numbers(0, 10))
    other = stream(broker)
    start = other.initialOffset()
    other.commit({"t": start["t"].split(".")[0] + ".6"})
    reader = batch(broker, subscription="x")
    assert values(reader, reader.partitions()) == numbers(6, 10)


def test_a_batch_of_a_topic_without_messages_has_no_rows(broker: Broker) -> None:
    """Spark gives a reader without parts one of its own."""
    broker.put("t", numbers(0, 10))
    reader = batch(broker, startingOffsets="latest")
    assert reader.partitions() == []
    assert list(reader.read(InputPartition(None))) == []


# Errors, each one sentence


@pytest.mark.parametrize("options", [{}, {"subscription": "x"}, {"startingTimestamp": "2026-01-01T00:00:00Z"}])
def test_a_batch_of_a_missing_topic_ends_at_once(broker: Broker, options: dict[str, str]) -> None:
    with pytest.raises(NotKnown, match="topic nowhere: no server holds it; pubsub topic list shows the topics"):
        batch(broker, subscribe="nowhere", timeout="86400", **options).partitions()


def test_a_cluster_without_an_answer_is_reported(broker: Broker) -> None:
    reader = StreamReader(
        source_options(
            {"proxies": "tcp://127.0.0.1:9", "subscribe": "t", "subscription": "x", "timeout": "0.5"}, stream=True
        )
    )
    with pytest.raises(Unavailable, match="no proxy answers"):
        reader.initialOffset()


def test_another_proxy_is_asked_if_one_does_not_answer(broker: Broker) -> None:
    broker.put("t", numbers(0, 3))
    reader = stream(broker, proxies=f"tcp://127.0.0.1:9,{broker.address}")
    start = reader.initialOffset()
    assert values(reader, reader.partitions(start, reader.latestOffset(start, ALL))) == numbers(0, 3)


def lose(broker: Broker, offset: int) -> None:
    broker.stop_server()
    database = broker.database()
    database.execute("delete from batch where key & ? = ?", ((1 << OFFSET_BITS) - 1, offset))
    database.close()
    broker.start_server()


def test_lost_records_end_the_query_with_one_sentence_or_are_skipped(broker: Broker) -> None:
    broker.put("t", numbers(0, 6), batch=2)
    reader = stream(broker)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    lose(broker, 3)
    log = end["t"].split(".")[0]
    with pytest.raises(DataLoss, match=rf"t: records {log}\.3 to {log}\.4 cannot be read: .*failOnDataLoss=false"):
        values(reader, reader.partitions(start, end))
    patient = stream(broker, failOnDataLoss="false")
    assert values(patient, patient.partitions(start, end)) == [b"0", b"1", b"4", b"5"]


def test_a_deleted_acknowledged_range_is_reported(broker: Broker) -> None:
    broker.put("t", numbers(0, 6))
    reader = stream(broker)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    reader.commit(end)
    with pytest.raises(DataLoss, match="acknowledged and deleted"):
        reader.partitions(start, end)
