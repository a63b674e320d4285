"""A batch job's messages: kept while it runs, or their loss is an error."""

from __future__ import annotations

from contextlib import closing, suppress
from pathlib import Path

import pytest

from pubsub.errors import ConfigurationError, DataLoss, NotKnown
from pubsub.protocol import parse_position
from pubsub.spark.batch_source import BatchReader
from pubsub.spark.holding import held
from pubsub.spark.options import source_options
from pubsub.spark.ranges import Topics
from tests.faults.cluster import until
from tests.spark.broker import Broker
from tests.spark.test_names import subscribers
from tests.spark.test_source import batch, numbers, stream, values


def test_stored_messages_are_held_for_the_block_and_no_longer(broker: Broker) -> None:
    for topic in ("t", "u"):
        broker.put(topic, numbers(0, 100))
    with held({"proxies": broker.address, "subscribe": "t,u", "timeout": "10"}) as options:
        (name,) = subscribers(broker, "t")
        assert subscribers(broker, "u") == [name] == ["@" + options["subscription"]]
        backlog = broker._server.core.state.topics["t"].subscriptions[name].cursor.backlog
        assert [(span.low, span.high) for span in backlog] == [(1, None)], "retention deletes nothing of a backlog"
        reader = BatchReader(source_options(options, stream=False))
        broker.put("t", numbers(100, 120))
        assert len(values(reader, reader.partitions())) == 220
    assert subscribers(broker, "t") == subscribers(broker, "u") == []


def test_a_job_that_fails_holds_nothing_any_more(broker: Broker) -> None:
    broker.put("t", numbers(0, 10))
    seen: list[str] = []

    def job() -> None:
        with held({"proxies": broker.address, "subscribePattern": "t"}):
            seen.extend(subscribers(broker, "t"))
            raise KeyError

    with pytest.raises(KeyError):
        job()
    assert len(seen) == 1
    assert subscribers(broker, "t") == []


def test_a_missing_topic_is_not_made_by_holding_it(broker: Broker) -> None:
    with pytest.raises(NotKnown), held({"proxies": broker.address, "subscribe": "nowhere"}):
        pass
    assert "nowhere" not in broker._server.core.state.topics
    with pytest.raises(ConfigurationError, match="option subscription is made here"), held({"subscription": "x"}):
        pass


def test_a_range_that_is_deleted_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    with closing(Broker(tmp_path, retention_hold_seconds=0.6, skew_seconds=0.1, heartbeat_seconds=0.1)) as broker:
        stream(broker).initialOffset()  # It keeps the messages until they are planned.
        broker.put("t", numbers(0, 40), batch=10)
        reader = batch(broker, minPartitions="4")
        parts = reader.partitions()
        Topics(broker.link, "x").acknowledge("t", parse_position(parts[1].range.until))

        def is_deleted() -> bool:
            with suppress(DataLoss):
                values(reader, parts[1:2])
                return False
            return True

        until(is_deleted, "the server has deleted the first two batches")
        for part in parts[:2]:
            with pytest.raises(DataLoss, match="acknowledged and deleted"):
                values(reader, [part])
        assert values(reader, parts[2:]) == numbers(20, 40)
