"""A subscription belongs to one query's checkpoint: the errors of another query, and their time; without an engine."""

from __future__ import annotations

import json
import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pubsub.client.requests import Proxies
from pubsub.errors import DataLoss, Superseded
from pubsub.protocol import Outcome, Read
from pubsub.spark.ranges import CHECKPOINT, SubscriptionTaken, Topics, read_offsets
from pubsub.spark.source import StreamReader
from tests.spark.broker import Broker
from tests.spark.test_source import batch, numbers, stands, stream, values

ALL = ReadAllAvailable()


def batches(reader: StreamReader, start: dict[str, str]) -> tuple[list[bytes], dict[str, str]]:
    """One micro-batch, as the engine runs it: its rows, and its end, which is in the checkpoint."""
    end = reader.latestOffset(start, ALL)
    return values(reader, reader.partitions(start, end)), end


def acknowledged_by_one(broker: Broker) -> dict[str, str]:
    """Ten records, the first five of which a query has read and acknowledged; the end that its checkpoint has."""
    broker.put("t", numbers(0, 5))
    one = stream(broker)
    rows, end = batches(one, one.initialOffset())
    assert rows == numbers(0, 5)
    one.commit(end)
    broker.put("t", numbers(5, 10))
    return end


def test_a_second_query_with_a_subscription_is_refused_before_it_reads(broker: Broker) -> None:
    end = acknowledged_by_one(broker)
    other = stream(broker)
    start = other.initialOffset()
    with pytest.raises(
        SubscriptionTaken, match=r"t: subscription x belongs to another query's checkpoint.*takeOver"
    ) as e:
        other.latestOffset(start, ALL)
    assert "\n" not in str(e.value)
    assert str(pickle.loads(pickle.dumps(e.value))) == str(e.value)
    assert SubscriptionTaken.exit_code == Superseded.exit_code
    assert stands(broker) == end["t"], "nothing of the first query's is acknowledged"


def test_the_query_itself_goes_on_after_a_restart(broker: Broker) -> None:
    end = acknowledged_by_one(broker)
    again = stream(broker)
    rows, later = batches(again, json.loads(json.dumps(end)))
    assert rows == numbers(5, 10)
    assert later[CHECKPOINT] == end[CHECKPOINT]
    again.commit(later)
    assert stands(broker) == later["t"]


