"""Messages with a time to live: every way to put and to receive (docs/explanation/ttl.md, TL2, TL3 and TL4)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pubsub import Later
from pubsub.base.clock import MICROSECONDS, SystemClock
from pubsub.client import Client, Message, Transaction
from pubsub.client.core.expired import separated
from pubsub.client.core.message import RunSlice
from pubsub.client.inputs import headers_of
from pubsub.client.ttl import all_with_ttl, with_ttl
from pubsub.embedded import Embedded
from pubsub.errors import CallerError
from pubsub.protocol import encode_headers
from pubsub.protocol.records import Run
from pubsub.protocol.time_to_live import TTL, TTL_SECONDS_MAX, is_over, ttl_of, ttl_value


class Shifted(SystemClock):
    """A wall clock that a test sets."""

    shift = 0.0

    def wall(self) -> float:
        return time.time() + self.shift


@pytest.mark.parametrize("seconds", [0.001, 1, 1.5, 60, 0.1 + 0.2, TTL_SECONDS_MAX])
def test_a_time_to_live_is_read_as_it_was_written(seconds: float) -> None:
    block = encode_headers({"a": b"b", TTL: ttl_value(seconds)})
    assert ttl_of(block) == pytest.approx(seconds * MICROSECONDS, abs=1)


@pytest.mark.parametrize("value", [b"", b"soon", b"-1", b"1e3", b"nan", b"1" * 11, b"1.1234567", b"\xff"])
def test_another_value_is_no_time_to_live(value: bytes) -> None:
    assert ttl_of(encode_headers({TTL: value})) is None
    assert ttl_of(encode_headers({"x": b"$ttl"})) is None
    assert not is_over(b"$ttl broken", 0, 1 << 60)


@pytest.mark.parametrize(
    ("headers", "ttl", "text"),
    [
        (None, 0, "ttl is between 0.001 and"),
        (None, float("nan"), "ttl is between"),
        (None, TTL_SECONDS_MAX + 1, "3650 days"),
        (None, 10**400, "ttl "),
        (None, "60", "ttl is a number of seconds"),
        (None, True, "ttl is a number of seconds"),
        ({TTL: b"1"}, 1, "give only one of it and ttl"),
        ([], 1, "headers is a mapping"),
    ],
)
def test_a_bad_time_to_live_is_refused_in_one_line(headers: Any, ttl: Any, text: str) -> None:
    with pytest.raises(CallerError, match=text) as raised:
        with_ttl(headers, ttl)
    assert "\n" not in str(raised.value)


def test_headers_of_many_must_be_as_many() -> None:
    assert all_with_ttl([b"1", b"2"], (), 5) == ([b"1", b"2"], [{TTL: b"5"}] * 2)
    with pytest.raises(CallerError, match="1 for 2 messages"):
        all_with_ttl([b"1", b"2"], [None], 5)


def test_the_option_takes_units() -> None:
    assert headers_of(["a=b"], "30m") == {"a": b"b", TTL: b"1800"}
    assert headers_of(None, "") == {}
    with pytest.raises(CallerError, match="--ttl 5x is not a number of seconds"):
        headers_of(None, "5x")
    with pytest.raises(CallerError, match="ttl is between"):
        headers_of(None, "0")


def _piece(*ttls: float | None) -> RunSlice:
    headers = tuple(b"" if ttl is None else encode_headers({TTL: ttl_value(ttl)}) for ttl in ttls)
    ends = tuple(range(1, len(ttls) + 1))
    run = Run("a" * 16, 5, "p/q", 9, 1_000 * MICROSECONDS, 0, ends, headers=headers)
    return RunSlice(run, b"x" * len(ttls), 0, len(ttls))


def test_live_and_expired_records_keep_their_order_and_none_is_missing() -> None:
    piece = _piece(None, 1, 1, 5, None, 1)
    for seconds, gone in ((0.5, ()), (1, (1, 2, 5)), (5, (1, 2, 3, 5))):
        live, expired = separated([piece], int((1_000 + seconds) * MICROSECONDS))
        assert [at for one in expired for at in range(one.start, one.stop)] == list(gone)
        assert sorted(at for one in (*live, *expired) for at in range(one.start, one.stop)) == list(range(6))
        assert all(one.start < one.stop for one in (*live, *expired))


@pytest.mark.parametrize("way", ["put", "put_many", "no wait", "publisher", "transaction"])
def test_an_expired_message_is_passed_over_however_it_was_put(cluster: Embedded, topic: str, way: str) -> None:
    clock = Shifted()
    with cluster.client("late", clock=clock) as client:
        client.subscribe(topic)
        more: Mapping[str, Any] = {"key": b"k", "ttl": 60}
        if way == "put":
            client.put(topic, b"old", headers={"a": b"b"}, **more)
        elif way == "put_many":
            client.put_many(topic, [b"old"], keys=[b"k"], ttl=60)
        elif way == "no wait":
            client.put(topic, b"old", wait=False, **more)
        elif way == "publisher":
            with client.publisher(topic) as publisher:
                publisher.put(b"old", **more)
        else:
            with client.transaction() as transaction:
                client.put(topic, b"old", transaction=transaction, **more)
        client.put(topic, b"new")
        clock.shift = 61.0
        found = client.get(topic, timeout=20.0)
        assert found is not None
        assert (found.body, client.expired) == (b"new", 1)
        assert client.get(topic, timeout=0.0) is None
        client.put(topic, b"in time", ttl=100.0)
        found = client.get(topic, timeout=20.0)
        assert found is not None
        assert (found.body, found.headers) == (b"in time", {TTL: b"100"})


def test_an_expired_message_stays_passed_over_after_a_restart(cluster: Embedded, topic: str, tmp_path: Path) -> None:
    clock = Shifted()
    with cluster.client("again", clock=clock, directory=tmp_path) as client:
        client.subscribe(topic)
        client.put(topic, b"old", ttl=60)
        clock.shift = 61.0
        assert client.get(topic, timeout=2.0) is None
        assert (client.expired, client.dead_letters()) == (1, [])
    with cluster.client("again", directory=tmp_path) as client:
        client.put(topic, b"new")
        assert [message.body for message in client.get_many(topic, timeout=20.0)] == [b"new"]


def test_the_time_counts_from_the_delivery_of_a_delayed_message(cluster: Embedded, topic: str) -> None:
    clock = Shifted()
    with cluster.client("delayed", clock=clock) as client:
        client.subscribe(topic)
        clock.shift = -0.9  # The delay ends 1.1 s after the put; a time to live from the put would be over then.
        client.put(topic, b"later", delay=2.0, ttl=1.0)
        assert [message.body for message in client.get_many(topic, timeout=20.0)] == [b"later"]


def test_a_message_that_waits_for_its_next_attempt_is_passed_over(cluster: Embedded, topic: str) -> None:
    clock, seen = Shifted(), []

    def handle(message: Message, transaction: Transaction) -> None:
        seen.append(message.body)
        if message.body == b"old":
            raise Later(0.2)

    for hold in ("all", "key", "none"):
        seen.clear()
        name = f"{topic}.{hold}"
        clock.shift = 0.0
        with cluster.client(f"held-{hold}", clock=clock) as client:
            client.subscribe(name)
            client.put(name, b"old", key=b"k", ttl=60)
            client.put(name, b"new", key=b"k")
            assert client.process(name, handle, timeout=20.0, max=1, hold=hold) == 1
            clock.shift = 61.0
            while b"new" not in seen:
                assert client.process(name, handle, timeout=20.0, hold=hold)
            client.process(name, handle, timeout=0.5, hold=hold)
            assert (seen, client.expired, client.dead_letters()) == ([b"old", b"new"], 1, [])


def test_a_read_and_an_iteration_pass_it_over(cluster: Embedded, topic: str, client: Client) -> None:
    clock = Shifted()
    client.configure(topic, keep="ever")
    with cluster.client("reads", clock=clock) as reader:
        reader.subscribe(topic)
        client.put_many(topic, [b"1", b"2"], ttl=60)
        client.put(topic, b"3")
        assert [message.body for message in reader.read(topic, start="earliest")] == [b"1", b"2", b"3"]
        clock.shift = 61.0
        assert [message.body for message in reader.read(topic, start="earliest")] == [b"3"]
        for message in reader.messages(topic, timeout=20.0):
            assert message.body == b"3"
            break
        assert reader.expired == 2


def test_an_async_client_passes_it_over(cluster: Embedded, topic: str) -> None:
    clock = Shifted()

    async def run() -> tuple[list[bytes], int]:
        async with cluster.async_client("async-ttl", clock=clock) as client:
            await client.subscribe(topic)
            await client.put(topic, b"1", ttl=60)
            await client.put_many(topic, [b"2"], ttl=60)
            async with client.publisher(topic) as publisher:
                await publisher.put(b"3", ttl=60)
            await client.put(topic, b"4")
            clock.shift = 61.0
            return [message.body for message in await client.get_many(topic, timeout=20.0)], client.expired

    assert asyncio.run(run()) == ([b"4"], 3)
