"""A wrong option is named in one sentence when the query is built."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pubsub.errors import ConfigurationError
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public, format_secret
from pubsub.security.pairs import Pair, new_pair
from pubsub.spark.identity import NOBODY, Identity
from pubsub.spark.options import SinkOptions, SourceOptions, sink_options, source_options

GOOD = {"subscribe": "a,b", "subscription": "x"}
MINE, PROXY = new_pair(), new_pair()
SECRET, PK = format_secret(MINE.secret), format_public(PROXY.public)


def test_an_option_that_is_not_given_has_its_default() -> None:
    found = source_options({"subscribe": "b, a,a", "subscription": "x"}, stream=True)
    assert (found.subscribe, found.starting, found.fail_on_data_loss) == (("a", "b"), "latest", True)
    assert (found.records_max, found.bytes_max, found.partitions_min, found.timeout) == (0, 0, 0, 30.0)
    assert found.proxies == ("tcp://127.0.0.1:5601",)
    assert source_options({"subscribe": "a"}, stream=False).starting == "earliest"


def test_options_have_the_names_of_kafkas_source_and_those_of_earlier_releases() -> None:
    theirs = {"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "3", "maxTriggerDelay": "90s"}
    found = source_options(GOOD | theirs | {"maxBytesPerTrigger": "6", "maxRecordsPerPartition": "7"}, stream=True)
    assert (found.records_max, found.records_min, found.delay_max) == (5, 3, 90.0)
    assert (found.bytes_max, found.part_records_max) == (6, 7)
    assert found == source_options(
        GOOD | theirs | {"maxBytesPerBatch": "6", "maxRecordsPerPartition": "7"}, stream=True
    )
    assert source_options(GOOD, stream=True).delay_max == 900.0
    for text, seconds in (("5ms", 0.005), ("2m", 120.0), ("1h", 3600.0)):
        assert source_options(GOOD | {"maxTriggerDelay": text}, stream=True).delay_max == seconds


@pytest.mark.parametrize("name", ["groupIdPrefix", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_an_option_of_streams_is_refused_for_a_batch(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"option {name} is for streams only, because spark.read"):
        source_options({"subscribe": "a", name: "1"}, stream=False)


def test_a_query_without_options_learns_how_sql_gives_them() -> None:
    with pytest.raises(ConfigurationError, match=r"no source in Python: use CREATE TEMPORARY VIEW … USING pubsub"):
        source_options({}, stream=False)


def test_only_a_stream_may_take_over() -> None:
    assert not source_options(GOOD, stream=True).take_over
    assert source_options(GOOD | {"takeOver": "true"}, stream=True).take_over
    with pytest.raises(ConfigurationError, match="option takeOver is for streams only"):
        source_options(GOOD | {"takeOver": "true"}, stream=False)


def test_option_names_are_accepted_in_any_case() -> None:
    found = source_options(
        GOOD | {"MAXRECORDSPERBATCH": "5", "maxbytesperbatch": "6", "failOnDataLoss": "False"}, stream=True
    )
    assert (found.records_max, found.bytes_max, found.fail_on_data_loss) == (5, 6, False)


def test_positions_are_taken_by_topic() -> None:
    text = '{"a": "0123456789abcdef.17", "b": "earliest"}'
    found = source_options(GOOD | {"startingOffsets": text}, stream=True)
    assert found.starting == {"a": "0123456789abcdef.17", "b": "earliest"}


@pytest.mark.parametrize("text", ["1767225600123", "2026-01-01T00:00:00.123Z", "2026-01-01T02:00:00.123+02:00"])
def test_a_start_is_a_time_or_milliseconds(text: str) -> None:
    assert source_options(GOOD | {"startingTimestamp": text}, stream=True).starting == "@1767225600123000"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"subscribe": ""}, "give topics as option subscribe"),
        ({"subscribePattern": "a.*"}, "not both"),
        ({"subscribe": "a b"}, "topic 'a b' is not allowed"),
        ({"subscription": "a/b"}, "subscription 'a/b' is not allowed"),
        ({"subscription": ""}, "a stream needs option subscription"),
        ({"endingOffsets": "latest"}, "a stream has no end"),
        ({"endingTimestamp": "1767225600000"}, "option endingTimestamp is for spark.read only"),
        ({"groupIdPrefix": "etl"}, "give option subscription or option groupIdPrefix, not both"),
        ({"subscription": "", "groupIdPrefix": "a/b"}, "groupIdPrefix 'a/b-0000000000000000' is not allowed"),
        ({"minOffsetsPerTrigger": "few"}, "option minOffsetsPerTrigger is few; give a whole number"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay is soon; give a time such as 30s, 15m or 1h"),
        ({"maxOffsetsPerTrigger": "1", "maxRecordsPerBatch": "2"}, "maxRecordsPerBatch are one option; give the first"),
        ({"kafka.bootstrap.servers": "h:9092"}, "option kafka.bootstrap.servers is Kafka's; ours is proxies or"),
        ({"startingOffsetsByTimestamp": "{}"}, "Kafka's; ours is startingTimestamp or startingOffsets"),
        ({"startingTimestamp": "yesterday"}, "option startingTimestamp is yesterday; give milliseconds since 1970, or"),
        ({"startingTimestamp": "2026-11-01T00:00:00"}, "a time with its zone"),
        ({"startingTimestamp": "1767225600"}, "give milliseconds since 1970"),
        ({"startingTimestamp": "9" * 30}, "give milliseconds since 1970"),
        ({"startingTimestamp": "1767225600000", "startingOffsets": "earliest"}, "not both"),
        ({"startingOffsets": "yesterday"}, "option startingOffsets is yesterday; give earliest, latest, or JSON"),
        ({"startingOffsets": '{"a": 5}'}, "option startingOffsets"),
        ({"startingOffsets": '["a"]'}, "option startingOffsets"),
        ({"maxRecordsPerBatch": "-1"}, "option maxRecordsPerBatch is -1; give a whole number"),
        ({"minPartitions": "many"}, "option minPartitions is many"),
        ({"takeOver": "yes"}, "option takeOver is yes; give true or false"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss is maybe; give true or false"),
        ({"timeout": "0"}, "option timeout is 0; give a number of seconds"),
        ({"timeout": "soon"}, "option timeout is soon"),
        ({"proxies": "localhost:5601"}, "option proxies: localhost:5601 is not an address such as tcp://host:5601"),
        ({"colour": "blue"}, "option colour is not known; the options are clientId, defaultPartitions, endingOffsets"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_source_names_the_mistake(changed: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        source_options(GOOD | changed, stream=True)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_invalid_pattern_is_refused() -> None:
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
        ({"batchId": "x", "sink": "s"}, "option batchId is x; give a whole number"),
        ({"startingOffsets": "latest"}, "option startingoffsets is not known"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_sink_names_the_mistake(options: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        sink_options(options)
    assert said in str(caught.value)


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    make_key_file(tmp_path / "spark.key", MINE.secret)
    return tmp_path / "spark.key"


def pairs(**options: str) -> set[Pair | None]:
    """The pair that source and sink have with these options, each in a copy of the reader as an executor has it."""
    found: list[SourceOptions | SinkOptions] = [source_options(GOOD | options, stream=True), sink_options(options)]
    return {pickle.loads(pickle.dumps(one)).identity.pair() for one in found}


def test_the_key_is_a_file_on_each_machine_or_an_option_that_spark_does_not_show(key_file: Path) -> None:
    assert pairs() == {None}
    assert pairs(keyFile=str(key_file), proxyKeys=PK) == {MINE}
    assert pairs(secretKey=SECRET, proxyKeys=PK) == {MINE}


@pytest.mark.parametrize("by_file", [True, False])
def test_options_made_of_an_identity_have_that_identity(key_file: Path, by_file: bool) -> None:
    own = Identity(client="etl", key_file=str(key_file), proxy_keys=(PK,))
    if not by_file:
        own = Identity(client="etl", secret=MINE.secret, proxy_keys=(PK,))
    assert source_options(GOOD | own.options, stream=True).identity == own
    assert sink_options(own.options).identity == own
    assert NOBODY.options == {}


def test_a_key_file_that_is_replaced_counts_from_the_next_connection_on(key_file: Path) -> None:
    found = source_options(GOOD | {"keyFile": str(key_file), "proxyKeys": PK}, stream=True).identity
    other = new_pair()
    key_file.unlink()
    make_key_file(key_file, other.secret)
    assert found.pair() == other


def test_the_secret_is_in_no_repr_and_a_key_file_does_not_travel(key_file: Path) -> None:
    given = source_options(GOOD | {"secretKey": SECRET, "proxyKeys": PK}, stream=True)
    for shown in (repr(given), str(given)):
        assert SECRET[3:] not in shown
        assert repr(MINE.secret) not in shown
    named = pickle.dumps(source_options(GOOD | {"keyFile": str(key_file), "proxyKeys": PK}, stream=True))
    assert MINE.secret not in named
    assert SECRET.encode() not in named


def test_the_proxies_keys_are_given_in_their_order_or_in_the_proxies_file(tmp_path: Path) -> None:
    two, other = "tcp://10.0.0.1:5601,tcp://10.0.0.2:5601", format_public(new_pair().public)
    found = sink_options(
        {"secretKey": SECRET, "proxies": two, "proxyKeys": f"{PK} {other},{format_public(MINE.public)}"}
    )
    assert found.identity.proxy_keys == (PK, f"{other},{format_public(MINE.public)}")
    file = tmp_path / "proxies"
    file.write_text(f"tcp://10.0.0.1:5601 tcp://10.0.0.1:5602 {PK}\ntcp://10.0.0.2:5601 {other}\n")
    found = sink_options({"secretKey": SECRET, "proxiesFile": str(file)})
    assert (",".join(found.proxies), found.identity.proxy_keys) == (two, (PK, other))
    file.write_text("tcp://10.0.0.1:5601\n")
    assert sink_options({"proxiesFile": str(file)}).identity.proxy_keys == ()


def test_the_client_id_is_the_option_or_spark_or_the_name_of_the_sink() -> None:
    assert source_options(GOOD, stream=True).identity.client == "spark"
    assert sink_options({"sink": "roll"}).identity.client == "roll"
    assert sink_options({}).identity.client == "spark"
    assert source_options(GOOD | {"clientId": "etl-1"}, stream=True).identity.client == "etl-1"
    assert sink_options({"sink": "roll", "clientId": "etl-1"}).identity.client == "etl-1"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"keyFile": "/none/spark.key", "proxyKeys": PK},
            "key file /none/spark.key: No such file or directory (on host",
        ),
        ({"keyFile": "/none/x", "secretKey": SECRET}, "options keyFile and secretKey are both given; give one"),
        ({"secretKey": "sk_short", "proxyKeys": PK}, "option secretKey is not a secret key: it is not sk_ and 43"),
        ({"secretKey": PK, "proxyKeys": PK}, "option secretKey is not a secret key: it is a public key"),
        ({"secretKey": SECRET}, "this query has a key, and tcp://127.0.0.1:5601 is given without one"),
        ({"proxyKeys": PK}, "the proxies have keys and this query has none: pubsub keys new client spark"),
        ({"secretKey": SECRET, "proxyKeys": f"{PK} {PK}"}, "the keys of 2 proxies, and there are 1: put spaces"),
        ({"secretKey": SECRET, "proxyKeys": "pk_x"}, "option proxyKeys: a public key of the proxy, pk_"),
        ({"secretKey": SECRET, "proxyKeys": SECRET}, "option proxyKeys holds a secret key (sk_), which Spark shows"),
        ({"keyFile": SECRET, "proxyKeys": PK}, "option keyFile holds a secret key (sk_), which Spark shows there"),
        ({"proxies": f"tcp://{SECRET}:1"}, "option proxies holds a secret key"),
        ({"secretkey2": SECRET}, "option secretkey2 is not known"),
        ({"clientId": "a b"}, "option clientId: 'a b' is not allowed"),
        ({"proxiesFile": "/none/proxies"}, "proxies file /none/proxies: No such file"),
        ({"proxiesFile": "/none/p", "proxies": "tcp://10.0.0.1:5601"}, "drop proxies and proxyKeys"),
        ({"proxiesFile": "/none/p", "proxyKeys": PK}, "drop proxies and proxyKeys"),
    ],
    ids=lambda value: "",
)
def test_a_mistake_in_the_keys_is_named_in_one_sentence_without_the_secret(options: dict[str, str], said: str) -> None:
    for parse in (sink_options, lambda given: source_options(GOOD | given, stream=True)):
        with pytest.raises(ConfigurationError) as caught:
            parse(options)
        assert said in str(caught.value)
        assert "\n" not in str(caught.value)
        assert SECRET[3:] not in str(caught.value) + repr(caught.value)
