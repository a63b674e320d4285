"""Tables by both clients, at a real proxy and a real server, and the view alone.

The rules are docs/explanation/compaction.md, KL7 and KL9.
"""

from __future__ import annotations

import asyncio
from zlib import crc32

import pytest

from pubsub import embedded
from pubsub.client import Client
from pubsub.client.table_view import ENTRY_BYTES, View
from pubsub.errors import CallerError, TooLarge, Unavailable
from pubsub.protocol import Outcome, Position, Status
from pubsub.protocol.batch import encode_batch
from pubsub.protocol.records import RecordsBuilder

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


# The view alone


def answer(last: Position | None, *records: tuple[bytes, bytes], number: int = 0, **more: object) -> Status:
    body = b""
    if records:
        keys, bodies = zip(*records, strict=True)
        builder = RecordsBuilder()
        builder.add(A, 1, f"alice/{A}", 1, 1, encode_batch(bodies, keys), 0, len(bodies))
        body = builder.build()
    facts = {"records": len(records), "checksum": crc32(body), "body": body, "history": A, "number": number}
    outcome = Outcome.SUCCESS if records else Outcome.EMPTY
    return Status("s1", outcome, message=last, **(facts | more))  # type: ignore[arg-type]


def test_a_view_that_must_begin_again_shows_the_old_map_until_the_new_one_is_complete() -> None:
    view = View("alice", "t")
    first = view.request()
    assert (first.after, first.start, first.history, first.tombstones) == (None, 0, "", 0)
    assert view.receive(answer((A, 2), (b"a", b"1"), (b"b", b"1"), number=3))
    assert view.values == {}
    assert not view.receive(answer((A, 2), number=3))
    assert view.values == {b"a": b"1", b"b": b"1"}
    later = view.request()
    assert (later.after, later.history, later.tombstones) == ((A, 2), A, 4)
    for outcome in (Outcome.AGAIN, Outcome.BEHIND, Outcome.GONE):
        assert view.receive(Status("s1", outcome))
        assert view.request().after is None
        assert view.values == {b"a": b"1", b"b": b"1"}
    assert view.begun == 3
    assert view.receive(answer((A, 5), (b"a", b"2"), number=4))
    assert view.values == {b"a": b"1", b"b": b"1"}
    assert not view.receive(answer((A, 5), number=4))
    assert view.values == {b"a": b"2"}


def test_a_view_passes_over_lost_messages_and_counts_them() -> None:
    view = View("alice", "t")
    assert view.receive(answer((A, 3), (b"a", b"1"))) is True
    assert view.receive(Status("s1", Outcome.LOST, message=(A, 5), first=(A, 4), history=A))
    assert view.request().after == (A, 5)
    assert view.lost == 1
