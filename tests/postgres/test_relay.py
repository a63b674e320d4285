"""The relay: each committed row is a message once, in order, past topics that cannot be sent, and with a spare."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pubsub import CallerError, Client, ConfigurationError, Embedded, Message, Unavailable, embedded
from pubsub.client.relaying.relay import Relay
from tests.faults.cluster import until
from tests.postgres.outgoing import Connection, rows_of, shop
from tests.postgres.relays import ThreadedRelay
from tests.postgres.server import Postgres

__all__ = ["shop"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def url_of(postgres: Postgres, connection: Connection) -> str:
    return postgres.url(connection.info.dbname)


def insert(connection: Connection, topic: str, *bodies: bytes) -> None:
    for body in bodies:
        connection.execute("insert into pubsub.outgoing (topic, body) values (%s, %s)", (topic, body))


def active(relay: ThreadedRelay) -> Relay:
    assert relay.running._relay is not None
    return relay.running._relay


def received(client: Client, topic: str, count: int) -> list[Message]:
    found: list[Message] = []

    def all_here() -> bool:
        with suppress(Unavailable):  # The host is busy: the next call takes them.
            found.extend(client.get_many(topic, count, 0.5))
        return len(found) >= count

    until(all_here, f"{count} messages")
    return found


def test_rows_arrive_once_in_order_with_what_they_have(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path
) -> None:
    with cluster.client("reader-1") as reader, ThreadedRelay(cluster, url_of(postgres, shop), tmp_path) as relay:
        reader.subscribe("orders-1")
        shop.execute(
            "insert into pubsub.outgoing (topic, key, headers, body, ttl) values"
            " ('orders-1', 'k', '{\"trace\": \"é\", \"raw\": {\"hex\": \"00ff\"}}', 'first', '1 hour')"
        )
        with psycopg.connect(url_of(postgres, shop)) as other:
            insert(other, "orders-1", b"never")
            other.rollback()
            insert(other, "orders-1", *[b"%d" % n for n in range(1_000)])
            other.commit()
        first, *others = received(reader, "orders-1", 1_001)
        assert (first.body, first.key) == (b"first", b"k")
        assert first.headers == {"trace": "é".encode(), "raw": b"\0\xff", "$ttl": b"3600"}
        assert [message.body for message in others] == [b"%d" % n for n in range(1_000)]
        assert first.publisher.startswith(f"{relay.running.name}/")
        assert shop.execute("select count(*) from pubsub.outgoing").fetchone() == (0,)
        assert not reader.get_many("orders-1", 1, 0)
        snapshot = relay.running.snapshot()
        assert snapshot.counters["rows_taken"] == 1_001
        assert snapshot.counters["messages_sent"] == 1_001
        assert {gauge.name: gauge.value for gauge in snapshot.gauges}["active"] == 1


def test_a_spare_takes_over_and_messages_in_the_outbox_are_sent_by_it(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path
) -> None:
    url = url_of(postgres, shop)
    with cluster.client("reader-2") as reader:
        reader.subscribe("orders-2")
        with ThreadedRelay(cluster, url, tmp_path) as first:
            first.wait(active=True)
            with ThreadedRelay(cluster, url, tmp_path) as spare:
                spare.wait(active=False)
                assert spare.running.name == first.running.name
                assert {gauge.name: gauge.value for gauge in spare.running.snapshot().gauges}["active"] == 0
                insert(shop, "orders-2", b"1")
                assert [message.body for message in received(reader, "orders-2", 1)] == [b"1"]
                first.__exit__()
                spare.wait(active=True)
                insert(shop, "orders-2", b"2")
                assert [message.body for message in received(reader, "orders-2", 1)] == [b"2"]
                assert spare.running.snapshot().counters["takeovers"] == 1


def test_a_relay_that_waits_for_its_successor_holds_no_row(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path
) -> None:
    """Otherwise the successor, with the client's row locked, would wait for that row, and both for ever."""
    url = url_of(postgres, shop)
    waiting = "select count(*) from pg_locks where not granted"
    with cluster.client("reader-9") as reader, ThreadedRelay(cluster, url, tmp_path) as relay:
        reader.subscribe("orders-9")
        relay.wait(active=True)
        with psycopg.connect(url) as successor:
            successor.execute("select from pubsub.state for update")
            insert(shop, "orders-9", b"row")
            until(lambda: shop.execute(waiting).fetchone() != (0,), "the relay waits")
            successor.execute("select from pubsub.outgoing for update nowait")
        assert [message.body for message in received(reader, "orders-9", 1)] == [b"row"]


def test_a_lost_connection_ends_no_relay_and_repeats_no_message(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path
) -> None:
    url = url_of(postgres, shop)
    with cluster.client("reader-3") as reader, ThreadedRelay(cluster, url, tmp_path) as relay:
        reader.subscribe("orders-3")
        relay.wait(active=True)
        for n in range(5):
            insert(shop, "orders-3", b"%d" % n)
            for application in ("pubsub client relay", f"pubsub client {relay.running.name}"):
                postgres.terminate(application, shop.info.dbname)
        assert [message.body for message in received(reader, "orders-3", 5)] == [b"%d" % n for n in range(5)]
        insert(shop, "orders-3", b"last")
        assert [message.body for message in received(reader, "orders-3", 1)] == [b"last"]


