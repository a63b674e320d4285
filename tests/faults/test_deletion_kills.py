"""Deletions of a topic while proxies and servers are killed with SIGKILL and started again.

The rules are those of docs/explanation/deletion.md, UD1, UD2, UD5 and UD7.
"""

from __future__ import annotations

import threading
import time
from random import Random

import pytest

from pubsub.cli.peeking import peek
from pubsub.client import Client
from pubsub.errors import DataLoss, NotKnown, Unavailable
from tests.faults.cluster import Cluster

pytestmark = pytest.mark.faults

ROUNDS = 6


def received(bob: Client, last: bytes) -> list[bytes]:
    """Return the messages up to the last one; a loss is that of the deletion."""
    got: list[bytes] = []
    reasons: set[str] = set()
    while not got or got[-1] != last:
        try:
            message = bob.get("t", timeout=120)
        except DataLoss as loss:
            reasons.add(loss.reason)
        else:
            assert message is not None
            got.append(message.body)
    assert all(reason.startswith("an operator deleted the topic") for reason in reasons)
    return got


def deleted(ops: Client) -> None:
    """Delete, and repeat that until it is answered. Nobody puts meanwhile."""
    while True:
        try:
            ops.delete_topic("t", force=True)
        except (Unavailable, NotKnown):
            continue
        return


def test_a_deletion_that_was_answered_holds_and_takes_no_later_message_through_kills(cluster: Cluster) -> None:
    cluster.run(proxies=2, servers=2)
    random = Random(11)
    alice, bob, ops = (cluster.client(name, timeout_seconds=30.0) for name in ("alice", "bob", "ops"))

    def strike(seconds: float) -> None:
        time.sleep(seconds)  # A moment of the deletion, drawn by chance; nothing waits for it.
        victim = random.choice((*cluster.servers, *cluster.proxies))
        victim.kill()
        victim.start()

    for number in range(ROUNDS):
        ops.create_topic("t", keep="ever")
        bob.subscribe("t")
        before = [b"%d-%d" % (number, n) for n in range(5)]
        alice.put_many("t", before)
        killer = threading.Thread(target=strike, args=(random.random() * 0.05,))
        killer.start()
        deleted(ops)
        killer.join()
        ops.create_topic("t", keep="ever")
        after = [b"%d-later-%d" % (number, n) for n in range(3)]
        alice.put_many("t", after[:1])
        alice.put_many("t", after[1:])
        found = peek(ops.settings, "ops", "t", "-1", 100)
        assert [one["body"] for one in found["messages"]] == after
        bob.subscribe("t", start="earliest", fresh=True)
        assert received(bob, after[-1])[-3:] == after
        deleted(ops)
