"""Purges of unread messages while the server is killed with SIGKILL and started again.

The rules are those of docs/explanation/topics.md, U5, U7 and U8.
"""

from __future__ import annotations

import threading
import time
from random import Random

import pytest

from pubsub.cli.peeking import peek
from pubsub.client import Client
from pubsub.client.core.subscription import PURGED
from pubsub.errors import DataLoss, Unavailable
from tests.faults.cluster import Cluster

pytestmark = pytest.mark.faults

ROUNDS = 6


def received(bob: Client, last: bytes) -> tuple[list[bytes], int]:
    """Return the messages up to the last one, and the number of those that bob was told are purged."""
    got: list[bytes] = []
    reasons: set[str] = set()
    lost = 0
    while not got or got[-1] != last:
        try:
            message = bob.get("t", timeout=120)
        except DataLoss as loss:
            reasons.add(loss.reason)
            lost += int(loss.last.partition(".")[2]) - int(loss.first.partition(".")[2]) + 1
        else:
            assert message is not None
            got.append(message.body)
    assert reasons <= {PURGED}
    return got, lost


def purged(ops: Client) -> None:
    """Purge, and repeat that until it is answered. Nobody puts meanwhile."""
    while True:
        try:
            ops.purge_topic("t", unread=True)
        except Unavailable:
            continue
        return


def test_a_purge_that_was_answered_holds_and_takes_no_later_message_through_kills(cluster: Cluster) -> None:
    cluster.run(proxies=2, servers=1)
    random, server = Random(7), cluster.servers[0]
    alice, bob, ops = (cluster.client(name, timeout_seconds=30.0) for name in ("alice", "bob", "ops"))
    ops.create_topic("t", keep="ever")
    bob.subscribe("t")

    def strike(seconds: float) -> None:
        time.sleep(seconds)  # A moment of the purge, drawn by chance; nothing waits for it.
        server.kill()
        server.start()

    for number in range(ROUNDS):
        before = [b"%d-%d" % (number, n) for n in range(5)]
        alice.put_many("t", before)
        killer = threading.Thread(target=strike, args=(random.random() * 0.03,))
        killer.start()
        purged(ops)
        killer.join()
        after = [b"%d-later-%d" % (number, n) for n in range(3)]
        alice.put_many("t", after)
        found = peek(ops.settings, "ops", "t", "-1", 100)
        assert [one["body"] for one in found["messages"]] == after
        got, lost = received(bob, after[-1])
        assert got[-3:] == after
        assert len(got) + lost == len(before) + len(after), (got, lost)
        purged(ops)
