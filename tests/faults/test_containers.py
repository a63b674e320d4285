"""Containers' habits: a client's directory vanishes between two starts, and two replicas run under one name."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pubsub import Client
from pubsub.errors import Superseded, Unavailable
from tests.faults.cluster import PATIENCE_SECONDS, Cluster, until

pytestmark = pytest.mark.faults


def take(client: Client, topic: str, expected: set[bytes]) -> dict[bytes, bool]:
    """Everything until all these have come, each with its mark."""
    found: dict[bytes, bool] = {}
    while not expected <= found.keys():
        for message in client.get_many(topic, timeout=PATIENCE_SECONDS):
            assert message.body not in found, "one directory gets nothing twice"
            found[message.body] = message.doubtful
    return found


def superseded(client: Client, topic: str) -> bool:
    """Whether it is told that another directory goes on; what it has prefetched it may still take."""
    try:
        client.get(topic, timeout=0.2)
    except Superseded:
        return True
    except Unavailable:  # The server is on its way back.
        return False
    return False


def test_a_redeployed_container_gets_the_waiting_messages_also_of_a_killed_server(cluster: Cluster) -> None:
    cluster.run(2, 1)
    with cluster.client("svc", directory=cluster.directory / "first") as client:
        client.subscribe("orders")
    with cluster.client("shop") as shop:
        shop.put_many("orders", [b"1", b"2", b"3"])
        shutil.rmtree(cluster.directory / "first")
        with cluster.client("svc", directory=cluster.directory / "second") as client:
            client.subscribe("orders")
            assert take(client, "orders", {b"1", b"2", b"3"}) == dict.fromkeys((b"1", b"2", b"3"), False)
        shop.put_many("orders", [b"4", b"5"])
        cluster.servers[0].kill()
        cluster.servers[0].start().ready()
        shutil.rmtree(cluster.directory / "second")
        with cluster.client("svc", directory=cluster.directory / "third") as client:
            client.subscribe("orders")
            found = take(client, "orders", {b"4", b"5"})
            # Nobody knows any more what it had handed out; what was acknowledged may come again, and is marked, too.
            assert all(found.values())
            shop.put("orders", b"6")
            assert take(client, "orders", {b"6"}) == {b"6": False}


def test_two_replicas_under_one_name_lose_nothing_and_the_later_one_goes_on(cluster: Cluster) -> None:
    cluster.run(1, 1)
    earlier = cluster.client("svc", directory=cluster.directory / "a")
    shop = cluster.client("shop")
    earlier.subscribe("orders")
    shop.put_many("orders", [b"1", b"2"])
    assert take(earlier, "orders", {b"1"})[b"1"] is False
    later = cluster.client("svc", directory=cluster.directory / "b")
    later.subscribe("orders")
    cluster.servers[0].kill()
    cluster.servers[0].start().ready()
    shop.put("orders", b"3")
    got = take(later, "orders", {b"3"})
    assert got[b"3"] is False
    assert all(mark for body, mark in got.items() if body != b"3")
    until(lambda: superseded(earlier, "orders"), "the earlier one is told")
    earlier.subscribe("orders")
    shop.put("orders", b"4")
    assert b"4" in take(earlier, "orders", {b"4"})
    until(lambda: superseded(later, "orders"), "now the other one is")


def test_a_first_subscribe_waits_while_a_proxy_is_down_and_says_so_and_fresh_does_not(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.run(2, 1)
    cluster.proxies[1].kill()
    with cluster.client("svc", directory=tmp_path / "svc") as client:
        with pytest.raises(Unavailable, match=r"most proxies.*fresh=True"):
            client.subscribe("orders", timeout=5.0)
        client.subscribe("orders", fresh=True)
        client.put("orders", b"1")
        assert take(client, "orders", {b"1"}) == {b"1": False}
    with cluster.client("other", directory=tmp_path / "other") as client:
        with pytest.raises(Unavailable):
            client.subscribe("orders", timeout=0.5)
        cluster.proxies[1].start("--startup-wait-seconds", "0")
        client.subscribe("orders")


def test_a_first_subscribe_succeeds_with_one_of_three_proxies_down(cluster: Cluster, tmp_path: Path) -> None:
    cluster.run(3, 1)
    with cluster.client("svc", directory=tmp_path / "a") as client:
        client.subscribe("orders")
        client.put("orders", b"1")
    cluster.proxies[1].kill()
    with cluster.client("svc", directory=tmp_path / "b") as client:
        client.subscribe("orders", timeout=120.0)
        message = client.get("orders", timeout=120.0)
        assert message is not None
        assert message.body == b"1"
