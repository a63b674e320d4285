"""Tables by both clients, at a real proxy and a real server, and the view alone.

The rules are docs/explanation/compaction.md, KL7, KL9 and KL10.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from zlib import crc32

import pytest

from pubsub import embedded
from pubsub.client import Client, tables
from pubsub.client.requests import Proxies
from pubsub.client.table_cache import TableCache
from pubsub.client.table_view import ENTRY_BYTES, TABLE_BYTES_MAX, Entry, View
from pubsub.errors import CallerError, NotKnown, TooLarge, Unavailable
from pubsub.protocol import Outcome, Position, Read, Status
from pubsub.protocol.batch import encode_batch
from pubsub.protocol.headers import encode_headers
from pubsub.protocol.records import RecordsBuilder
from pubsub.protocol.time_to_live import TTL

A = "a" * 16


def test_a_table_has_the_last_message_of_each_key_and_follows(client: Client, topic: str) -> None:
    client.configure(topic, keep="latest")
    client.put_many(topic, [b"1.08", b"0.85", b"news"], keys=[b"EUR", b"GBP", b""])
    client.put(topic, b"1.09", key=b"EUR")
    with client.table(topic) as table:
        assert table["EUR"] == table[b"EUR"] == b"1.09"
        assert dict(table.items()) == {b"GBP": b"0.85", b"EUR": b"1.09"}
        assert (len(table), "GBP" in table, "USD" in table, table.get("USD", b"?")) == (2, True, False, b"?")
        assert sorted(table) == [b"EUR", b"GBP"]
        with pytest.raises(KeyError):
            table["USD"]
        client.put(topic, b"1.00", key=b"USD")
        assert table.wait_for("USD", timeout=30) == b"1.00"
        client.put(topic, b"", key=b"GBP")
        table.sync(timeout=30)
        assert "GBP" not in table
        assert (table.lost, table.problem) == (0, "")
        with pytest.raises(Unavailable, match="no value of 'JPY'"):
            table.wait_for("JPY", timeout=0.01)
    client.put(topic, b"1.10", key=b"EUR")
    assert table["EUR"] == b"1.09"
    with pytest.raises(CallerError, match="is closed"):
        table.sync(timeout=30)


def test_the_async_client_has_the_same_table() -> None:
    async def run() -> None:
        with embedded() as cluster:
            async with cluster.async_client("alice") as alice:
                await alice.put("prices", b"1", key=b"EUR")
                async with alice.table("prices") as table:
                    assert table["EUR"] == b"1"
                    await alice.put("prices", b"2", key=b"EUR")
                    await table.sync()
                    assert table["EUR"] == b"2"
                    assert await table.wait_for("EUR") == b"2"

    asyncio.run(run())


def test_a_table_of_more_bytes_than_its_limit_is_refused(client: Client, topic: str) -> None:
    client.put_many(topic, [b"x" * 100] * 3, keys=[b"a", b"b", b"c"])
    with pytest.raises(TooLarge, match="TABLE_BYTES_MAX"), client.table(topic, bytes_max=500):
        pass
    with client.table(topic, bytes_max=3 * (101 + ENTRY_BYTES)) as table:
        assert len(table) == 3


def test_arguments_that_cannot_be_are_refused(client: Client, topic: str) -> None:
    for values in ({"topic": "$calls.x"}, {"topic": topic, "bytes_max": 0}):
        with pytest.raises(CallerError):
            client.table(**values)  # type: ignore[arg-type]
    client.put(topic, b"1", key=b"a")
    with client.table(topic) as table, pytest.raises(CallerError, match="bytes or str"):
        table[1]  # type: ignore[index]


def test_the_table_of_a_topic_that_does_not_exist_is_empty_and_says_so(client: Client, topic: str) -> None:
    with client.table(topic) as table:
        assert (len(table), table.problem) == (0, f"topic {topic}: no server holds it; pubsub status lists the topics")
        with pytest.raises(Unavailable, match="no server holds it"):
            table.wait_for("EUR", timeout=0.01)
        client.put(topic, b"1", key=b"EUR")
        assert table.wait_for("EUR", timeout=30) == b"1"
        assert table.problem == ""


def test_a_value_is_gone_when_its_time_to_live_has_ended_and_no_earlier_one_comes_back(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.put(topic, b"earlier", key=b"a")
    client.put(topic, b"short", key=b"a", ttl=100)
    client.put(topic, b"long", key=b"b", ttl=300)
    with client.table(topic) as table:
        assert dict(table.items()) == {b"a": b"short", b"b": b"long"}
        now = time.time()
        monkeypatch.setattr(tables, "_now", lambda: (now + 200) * 1e6)
        assert dict(table.items()) == {b"b": b"long"}
        client.put(topic, b"over", key=b"b", ttl=150)
        table.sync(timeout=30)
        assert ("a" in table, table.get("b"), len(table)) == (False, None, 0)
    with client.table(topic) as table:
        assert list(table) == []


# Tables that are kept between two reads


@dataclass
class Asking:
    """Connections that count the requests."""

    proxies: Proxies
    reads: list[Read] = field(default_factory=list)

    def ask(self, request: Read) -> Status:
        self.reads.append(request)
        return self.proxies.ask(request)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.proxies, name)


@pytest.fixture
def asking(client: Client) -> Iterator[Asking]:
    session = client._session
    with Proxies(session.settings.proxies, 10.0, session.context) as proxies:
        proxies.tells_absent = True
        yield Asking(proxies)


def bodies(values: Mapping[bytes, Entry]) -> dict[bytes, bytes]:
    return {key: entry.body for key, entry in values.items()}


def test_a_second_read_brings_only_what_came_since(client: Client, topic: str, asking: Asking) -> None:
    cache = TableCache(TABLE_BYTES_MAX)
    client.put_many(topic, [b"1"] * 2_000, keys=[b"%d" % number for number in range(2_000)])

    def read(sender: str) -> dict[bytes, bytes]:
        return cache.read(asking, sender, topic, bodies)  # type: ignore[arg-type]

    assert len(read("one")) == 2_000
    first = asking.reads.copy()
    asking.reads.clear()
    client.put(topic, b"2", key=b"7")
    assert read("two")[b"7"] == b"2"
    assert {read.sender for read in first} == {"one"}
    assert {read.sender for read in asking.reads} == {"two"}
    assert first[0].after is None
    assert all(read.after is not None for read in asking.reads)


def test_the_tables_that_are_kept_have_limits(client: Client, topic: str, asking: Asking) -> None:
    names = [f"{topic}.{number}" for number in range(3)]
    for name in names:
        client.put(name, b"x" * 1_000, key=b"a")

    def kept(cache: TableCache, *topics: str) -> list[bool]:
        for name in topics:
            assert cache.read(asking, "one", name, len) == 1  # type: ignore[arg-type]
        return [name in cache for name in names]

    assert kept(TableCache(TABLE_BYTES_MAX, tables_max=2), *names) == [False, True, True]
    assert kept(TableCache(TABLE_BYTES_MAX, tables_max=2), names[0], names[1], names[0], names[2]) == [
        True,
        False,
        True,
    ]
    assert kept(TableCache(TABLE_BYTES_MAX, bytes_max=2_000), *names) == [False, False, True]
    large = TableCache(1_000)
    with pytest.raises(TooLarge):
        large.read(asking, "one", names[0], len)  # type: ignore[arg-type]
    with pytest.raises(NotKnown, match="no server holds it"):
        large.read(asking, "one", f"{topic}.none", len)  # type: ignore[arg-type]
    assert [name in large for name in (names[0], f"{topic}.none")] == [False, False]


# The view alone


def answer(
    last: Position | None,
    *records: tuple[bytes, bytes],
    number: int = 0,
    headers: Sequence[bytes] = (),
    **more: object,
) -> Status:
    body = b""
    if records:
        keys, values = zip(*records, strict=True)
        builder = RecordsBuilder()
        builder.add(A, 1, f"alice/{A}", 1, 1, encode_batch(values, keys, headers), 0, len(values))
        body = builder.build()
    facts = {"records": len(records), "checksum": crc32(body), "body": body, "history": A, "number": number}
    outcome = Outcome.SUCCESS if records else Outcome.EMPTY
    return Status("s1", outcome, message=last, **(facts | more))  # type: ignore[arg-type]


def test_a_view_that_must_begin_again_shows_the_old_map_until_the_new_one_is_complete() -> None:
    view = View("alice", "t")
    first = view.request()
    assert (first.after, first.start, first.history, first.tombstones) == (None, 0, "", 0)
    assert view.receive(answer((A, 2), (b"a", b"1"), (b"b", b"1"), number=3), 0)
    assert view.values == {}
    assert not view.receive(answer((A, 2), number=3), 0)
    assert bodies(view.values) == {b"a": b"1", b"b": b"1"}
    later = view.request()
    assert (later.after, later.history, later.tombstones) == ((A, 2), A, 4)
    for outcome in (Outcome.AGAIN, Outcome.BEHIND, Outcome.GONE):
        assert view.receive(Status("s1", outcome), 0)
        assert view.request().after is None
        assert bodies(view.values) == {b"a": b"1", b"b": b"1"}
    assert view.begun == 3
    assert view.receive(answer((A, 5), (b"a", b"2"), number=4), 0)
    assert bodies(view.values) == {b"a": b"1", b"b": b"1"}
    assert not view.receive(answer((A, 5), number=4), 0)
    assert bodies(view.values) == {b"a": b"2"}


def test_a_map_forgets_the_end_of_a_value_that_was_replaced() -> None:
    view = View("alice", "t")
    for ttl, now in ((b"5", 0), (b"", 1), (b"7", 2)):
        block = encode_headers({TTL: ttl}) if ttl else b""
        assert view.receive(answer((A, now + 1), (b"a", b"%d" % now), headers=[block] if block else ()), now)
    assert not view.receive(answer((A, 3)), 3)
    view.expire(6_000_000)
    assert bodies(view.values) == {b"a": b"2"}
    view.expire(7_000_001)
    assert (view.values, view.size) == ({}, 0)


def test_a_view_passes_over_lost_messages_and_counts_them() -> None:
    view = View("alice", "t")
    assert view.receive(answer((A, 3), (b"a", b"1")), 0) is True
    assert view.receive(Status("s1", Outcome.LOST, message=(A, 5), first=(A, 4), history=A), 0)
    assert view.request().after == (A, 5)
    assert view.lost == 1