def test_a_database_whose_default_is_repeatable_read_changes_nothing(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path
) -> None:
    shop.execute(f"alter database {shop.info.dbname} set default_transaction_isolation = 'repeatable read'")
    url = url_of(postgres, shop)
    with cluster.client("reader-4") as reader, ThreadedRelay(cluster, url, tmp_path):
        reader.subscribe("orders-4")
        stop = threading.Event()

        def write(name: int) -> None:
            with psycopg.connect(url) as mine:
                number = 0
                while not stop.is_set() and number < 60:
                    number += 1
                    insert(mine, "orders-4", *[b"%d %d %d" % (name, number, part) for part in range(3)])
                    mine.rollback() if number % 5 == 0 else mine.commit()

        writers = [threading.Thread(target=write, args=(name,)) for name in range(3)]
        for writer in writers:
            writer.start()
        found = [message.body.split() for message in received(reader, "orders-4", 3 * 48 * 3)]
        stop.set()
        for writer in writers:
            writer.join()
    for name in range(3):
        own = [(int(number), int(part)) for writer, number, part in found if int(writer) == name]
        assert own == [(number, part) for number in range(1, 61) if number % 5 for part in range(3)]


def test_a_topic_that_cannot_be_sent_holds_up_no_other(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("pubsub.client.relaying.pressure.FULL_ROWS", 2)
    monkeypatch.setattr("pubsub.client.relaying.pressure.SLOW_SECONDS", 0.2)
    caplog.set_level(logging.INFO, "pubsub.relay")
    with cluster.client("reader-5") as reader, ThreadedRelay(cluster, url_of(postgres, shop), tmp_path) as relay:
        reader.subscribe("orders-5")
        relay.wait(active=True)
        # A quota of one message a second on the topic lets the others of it wait.
        cluster.client("operator-5").create_topic("slow-5", rate="1/s")
        rows = 0
        while "slow-5" not in relay.running._relay.pressure.slow:
            insert(shop, "slow-5", *[b"%d" % n for n in range(rows, rows + 3)])
            rows += 3
        insert(shop, "orders-5", b"free")
        assert [message.body for message in received(reader, "orders-5", 1)] == [b"free"]
        waiting = shop.execute("select count(*) from pubsub.outgoing where topic = 'slow-5'").fetchone()
        assert waiting is not None
        assert waiting[0] > 0
        assert "slow-5 is slow (" in caplog.text


def test_there_is_one_relay_name_for_each_database(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path
) -> None:
    url = url_of(postgres, shop)
    with ThreadedRelay(cluster, url, tmp_path, "shop-relay") as relay:
        relay.wait(active=True)
    assert ThreadedRelay(cluster, url, tmp_path).running.name == "shop-relay"
    with pytest.raises(
        ConfigurationError, match="has the relay shop-relay, which may have messages to send; give --name"
    ):
        ThreadedRelay(cluster, url, tmp_path, "other")


def test_a_relay_with_a_full_table_of_bad_rows_goes_on(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path
) -> None:
    shop.execute('alter table pubsub.outgoing drop constraint "topic has no * > # and does not begin with _ or $"')
    insert(shop, "_bad", *[b"x"] * 10)
    with cluster.client("reader-6") as reader, ThreadedRelay(cluster, url_of(postgres, shop), tmp_path) as relay:
        reader.subscribe("orders-6")
        insert(shop, "orders-6", b"good")
        assert [message.body for message in received(reader, "orders-6", 1)] == [b"good"]
        assert relay.running.snapshot().counters["rows_refused"] == 10
    row: Any = shop.execute("select count(*), min(reason) from pubsub.refused").fetchone()
    assert row == (10, "topic '_bad' is not allowed: * > # and a leading _ or $ are reserved")


def test_a_client_relays_beside_its_own_work_and_writes_rows_itself(
    cluster: Embedded, postgres: Postgres, shop: Connection, tmp_path: Path
) -> None:
    url = url_of(postgres, shop)
    with pytest.raises(CallerError, match="relay=True needs database="):
        cluster.client("no-database", relay=True)
    with cluster.client("reader-7") as reader, psycopg.connect(url) as mine:
        reader.subscribe("orders-7")
        with cluster.client("billing-7", database=url, relay=True) as billing:
            ticket = billing.put("orders-7", b"1", connection=mine)
            assert (ticket.done, ticket.discarded) == (False, False)
            with pytest.raises(CallerError, match="no number yet"):
                assert ticket.counter
            assert billing.put_many("orders-7", [b"2", b"3"], connection=mine) == ()
            with pytest.raises(CallerError, match="has no timeout"):
                billing.put("orders-7", b"", connection=mine, timeout=1)
            mine.commit()
            assert [message.body for message in received(reader, "orders-7", 3)] == [b"1", b"2", b"3"]
        reader.put("orders-7", b"4", connection=mine)
        mine.commit()
        assert [row[3] for row in rows_of(shop)] == [b"4"]  # The relay has ended with its client.

        async def work() -> None:
            async with cluster.async_client("async-7", database=url, relay=True) as client:
                async with await psycopg.AsyncConnection.connect(url) as own:
                    await client.put("orders-7", b"5", connection=own)
                    await client.put_many("orders-7", [b"6"], connection=own)
                await asyncio.to_thread(until, lambda: not rows_of(shop), "the relay has taken the rows")

        asyncio.run(work())
        assert [message.body for message in received(reader, "orders-7", 3)] == [b"4", b"5", b"6"]
