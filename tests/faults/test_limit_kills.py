"""Quotas and times to live while servers, proxies and a subscriber are killed with SIGKILL.

The rules are those of docs/explanation/quotas.md, QU1 to QU4, and docs/explanation/ttl.md, TL2.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from pubsub.client import Client
from tests.faults.cluster import Cluster, Process, until

pytestmark = pytest.mark.faults

TOPIC = "t"
RATE, PUTS = 20, 200
WINDOW = 4
"""Rows that a client sends at once, and so the most that one train has."""


def put_through_kills(
    alice: Client, bob: Client, victims: list[Process], kills: int
) -> tuple[list[float], list[float]]:
    """Put faster than the quota allows, and kill; return the stamps of all messages, and the times of the starts."""
    bob.subscribe(TOPIC)

    def put() -> None:
        for number in range(PUTS):
            alice.put(TOPIC, b"%d" % number, wait=False)

    putting = threading.Thread(target=put)
    putting.start()
    random, stamps, starts = Random(5), list[float](), [0.0]

    def take(count: int) -> None:
        while len(stamps) < count:
            message = bob.get(TOPIC, timeout=120)
            assert message is not None
            assert message.body == b"%d" % len(stamps)
            stamps.append(message.stamp / 1e6)

    for index in range(kills):
        take(len(stamps) + random.randint(RATE, 2 * RATE))
        victim = victims[index % len(victims)]
        victim.kill()
        starts.append(time.time())
        victim.start()
    take(PUTS)
    putting.join()
    assert bob.get(TOPIC, timeout=0.2) is None
    return stamps, starts


def test_the_quota_of_a_topic_holds_from_each_start_of_its_server_on(cluster: Cluster) -> None:
    cluster.run(proxies=2, servers=1)
    alice, bob = cluster.client("alice"), cluster.client("bob")
    alice.configure(TOPIC, rate=f"{RATE}/s")
    stamps, starts = put_through_kills(alice, bob, [cluster.servers[0]], 3)
    for start, end in pairwise([*starts, float("inf")]):
        life = [stamp for stamp in stamps if start <= stamp < end]
        for index, first in enumerate(life):
            # In t seconds (t + 1) times the quota, and one put more.
            most = max(number - RATE * (stamp - first) for number, stamp in enumerate(life[index:], 1))
            assert most <= RATE + 2, (first, most)


def test_the_quota_of_a_client_holds_from_each_start_of_its_proxy_on(tmp_path: Path) -> None:
    with Cluster(tmp_path, keys=True) as cluster:
        assert cluster.keys is not None
        lines = cluster.keys.authorized.read_text().splitlines()
        cluster.keys.authorized.write_text(
            "".join(f"{line} rate={RATE}/s\n" if line.startswith("client ") else f"{line}\n" for line in lines)
        )
        cluster.run(proxies=1, servers=1)
        alice, bob = cluster.client("alice", window=WINDOW), cluster.client("bob")
        began = time.monotonic()
        put_through_kills(alice, bob, [*cluster.proxies, *cluster.servers], 2)
        # At most a bucket, and one train more, for each life of the proxy, and the quota a second.
        most = RATE * (time.monotonic() - began) + 2 * (RATE + WINDOW)
        assert most >= PUTS


def test_no_message_is_taken_after_its_time_to_live_and_no_other_one_is_lost(cluster: Cluster) -> None:
    cluster.run(proxies=2, servers=1)
    alice, random, lives = cluster.client("alice"), Random(3), dict[str, float]()
    facts = {"name": "bob", "directory": str(cluster.directory / "clients"), "proxies": cluster.addresses}
    bob = cluster._worker("brief_reader", "bob", [TOPIC], facts)

    def put(ttl: float | None) -> None:
        body = str(len(lives))
        lives[body] = float("inf") if ttl is None else ttl
        alice.put(TOPIC, body.encode(), ttl=ttl, wait=False)

    over: list[str] = []
    bob.wait_line("subscribed")
    for victim in (bob, cluster.servers[0], cluster.proxies[0], bob, cluster.servers[0]):
        for _ in range(random.randint(5, 20)):
            put(random.choice((None, 0.05, 600.0)))
        seen = len(bob.lines("took"))
        until(lambda seen=seen: len(bob.lines("took")) > seen, "bob takes")
        victim.kill()
        for _ in range(6):
            put(random.choice((None, 0.3, 600.0)))
        if victim is bob:
            alice.flush()
            over += [body for body, ttl in lives.items() if ttl == 0.3 and int(body) >= len(lives) - 6]
            past = time.time() + 0.4
            until(lambda past=past: time.time() > past, "their time is over")
        victim.start()
        victim.ready() if victim is not bob else bob.wait_line("subscribed")
        put(None)
    alice.put(TOPIC, b"end")
    bob.say("finish")
    assert bob.wait(120.0) == 0, bob.errors.read_text()
    (path,) = (cluster.directory / "clients").rglob("bob.db")
    rows = sqlite3.connect(path).execute("select body, stamp, before from taken order by n").fetchall()
    taken = [body for body, _, _ in rows]
    assert len(taken) == len(set(taken))
    assert [body for body, stamp, before in rows if before >= stamp + lives.get(body, float("inf"))] == []
    assert over
    assert not set(over) & set(taken)
    assert {body for body, ttl in lives.items() if ttl >= 600.0} <= set(taken)
    assert [int(body) for body in taken[:-1]] == sorted(int(body) for body in taken[:-1])
