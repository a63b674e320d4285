"""State directories that were emptied, copied, used twice or moved to another host."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pubsub import Client
from pubsub.errors import StateCopied, StoreInUse, Superseded
from tests.faults.checker import check
from tests.faults.cluster import Cluster
from tests.faults.finish import put_end
from tests.faults.history import Putting, Taking

pytestmark = pytest.mark.faults


def copy(cluster: Cluster, name: str, place: str) -> Path:
    """A copy of a closed client's state."""
    target = cluster.directory / place
    target.mkdir()
    shutil.copy(cluster.state(name), target / f"{name}.db")
    return target


def test_a_publisher_with_an_emptied_directory_is_another_publisher_not_a_repeat(cluster: Cluster) -> None:
    cluster.run(1, 1)
    taking = Taking(cluster.client("bob"))
    taking.intend("a", True)
    with cluster.client("alice") as alice:
        Putting(alice, "first").put_many("a", 3)
    before = cluster.state("alice").rename(cluster.directory / "before.db")
    with cluster.client("alice") as alice:
        Putting(alice, "second").put_many("a", 3)
    put_end(cluster, ["a"])
    taking.drain("a")
    taking.client.close()
    assert check([before, cluster.state("alice")], [cluster.state("bob")]) == []


def test_a_subscriber_with_an_emptied_directory_subscribes_anew_and_sees_nothing_twice(cluster: Cluster) -> None:
    cluster.run(1, 1)
    with cluster.client("bob") as bob, cluster.client("alice") as alice:
        taking, putting = Taking(bob), Putting(alice, "alice")
        taking.intend("a", True)
        putting.put_many("a", 3)
        assert taking.process("a", 5.0) > 0
    before = cluster.state("bob").rename(cluster.directory / "before.db")
    taking, putting = Taking(cluster.client("bob")), Putting(cluster.client("alice"), "alice")
    taking.intend("a", True)
    putting.put_many("a", 3)
    put_end(cluster, ["a"])
    taking.drain("a")
    for client in cluster.clients:
        client.close()
    assert check([cluster.state("alice")], [[before, cluster.state("bob")]]) == []


def test_a_publishers_copy_is_found_out_and_renewed_and_loses_nothing(cluster: Cluster) -> None:
    cluster.run(1, 1)
    taking = Taking(cluster.client("bob"))
    taking.intend("a", True)
    with cluster.client("alice") as alice:
        Putting(alice, "alice").put("a")
    elsewhere = copy(cluster, "alice", "copy")
    original = Putting(cluster.client("alice"), "original")
    duplicate = Putting(cluster.client("alice", directory=elsewhere), "copy")
    original.put("a")
    duplicate.put("a")
    with pytest.raises(StateCopied) as caught:
        original.put("a")
    assert "pubsub client alice renew" in str(caught.value)
    original.client.renew()
    original.flush()
    original.put("a")
    duplicate.put("a")
    put_end(cluster, ["a"])
    taking.drain("a")
    with taking.client.transaction() as transaction:
        seen = [body for (body,) in transaction.execute("select body from history_seen")]
    assert sorted(seen) == sorted(["alice:1:a", "original:2:a", "original:3:a", "original:4:a", "copy:2:a", "copy:3:a"])


def test_a_subscribers_copy_that_is_older_is_found_out_and_renewed(cluster: Cluster) -> None:
    cluster.run(1, 1)
    with cluster.client("bob") as bob, cluster.client("alice") as alice:
        bob.subscribe("a")
        alice.put_many("a", [b"1", b"2"])
        assert [bob.get("a").body, bob.get("a").body] == [b"1", b"2"]
    elsewhere = copy(cluster, "bob", "copy")
    alice = cluster.client("alice")
    alice.put("a", b"3")
    with cluster.client("bob") as bob:
        assert bob.get("a").body == b"3"
    with cluster.client("bob", directory=elsewhere) as bob:
        with pytest.raises(StateCopied):
            bob.get("a")
        bob.renew()
        bob.subscribe("a")
        alice.put("a", b"4")
        assert bob.get("a").body == b"4"


def unmarked(client: Client) -> bytes:
    """The next message that was handed to no other directory; what was, and is not acknowledged, comes before it."""
    while True:
        message = client.get("a")
        assert message is not None
        if not message.doubtful:
            return message.body


def test_a_client_opened_later_elsewhere_is_the_subscriber_and_the_other_learns_so(cluster: Cluster) -> None:
    cluster.run(1, 1)
    with cluster.client("bob") as bob:
        bob.subscribe("a")
    elsewhere = copy(cluster, "bob", "copy")
    old = cluster.client("bob")
    alice = cluster.client("alice")
    alice.put("a", b"1")
    assert old.get("a").body == b"1"
    with cluster.client("bob", directory=cluster.directory / "new host") as new:
        new.subscribe("a")
        alice.put("a", b"2")
        assert unmarked(new) == b"2"
        with pytest.raises(Superseded):
            old.get("a")
        with pytest.raises(Superseded), cluster.client("bob", directory=elsewhere) as older:
            older.get("a")
        alice.put("a", b"3")
        assert unmarked(new) == b"3"
        old.subscribe("a")
        alice.put("a", b"4")
        assert unmarked(old) == b"4"
        with pytest.raises(Superseded):
            new.get("a")


def test_two_processes_do_not_share_one_directory(cluster: Cluster) -> None:
    cluster.run(1, 1)
    process = cluster.subscriber("bob", ["a"])
    process.wait_line("subscribed")
    with pytest.raises(StoreInUse) as caught:
        cluster.client("bob")
    assert str(process.running.pid) in str(caught.value)
