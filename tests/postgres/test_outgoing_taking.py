"""The relay's statements: the oldest rows, in order, within limits, past blocked topics, and bad rows aside."""

from __future__ import annotations

import threading
import time
from typing import Any

import psycopg
from psycopg import sql

from pubsub.client.outgoing import taking
from pubsub.client.outgoing.packing import Packed
from tests.faults.cluster import until
from tests.postgres.outgoing import Connection, shop
from tests.postgres.server import Postgres

__all__ = ["shop"]


def fill(connection: Connection, count: int, topic: str = "orders", body: str = "n::text::bytea") -> None:
    connection.execute(
        f"insert into pubsub.outgoing (topic, body) select %s, {body} from generate_series(1, %s) as n", (topic, count)
    )


def take(connection: Connection, **options: Any) -> Packed:
    with connection.transaction():
        return taking.take(connection, time.time(), **options)


def bodies(packed: Packed) -> list[bytes]:
    return [body for _, batches in packed.batches for batch in batches for body in batch.bodies]


def test_the_oldest_rows_are_taken_in_order_and_once(shop: Connection) -> None:
    fill(shop, 2_500)
    taken: list[bytes] = []
    while found := bodies(take(shop, rows=1_000)):
        taken += found
    assert taken == [b"%d" % n for n in range(1, 2_501)]
    assert not taking.is_waiting(shop)


def test_a_transaction_that_rolls_back_leaves_every_row(shop: Connection) -> None:
    fill(shop, 3)
    with shop.transaction(force_rollback=True):
        assert len(bodies(taking.take(shop, time.time()))) == 3
    assert len(bodies(take(shop))) == 3


def test_the_bytes_of_a_transaction_are_limited_and_one_row_is_always_taken(shop: Connection) -> None:
    fill(shop, 5, body="convert_to(repeat('x', 1000), 'UTF8')")
    assert len(bodies(take(shop, size=2_000))) == 2
    assert len(bodies(take(shop, size=1))) == 1
    assert len(bodies(take(shop))) == 2


def test_rows_of_blocked_topics_stay(shop: Connection) -> None:
    fill(shop, 2, "blocked")
    fill(shop, 2, "free")
    assert taking.is_waiting(shop, ["blocked"])
    assert [topic for topic, _ in take(shop, blocked=["blocked"]).batches] == ["free"]
    assert not taking.is_waiting(shop, ["blocked"])
    assert [topic for topic, _ in take(shop).batches] == ["blocked"]


def test_a_bad_row_goes_aside_with_its_reason_and_blocks_none(shop: Connection) -> None:
    # As if the table were of a release with other limits.
    found = "select conname from pg_constraint where conrelid = 'pubsub.outgoing'::regclass and contype = 'c'"
    for (name,) in shop.execute(found).fetchall():
        shop.execute(sql.SQL("alter table pubsub.outgoing drop constraint {}").format(sql.Identifier(name)))
    shop.execute(
        "insert into pubsub.outgoing (topic, key, headers, body, deliver_at, ttl) values"
        " ('$x', 'k', '{\"a\": 1}', 'bad', '2026-01-01', '1 minute'), ('orders', '', null, 'good', '-infinity', null)"
    )
    packed = take(shop)
    assert bodies(packed) == [b"good"]
    assert [number for number, _ in packed.refused] == [1]
    row = shop.execute(
        "select id, topic, key, headers, body, deliver_at = '2026-01-01', ttl = '1 minute', reason from pubsub.refused"
    ).fetchone()
    assert row is not None
    assert row[:7] == (1, "$x", b"k", {"a": 1}, b"bad", True, True)
    assert "reserved" in row[7]
    assert taking.behind(shop)[2] == 1


def test_times_arrive_as_microseconds_and_seconds(shop: Connection) -> None:
    shop.execute(
        "insert into pubsub.outgoing (topic, body, deliver_at, ttl) values"
        " ('orders', '', '2020-01-01 00:00:00.000001+00', '1.5 seconds')"
    )
    ((_, (batch,)),) = take(shop).batches
    assert batch.due == 1_577_836_800_000_001
    assert batch.headers[0].endswith(b"$ttl1.5")


def test_a_row_that_another_transaction_holds_is_waited_for_and_never_passed_over(
    postgres: Postgres, shop: Connection
) -> None:
    """With `skip locked` row 2 would be taken first, and row 1 after it."""
    fill(shop, 2)
    taken: list[list[bytes]] = []
    with psycopg.connect(postgres.url(shop.info.dbname)) as holder:
        holder.execute("select from pubsub.outgoing where id = 1 for update")

        def work() -> None:
            with postgres.connect(shop.info.dbname, application_name="taker") as taker:
                taken.append(bodies(take(taker)))

        thread = threading.Thread(target=work)
        thread.start()
        waiting = "select 1 from pg_stat_activity where application_name = 'taker' and wait_event_type = 'Lock'"
        until(lambda: shop.execute(waiting).fetchone(), "the taker waits for the row")
        holder.rollback()
        thread.join()
    assert taken == [[b"1", b"2"]]


def test_the_plan_goes_by_the_primary_key_however_wrong_the_statistics_are(shop: Connection) -> None:
    fill(shop, 20_000)
    with shop.transaction(force_rollback=True):
        shop.execute(taking._PLAN)
        plan = shop.execute(
            "explain " + taking._TAKE.replace("%s", "{}").format("'{}'::text[]", 5000, 8_000_000)
        ).fetchall()
    text = "\n".join(row[0] for row in plan)
    assert "Seq Scan" not in text, text
    assert text.count("using outgoing_pkey") == 2, text


def test_what_waits_is_counted_with_the_age_of_the_oldest(shop: Connection) -> None:
    assert taking.behind(shop) == (0, 0.0, 0)
    fill(shop, 3)
    shop.execute("update pubsub.outgoing set written_at = now() - interval '1 hour' where id = 1")
    rows, age, refused = taking.behind(shop)
    assert (rows, refused) == (3, 0)
    assert 3_599 < age < 3_700
