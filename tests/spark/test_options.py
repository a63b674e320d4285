"""What is wrong with an option is said in one sentence, where the query is built."""

from __future__ import annotations

import pytest

from pubsub.errors import ConfigurationError
from pubsub.spark.options import sink_options, source_options

GOOD = {"subscribe": "a,b", "subscription": "x"}


def test_what_is_not_named_has_its_default() -> None:
    found = source_options({"subscribe": "b, a,a", "subscription": "x"}, stream=True)
    assert (found.subscribe, found.starting, found.fail_on_data_loss) == (("a", "b"), "latest", True)
    assert (found.records_max, found.bytes_max, found.partitions_min, found.timeout) == (0, 0, 0, 30.0)
    assert found.proxies == ("tcp://127.0.0.1:5601",)
    assert source_options({"subscribe": "a"}, stream=False).starting == "earliest"


def test_names_are_taken_in_any_case_as_spark_hands_them_on() -> None:
    found = source_options(
        GOOD | {"MAXRECORDSPERBATCH": "5", "maxbytesperbatch": "6", "failOnDataLoss": "False"}, stream=True
    )
    assert (found.records_max, found.bytes_max, found.fail_on_data_loss) == (5, 6, False)


def test_positions_are_taken_by_topic() -> None:
    text = '{"a": "0123456789abcdef.17", "b": "earliest"}'
    found = source_options(GOOD | {"startingOffsets": text}, stream=True)
    assert found.starting == {"a": "0123456789abcdef.17", "b": "earliest"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"subscribe": ""}, "name topics by option subscribe"),
        ({"subscribePattern": "a.*"}, "and not by both"),
        ({"subscribe": "a b"}, "topic 'a b' is not allowed"),
        ({"subscription": "a/b"}, "subscription 'a/b' is not allowed"),
        ({"subscription": ""}, "a stream needs option subscription"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"startingOffsets": "yesterday"}, "option startingOffsets is yesterday; it is earliest, latest, or JSON"),
        ({"startingOffsets": '{"a": 5}'}, "option startingOffsets"),
        ({"startingOffsets": '["a"]'}, "option startingOffsets"),
        ({"maxRecordsPerBatch": "-1"}, "option maxRecordsPerBatch is -1; it is a whole number"),
        ({"minPartitions": "many"}, "option minPartitions is many"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss is maybe; it is true or false"),
        ({"timeout": "0"}, "option timeout is 0; it is a number of seconds"),
        ({"timeout": "soon"}, "option timeout is soon"),
        ({"proxies": "localhost:5601"}, "option proxies: localhost:5601 is not an address such as tcp://host:5601"),
        ({"colour": "blue"}, "option colour is not known; there are endingOffsets, failOnDataLoss"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_source_says_what_is_wrong(changed: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source_options(GOOD | changed, stream=True)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pattern_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError):
        source_options({"subscribePattern": "a(", "subscription": "x"}, stream=True)


def test_a_sink_has_a_name_and_a_topic_or_a_column() -> None:
    found = sink_options({"topic": "t", "checkpointLocation": "/x", "path": "/y", "queryName": "q"})
    assert (found.topic, found.sink, found.batch) == ("t", "spark", None)
    assert sink_options({"sink": "s", "batchId": "7"}).batch == 7


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "a b"}, "topic 'a b' is not allowed"),
        ({"sink": "a/b"}, "sink 'a/b' is not allowed"),
        ({"batchId": "7"}, "option batchId needs option sink"),
        ({"batchId": "x", "sink": "s"}, "option batchId is x; it is a whole number"),
        ({"startingOffsets": "latest"}, "option startingoffsets is not known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sink_says_what_is_wrong(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sink_options(options)
    assert said in str(caught.value)
