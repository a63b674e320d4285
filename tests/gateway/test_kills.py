"""SIGKILL of gateway, proxy and server at random moments under traffic: nothing answered is lost, nothing doubled."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest

from tests.faults.cluster import Cluster, Process, until
from tests.gateway.receiver import Receiver
from tests.gateway.serving import Gateway
from tests.gateway.traffic import Part, Poller, Streamer, Writer, objections

TOPIC = "t"
ROUNDS = 3


@pytest.mark.faults
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("seed", "keys"), [pytest.param(1, False, marks=pytest.mark.nightly), (2, True)])
def test_killing_any_process_at_any_moment_loses_and_doubles_nothing(tmp_path: Path, seed: int, keys: bool) -> None:
    rng = Random(seed)
    with Cluster(tmp_path, keys=keys) as cluster, Receiver() as receiver:
        cluster.run(2, 1)
        with Gateway(cluster, tmp_path / "data") as gateway:
            for name in ("p1", "p2", "s1"):
                gateway.subscribe(TOPIC, name)
            assert gateway.ask("PUT", f"/topics/{TOPIC}/webhooks/w", {"url": receiver.url}).status_code == 201
            writers = [Writer(gateway, TOPIC, name) for name in ("a", "b", "c")]
            takers = [Poller(gateway, TOPIC, "p1"), Poller(gateway, TOPIC, "p2"), Streamer(gateway, TOPIC, "s1")]
            parts: list[Part] = [*writers, *takers]
            for part in parts:
                part.start()
            for _ in range(ROUNDS):
                for victim in rng.sample([gateway.process, gateway.process, cluster.proxies[0], cluster.servers[0]], 4):
                    kill_and_restart(rng, victim, gateway, writers)
            end(writers)
            put = {body: id_ for writer in writers for body, id_ in writer.put.items()}
            assert len(put) > 30
            for taker in takers:
                until(lambda taker=taker: len({body for body, _ in taker.seen}) == len(put) or taker.error, "all came")
            until(lambda: len(receiver.bodies()) == len(put), "the webhook has all")
            for taker in takers:
                taker.ending.set()
            put["end-0"] = gateway.put(TOPIC, b"end-0")["id"]  # Whoever waits for an event sees that it is to end.
            end(takers)
    delivered = {headers["webhook-id"]: body.decode() for headers, body in receiver.taken}
    hooked = [(body, id_) for id_, body in delivered.items()]
    for taker in takers:
        assert [one for one in objections(put, taker.seen, taker.label) if "end-0 was lost" not in one] == []
    assert [one for one in objections(put, hooked, "webhook") if "end-0" not in one] == []


def kill_and_restart(rng: Random, victim: Process, gateway: Gateway, writers: list[Writer]) -> None:
    """After so many more messages as the seed draws, or so long."""
    goal = sum(len(writer.put) for writer in writers) + rng.randrange(20)
    limit = time.monotonic() + rng.random() * 2
    until(lambda: time.monotonic() > limit or sum(len(one.put) for one in writers) > goal, "the moment comes")
    victim.kill()
    if victim is gateway.process:
        gateway.start()
    else:
        victim.start()


def end(parts: list[Writer] | list[Poller | Streamer]) -> None:
    for part in parts:
        part.ending.set()
    for part in parts:
        part.join(120)
        assert not part.is_alive(), part
        if part.error is not None:
            raise part.error


def test_the_checker_finds_each_kind_of_harm() -> None:
    put = {"a-0": "i0", "a-1": "i1", "b-0": "i2"}
    fine = [("a-0", "i0"), ("b-0", "i2"), ("a-1", "i1")]
    assert objections(put, fine, "x") == []
    assert objections(put, fine[:2], "x") == ["x: a-1 was lost"]
    assert objections(put, [*fine, ("b-0", "i2")], "x") == ["x: b-0 came 2 times"]
    assert objections(put, [*fine, ("c-0", "i3")], "x") == ["x: c-0 was never put"]
    assert objections(put, [*fine[:2], ("a-1", "i9")], "x") == ["x: a-1 has another ID"]
    assert objections(put, [fine[2], fine[0], fine[1]], "x") == ["x: a-0 came late"]
