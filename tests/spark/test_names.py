"""A subscription whose name is made for the query and kept in its checkpoint; without an engine, the broker is real."""

from __future__ import annotations

import json
import re

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from pubsub.cli import main
from pubsub.errors import ConfigurationError
from pubsub.spark.ranges import CHECKPOINT, NAME, read_offsets
from pubsub.spark.source import StreamReader
from tests.spark.broker import Broker
from tests.spark.test_checkpoints import batches
from tests.spark.test_source import numbers, stream, values

ALL = ReadAllAvailable()


def prefixed(broker: Broker, **options: str) -> StreamReader:
    return stream(broker, **({"subscription": "", "groupIdPrefix": "etl"} | options))


def subscribers(broker: Broker, topic: str = "t") -> list[str]:
    held = broker._server.core.state.topics[topic].subscriptions
    return sorted(key for key, subscription in held.items() if subscription.on)


def run(reader: StreamReader, start: dict[str, str]) -> tuple[list[bytes], dict[str, str]]:
    """Batches until nothing is new: their rows, and the last offset of the checkpoint."""
    rows: list[bytes] = []
    while True:
        found, end = batches(reader, start)
        rows += found
        if json.dumps(end) == json.dumps(start):
            return rows, end
        start = end


def test_the_name_is_in_the_checkpoint_before_the_subscription_is_made(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    reader = prefixed(broker)
    start = reader.initialOffset()
    assert start == prefixed(broker).initialOffset() == {}
    first = reader.latestOffset(start, ALL)
    assert read_offsets(first) == {}
    assert re.fullmatch(r"etl-[0-9a-f]{16}", first[NAME])
    assert subscribers(broker) == []
    assert reader.partitions(start, first) == []
    rows, end = run(prefixed(broker), json.loads(json.dumps(first)))
    assert rows == numbers(0, 5)
    assert subscribers(broker) == ["@" + first[NAME]]
    assert (end[NAME], end[CHECKPOINT]) == (first[NAME], first[CHECKPOINT])
    assert list(end) == ["t", CHECKPOINT, NAME]


def test_a_restarted_query_continues_under_its_name_and_another_one_has_its_own(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    _, end = run(prefixed(broker), {})
    broker.put("t", numbers(5, 9))
    assert run(prefixed(broker), end)[0] == numbers(5, 9)
    rows, other = run(prefixed(broker), {})
    assert rows == numbers(0, 9)
    assert other[NAME] != end[NAME]
    assert len(subscribers(broker)) == 2


def test_a_replayed_batch_is_read_under_the_name_in_its_end(broker: Broker) -> None:
    broker.put("t", numbers(0, 8))
    one = prefixed(broker)
    first = one.latestOffset({}, ALL)
    end = one.latestOffset(first, ReadMaxRows(6))
    broker.put("t", numbers(8, 9))
    again = prefixed(broker)
    assert again.partitions(again.initialOffset(), first) == []
    parts = again.partitions(first, end)
    assert values(again, parts) == numbers(0, 6)
    assert {part.subscription for part in parts} == {first[NAME]}  # type: ignore[attr-defined]
    again.commit(end)
    assert run(prefixed(broker), end)[0] == numbers(6, 9)


def test_the_begin_is_fixed_when_the_subscription_is_made(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    reader = prefixed(broker, startingOffsets="latest")
    rows, end = run(reader, reader.initialOffset())
    assert rows == []
    broker.put("t", numbers(5, 8))
    assert run(prefixed(broker, startingOffsets="latest"), end)[0] == numbers(5, 8)


def test_a_named_position_and_a_pattern_are_begins_too(broker: Broker) -> None:
    broker.put("orders.a", numbers(0, 10))
    log = next(iter(broker._server.core.state.topics["orders.a"].logs))
    position = json.dumps({"orders.a": f"{log}.4"})
    for given in ({"subscribe": "orders.a", "startingOffsets": position}, {"subscribePattern": r"orders\..*"}):
        reader = prefixed(broker, **given)
        rows, _ = run(reader, reader.initialOffset())
        assert rows == numbers(4 if "subscribe" in given else 0, 10)


def test_a_run_to_the_present_end_is_complete_and_ends(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    reader = prefixed(broker)
    reader.prepareForTriggerAvailableNow()
    rows, end = run(reader, reader.initialOffset())
    assert rows == numbers(0, 5)
    broker.put("t", numbers(5, 8))
    assert reader.latestOffset(end, ALL) == end
    later = prefixed(broker)
    later.prepareForTriggerAvailableNow()
    assert run(later, end)[0] == numbers(5, 8)


def test_options_that_do_not_fit_the_checkpoint_are_refused(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    _, end = run(prefixed(broker), {})
    for use in (lambda reader: reader.latestOffset(end, ALL), lambda reader: reader.partitions({}, end)):
        with pytest.raises(ConfigurationError, match=f"this checkpoint has the subscription {end[NAME]}, made with"):
            use(stream(broker, subscription="billing"))
    assert run(stream(broker, subscription=end[NAME]), end) == ([], end)
    _, named = run(stream(broker), stream(broker).initialOffset())
    for use in (lambda reader: reader.latestOffset(named, ALL), lambda reader: reader.partitions({}, named)):
        with pytest.raises(ConfigurationError, match="this checkpoint was made with option subscription"):
            use(prefixed(broker))


def end_of(broker: Broker, name: str) -> int:
    return main(["topic", "unsubscribe", "t", "--subscriber", name, "--yes", "--proxy", broker.address])


def test_a_command_ends_a_reader_by_the_name_that_the_user_gave(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.put("t", numbers(0, 5))
    stream(broker, subscription="billing").initialOffset()
    first, second = (run(prefixed(broker), {})[1][NAME] for _ in range(2))
    assert end_of(broker, "billing") == 0
    assert "billing is not subscribed to t any more; 5 records were given up" in capsys.readouterr().out
    assert subscribers(broker) == sorted((f"@{first}", f"@{second}"))
    assert end_of(broker, "etl") == 8
    said = capsys.readouterr().err
    assert all(name in said for name in (first, second))
    assert end_of(broker, first) == 0
    assert end_of(broker, "etl") == 0
    assert subscribers(broker) == []
    assert end_of(broker, "etl") == 13
    assert "topic t has no subscriber etl" in capsys.readouterr().err


def test_the_client_of_a_name_is_found_before_the_reader(broker: Broker) -> None:
    broker.put("t", numbers(0, 5))
    stream(broker, subscription="billing").initialOffset()
    assert main(["client", "billing", "subscribe", "t", "--proxy", broker.address, f"--dir={broker.directory}"]) == 0
    assert subscribers(broker) == ["@billing", "billing"]
    assert end_of(broker, "billing") == 0
    assert subscribers(broker) == ["@billing"]
    assert end_of(broker, "@billing") == 0
    assert subscribers(broker) == []
