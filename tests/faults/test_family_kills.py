"""A pattern of topics through SIGKILL of servers and proxies, and through the loss of a routes file.

The rules are those of docs/explanation/families.md, FA1, FA2 and FA3.
"""

from __future__ import annotations

from random import Random

import pytest

from pubsub.client import Client
from tests.faults.cluster import Cluster, until

pytestmark = pytest.mark.faults

TOPICS = 12
PATTERN = "orders.>"


def entries(cluster: Cluster) -> set[str]:
    """The topics with an entry for the pattern, as the servers report them."""
    topics = [facts for name in ("s1", "s2") for facts in cluster.report(name)["topics"].items()]
    return {topic for topic, facts in topics if f"*bob:{PATTERN}" in facts["subscribers"]}


def taken(bob: Client, count: int) -> dict[str, list[bytes]]:
    """So many messages, by topic."""
    got: dict[str, list[bytes]] = {}
    for _ in range(count):
        message = bob.get(PATTERN, timeout=120)
        assert message is not None
        got.setdefault(message.topic, []).append(message.body)
    return got


def test_the_first_messages_of_new_topics_outlast_kills_and_a_lost_file_while_the_subscriber_is_away(
    cluster: Cluster,
) -> None:
    cluster.run(proxies=2, servers=2, retention_hold_seconds=4, skew_seconds=0.1)
    random, alice = Random(5), cluster.client("alice")
    bob = cluster.client("bob")
    bob.subscribe(PATTERN)
    bob.close()
    sent: dict[str, list[bytes]] = {}
    for number in range(TOPICS):
        topic = f"orders.{number}"
        sent[topic] = [b"%d-%d" % (number, n) for n in range(3)]
        tickets = [alice.put(topic, body, wait=False) for body in sent[topic]]
        victim = random.choice([*cluster.servers, *cluster.proxies])
        victim.kill()
        if number == TOPICS // 2:
            cluster.proxies[0].kill()
            for file in (cluster.directory / "p1").glob("routes.db*"):
                file.unlink()
        for process in (*cluster.servers, *cluster.proxies):
            if process.running.poll() is not None:
                process.start()
        alice.flush()
        assert all(ticket.done for ticket in tickets)
    cluster.wait_ready()
    until(lambda: entries(cluster) == sent.keys(), "each topic has an entry for the pattern", 90)
    assert taken(cluster.client("bob"), 3 * TOPICS) == sent
    assert cluster.clients[-1].get(PATTERN, timeout=0.5) is None
