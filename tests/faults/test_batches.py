"""Batches in flight of which some are lost, repeated or not answered."""

from __future__ import annotations

from random import Random

import pytest

from pubsub.protocol import Message, Put
from tests.faults.checker import check
from tests.faults.cluster import Cluster, until
from tests.faults.finish import put_end
from tests.faults.history import Putting, Taking
from tests.faults.sieve import Fate, Sieve

pytestmark = pytest.mark.faults
BATCHES = 12


def test_a_batch_lost_in_a_pipeline_is_put_at_its_place(cluster: Cluster) -> None:
    cluster.run(1, 1)
    lost: list[int] = []

    def lose_the_third(message: Message) -> Fate:
        if isinstance(message, Put) and message.topic == "a":
            lost.append(message.counter)
            return Fate.DROP if len(lost) == 3 else Fate.PASS
        return Fate.PASS

    with Sieve(cluster.addresses[0], lose_the_third) as sieve:
        taking = Taking(cluster.client("bob"))
        taking.intend("a", True)
        with cluster.client("alice", proxies=[sieve.address]) as alice:
            putting = Putting(alice, "alice")
            for _ in range(BATCHES):
                putting.put("a", wait=False)

            def more_are_sent() -> bool:
                """Put one more. On a busy machine, few messages carry many puts."""
                putting.put("a", wait=False)
                return len(lost) > 4

            until(more_are_sent, "five messages with puts")
            putting.flush()
        assert len(sieve.lost) == 1
        put_end(cluster, ["a"])
        taking.drain("a")
    taking.client.close()
    assert check([cluster.state("alice")], [cluster.state("bob")]) == []
    assert cluster.report("s1")["counters"].get("gap", 0) > 0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_puts_lost_repeated_or_unanswered_at_random_are_stored_once_in_order(cluster: Cluster, seed: int) -> None:
    cluster.run(1, 1)
    rng = Random(seed)
    fates = [Fate.PASS, Fate.PASS, Fate.DROP, Fate.TWICE, Fate.UNANSWERED]
    with Sieve(cluster.addresses[0], lambda _: rng.choice(fates)) as sieve:
        taking = Taking(cluster.client("bob", proxies=[sieve.address]))
        taking.intend("a", True)
        with (
            Sieve(cluster.addresses[0], lambda _: rng.choice(fates)) as other,
            cluster.client("alice", proxies=[other.address]) as alice,
        ):
            putting = Putting(alice, "alice")
            for _ in range(BATCHES):
                putting.put("a", wait=False)
                putting.lot(["a", "b"])
            putting.flush()
        put_end(cluster, ["a"])
        taking.drain("a")
        taking.client.close()
    assert check([cluster.state("alice")], [cluster.state("bob")]) == []
