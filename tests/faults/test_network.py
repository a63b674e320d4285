"""Cuts, delays, one-way loss, processes that are stopped for longer than liveness, and topics that were split."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from tests.faults.cluster import DEAD_SECONDS, Cluster, Process, until
from tests.faults.finish import finish, objections
from tests.faults.net import Net
from tests.faults.relay import DOWN, UP

pytestmark = pytest.mark.faults
TOPICS = ["a", "b", "c/d"]


@pytest.fixture
def net(cluster: Cluster) -> Iterator[Net]:
    """Two proxies behind relays; servers and clients are the test's to start."""
    with ExitStack() as stack:
        yield Net(cluster, stack)


def pass_time(seconds: float, takers: list[Process], messages: int) -> None:
    """Until so much time has passed, or so many messages were taken."""
    limit, goal = time.monotonic() + seconds, sum(taker.number("took") for taker in takers) + messages
    until(lambda: time.monotonic() > limit or sum(taker.number("took") for taker in takers) > goal, "the moment comes")


def test_cuts_delays_and_one_way_loss_lose_double_and_misplace_nothing(cluster: Cluster, net: Net) -> None:
    rng = Random(5)
    for _ in range(2):
        cluster.server()
    cluster.wait_ready()
    subscribers = [cluster.subscriber(name, TOPICS) for name in ("bob", "eve")]
    for process in subscribers:
        process.wait_line("subscribed")
    publishers = [cluster.publisher(name, TOPICS, pause=0.02) for name in ("alice", "carl")]
    faults = ["cut", "delay", UP, DOWN] * 2
    rng.shuffle(faults)
    for number, fault in enumerate(faults):
        relay = rng.choice(net.clients if number % 2 else net.servers)
        if fault == "cut":
            relay.cut()
        elif fault == "delay":
            relay.delay = 0.05
        else:
            relay.silent = {fault}
        pass_time(rng.random() * 2 * DEAD_SECONDS, subscribers, 300)
        relay.heal()
        pass_time(rng.random() * 0.3, subscribers, 100)
    finish(cluster, TOPICS, publishers, subscribers)
    assert objections(cluster, publishers, subscribers) == []


def test_a_process_stopped_for_longer_than_liveness_continues_without_loss(cluster: Cluster) -> None:
    rng = Random(7)
    cluster.run()
    subscribers = [cluster.subscriber(name, TOPICS) for name in ("bob", "eve")]
    for process in subscribers:
        process.wait_line("subscribed")
    publishers = [cluster.publisher(name, TOPICS, pause=0.02) for name in ("alice", "carl")]
    for role in (cluster.servers, cluster.proxies, publishers, subscribers):
        victim = rng.choice(role)
        victim.pause()
        over = time.monotonic() + 1.5 * DEAD_SECONDS
        until(lambda over=over: time.monotonic() > over, "it is taken for dead")
        victim.resume()
        pass_time(0.3, subscribers, 100)
    finish(cluster, TOPICS, publishers, subscribers)
    assert objections(cluster, publishers, subscribers) == []


def holders(cluster: Cluster) -> list[dict[str, list[str]]]:
    """Who holds each topic, as each proxy sees it."""
    reports: list[dict[str, Any]] = [cluster.report("-", proxy=number) for number in (0, 1)]
    return [
        {topic["topic"]: [holder["server"] for holder in topic["holders"]] for topic in report["topics"]}
        for report in reports
    ]


def test_a_topic_that_was_split_by_deaf_proxies_is_joined_without_loss_or_repeat(cluster: Cluster, net: Net) -> None:
    net.servers[0].blocked, net.servers[1].blocked = {"s2"}, {"s1"}
    for _ in range(2):
        cluster.server()
    cluster.wait_ready()
    sides = [[net.clients[0].endpoint], [net.clients[1].endpoint]]
    subscribers = [
        cluster.subscriber(name, TOPICS, proxies=side, fresh=True)
        for name, side in zip(("bob", "eve"), sides, strict=True)
    ]
    for process in subscribers:
        process.wait_line("subscribed")
    publishers = [
        cluster.publisher(name, TOPICS, pause=0.02, proxies=side)
        for name, side in zip(("alice", "carl"), sides, strict=True)
    ]
    for taker in subscribers:
        until(lambda taker=taker: taker.number("took") > 50, "each side has its own")
    for name in ("s1", "s2"):
        number = int(name[1]) - 1
        assert set(cluster.report(name, proxy=number)["topics"]) == set(TOPICS)
    net.heal()
    # One and the same: before the proxies hear of it, each of them sees one holder too, but not the other one's.
    until(lambda: holders(cluster) == [{topic: ["s1"] for topic in TOPICS}] * 2, "every topic has one holder")
    for taker in subscribers:
        before = taker.number("took")
        until(lambda taker=taker, before=before: taker.number("took") > before + 50, "traffic goes on")
    finish(cluster, TOPICS, publishers, subscribers)
    assert objections(cluster, publishers, subscribers) == []
    assert all(process.number("ended") > 100 for process in subscribers)
