"""Delayed messages while proxies and servers are killed: each comes once, and not before its time."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from pubsub.errors import Unavailable
from tests.faults.cluster import Cluster

pytestmark = pytest.mark.faults
TOPIC, ROUNDS, MESSAGES = "a", 6, 12


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_delayed_messages_survive_kills_of_proxies_and_servers(tmp_path: Path, seed: int) -> None:
    rng, due, taken = Random(seed), dict[bytes, float](), list[tuple[bytes, float, int]]()
    with Cluster(tmp_path) as cluster:
        cluster.run(2, 2)
        bob, alice = cluster.client("bob"), cluster.client("alice")
        bob.subscribe(TOPIC)

        def take(timeout: float) -> None:
            try:
                found = bob.get_many(TOPIC, timeout=timeout)
            except Unavailable:
                return
            taken.extend((message.body, time.time(), message.stamp) for message in found)

        for number in range(ROUNDS):
            for index in range(MESSAGES):
                body, delay = b"%d.%d" % (number, index), rng.choice((0.2, 1.0, 3.0)) * rng.random()
                due[body] = time.time() + delay
                alice.put(TOPIC, body, delay=delay, wait=rng.random() < 0.3)
            victim = rng.choice([*cluster.proxies, *cluster.servers, *cluster.servers])
            victim.kill()
            take(rng.random() * 0.3)
            victim.start()
            if rng.random() < 0.5:  # Its outbox keeps the due times.
                alice.close()
                alice = cluster.client("alice")
        alice.flush()
        limit = time.monotonic() + 60
        while len(taken) < len(due) and time.monotonic() < limit:
            take(1.0)
        take(1.0)
    came = Counter(body for body, _, _ in taken)
    assert came == Counter(dict.fromkeys(due, 1))
    assert [body for body, at, stamp in taken if min(at, stamp / 1e6) < due[body]] == []
