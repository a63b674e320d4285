"""The sink's treatment of rows, task by task and commit by commit, without an engine; the broker is real."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest

from pubsub import Client
from pubsub.client.requests import Proxies
from pubsub.errors import ConfigurationError, InvalidName
from pubsub.protocol import Outcome, Publish
from pubsub.spark import arrow
from pubsub.spark.arrow import HEADERS_SCHEMA, HEADERS_TYPE, SOURCE_SCHEMA
from pubsub.spark.batch_source import BatchReader
from pubsub.spark.datasource import PubsubDataSource
from pubsub.spark.options import SinkOptions, sink_options, source_options
from pubsub.spark.sink import (
    Attempt,
    BatchTaken,
    BatchWriter,
    CheckpointOld,
    Restage,
    Staged,
    StreamWriter,
    check_columns,
    publish,
    publisher_of,
)
from tests.spark.broker import Broker

QUERY = publisher_of("11111111-2222-3333-4444-555555555555")


@pytest.fixture
def options(broker: Broker) -> SinkOptions:
    return sink_options({"proxies": broker.address, "topic": "out", "timeout": "10"})


@pytest.fixture
def by_column(broker: Broker) -> SinkOptions:
    return sink_options({"proxies": broker.address, "timeout": "10"})


@pytest.fixture
def link(broker: Broker) -> Iterator[Proxies]:
    with Proxies([broker.address], 10.0) as made:
        yield made


def rows(*values: bytes, topics: list[str] | None = None) -> pa.RecordBatch:
    columns = {"value": pa.array(values, pa.binary())}
    if topics is not None:
        columns["topic"] = pa.array(topics)
    return pa.record_batch(columns)


def staged(link: Proxies, options: SinkOptions, batch: int, *values: bytes, topics: list[str] | None = None) -> Staged:
    attempt = Attempt(link, options, QUERY, batch, 0)
    attempt.write(rows(*values, topics=topics))
    return attempt.finish()


def test_staged_rows_are_published_once_in_the_order_of_the_tasks(
    broker: Broker, link: Proxies, options: SinkOptions
) -> None:
    messages = [staged(link, options, 0, b"1", b"2"), None, staged(link, options, 0, b"3")]
    assert publish(options, messages, 0)["out"].rows == 3
    assert publish(options, messages, 0)["out"].outcome is Outcome.DUPLICATE
    assert broker.records("out") == [b"1", b"2", b"3"]


def test_a_failed_attempt_of_a_task_leaves_no_rows(broker: Broker, link: Proxies, options: SinkOptions) -> None:
    failed = Attempt(link, options, QUERY, 0, 0)
    failed.write(rows(b"1", b"2"))
    messages = [staged(link, options, 0, b"1", b"2")]
    publish(options, messages, 0)
    assert broker.records("out") == [b"1", b"2"]


def test_a_replay_with_rows_in_another_order_and_other_tasks_is_a_duplicate(
    broker: Broker, link: Proxies, options: SinkOptions
) -> None:
    publish(options, [staged(link, options, 0, b"1", b"2", b"3")], 0)
    again = [staged(link, options, 0, b"3"), staged(link, options, 0, b"2", b"1")]
    assert publish(options, again, 0)["out"].outcome is Outcome.DUPLICATE
    assert broker.records("out") == [b"1", b"2", b"3"]


def test_an_orphan_of_a_killed_driver_that_stages_late_changes_nothing(
    broker: Broker, link: Proxies, options: SinkOptions
) -> None:
    orphan = Attempt(link, options, QUERY, 0, 0)
    orphan.write(rows(b"1"))
    publish(options, [staged(link, options, 0, b"1")], 0)
    orphan.write(rows(b"2"))
    assert orphan.finish().rows == {"out": 2}
    publish(options, [staged(link, options, 1, b"3")], 1)
    assert broker.records("out") == [b"1", b"3"]


def test_duplicate_rows_are_named_with_all_others_to_the_publisher(
    broker: Broker, link: Proxies, options: SinkOptions
) -> None:
    publish(options, [staged(link, options, 0, b"1", b"2", b"3")], 0)
    attempt = Attempt(link, options, QUERY, 0, 0)
    attempt.write(rows(b"1"))
    assert attempt.finish().rows == {"out": 1}
    attempt.write(rows(b"2", b"3"))
    assert attempt.finish().rows == {"out": 3}


def test_a_restored_checkpoint_is_reported_and_loses_no_rows_in_silence(
    broker: Broker, link: Proxies, options: SinkOptions
) -> None:
    """Its next batch is another one than that which was published under the number, and would be left out whole."""
    writer = StreamWriter(options)
    for batch in range(4):
        writer.commit([staged(link, options, batch, b"%d" % batch)], batch)
    writer.commit([staged(link, options, 3, b"3")], 3)
    with pytest.raises(CheckpointOld, match="out: batch 2 was published before, and batch 3 after it") as caught:
        writer.commit([staged(link, options, 2, b"2", b"3", b"new")], 2)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert broker.records("out") == [b"0", b"1", b"2", b"3"]


def test_a_batch_without_rows_is_published_on_a_fixed_topic(
    broker: Broker, link: Proxies, options: SinkOptions
) -> None:
    publish(options, [Attempt(link, options, QUERY, 0, 0).finish()], 0)
    assert publish(options, [staged(link, options, 0, b"1")], 0)["out"].outcome is Outcome.DUPLICATE


def test_rows_go_to_the_topics_of_their_column(broker: Broker, link: Proxies, by_column: SinkOptions) -> None:
    message = staged(link, by_column, 0, b"1", b"2", b"3", topics=["b", "a", "b"])
    assert list(publish(by_column, [message], 0)) == ["a", "b"]
    assert (broker.records("a"), broker.records("b")) == ([b"2"], [b"1", b"3"])


def test_a_commit_that_died_between_two_topics_is_finished_by_its_replay(
    broker: Broker, link: Proxies, by_column: SinkOptions
) -> None:
    message = staged(link, by_column, 0, b"1", b"2", topics=["a", "b"])
    link.ask(Publish("spark", "a", 0, QUERY, {message.attempt: 1}))
    again = staged(link, by_column, 0, b"2", b"1", topics=["b", "a"])
    found = publish(by_column, [again], 0)
    assert {topic: status.outcome for topic, status in found.items()} == {"a": "duplicate", "b": "success"}
    assert (broker.records("a"), broker.records("b")) == ([b"1"], [b"2"])


def test_many_pieces_arrive_completely_and_in_order(
    broker: Broker, link: Proxies, options: SinkOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "STAGE_ROWS", 7)
    values = [b"%d" % number for number in range(500)]
    publish(options, [staged(link, options, 0, *values)], 0)
    assert broker.records("out") == values


def test_a_key_reaches_source_and_client_with_its_row(broker: Broker, link: Proxies, by_column: SinkOptions) -> None:
    attempt = Attempt(link, by_column, QUERY, 0, 0)
    columns = {
        "value": pa.array([b"1", b"2", b"3"], pa.binary()),
        "topic": pa.array(["a", "b", "a"]),
        "key": pa.array(["k", "l", None]),
    }
    attempt.write(pa.record_batch(columns))
    with Client("reader", proxies=[broker.address], directory=broker.directory / "clients") as client:
        client.subscribe("a")
        publish(by_column, [attempt.finish()], 0)
        broker.put("a", [b"4"])
        found = [client.get("a", timeout=10.0) for _ in range(3)]
    assert [(message.body, message.key) for message in found if message] == [(b"1", b"k"), (b"3", b""), (b"4", b"")]
    given = {"proxies": broker.address, "subscribe": "a,b", "minPartitions": "4"}
    reader = BatchReader(source_options(given, stream=False))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert {row["value"]: row["key"] for row in rows} == {b"1": b"k", b"2": b"l", b"3": None, b"4": None}


def test_headers_reach_source_and_client_with_their_rows(broker: Broker, link: Proxies, by_column: SinkOptions) -> None:
    attempt = Attempt(link, by_column, QUERY, 0, 0)
    pair = [{"key": "trace", "value": b"1"}]
    columns = {
        "value": pa.array([b"1", b"2", b"3"], pa.binary()),
        "topic": pa.array(["a", "b", "a"]),
        "headers": pa.array([pair, [{"key": "trace", "value": b"2"}], None], HEADERS_TYPE),
    }
    attempt.write(pa.record_batch(columns))
    with Client("reader", proxies=[broker.address], directory=broker.directory / "clients") as client:
        client.subscribe("a")
        publish(by_column, [attempt.finish()], 0)
        found = [client.get("a", timeout=10.0) for _ in range(2)]
    assert [(message.body, message.headers) for message in found if message] == [(b"1", {"trace": b"1"}), (b"3", {})]
    given = {"proxies": broker.address, "subscribe": "a", "includeHeaders": "true"}
    assert PubsubDataSource(given).schema() == HEADERS_SCHEMA
    assert PubsubDataSource({"subscribe": "a"}).schema() == SOURCE_SCHEMA
    reader = BatchReader(source_options(given, stream=False))
    rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert {row["value"]: row["headers"] for row in rows} == {b"1": pair, b"3": None}


def test_rows_survive_a_server_that_stops_between_stage_and_publish(
    broker: Broker, link: Proxies, options: SinkOptions
) -> None:
    message = staged(link, options, 0, b"1", b"2")
    broker.stop_server()
    broker.start_server()
    publish(options, [message], 0)
    assert broker.records("out") == [b"1", b"2"]


def test_missing_stages_are_reported_in_one_sentence(broker: Broker, link: Proxies, options: SinkOptions) -> None:
    message = staged(link, options, 0, b"1", b"2")
    message.rows["out"] = 3
    with pytest.raises(Restage, match=r"out: batch 0 is not staged in full .*; start the query again") as caught:
        publish(options, [message], 0)
    assert "\n" not in str(caught.value)
    assert broker.records("out") == []


def test_a_task_whose_stage_is_gone_fails_and_its_next_try_stages_all(
    broker: Broker, link: Proxies, options: SinkOptions
) -> None:
    attempt = Attempt(link, options, QUERY, 0, 0)
    attempt.write(rows(b"1", b"2"))
    attempt.finish()
    later = staged(link, options, 0, b"1")
    later.rows["out"] = 2
    with pytest.raises(Restage):  # It drops what was staged of the batch before what it names.
        publish(options, [later], 0)
    attempt.write(rows(b"3"))
    with pytest.raises(Restage, match=r"out: batch 0 is not staged in full \(answered gap\); start the query again"):
        attempt.finish()
    publish(options, [staged(link, options, 0, b"1", b"2", b"3")], 0)
    assert broker.records("out") == [b"1", b"2", b"3"]


def test_a_sinks_publisher_is_the_querys_and_the_same_after_a_restart() -> None:
    assert publisher_of("11111111-2222-3333-4444-555555555555") == QUERY
    assert publisher_of("11111111-2222-3333-4444-555555555556") != QUERY
    assert len(QUERY) == 16


def test_a_row_that_cannot_be_a_message_is_refused(broker: Broker, link: Proxies, by_column: SinkOptions) -> None:
    attempt = Attempt(link, by_column, QUERY, 0, 0)
    with pytest.raises(InvalidName, match="topic 'a b'"):
        attempt.write(rows(b"1", topics=["a b"]))
    with pytest.raises(ValueError, match="column topic is null"):
        attempt.write(pa.record_batch({"value": pa.array([b"1"]), "topic": pa.array([None], pa.string())}))


def test_columns_that_would_be_lost_are_refused(options: SinkOptions, by_column: SinkOptions) -> None:
    check_columns(["value"], options)
    check_columns(["topic", "value", "key"], by_column)
    for columns, given, said in (
        (["key"], options, "a row needs a column value"),
        (["value"], by_column, "give the topic"),
        (["topic", "value"], options, "drop one of them"),
        (["value", "colour"], options, "column colour would be lost"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            check_columns(columns, given)


def test_a_writer_without_the_id_of_its_query_raises_an_error(options: SinkOptions) -> None:
    with pytest.raises(RuntimeError, match="use foreachBatch"):
        StreamWriter(options).write(iter([rows(b"1")]))


def test_a_named_batch_job_may_be_run_again(broker: Broker) -> None:
    named = sink_options({"proxies": broker.address, "topic": "out", "sink": "daily", "batchId": "7"})
    for _ in range(2):
        writer = BatchWriter(named)
        task = pickle.loads(pickle.dumps(writer))
        writer.commit([task.write(iter([rows(b"1")]))])
    assert broker.records("out") == [b"1"]


def test_a_batch_job_without_a_name_writes_each_time(broker: Broker, options: SinkOptions) -> None:
    for _ in range(2):
        writer = BatchWriter(options)
        task = pickle.loads(pickle.dumps(writer))
        writer.commit([task.write(iter([rows(b"1")]))])
    assert broker.records("out") == [b"1", b"1"]


def test_a_topic_cannot_be_overwritten(options: SinkOptions) -> None:
    with pytest.raises(ConfigurationError, match="append"):
        BatchWriter(options, overwrite=True)


def test_a_sink_with_a_client_id_equal_to_its_name_stays_the_same_publisher(broker: Broker) -> None:
    """So a query that gets a key does not write its last batch twice, if it keeps its name."""
    named = {"proxies": broker.address, "topic": "out", "sink": "daily", "batchId": "7"}
    for client, held in ((None, 1), ("daily", 1), ("other", 2)):
        writer = BatchWriter(sink_options(named | ({} if client is None else {"clientId": client})))
        writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([rows(b"1")]))])
        assert len(broker.records("out")) == held


# Batch jobs that use a number again


def write(broker: Broker, batch: int, *values: bytes, topics: list[str] | None = None) -> None:
    """One `df.write` of a sink that names its batches."""
    given = {"proxies": broker.address, "sink": "daily", "batchId": str(batch), "timeout": "10"}
    writer = BatchWriter(sink_options(given if topics else given | {"topic": "out"}))
    writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([rows(*values, topics=topics)])), None])


def test_a_batch_job_that_restarts_at_zero_learns_that_no_row_is_written(broker: Broker) -> None:
    for batch in range(2):
        write(broker, batch, b"%d" % batch)
    with pytest.raises(
        CheckpointOld, match=r"out: batch 0 was published before, and batch 1 after it.*higher batchId"
    ) as e:
        write(broker, 0, b"new")
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)
    assert broker.records("out") == [b"0", b"1"]


@pytest.mark.parametrize("again", [[b"new", b"more"], [b"new", b"more", b"most", b"last"]])
def test_a_batch_job_that_uses_its_last_number_for_other_rows_is_refused(broker: Broker, again: list[bytes]) -> None:
    write(broker, 0, b"1", b"2", b"3")
    write(broker, 0, b"3", b"2", b"1")
    with pytest.raises(BatchTaken, match=r"out: batch 0 of this sink .* \(3 then, [24] now\)") as e:
        write(broker, 0, *again)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)
    assert broker.records("out") == [b"1", b"2", b"3"]


def test_a_batch_job_without_rows_may_be_run_again(broker: Broker) -> None:
    for _ in range(2):
        write(broker, 0)
    write(broker, 1, b"1")
    assert broker.records("out") == [b"1"]


def test_a_batch_job_that_died_between_two_topics_is_finished_by_the_next(broker: Broker, link: Proxies) -> None:
    write(broker, 0, b"1", topics=["a"])
    write(broker, 0, b"1", b"2", topics=["a", "b"])
    assert (broker.records("a"), broker.records("b")) == ([b"1"], [b"2"])
