"""Members of a consumer group through SIGKILL and SIGSTOP of members, servers, proxies and a primary.

Effects are counted in each member's own database, after its end. The rules are docs/explanation/groups.md, GR1, GR2,
GR8, GR10, GR16 and GR18.
"""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from pubsub.protocol import Outcome
from pubsub.protocol.groups import Describe
from tests.faults.cluster import Cluster, Process, until
from tests.faults.members import Members
from tests.faults.wire import Wire

pytestmark = pytest.mark.faults

TOPIC, GROUP = "orders", "billing"
LIVENESS_SECONDS = 1.0
KEYS = [b"k%d" % number for number in range(20)]


def worker(cluster: Cluster, name: str, **facts: Any) -> Process:
    """Starts a member."""
    return cluster._worker("group_worker", name, [TOPIC], {"group": GROUP, **facts})


def put(cluster: Cluster, first: int, count: int) -> None:
    """Puts messages with these numbers as their bodies; they go round the keys."""
    client = next((one for one in cluster.clients if one.name == "publisher"), None) or cluster.client("publisher")
    numbers = range(first, first + count)
    client.put_many(TOPIC, [b"%d" % n for n in numbers], keys=[KEYS[n % len(KEYS)] for n in numbers])


def effects(cluster: Cluster, name: str) -> list[tuple[bytes, int, int]]:
    """What a member did, in order, from its own database; it need not have ended."""
    place = cluster.state(name)
    if not place.exists():
        return []
    try:
        db = apsw.Connection(
            f"file:{place}?mode=ro&immutable=0", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        return list(db.execute("select body, doubtful, attempt from effects order by n"))
    except apsw.Error:  # It is open there, or has no table yet.
        return []


def finish(workers: list[Process]) -> None:
    """Ends members in good order."""
    for process in workers:
        process.say("finish")
    for process in workers:
        process.wait_line("ended")
        process.wait()


def audit(cluster: Cluster, names: list[str], count: int, *, keyed: bool = False) -> None:
    """Each message has one effect at one member, and none has a mark; the messages of a key are in order."""
    done = {name: effects(cluster, name) for name in names}
    times = Counter(int(body) for rows in done.values() for body, _, _ in rows)
    assert {n: k for n, k in times.items() if k > 1} == {}
    assert sorted(times) == list(range(count))
    assert not [row for rows in done.values() for row in rows if row[1]]
    if keyed:
        for rows in done.values():
            for key in range(len(KEYS)):
                mine = [int(body) for body, _, _ in rows if int(body) % len(KEYS) == key]
                assert mine == sorted(mine)


def taken(process: Process) -> int:
    return process.number("taken")


def waiting(cluster: Cluster, *facts: str) -> int:
    """The sum of these figures of the group, as its server tells them."""
    with cluster.wire(0) as wire:
        answer = until(lambda: described(wire), "the group is described")
    return sum(int(answer["groups"][0][fact]) for fact in facts)


def is_free_of_work(cluster: Cluster) -> bool:
    """Whether nothing is left but what is in doubt."""
    rest = waiting(cluster, "waiting", "offered", "delayed")
    return rest == 0 and waiting(cluster, "claimed") == waiting(cluster, "in_doubt")


def described(wire: Wire) -> dict[str, Any]:
    """What a server says of the group; {} while none does."""
    with suppress(AssertionError):
        status = wire.ask(Describe("test", TOPIC, name=GROUP))
        if status.outcome is Outcome.SUCCESS:
            return dict(json.loads(bytes(status.body)))
    return {}


@pytest.mark.parametrize(
    ("does", "mode", "claim"),
    [
        pytest.param("hangs", "shared", "auto", marks=pytest.mark.nightly),
        ("hangs", "keyed", "before"),
        ("writes", "shared", "auto"),
        pytest.param("writes", "keyed", "auto", marks=pytest.mark.nightly),
        ("commits", "shared", "before"),
    ],
)
def test_a_member_killed_at_each_place_leaves_each_effect_once(
    cluster: Cluster, does: str, mode: str, claim: str
) -> None:
    cluster.run(proxies=1, servers=1, member_liveness_seconds=LIVENESS_SECONDS)
    in_doubt = does != "hangs" or claim == "before"
    slow = 0.0 if in_doubt else 0.12  # Its messages are claimed late: a death in a handler leaves nothing in doubt.
    first = worker(cluster, "w1", mode=mode, claim=claim, at="3", does=does, seconds=slow)
    first.wait_line("joined")
    put(cluster, 0, 40)
    if does == "commits":
        assert first.wait() == -signal.SIGKILL
    else:
        first.wait_line(does)
        if not in_doubt:
            until(lambda: waiting(cluster, "claimed") == 0, "what it did is told")
        first.kill()
    second = worker(cluster, "w2", mode=mode)
    if mode == "shared":  # All but what is in doubt goes on at once; in a keyed group all but its part.
        until(lambda: is_free_of_work(cluster), "the other member takes what is free")
        assert bool(waiting(cluster, "in_doubt")) == in_doubt
    back = first.again(does=None, seconds=None)
    until(lambda: waiting(cluster, "waiting", "offered", "claimed", "in_doubt", "delayed") == 0, "all is done")
    finish([back, second])
    audit(cluster, ["w1", "w2"], 40, keyed=mode == "keyed")


def test_what_a_paused_member_was_offered_goes_to_another_one(cluster: Cluster) -> None:
    cluster.run(proxies=1, servers=1, member_liveness_seconds=LIVENESS_SECONDS)
    first = worker(cluster, "w1", seconds=0.3, concurrency=4)
    first.wait_line("joined")
    put(cluster, 0, 30)
    until(lambda: waiting(cluster, "offered") > 0, "it has offers")
    first.pause()
    second = worker(cluster, "w2")
    until(lambda: waiting(cluster, "waiting", "offered", "delayed") == 0, "the other member takes what is free")
    first.resume()
    until(lambda: waiting(cluster, "waiting", "offered", "claimed", "in_doubt", "delayed") == 0, "all is done")
    finish([first, second])
    audit(cluster, ["w1", "w2"], 30)


@pytest.mark.parametrize("mode", [pytest.param("shared", marks=pytest.mark.nightly), "keyed"])
def test_members_servers_and_proxies_are_killed_at_random(cluster: Cluster, mode: str) -> None:
    cluster.run(proxies=2, servers=1, member_liveness_seconds=LIVENESS_SECONDS)
    random, count = Random(7), 0
    workers = [
        worker(cluster, f"w{number}", mode=mode, seconds=0.002 * number, concurrency=1 + number) for number in range(3)
    ]
    for process in workers:
        process.wait_line("joined")
    for _ in range(8):
        put(cluster, count, 60)
        count += 60
        before = sum(map(taken, workers))
        victims = [random.choice(workers)]
        victims += [random.choice([*cluster.servers, *cluster.proxies])] if random.random() < 0.6 else []
        for victim in victims:
            victim.kill()
        for victim in victims:
            victim.again() if victim in workers else victim.start()
        for process in (*cluster.servers, *cluster.proxies):
            process.ready()
        until(lambda before=before: sum(map(taken, workers)) != before, "members go on")
    figures = "waiting", "offered", "claimed", "in_doubt", "delayed"
    until(lambda: waiting(cluster, *figures) == 0, "all is done", 90.0)
    finish(workers)
    audit(cluster, ["w0", "w1", "w2"], count, keyed=mode == "keyed")


@pytest.mark.slow
def test_claims_outlast_the_death_of_a_primary(tmp_path: Path) -> None:
    with Members(tmp_path, 1, clients=False, plain=False, member_liveness_seconds=LIVENESS_SECONDS) as members:
        cluster = members.cluster
        first = worker(cluster, "w1", claim="before", at="3", does="hangs", proxies=members.routing)
        first.wait_line("joined")
        put(cluster, 0, 30)
        first.wait_line("hangs")
        first.kill()  # What it has claimed is in doubt.
        members.primary().kill()
        second = worker(cluster, "w2", proxies=members.routing)
        until(
            lambda: waiting(cluster, "waiting", "offered", "delayed") == 0, "the other member takes what is free", 90.0
        )
        assert waiting(cluster, "claimed", "in_doubt") > 0
        back = first.again(does=None)
        until(lambda: waiting(cluster, "waiting", "claimed", "in_doubt", "offered", "delayed") == 0, "all is done")
        finish([back, second])
        audit(cluster, ["w1", "w2"], 30)
