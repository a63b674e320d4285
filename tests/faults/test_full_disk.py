"""Full disks, at the server and at a client, and back."""

from __future__ import annotations

import pytest

from pubsub import Client
from pubsub.errors import InDoubt, StoreFull
from tests.client.opened import nothing
from tests.faults.checker import check
from tests.faults.cluster import Cluster, until
from tests.faults.finish import put_end
from tests.faults.history import Putting, Taking

pytestmark = pytest.mark.faults
MIB = 1 << 20
BODY = b"x" * 64 * 1024


def test_servers_with_a_full_disk_refuse_puts_take_acknowledgements_and_recover(cluster: Cluster) -> None:
    cluster.run(1, 2, store_bytes_max=4 * MIB, retention_hold_seconds=1.0, skew_seconds=0.1)
    bob, eve, alice = cluster.client("bob"), Taking(cluster.client("eve")), cluster.client("alice")
    carl = Putting(cluster.client("carl"), "carl")
    for topic in ("big", "great"):  # One for each server.
        bob.subscribe(topic)
    eve.intend("small", True)
    carl.put("small")
    put = {}
    for topic in ("big", "great"):
        put[topic], reason = fill_server(alice, topic)
        assert "disk" in reason
        assert put[topic] > 10
    assert [cluster.report(name)["full"] for name in ("s1", "s2")] == [True, True]
    owner = next(number for number in (0, 1) if "small" in cluster.report(f"s{number + 1}")["topics"])
    with pytest.raises(InDoubt):
        carl.put("small", timeout=0.5)
    other = cluster.servers[1 - owner]
    other.kill()
    other.start()
    other.ready()
    # What is there can be read and acknowledged, by which there is space again after the hold.
    for topic in ("big", "great"):
        take(bob, topic, put[topic])
    alice.flush()
    carl.flush()
    for name in ("s1", "s2"):
        until(lambda name=name: not cluster.report(name)["full"], f"{name} has space again")
    for topic in ("big", "great"):
        take(bob, topic, 1)
        assert nothing(bob, topic)
    put_end(cluster, ["small"])
    eve.drain("small")
    for client in cluster.clients:
        client.close()
    assert check([cluster.state("carl")], [cluster.state("eve")]) == []


def test_a_client_with_a_full_disk_sends_no_request_and_continues_with_space(cluster: Cluster) -> None:
    cluster.run(1, 1)
    taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice")
    taking.intend("a", True)
    putting.put("a")
    alice = putting.client
    fill(putting)
    before = cluster.report("s1")["counters"]["records"]
    for _ in range(3):
        with pytest.raises(StoreFull):
            alice.put("a", BODY)
    assert alice.unfinished("a") == 0
    assert cluster.report("s1")["counters"]["records"] == before
    grow(putting)
    putting.put("a")
    fill(taking)
    putting.put_many("a", 1000)
    with pytest.raises(StoreFull):
        take_all(taking)
    grow(taking)
    put_end(cluster, ["a"])
    taking.drain("a")
    for client in cluster.clients:
        client.close()
    assert check([cluster.state("alice")], [cluster.state("bob")]) == []


def take(client: Client, topic: str, count: int) -> None:
    """Exactly so many messages."""
    while count:
        count -= len(client.get_many(topic, count, timeout=10.0))


def fill_server(client: Client, topic: str) -> tuple[int, str]:
    """Put until it takes no more: how many it took, and why not the next one, which is in doubt."""
    put = 0
    while True:
        try:
            client.put(topic, BODY, timeout=1.0)
        except InDoubt as error:
            return put, error.reason
        put += 1


def take_all(taking: Taking) -> None:
    """Until there is nothing."""
    while taking.process("a", 2.0):
        continue


def fill(of: Putting | Taking) -> None:
    """The client's database may not grow any more."""
    with of.client.transaction() as transaction:
        pages = transaction.execute("pragma page_count").get
        transaction.execute(f"pragma max_page_count = {pages}")


def grow(of: Putting | Taking) -> None:
    """It may again."""
    with of.client.transaction() as transaction:
        transaction.execute("pragma max_page_count = 1000000")
