"""Puts above a quota: the chain waits, asks the same proxy, and says why (docs/explanation/quotas.md, QU3 and QU5)."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from keyed import BOB, keyed, line
from puts import flying, make, put, sent, status

from pubsub.client import Client
from pubsub.client.core.chain import THROTTLED_SECONDS_MAX
from pubsub.embedded import Embedded
from pubsub.errors import InDoubt, Unavailable
from pubsub.protocol import Outcome, Status


def busy(after: int, last: int = -1, reason: str = "quota_topic") -> Status:
    return Status("s1", Outcome.BUSY, last=last, reason=reason, after=after)


def test_the_chain_waits_as_long_as_the_answer_says_and_asks_the_same_proxy() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    outbox.answered(chain, busy(2500), chain.generation, 0, 1.0)
    for now in (1.0, 1.2, 2.0, 3.4):
        assert not chain.tick(now)
        assert sent(chain, now) == []
    assert chain.next_deadline() == 3.5
    assert sent(chain, 3.5) == rows
    assert (chain.retries.proxy, chain.retries.failed) == (0, 0)
    assert chain.trouble == "throttled by the quota of the topic (its settings rate and bytes)"
    assert chain.next_deadline() == 3.6, "the usual patience counts from the new try"


def test_rows_that_were_taken_are_done_and_the_others_wait() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1, 1)
    assert outbox.answered(chain, busy(100, last=rows[0].last), chain.generation, 0, 0.0) == rows[:1]
    assert sent(chain, 0.05) == []
    assert sent(chain, 0.1) == rows[1:]


def test_answers_to_rows_behind_change_nothing() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, 1)
    generation = chain.generation
    outbox.answered(chain, busy(1000), generation, 0, 0.0)
    outbox.answered(chain, status(Outcome.GAP, 0), generation, 0, 0.0)
    outbox.answered(chain, busy(5000), generation, 0, 0.0)
    assert sent(chain, 0.9) == []
    assert sent(chain, 1.0) == rows


def test_a_time_out_during_the_wait_ends_the_try_and_the_next_call_waits_on() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, until=1.0)
    outbox.answered(chain, busy(3000), chain.generation, 0, 0.0)
    chain.tick(1.0)
    assert chain.next_deadline() is None
    outbox.wake("t", 9.0, 0)
    more = put(outbox, 1)
    assert chain.trouble.startswith("throttled by")
    assert sent(chain, 2.0) == []
    assert sent(chain, 3.0) == rows + more


def test_a_long_wait_is_cut_and_an_answer_without_a_time_is_an_ordinary_failure() -> None:
    outbox = make()
    chain, rows = flying(outbox, 1, until=1e9)
    outbox.answered(chain, busy(10**9), chain.generation, 0, 0.0)
    assert chain.next_deadline() == THROTTLED_SECONDS_MAX
    assert sent(chain, THROTTLED_SECONDS_MAX) == rows
    outbox.answered(chain, busy(0), chain.generation, 0, 60.0)
    assert chain.tick(60.1)


def test_a_blocked_put_ends_by_its_time_out_and_says_why(cluster: Embedded, topic: str) -> None:
    with cluster.client("fast") as client:
        client.configure(topic, rate="1/s")
        assert client.settings_of(topic).rate == "1/s"
        client.put(topic, b"first")
        with pytest.raises(InDoubt, match="throttled by the quota of the topic"):
            client.put(topic, b"second", timeout=0.2)
        begun = time.monotonic()
        client.put(topic, b"third")
        assert time.monotonic() - begun > 0.5
        client.configure(topic, rate="none", bytes="1MiB/s")
        client.put_many(topic, [b"x"] * 100)
        assert client.unfinished(topic) == 0


def test_every_message_arrives_once_and_in_order_through_a_quota(cluster: Embedded, topic: str, client: Client) -> None:
    client.configure(topic, rate="40/s", bytes="none")
    client.subscribe(topic)
    begun = time.monotonic()
    wanted = [b"%d" % number for number in range(100)]
    with client.publisher(topic, records=7, linger=0.001) as publisher:
        for body in wanted:
            publisher.put(body)
    assert time.monotonic() - begun > 1.0, "100 messages are 40 at once, and 60 in one and a half seconds"
    found: list[bytes] = []
    while len(found) < len(wanted):
        found += client.get_many(topic, timeout=20.0).bodies()
    assert found == wanted


def test_an_async_put_waits_too_and_the_room_says_why(cluster: Embedded, topic: str) -> None:
    async def run() -> None:
        async with cluster.async_client("async-fast") as client:
            await client.configure(topic, rate="20/s")
            await asyncio.gather(*[client.put(topic, b"x") for _ in range(30)])
            await client.configure(topic, rate="1/s")

            async def fill() -> None:
                while True:
                    await client.put(topic, b"x" * 20_000, wait=False, timeout=0.2)

            with pytest.raises(Unavailable, match="unfinished: throttled by the quota of the topic"):
                await fill()
            client.discard(topic)

    asyncio.run(run())


def test_a_quota_of_a_client_is_kept_by_the_proxy_and_ends_with_its_line(tmp_path: Path) -> None:
    with keyed(tmp_path) as cluster:
        cluster.authorize(line("client", "alice", "put=*", "get=*", "rate=2/s", "bytes=1MiB/s"), BOB)
        with cluster.client() as alice, cluster.client("bob") as bob:
            alice.put_many("t", [b"x", b"x"])
            with pytest.raises(InDoubt, match="throttled by the quota of this client"):
                alice.put("t", b"x", timeout=0.1)
            bob.put_many("t", [b"x"] * 100)
            alice.subscribe("t")  # Nothing but a put is put off.
            alice.flush()
            assert alice.unfinished("t") == 0
            with pytest.raises(InDoubt, match="throttled by the quota of this client"):
                alice.put_many("other", [b"x"] * 1000, timeout=0.1) and alice.put("other", b"x", timeout=0.1)
            access = cluster.proxy.process._access
            assert access is not None
            (held,) = access.report()["throttled"].values()
            assert held["puts"] == cluster.proxy.count("throttled") >= 2
            assert held["seconds"] > 0
            cluster.authorize(line("client", "alice", "put=*", "get=*"), BOB)
            alice.put_many("t", [b"x"] * 1000)
            alice.flush()


def test_a_throttled_client_stays_with_its_proxy(tmp_path: Path) -> None:
    with keyed(tmp_path, proxies=2) as cluster:
        cluster.authorize(line("client", "alice", "put=*", "get=*", "rate=1/s"), BOB)
        with cluster.client() as alice:
            alice.put("t", b"x")
            begun = time.monotonic()
            alice.put("t", b"x")
            assert time.monotonic() - begun > 0.5
            assert sorted(proxy.count("throttled") > 0 for proxy in cluster.proxies) == [False, True]
