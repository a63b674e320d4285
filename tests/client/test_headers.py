"""Keys and headers stay with their message on every path."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pubsub.base.limits import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from pubsub.client import Client, Message, Transaction
from pubsub.client.batch_contents import BatchContents, split
from pubsub.client.commands import main
from pubsub.config import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import TooLarge
from pubsub.protocol import batch_size, encode_batch
from tests.client.opened import names

HEADERS = st.dictionaries(st.text("abcXYZ09._-", min_size=1, max_size=9), st.binary(max_size=40), max_size=5)
PUTS = st.lists(st.tuples(st.binary(max_size=40), st.just(b"") | st.binary(max_size=20), HEADERS), min_size=1)


def seen(message: Message) -> tuple[bytes, bytes, dict[str, bytes]]:
    return message.body, message.key, message.headers


@pytest.fixture(scope="module")
def pair(cluster: Embedded) -> Iterator[tuple[Client, Client]]:
    with cluster.client("headers-bob") as bob, cluster.client("headers-alice") as alice:
        bob.subscribe("headed")
        yield alice, bob


@settings(max_examples=40)
@given(PUTS, st.sampled_from(["put", "put_many", "publisher", "transaction"]))
def test_keys_and_headers_of_a_put_arrive_with_its_body(pair: tuple[Client, Client], puts: list, way: str) -> None:
    alice, bob = pair
    bodies, keys, headers = (list(column) for column in zip(*puts, strict=True))
    if way == "put_many":
        alice.put_many("headed", bodies, keys=keys, headers=headers)
    elif way == "put":
        for body, key, its in puts:
            alice.put("headed", body, key=key, headers=its, wait=False)
    elif way == "publisher":
        with alice.publisher("headed", records=7) as publisher:
            for body, key, its in puts:
                publisher.put(body, key=key, headers=its)
    else:
        with alice.transaction() as transaction:
            for body, key, its in puts:
                alice.put("headed", body, key=key, headers=its, transaction=transaction)
    found: list[Message] = []
    while len(found) < len(puts):
        found += bob.get_many("headed", timeout=20.0)
    assert [seen(message) for message in found] == puts


def test_an_async_client_puts_and_gets_keys_and_headers(cluster: Embedded, topic: str) -> None:
    async def run() -> list[tuple[bytes, bytes, dict[str, bytes]]]:
        async with cluster.async_client(f"client{next(names)}") as client:
            await client.subscribe(topic)
            await client.put(topic, b"a", key=b"k", headers={"n": b"1"})
            await client.put_many(topic, [b"b", b"c"], headers=[None, {"n": b"2"}])
            async with client.publisher(topic) as publisher:
                await publisher.put(b"d", headers={"n": b"3"})
                await publisher.put(b"e", key=b"l")
            return [seen(message) async for message in client.messages(topic, timeout=2.0)]

    expected = [
        (b"a", b"k", {"n": b"1"}), (b"b", b"", {}), (b"c", b"", {"n": b"2"}), (b"d", b"", {"n": b"3"}), (b"e", b"l", {})
    ]  # fmt: skip
    assert asyncio.run(run()) == expected


def test_a_put_in_doubt_keeps_key_and_headers_over_a_restart(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    with cluster.client(f"client{next(names)}") as reader:
        reader.subscribe(topic)
        with cluster.client(name) as client:
            client.put(topic, b"body", key=b"k", headers={"trace": b"\0\xff"}, wait=False)
        with cluster.client(name) as client:
            client.flush()
        message = reader.get(topic, 20.0)
        assert message is not None
        assert seen(message) == (b"body", b"k", {"trace": b"\0\xff"})


def test_a_dead_letter_keeps_key_and_headers(cluster: Embedded, topic: str) -> None:
    def handler(message: Message, transaction: Transaction) -> None:
        raise ValueError("no")

    name = f"client{next(names)}"
    with cluster.client(name, settings=ClientSettings(handler_attempts=1)) as client:
        client.subscribe(topic)
        client.put(topic, b"poison", key=b"k", headers={"a": b"1", "b": b""})
        client.put(topic, b"other")
        assert client.process(topic, handler, 20.0, max=2) == 2
    with cluster.client(name) as client:
        first, second = client.dead_letters(topic)
    assert (first.key, first.headers) == (b"k", {"a": b"1", "b": b""})
    assert (second.key, second.headers) == (b"", {})


def test_messages_without_keys_and_headers_arrive_as_before(cluster: Embedded, topic: str, client: Client) -> None:
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b"])
    client.put(topic, b"c", headers={})
    assert [seen(message) for message in client.messages(topic, timeout=2.0)] == [
        (body, b"", {}) for body in (b"a", b"b", b"c")
    ]


def test_a_publishers_batch_that_keys_make_too_large_is_two(cluster: Embedded, topic: str, client: Client) -> None:
    client.subscribe(topic)
    half = bytes(BATCH_BYTES_MAX // 2 - 100)
    with client.publisher(topic, size=BATCH_BYTES_MAX, records=10, linger=60.0) as publisher:
        publisher.put(half)
        publisher.put(b"x", key=half)
        publisher.put(b"y", key=b"k" * 300, headers={"h": bytes(100)})
    found = [(len(m.body), len(m.key), len(m.headers)) for m in client.messages(topic, timeout=5.0)]
    assert found == [(len(half), 0, 0), (1, len(half), 0), (1, 300, 1)]


def test_a_key_that_fits_into_no_batch_is_refused_and_nothing_is_put(cluster: Embedded, topic: str) -> None:
    with cluster.client(f"client{next(names)}") as client:
        with pytest.raises(TooLarge, match="BATCH_BYTES_MAX"):
            client.put(topic, b"x", key=bytes(BATCH_BYTES_MAX))
        assert client.unfinished(topic) == 0


@given(PUTS, st.booleans(), st.booleans())
def test_batches_are_split_within_the_limits_with_keys_and_headers(puts: list, keyed: bool, headed: bool) -> None:
    bodies, keys, _ = (list(column) for column in zip(*puts, strict=True))
    contents = BatchContents(bodies, keys if keyed else (), [b""] * len(bodies) if headed else ())
    assert split(contents) == [contents]


def test_keys_and_headers_count_where_batches_are_cut() -> None:
    third = bytes(BATCH_BYTES_MAX // 3)
    parts = split(BatchContents([b"x"] * 5, [third] * 5, [b""] * 5))
    assert [len(part.bodies) for part in parts] == [2, 2, 1]
    assert all(len(encode_batch(*part)) <= BATCH_BYTES_MAX for part in parts)
    many = BATCH_RECORDS_MAX + 5
    assert [len(part.keys) for part in split(BatchContents([b"x"] * many, [b"k"] * many))] == [BATCH_RECORDS_MAX, 5]
    exact = BATCH_BYTES_MAX - batch_size(1, 0) - 4
    assert len(split(BatchContents([b""], [bytes(exact)]))) == 1
    assert len(encode_batch([b""], [bytes(exact)])) == BATCH_BYTES_MAX


def test_commands_put_and_show_keys_and_headers(
    service: str, tmp_path: Path, topic: str, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    place = ["--proxy", service, "--dir", str(tmp_path)]
    assert main(["bob", "subscribe", topic, *place]) == 0
    lines = tmp_path / "lines"
    lines.write_text("one\ntwo\n")
    metadata = ["--header", "trace=a=b", "--header", "empty=", "--message-key", "k-7"]
    assert main(["alice", "put", topic, str(lines), "--lines", *metadata, *place]) == 0
    assert main(["alice", "put", topic, str(lines), "--header", "raw=\udcff", *place]) == 0
    assert main(["alice", "put", topic, str(lines), *place]) == 0
    capfdbinary.readouterr()
    assert main(["bob", "get", topic, "--count", "4", "--wait", "20", "--json", *place]) == 0
    one, two, three, four = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    for message in (one, two):
        assert (message["key"], message["headers"]) == ("k-7", {"trace": "a=b", "empty": ""})
    assert (three["headers_base64"], "key" in three, "headers" in three) == ({"raw": "/w=="}, False, False)
    assert not {"key", "headers", "key_base64", "headers_base64"} & four.keys()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--header", "plain"], "is not of the form NAME=VALUE"),
        (["--header", "a=1", "--header", "a=2"], "repeats a name"),
        (["--header", "a b=1"], "header name 'a b' is not allowed"),
        (["--header", f"a={'x' * 9000}"], "MESSAGE_HEADERS_BYTES_MAX"),
    ],
)
def test_an_invalid_header_is_one_line_and_makes_no_client(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m").write_text("x")
    assert main(["alice", "put", "t", str(tmp_path / "m"), *words, "--dir", str(tmp_path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert not list(tmp_path.glob("*.db"))
