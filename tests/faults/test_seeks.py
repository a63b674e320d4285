"""A subscriber that seeks at random while it, servers and proxies are killed: each replay is counted by itself.

The rules are docs/explanation/looking-back.md, Z1 and Z2.
"""

from __future__ import annotations

import json
import signal
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pubsub import Client
from tests.faults.cluster import Cluster, Process, until

pytestmark = pytest.mark.faults
TOPIC = "sought"
ROUNDS = 8


class Shop:
    """Puts numbered messages."""

    def __init__(self, client: Client) -> None:
        self.client, self.numbers = client, count(1)
        client.configure(TOPIC, keep="ever")

    def put(self, most: int) -> None:
        """Leave them in the outbox, which sends them when it can."""
        self.client.put_many(TOPIC, [b"%d" % next(self.numbers) for _ in range(most)], wait=False)

    def end(self) -> None:
        self.client.put(TOPIC, b"%d end" % next(self.numbers), timeout=120.0)

    def stamps(self) -> dict[int, int]:
        """Stamps by number, of all that the topic has, without any subscription."""
        found = [(int(message.body.split()[0]), message.stamp) for message in self.client.read(TOPIC)]
        assert [number for number, _ in found] == list(range(1, next(self.numbers))), "the topic has each once"
        return dict(found)


def objections(path: Path, stamps: dict[int, int]) -> tuple[list[str], int]:
    """Return the flaws of all replays, and the number of replays that brought messages."""
    with closing(sqlite3.connect(path)) as db:
        taken = list(db.execute("select replay, number, id from taken order by n"))
        wishes = {replay: (kind, value) for replay, kind, value in db.execute("select * from wishes")}
    numbers = {id_: number for _, number, id_ in taken}
    assert len(numbers) == len({number for _, number, _ in taken}), "a message has one ID"
    by_replay: dict[int, list[int]] = {}
    for replay, number, _ in taken:
        by_replay.setdefault(replay, []).append(number)
    found = []
    if [replay for replay, _, _ in taken] != sorted(replay for replay, _, _ in taken):
        found.append("a replay went on after a later one had begun")
    for replay, came in by_replay.items():
        first, last = came[0], came[-1]
        if came != list(range(first, last + 1)):
            found.append(f"replay {replay} brought {len(came)} of {first} to {last}, or not in order")
        kind, value = wishes.get(replay, ("earliest", None))
        expected = {"earliest": 1, "position": numbers.get(value)}.get(kind, first)
        if kind == "time":
            expected = min(number for number, stamp in stamps.items() if stamp >= value)
        if first != expected:
            found.append(f"replay {replay} from {kind} {value} began with {first}, not {expected}")
    if by_replay[max(by_replay)] != sorted(stamps):
        found.append("the last replay is not all")
    return found, len(by_replay)


def facts(cluster: Cluster, seed: int, name: str = "seeker", **more: Any) -> str:
    directory = str(cluster.directory / "clients")
    return json.dumps(
        {"name": name, "directory": directory, "proxies": cluster.addresses, "topics": [TOPIC], "seed": seed, **more}
    )


def path_of(cluster: Cluster, name: str) -> Path:
    (found,) = (cluster.directory / "clients").rglob(f"{name}.db")
    return found


def finish(cluster: Cluster, shop: Shop, seekers: list[Process]) -> None:
    shop.end()
    for seeker in seekers:
        seeker.say("finish")
    for seeker in seekers:
        assert seeker.wait(120.0) == 0, seeker.errors.read_text()


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])
def test_each_replay_has_each_message_once_while_all_are_killed(cluster: Cluster, seed: int) -> None:
    cluster.run(2, 1)
    rng, shop = Random(seed), Shop(cluster.client("shop"))
    shop.put(50)
    seeker = cluster.process("seeker", "-m", "tests.faults.seeker", facts(cluster, seed)).start()
    for _ in range(ROUNDS):
        seeker.wait_line("subscribed")
        enough = len(seeker.lines("took")) + rng.randint(1, 4)
        shop.put(rng.randint(1, 60))
        until(lambda enough=enough: len(seeker.lines("took")) > enough, "it goes on")
        victim = rng.choice([seeker, seeker, cluster.servers[0], rng.choice(cluster.proxies)])
        victim.kill()
        shop.put(rng.randint(1, 60))
        victim.start()
        if victim is not seeker:
            victim.ready()
    finish(cluster, shop, [seeker])
    found, replays = objections(path_of(cluster, "seeker"), shop.stamps())
    assert found == []
    assert replays > ROUNDS


def test_a_seeker_killed_at_any_commit_goes_on_with_its_seek(cluster: Cluster) -> None:
    cluster.run(2, 1)
    shop = Shop(cluster.client("shop"))
    shop.put(50)
    seekers = []
    for change, number in (("Intended", 3), ("Confirmed", 3), ("Taken", 20)):
        for when in ("inside", "after"):
            name = f"{change}-{when}"
            die = {"change": change, "when": when, "count": number}
            seekers.append(cluster.process(name, "-m", "tests.faults.seeker", facts(cluster, 3, name, die=die)).start())
    for seeker in seekers:
        assert seeker.wait() == -signal.SIGKILL
        seeker.again(die=None)
        shop.put(10)
    for seeker in seekers:
        seeker.wait_line("sought")
    finish(cluster, shop, seekers)
    stamps = shop.stamps()
    for seeker in seekers:
        assert objections(path_of(cluster, seeker.name), stamps)[0] == [], seeker.name


def test_a_seek_that_keeps_the_counters_is_found_out(cluster: Cluster) -> None:
    cluster.run(1, 1)
    shop = Shop(cluster.client("shop"))
    shop.put(200)
    seeker = cluster.process("seeker", "-m", "tests.faults.seeker", facts(cluster, 1, forgetful=True)).start()
    for number in range(2, 12):
        seeker.wait_line(f"sought {number}")
        shop.put(5)
    seeker.kill()
    found, _ = objections(path_of(cluster, "seeker"), shop.stamps())
    assert any("began with" in one for one in found)
