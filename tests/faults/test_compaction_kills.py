"""Compaction through SIGKILL of servers and proxies: a table stays what was put, and a subscriber gets each message.

The rules are those of docs/explanation/compaction.md, KL1, KL2 and KL4.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random

import pytest

from pubsub.client import Client
from pubsub.server.offline.check import check
from pubsub.server.offline.found import Verdict
from tests.faults.cluster import Cluster, until

pytestmark = pytest.mark.faults

TOPIC = "prices"
KEYS = [b"k%d" % number for number in range(40)]
ROUNDS = 3
PUTS = 150


def counted(cluster: Cluster, name: str) -> int:
    """A counter of both servers since their last starts."""
    return sum(int(cluster.report(server)["counters"].get(name, 0)) for server in ("s1", "s2"))


def records(cluster: Cluster) -> int:
    """Messages of the topic at its holders."""
    held = (cluster.report(server)["topics"].get(TOPIC) for server in ("s1", "s2"))
    return sum(facts["records"] for facts in held if facts)


def now_and_then(condition: Callable[[], bool]) -> Callable[[], bool]:
    """The same condition, looked at twice a second, because each look is a report of each server."""
    next_at = time.monotonic()

    def looked() -> bool:
        nonlocal next_at
        if time.monotonic() < next_at:
            return False
        next_at = time.monotonic() + 0.5
        return condition()

    return looked


def put_some(random: Random, alice: Client, table: dict[bytes, bytes], number: int) -> list[bytes]:
    """Put messages with keys, some of which delete their keys; return the bodies."""
    sent = []
    for index in range(PUTS):
        key, body = random.choice(KEYS), b"" if random.random() < 0.2 else b"%d-%d" % (number, index)
        alice.put(TOPIC, body, key=key, wait=False)
        table.pop(key, None)
        if body:
            table[key] = body
        sent.append(body)
    return sent


@pytest.mark.parametrize("rounds", [2, pytest.param(ROUNDS, marks=pytest.mark.nightly)])
def test_a_table_and_a_subscriber_outlast_kills_during_compaction(cluster: Cluster, rounds: int) -> None:
    cluster.run(proxies=2, servers=2, retention_hold_seconds=1.0, skew_seconds=0.1)
    random, alice, bob = Random(7), cluster.client("alice"), cluster.client("bob")
    alice.configure(TOPIC, keep="latest")
    bob.subscribe(TOPIC)
    expected: dict[bytes, bytes] = {}
    for number in range(rounds):
        sent = put_some(random, alice, expected, number)
        for victim in random.sample([*cluster.servers, *cluster.proxies], 2):
            victim.kill()
            victim.start()
        alice.flush()
        got = []
        for _ in sent:
            message = bob.get(TOPIC, timeout=120)
            assert message is not None
            got.append(message.body)
        assert got == sent
        cluster.wait_ready()
        until(now_and_then(lambda: counted(cluster, "compaction_rounds") > 0), "a round of compaction ran", 90)
        moment = time.monotonic() + random.random() * 0.1
        until(lambda moment=moment: time.monotonic() > moment, "the moment comes")
        victim = random.choice(cluster.servers)
        victim.kill()
        victim.start()
        cluster.wait_ready()
    for key in [*KEYS, *KEYS]:  # The newest batch stays, so it becomes a small one.
        alice.put(TOPIC, b"end", key=key)
        expected[key] = b"end"
        message = bob.get(TOPIC, timeout=120)
        assert message is not None
        assert (message.key, message.body) == (key, b"end")
    assert bob.get(TOPIC, timeout=0.5) is None
    until(now_and_then(lambda: records(cluster) <= 2 * len(KEYS)), "superseded messages went", 120)
    with alice.table(TOPIC) as table:
        assert dict(table.items()) == expected
        assert table.lost == 0
    for server in cluster.servers:
        server.kill()
        found = check(cluster.directory / server.name)
        assert found.verdict is Verdict.INTACT, found.sentences()