def test_the_later_of_two_concurrent_queries_ends_with_the_reason(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    one, other = stream(broker), stream(broker)
    start = one.initialOffset()
    (rows, end), (others, others_end) = batches(one, start), batches(other, other.initialOffset())
    assert rows == others == numbers(0, 5)
    parts = other.partitions(start, others_end)
    one.commit(end)
    with pytest.raises(SubscriptionTaken):
        other.commit(others_end)
    with pytest.raises(SubscriptionTaken):
        other.latestOffset(others_end, ALL)
    with pytest.raises(SubscriptionTaken):  # Started again, its batch is planned anew, and is not there any more.
        stream(broker).partitions(start, others_end)
    with pytest.raises(DataLoss, match="perhaps by another query with subscription x"):
        values(other, parts)


def test_a_checkpoint_of_an_earlier_release_continues_and_binds_at_its_next_batch(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    start = stream(broker).initialOffset()
    old = {"t": start["t"].split(".")[0] + ".3"}
    reader = stream(broker)
    rows, end = batches(reader, old)
    assert rows == numbers(3, 5)
    assert stands(broker) == old["t"]
    batches(reader, end)
    with pytest.raises(SubscriptionTaken):
        stream(broker).latestOffset(stream(broker).initialOffset(), ALL)


def test_a_query_without_new_messages_binds_nothing(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    for _ in range(2):
        reader = stream(broker, startingOffsets="latest")
        start = reader.initialOffset()
        assert reader.latestOffset(start, ALL) == start
        reader.commit(start)


def test_a_query_that_takes_over_continues_and_the_other_learns_so(broker: Broker) -> None:
    end = acknowledged_by_one(broker)
    other = stream(broker, takeOver="true")
    rows, later = batches(other, other.initialOffset())
    assert rows == numbers(5, 10)
    other.commit(later)
    assert stands(broker) == later["t"]
    with pytest.raises(SubscriptionTaken):
        stream(broker).latestOffset(end, ALL)
    rows, _ = batches(stream(broker), later)
    assert rows == [], "the option is not needed a second time"


def test_a_first_batch_planned_anew_is_the_querys_own(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    one = stream(broker)
    start = one.initialOffset()
    _, end = batches(one, start)
    one.commit(end)
    with pytest.raises(DataLoss):
        stream(broker).partitions(start, end)
    assert stream(broker, failOnDataLoss="false").partitions(start, end) == []


def test_a_query_takes_over_on_each_of_its_topics(broker: Broker) -> None:
    for topic in ("t", "u"):
        broker.put(topic, numbers(0, 5))
    one = stream(broker, subscribe="t,u")
    _, end = batches(one, one.initialOffset())
    one.commit(end)
    for topic in ("t", "u"):
        broker.put(topic, numbers(5, 7))
    other = stream(broker, subscribe="t,u", takeOver="true")
    rows, later = batches(other, other.initialOffset())
    assert sorted(rows) == sorted(numbers(5, 7) * 2)
    other.commit(later)
    assert {topic: stands(broker, topic) for topic in ("t", "u")} == {topic: later[topic] for topic in ("t", "u")}


def test_rows_taken_by_another_query_are_not_skipped_as_lost(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    one, other = stream(broker), stream(broker)
    start = one.initialOffset()
    (_, end), (_, others_end) = batches(one, start), batches(other, other.initialOffset())
    one.commit(end)
    with pytest.raises(SubscriptionTaken):
        stream(broker, failOnDataLoss="false").partitions(start, others_end)


def test_one_of_two_queries_that_take_over_from_each_other_ends(broker: Broker) -> None:
    end = acknowledged_by_one(broker)
    other = stream(broker, takeOver="true")
    _, later = batches(other, other.initialOffset())
    other.commit(later)
    first = stream(broker, takeOver="true")
    _, firsts = batches(first, later | {CHECKPOINT: end[CHECKPOINT]})
    broker.put("t", numbers(10, 12))
    _, latest = batches(first, firsts)
    first.commit(latest)
    broker.put("t", numbers(12, 14))
    with pytest.raises(SubscriptionTaken):
        other.latestOffset(later | {"t": latest["t"]}, ALL)


def test_an_added_topic_may_not_belong_to_another_query(broker: Broker) -> None:
    acknowledged_by_one(broker)
    broker.put("u", numbers(0, 3))
    other = stream(broker, subscribe="u")
    _, end = batches(other, other.initialOffset())
    with pytest.raises(SubscriptionTaken, match="t: subscription x"):
        stream(broker, subscribe="t,u").latestOffset(end, ALL)


def test_an_added_topic_belongs_to_the_checkpoint_too(broker: Broker) -> None:
    end = acknowledged_by_one(broker)
    broker.put("u", numbers(0, 3))
    _, later = batches(stream(broker, subscribe="t,u"), end)
    assert sorted(read_offsets(later)) == ["t", "u"]
    with pytest.raises(SubscriptionTaken, match="u: subscription x"):
        stream(broker, subscribe="u").latestOffset(stream(broker, subscribe="u").initialOffset(), ALL)


def test_a_topic_without_new_messages_is_bound_with_the_others(broker: Broker) -> None:
    broker.put("t", numbers(0, 3))
    broker.put("u", numbers(0, 3))
    both = stream(broker, subscribe="t,u", startingOffsets="latest")
    start = both.initialOffset()
    broker.put("u", numbers(3, 5))
    rows, end = batches(both, start)
    assert (rows, end["t"]) == (numbers(3, 5), start["t"])
    both.commit(end)
    other = stream(broker, subscribe="t")
    with pytest.raises(SubscriptionTaken, match="t: subscription x"):
        other.latestOffset(other.initialOffset(), ALL)


# Topics that are taken out


@pytest.mark.parametrize("rest", [{"subscribe": "t"}, {"subscribePattern": "t"}])
def test_a_removed_topic_is_neither_read_nor_acknowledged(broker: Broker, rest: dict[str, str]) -> None:
    broker.put("t", numbers(0, 3))
    broker.put("u", numbers(0, 3))
    both = stream(broker, subscribe="t,u")
    _, end = batches(both, both.initialOffset())
    broker.put("t", numbers(3, 5))
    broker.put("u", numbers(3, 5))
    reader = stream(broker, **rest)
    rows, later = batches(reader, end)
    assert rows == numbers(3, 5)
    assert list(read_offsets(later)) == ["t"]
    batches(reader, later)
    reader.commit(later)
    assert stands(broker, "u") == end["u"], "what the query has had of it is acknowledged, and nothing else"
    rows, last = batches(stream(broker, subscribe="t,u"), later)
    assert rows == numbers(3, 5), "once it is named again it goes on where it was"
    assert list(read_offsets(last)) == ["t", "u"]


# Records that are not there


def lose_the_start(broker: Broker) -> dict[str, str]:
    """A checkpoint's end before that which is there: of ten records the first six are acknowledged and deleted."""
    broker.put("t", numbers(0, 10))
    start = stream(broker).initialOffset()
    log = start["t"].split(".")[0]
    with Proxies([broker.address], 10.0) as link:
        Topics(link, "x").acknowledge("t", (log, 6))
    return {"t": f"{log}.2"}


def test_a_missing_start_ends_the_query_or_is_skipped(broker: Broker) -> None:
    start = lose_the_start(broker)
    with pytest.raises(DataLoss, match=r"t: records .*2 to .* cannot be read"):
        stream(broker).latestOffset(start, ALL)
    patient = stream(broker, failOnDataLoss="false")
    rows, end = batches(patient, start)
    assert rows == numbers(6, 10)
    broker.put("t", numbers(10, 12))
    assert batches(patient, end)[0] == numbers(10, 12)


def test_a_replayed_batch_of_deleted_messages_is_skipped(broker: Broker) -> None:
    start = lose_the_start(broker)
    patient = stream(broker, failOnDataLoss="false")
    end = start | {"t": start["t"].split(".")[0] + ".4"}
    assert patient.partitions(start, end) == []
    assert batches(patient, end)[0] == numbers(6, 10)


def test_limits_apply_if_the_start_is_skipped(broker: Broker) -> None:
    start = lose_the_start(broker)
    patient = stream(broker, failOnDataLoss="false", maxRecordsPerBatch="2")
    sizes, rows = [], []
    while True:
        end = patient.latestOffset(start, patient.getDefaultReadLimit())
        if end == start:
            break
        rows += (found := values(patient, patient.partitions(start, end)))
        sizes.append(len(found))
        start = end
    assert (sizes, rows) == ([2, 2], numbers(6, 10))


def test_a_missing_named_start_is_skipped(broker: Broker) -> None:
    named = json.dumps(lose_the_start(broker))
    with pytest.raises(DataLoss):
        stream(broker, startingOffsets=named).initialOffset()
    patient = stream(broker, startingOffsets=named, failOnDataLoss="false")
    assert batches(patient, patient.initialOffset())[0] == numbers(6, 10)
    given = {"subscription": "x", "startingOffsets": named}
    with pytest.raises(DataLoss):
        batch(broker, **given).partitions()
    reader = batch(broker, failOnDataLoss="false", **given)
    assert values(reader, reader.partitions()) == numbers(6, 10)


def test_a_task_continues_though_the_start_of_its_range_was_deleted(broker: Broker) -> None:
    broker.put("t", numbers(0, 10))
    reader = batch(broker, subscription="x", minPartitions="5", failOnDataLoss="false")
    strict = batch(broker, subscription="x", minPartitions="5")
    log = stands(broker).split(".")[0]
    parts = reader.partitions()
    with Proxies([broker.address], 10.0) as link:
        Topics(link, "x").acknowledge("t", (log, 5))
        assert link.ask(Read("spark", "t", (log, 2), name="x")).outcome is Outcome.BEHIND
    assert values(reader, parts) == numbers(5, 10)
    with pytest.raises(DataLoss, match="acknowledged and deleted"):
        values(strict, parts)
