"""Source and sink in a cluster that requires keys, without an engine; proxy and server are real."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pubsub.errors import KeyRefused, NotAllowed, PubsubError, Unavailable
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public, format_secret
from pubsub.security.pairs import Pair, new_pair
from pubsub.spark.batch_source import BatchReader
from pubsub.spark.options import sink_options, source_options
from pubsub.spark.sink import Attempt, BatchWriter, publish
from pubsub.spark.source import StreamReader
from tests.faults.cluster import until
from tests.spark.broker import Broker
from tests.spark.keyed import KeyedBroker

ALL = ReadAllAvailable()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KeyedBroker]:
    made = KeyedBroker(tmp_path / "broker")
    yield made
    made.close()


@pytest.fixture
def spark(broker: KeyedBroker) -> Pair:
    """The key of client spark, with the rights of a query that reads t under the name x and writes out."""
    return broker.make("client", "spark", "put=out", "get=t", "names=x")


def stream(broker: KeyedBroker, **options: str) -> StreamReader:
    given = broker.options("spark", subscribe="t", subscription="x", startingOffsets="earliest")
    return StreamReader(source_options(given | options, stream=True))


def take(reader: StreamReader, start: dict[str, str]) -> tuple[list[bytes], dict[str, str]]:
    """The next batch of a stream, read by copies of the reader as on executors; and where it ends."""
    end = reader.latestOffset(start, ALL)
    out: list[bytes] = []
    for part in reader.partitions(start, end):
        for rows in pickle.loads(pickle.dumps(reader)).read(part):
            out += rows.column("value").to_pylist()
    return out, end


def numbers(first: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, stop)]


def refusal(broker: KeyedBroker, **options: str) -> PubsubError:
    """By what a stream with these options is told that it may not begin."""
    with pytest.raises((NotAllowed, KeyRefused)) as caught:
        stream(broker, **options).initialOffset()
    assert isinstance(caught.value, PubsubError)
    return caught.value


def refusal_of(broker: KeyedBroker, pair: Pair) -> PubsubError | None:
    """By what a stream with this key is told that it may not begin; None: it may."""
    options = {"secretKey": format_secret(pair.secret), "keyFile": "", "timeout": "5"}
    try:
        stream(broker, **options).initialOffset()
    except PubsubError as error:
        return error
    return None


def test_a_stream_is_read_with_the_rights_get_and_names_and_no_others(broker: KeyedBroker) -> None:
    pair = broker.make("client", "spark", "get=t", "names=x")
    broker.put("t", numbers(0, 2500))
    reader = stream(broker)
    values, end = take(reader, reader.initialOffset())
    assert values == numbers(0, 2500)
    reader.commit(end)
    assert reader.latestOffset(end, ALL) == end
    broker.authorize("client", "spark", pair, "get=t")
    assert (
        "client spark may not use the subscription x of t; its line in the file authorized needs get=t names=x"
        in str(refusal_of(broker, pair))
    )


def test_stored_messages_are_read_with_the_right_get_alone(broker: KeyedBroker) -> None:
    broker.make("client", "spark", "get=t")
    broker.put("t", numbers(0, 100))
    reader = BatchReader(source_options(broker.options("spark", subscribe="t"), stream=False))
    (part,) = reader.partitions()
    (rows,) = pickle.loads(pickle.dumps(reader)).read(part)
    assert rows.column("value").to_pylist() == numbers(0, 100)


@pytest.mark.parametrize("rights", [("get=*", "names=*"), ("get=*", "names=*", "status")])
def test_a_pattern_of_topics_needs_the_right_status(broker: KeyedBroker, rights: tuple[str, ...]) -> None:
    broker.make("client", "spark", *rights)
    broker.put("t", numbers(0, 10))
    options = broker.options("spark", subscribePattern="t.*", subscription="x")
    reader = StreamReader(source_options(options, stream=True))
    if "status" in rights:
        until(lambda: reader.named() == ["t"], "the proxy has heard of the topic")
        return
    with pytest.raises(NotAllowed, match="its line in the file authorized needs status"):
        reader.initialOffset()


def write(broker: KeyedBroker, name: str, values: list[bytes], **options: str) -> None:
    """Write a batch as a batch job does, its one task included."""
    writer = BatchWriter(sink_options(broker.options(name, topic="out") | options))
    rows = pa.record_batch({"value": pa.array(values, pa.binary())})
    writer.commit([pickle.loads(pickle.dumps(writer)).write(iter([rows]))])


def test_a_sink_writes_with_the_right_put(broker: KeyedBroker, spark: Pair) -> None:
    write(broker, "spark", numbers(0, 10))
    write(broker, "spark", numbers(10, 20), sink="roll", batchId="1", clientId="spark")
    write(broker, "spark", numbers(10, 20), sink="roll", batchId="1", clientId="spark")
    assert broker.records("out") == numbers(0, 20)
    broker.put("other", numbers(0, 1))
    with pytest.raises(NotAllowed, match=r"client spark may not put to other; its line .* needs put=other"):
        write(broker, "spark", numbers(0, 10), topic="other")
    assert broker.records("other") == numbers(0, 1)


def test_an_id_of_another_key_is_refused_with_the_keys_id(broker: KeyedBroker, spark: Pair) -> None:
    assert "this key is spark's, not etl's; give the client ID of this key as option clientId" in str(
        refusal(broker, clientId="etl")
    )
    with pytest.raises(NotAllowed, match="this key is spark's, not roll's"):
        write(broker, "spark", numbers(0, 10), sink="roll")


def test_an_unauthorized_key_is_refused_with_the_remedy(broker: KeyedBroker) -> None:
    stranger = new_pair()
    error = refusal(broker, secretKey=format_secret(stranger.secret), keyFile="")
    assert isinstance(error, KeyRefused)
    key = format_public(stranger.public)
    assert str(error) == (
        f"proxy {broker.address} does not know the key {key[:11]}… of client spark: pubsub keys authorize client spark"
        f" {key}; then start the query again, and a stream continues where it was"
    )


def test_a_proxy_that_does_not_know_the_key_is_skipped_at_once(
    broker: KeyedBroker, spark: Pair, tmp_path: Path
) -> None:
    broker.put("t", numbers(0, 10))
    behind = KeyedBroker(tmp_path / "behind")  # A proxy whose file is behind, say.
    both = {"proxies": f"{behind.address},{broker.address}", "proxyKeys": f"{behind.proxy_key} {broker.proxy_key}"}
    try:
        reader = stream(broker, timeout="1.4", **both)  # Three tries at the first proxy would take longer.
        assert take(reader, reader.initialOffset())[0] == numbers(0, 10)
    finally:
        behind.close()


def test_a_connection_that_was_refused_tries_again_with_the_next_request(broker: KeyedBroker, spark: Pair) -> None:
    broker.put("t", numbers(0, 10))
    reader = stream(broker)
    broker.revoke(spark)
    for _ in range(4):  # Left to itself it would try after 1, 2, 4 and 8 s.
        with pytest.raises(KeyRefused):
            reader.initialOffset()
    broker.authorize("client", "spark", spark, "get=t", "names=x")
    began = time.monotonic()
    assert take(reader, reader.initialOffset())[0] == numbers(0, 10)
    assert time.monotonic() - began < 5.0


def test_a_proxy_with_another_key_than_the_named_one_is_refused(broker: KeyedBroker, spark: Pair) -> None:
    error = refusal(broker, proxyKeys=format_public(new_pair().public))
    assert isinstance(error, KeyRefused)
    assert f"{broker.address} closed the handshake: its key is not the one in option proxiesFile" in str(error)


def test_a_query_without_a_key_names_the_command_for_one(broker: KeyedBroker) -> None:
    error = refusal(broker, keyFile="", proxyKeys="", clientId="etl")
    assert isinstance(error, KeyRefused)
    assert f"{broker.address} wants a key: pubsub keys new client etl" in str(error)


def test_a_query_with_a_proxy_key_does_not_speak_to_a_proxy_without(tmp_path: Path) -> None:
    open_to_all, mine = Broker(tmp_path), new_pair()
    key = {"secretKey": format_secret(mine.secret), "proxyKeys": format_public(mine.public), "timeout": "20"}
    try:
        reader = BatchReader(source_options(key | {"proxies": open_to_all.address, "subscribe": "t"}, stream=False))
        with pytest.raises(KeyRefused, match=r"has no key; one is named in option proxiesFile or .*: not used"):
            reader.partitions()
    finally:
        open_to_all.close()


def test_a_refusing_proxy_beside_a_missing_one_is_named_after_the_timeout(broker: KeyedBroker) -> None:
    pair = new_pair()
    both = {"proxies": f"{broker.address},tcp://127.0.0.1:1", "proxyKeys": f"{broker.proxy_key} {broker.proxy_key}"}
    with pytest.raises(Unavailable, match=f"no proxy answers; proxy {broker.address} does not know .*: pubsub keys"):
        stream(broker, keyFile="", secretKey=format_secret(pair.secret), timeout="0.5", **both).initialOffset()


def test_rows_staged_before_a_revocation_are_published_once_after_the_next_authorization(
    broker: KeyedBroker, spark: Pair
) -> None:
    options = sink_options(broker.options("spark", topic="out"))
    with options.identity.connect(options.proxies, options.timeout) as link:
        attempt = Attempt(link, options, "0" * 16, 1, 0)
        attempt.write(pa.record_batch({"value": pa.array(numbers(0, 10), pa.binary())}))
        staged, late = [attempt.finish()], Attempt(link, options, "0" * 16, 1, 1)
        more = pa.record_batch({"value": pa.array([b"x" * 1000] * 30_000, pa.binary())})
        broker.revoke(spark)
        until(lambda: refusal_of(broker, spark) is not None, "the key is out")
        with pytest.raises(NotAllowed, match="any more; to authorize the key: pubsub keys authorize client spark pk_"):
            late.write(more)
    with pytest.raises(KeyRefused):
        publish(options, staged, 1)
    assert broker.records("out") == []
    broker.authorize("client", "spark", spark, "put=out", "get=t", "names=x")
    publish(options, staged, 1)
    publish(options, staged, 1)
    assert broker.records("out") == numbers(0, 10)


def test_a_key_that_is_replaced_is_used_from_the_next_batch_on(broker: KeyedBroker, spark: Pair) -> None:
    broker.put("t", numbers(0, 100))
    reader = stream(broker)
    values, end = take(reader, reader.initialOffset())
    second = new_pair()
    broker.authorize("client", "spark", second, "get=t", "names=x")
    Path(broker.file("spark")).unlink()
    make_key_file(Path(broker.file("spark")), second.secret)
    broker.put("t", numbers(100, 150))
    more, end = take(reader, end)
    broker.revoke(spark)
    broker.put("t", numbers(150, 200))
    last, _ = take(reader, end)
    assert values + more + last == numbers(0, 200)
