"""How much a micro-batch waits for, and what its progress says of the backlog; without an engine."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pubsub.spark.options import source_options
from pubsub.spark.progress import BEHIND, records_behind
from pubsub.spark.source import StreamReader
from tests.spark.broker import Broker
from tests.spark.test_source import numbers, stream, values

ALL = ReadAllAvailable()


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def waiting(broker: Broker, clock: Clock, **options: str) -> StreamReader:
    given = {"proxies": broker.address, "subscribe": "t", "subscription": "x", "startingOffsets": "earliest"}
    given |= {"minOffsetsPerTrigger": "10", "maxTriggerDelay": "5m"}
    return StreamReader(source_options(given | options, stream=True), clock)


def test_a_batch_waits_for_the_least_number_of_records_or_the_longest_time(broker: Broker) -> None:
    broker.put("t", numbers(0, 3))
    clock = Clock()
    reader = waiting(broker, clock)
    start = reader.initialOffset()
    limit = ReadMaxRows(100)
    first = reader.latestOffset(start, limit)
    assert values(reader, reader.partitions(start, first)) == numbers(0, 3), "a query that starts takes what is there"
    broker.put("t", numbers(3, 9))
    clock.now += 299.0
    assert reader.latestOffset(first, limit) is first
    assert reader.partitions(first, first) == []
    broker.put("t", numbers(9, 13))
    enough = reader.latestOffset(first, limit)
    assert values(reader, reader.partitions(first, enough)) == numbers(3, 13)
    broker.put("t", numbers(13, 14))
    clock.now += 299.0
    assert reader.latestOffset(enough, limit) == enough
    clock.now += 1.0
    late = reader.latestOffset(enough, limit)
    assert values(reader, reader.partitions(enough, late)) == numbers(13, 14)


def test_a_wait_without_records_does_not_begin_the_time_anew(broker: Broker) -> None:
    broker.put("t", numbers(0, 3))
    clock = Clock()
    reader = waiting(broker, clock)
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    clock.now += 300.0
    assert reader.latestOffset(first, ReadMaxRows(100)) == first
    broker.put("t", numbers(3, 4))
    assert reader.latestOffset(first, ReadMaxRows(100)) != first


def test_a_run_that_has_an_end_waits_for_nothing(broker: Broker) -> None:
    broker.put("t", numbers(0, 3))
    clock = Clock()
    reader = waiting(broker, clock, maxOffsetsPerTrigger="2")
    reader.prepareForTriggerAvailableNow()
    end = reader.initialOffset()
    ends = []
    while end not in ends:
        ends.append(end)
        end = reader.latestOffset(end, reader.getDefaultReadLimit())
    assert len(ends) == 3, "two batches, and then nothing is left"
    broker.put("t", numbers(3, 4))
    assert waiting(broker, clock).latestOffset(end, ALL) != end, "nor does a run of one batch"


def test_a_longer_wait_does_not_change_a_repeated_batch(broker: Broker) -> None:
    broker.put("t", numbers(0, 20))
    start = waiting(broker, Clock()).initialOffset()
    end = waiting(broker, Clock()).latestOffset(start, ReadMaxRows(12))
    again = waiting(broker, Clock(), minOffsetsPerTrigger="1000")
    assert values(again, again.partitions(start, end)) == numbers(0, 12)


def progress(reader: StreamReader) -> Any:
    """The progress of a query, as far as it is of this source."""
    latest = reader.reportLatestOffset()
    return SimpleNamespace(sources=[SimpleNamespace(latestOffset=json.dumps(latest))])


def test_progress_has_the_last_positions_and_the_records_behind_of_each_topic(broker: Broker) -> None:
    broker.put("t", numbers(0, 900))
    broker.put("u", numbers(0, 100))
    reader = stream(broker, subscribe="t,u")
    assert reader.reportLatestOffset() is None
    assert records_behind(progress(reader)) == records_behind(None) == {}
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(200))
    latest = reader.reportLatestOffset()
    assert latest is not None
    logs = {topic: start[topic].split(".")[0] for topic in ("t", "u")}
    assert {topic: latest[topic] for topic in logs} == {"t": f"{logs['t']}.900", "u": f"{logs['u']}.100"}
    assert latest[BEHIND] == records_behind(progress(reader)) == {"t": 720, "u": 80}
    end = reader.latestOffset(end, ReadMaxRows(100))
    assert records_behind(progress(reader)) == {"t": 630, "u": 70}
    end = reader.latestOffset(end, ALL)
    assert records_behind(progress(reader)) == {"t": 0, "u": 0}
    reader.latestOffset(end, ALL)
    assert records_behind(progress(reader)) == {"t": 0, "u": 0}


def test_a_topic_without_a_share_of_the_batch_is_behind_with_all_its_records(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    broker.put("u", numbers(0, 3))
    reader = stream(broker, subscribe="t,u")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(1))
    assert sum(records_behind(progress(reader)).values()) == 7
    reader.latestOffset(end, ReadMaxRows(1))
    assert sum(records_behind(progress(reader)).values()) == 6


def test_a_batch_that_waits_is_behind_with_all_its_records(broker: Broker) -> None:
    broker.put("t", numbers(0, 3))
    reader = waiting(broker, Clock())
    first = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    broker.put("t", numbers(3, 7))
    reader.latestOffset(first, ReadMaxRows(100))
    assert records_behind(progress(reader)) == {"t": 4}


def test_records_behind_are_summed_over_the_sources_of_this_format() -> None:
    one = SimpleNamespace(latestOffset=json.dumps({"t": "l.5", BEHIND: {"t": 3}}))
    other = SimpleNamespace(latestOffset=json.dumps({"t": "l.5", BEHIND: {"t": 2, "u": 1}}))
    foreign = [SimpleNamespace(latestOffset=text) for text in (None, "null", "17", '{"logOffset": 3}')]
    assert records_behind(SimpleNamespace(sources=[one, *foreign, other])) == {"t": 5, "u": 1}
