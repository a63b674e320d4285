"""Delayed puts of a client: every way to put, at a real proxy and server (docs/explanation/delay.md, DM1)."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from pubsub.base.clock import MICROSECONDS
from pubsub.base.limits import DELAY_SECONDS_MAX
from pubsub.client import Client, Message
from pubsub.client.commands import main
from pubsub.client.due import STEP, due_time
from pubsub.client.inputs import due_options
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, InDoubt
from pubsub.protocol.batch import due_of

WALL = 1_800_000_000.0
NOW = int(WALL * MICROSECONDS)


def taken(client: Client, topic: str, count: int) -> list[Message]:
    out: list[Message] = []
    while len(out) < count:
        found = client.get_many(topic, timeout=20.0)
        assert found, f"only {len(out)} of {count} came"
        out += found
    return out


def test_the_due_time_is_computed_once_from_either_argument() -> None:
    assert due_time(None, None, WALL) == due_time(0, None, WALL) == 0
    assert due_time(1.5, None, WALL) == NOW + 1_500_000
    assert due_time(None, datetime(2027, 2, 1, tzinfo=timezone(timedelta(hours=1))), WALL) == 1_801_436_400_000_000
    assert due_time(None, datetime(1960, 1, 1, tzinfo=UTC), WALL) == 1
    assert due_time(DELAY_SECONDS_MAX, None, WALL) == NOW + DELAY_SECONDS_MAX * MICROSECONDS
    assert due_time(0.01, None, WALL, STEP) == NOW + STEP


@pytest.mark.parametrize(
    ("delay", "moment", "text"),
    [
        (1, datetime(2030, 1, 1, tzinfo=UTC), "give only one"),
        (-1, None, "between 0 and"),
        (DELAY_SECONDS_MAX + 1, None, "90 days"),
        (float("nan"), None, "between 0 and"),
        ("60", None, "number of seconds"),
        (True, None, "number of seconds"),
        (None, datetime(2030, 1, 1), "time zone"),
        (None, "2030-01-01", "datetime with a time zone"),
        (None, datetime(2090, 1, 1, tzinfo=UTC), "90 days"),
    ],
)
def test_a_bad_due_time_is_refused_in_one_line(delay: Any, moment: Any, text: str) -> None:
    with pytest.raises(CallerError, match=text):
        due_time(delay, moment, WALL)


@pytest.mark.parametrize("way", ["put", "put_many", "no wait", "publisher", "transaction"])
def test_a_delayed_message_comes_later_under_its_own_counter(cluster: Embedded, topic: str, way: str) -> None:
    with cluster.client("later") as client:
        client.subscribe(topic)
        begun = time.time()
        if way == "put":
            counters = [client.put(topic, b"later", key=b"k", headers={"a": b"b"}, delay=1.0).counter]
        elif way == "put_many":
            counters = list(client.put_many(topic, [b"later", b"too"], keys=[b"k", b"k"], delay=1.0))
        elif way == "no wait":
            counters = [client.put(topic, b"later", key=b"k", delay=1.0, wait=False).counter]
        elif way == "publisher":
            with client.publisher(topic) as publisher:
                tickets = [publisher.put(b"later", key=b"k", delay=1.0), publisher.put(b"now")]
            counters = [tickets[0].counter or 0]
        else:
            with client.transaction() as transaction:
                counters = [client.put(topic, b"later", key=b"k", delay=1.0, transaction=transaction).counter]
        at_once = client.put(topic, b"at once")
        found = taken(client, topic, len(counters) + 1 + (way == "publisher"))
        late = [message for message in found if message.key == b"k"]
        assert [message.counter for message in late] == counters
        assert {message.publisher for message in found} == {client.publisher_id}
        assert all(message.stamp >= (begun + 1.0) * MICROSECONDS for message in late)
        assert at_once.counter in {message.counter for message in found[: -len(late)]}
        assert way != "put" or late[0].headers == {"a": b"b"}


def test_the_outbox_keeps_the_due_time_through_a_restart(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    away = Client("kept", proxies=["tcp://127.0.0.1:1"], directory=tmp_path)
    with pytest.raises(InDoubt):
        away.put(topic, b"later", delay=30, timeout=0.1)
    before = time.time()
    (row,) = away._session.core.outbox.chain(topic).rows
    due = due_of(away._session.store.body(row.counter))
    assert abs(due / MICROSECONDS - before - 30) < 5
    away.close()
    with cluster.client("kept", directory=tmp_path) as client:
        (row,) = client._session.core.outbox.chain(topic).rows
        assert due_of(client._session.store.body(row.counter)) == due
        client.flush()
        assert client.unfinished(topic) == 0
        client.subscribe(topic)
        assert client.get(topic, timeout=0.2) is None


def test_an_async_client_delays_too(cluster: Embedded, topic: str) -> None:
    async def run() -> list[bytes]:
        async with cluster.async_client("async-later") as client:
            await client.subscribe(topic)
            await client.put(topic, b"second", delay=0.5)
            async with client.publisher(topic) as publisher:
                await publisher.put(b"third", deliver_at=datetime.now(UTC) + timedelta(seconds=1))
            await client.put(topic, b"first")
            out: list[bytes] = []
            while len(out) < 3:
                out += [message.body for message in await client.get_many(topic, timeout=20.0)]
            return out

    assert asyncio.run(run()) == [b"first", b"second", b"third"]


def test_messages_of_a_publisher_with_one_delay_share_a_batch_and_others_do_not(client: Client, topic: str) -> None:
    with client.publisher(topic, linger=60) as publisher:
        moment = datetime.now(UTC) + timedelta(minutes=1)
        tickets = [publisher.put(b"x", deliver_at=moment) for _ in range(5)]
        plain = [publisher.put(b"x") for _ in range(5)]
        again = publisher.put(b"x", deliver_at=moment)
    assert len({id(ticket[0]) for ticket in tickets}) == 1
    assert len({id(ticket[0]) for ticket in plain}) == 1
    assert len({id(ticket[0]) for ticket in (tickets[0], plain[0], again)}) == 3


@pytest.mark.parametrize(
    ("delay", "moment", "text"),
    [
        ("5x", "", "number of seconds"),
        ("100d", "", "90d"),
        ("", "yesterday", "a time such as"),
        ("", "2030-01-01T00:00", "has no time zone; write 2030-01-01T00:00Z"),
        ("", "2030-01-01", "has no time zone; write 2030-01-01T00:00Z"),
        ("1", "2030-01-01T00:00Z", "give only one"),
    ],
)
def test_bad_options_are_refused_in_one_line(delay: str, moment: str, text: str) -> None:
    with pytest.raises(CallerError, match=text):
        due_options(delay, moment)


def test_options_name_a_moment() -> None:
    assert due_options("", "") is None
    assert due_options("0", "") is None
    assert due_options("", "2030-01-01T00:00Z") == datetime(2030, 1, 1, tzinfo=UTC)
    for text, seconds in (("90", 90), ("1.5m", 90), ("2h", 7200), ("7d", 604_800)):
        found = due_options(text, "")
        assert found is not None
        assert abs((found - datetime.now(UTC)).total_seconds() - seconds) < 5
    assert main is not None
