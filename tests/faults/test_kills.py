"""SIGKILL of every role at random moments under traffic, and at each step of a client's commits."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from tests.faults.cluster import DEAD_SECONDS, Cluster, Process, until
from tests.faults.finish import finish, objections

pytestmark = pytest.mark.faults
TOPICS = ["a", "b", "c/d", "e"]
ROUNDS = 4
"""How often one of each role is killed."""


def kill_and_restart(rng: Random, victim: Process, takers: list[Process]) -> None:
    """At a moment drawn from the seed: so many messages or so much time from now."""
    goal = sum(taker.number("took") for taker in takers) + rng.randrange(100)
    limit = time.monotonic() + rng.random() * 0.4
    until(lambda: time.monotonic() > limit or sum(taker.number("took") for taker in takers) > goal, "the moment comes")
    victim.kill()
    back = time.monotonic() + (rng.random() * 1.5 * DEAD_SECONDS if rng.random() < 0.5 else 0.0)
    until(lambda: time.monotonic() > back, "it is started again")
    victim.start()


@pytest.mark.parametrize(
    ("seed", "keys"), [*(pytest.param(seed, False, marks=pytest.mark.nightly) for seed in (1, 2)), (3, True)]
)
def test_killing_any_process_at_any_moment_loses_doubles_and_misplaces_nothing(
    tmp_path: Path, seed: int, keys: bool
) -> None:
    with Cluster(tmp_path, keys=keys) as cluster:
        kill_all(cluster.run(), seed)


def kill_all(cluster: Cluster, seed: int) -> None:
    rng = Random(seed)
    subscribers = [
        cluster.subscriber("bob", TOPICS, seed=seed, clumsy=0.02, beside=["process", "process"]),
        cluster.subscriber("eve", TOPICS, seed=seed, leaves=["e"]),
    ]
    # Who gets and iterates is not killed: what it was handed it writes down afterwards.
    shared = cluster.subscriber("dora", TOPICS, seed=seed, beside=["iterate", "get", "iterate"])
    for process in (*subscribers, shared):
        process.wait_line("subscribed")
    publishers = [cluster.publisher(name, TOPICS, seed=seed, pause=0.02) for name in ("alice", "carl")]
    for _ in range(ROUNDS):
        roles = [cluster.proxies, cluster.servers, publishers, subscribers]
        rng.shuffle(roles)
        for role in roles:
            kill_and_restart(rng, rng.choice(role), subscribers)
    until(lambda: min(taker.number("took") for taker in subscribers) > 100, "there was traffic")
    finish(cluster, TOPICS, publishers, [*subscribers, shared])
    assert objections(cluster, publishers, [*subscribers, shared]) == []
    assert all(process.number("done") for process in publishers)
