"""Topics that move for a while: larger than the memory limit of servers, and interrupted by kills."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.client.opened import nothing
from tests.faults.checker import check
from tests.faults.cluster import Cluster, Process, until
from tests.faults.finish import put_end
from tests.faults.history import Putting, Taking
from tests.faults.watch import Watch
from tests.faults.wire import Wire

pytestmark = pytest.mark.faults

MIB = 1 << 20
TOPIC_BYTES = 256 * MIB
PAGE_CACHE_BYTES = 64 * MIB
CHUNKS_BYTES = 64 * MIB
"""What a process may grow by while a topic passes: SQLite's cache of pages, and chunks of 1 MiB on their way."""

BODY = b"x" * 256 * 1024


def memory(process: Process, word: str) -> int:
    """Bytes that a process has in memory: VmRSS now, VmHWM at most until now."""
    lines = Path(f"/proc/{process.running.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(word))


def test_a_large_topic_moves_in_pieces_while_both_servers_stay_alive_and_serve(cluster: Cluster) -> None:
    cluster.proxy(heartbeat_seconds=0.5)
    cluster.run(0, 2, heartbeat_seconds=0.5)
    until(lambda: sum(server["alive"] for server in cluster.report("-")["servers"]) == 2, "both are heard")
    bob, alice = cluster.client("bob"), cluster.client("alice")
    for topic in ("large", "small"):  # One for each server.
        bob.subscribe(topic)
    count = TOPIC_BYTES // len(BODY)
    for _ in range(count // 8):
        alice.put_many("large", [BODY] * 8)
    giver = next(server for server in cluster.servers if "large" in cluster.report(server.name)["topics"])
    taker = next(server for server in cluster.servers if server is not giver)
    before = {server.name: memory(server, "VmRSS") for server in cluster.servers}
    served = 0
    with Watch(cluster.addresses) as watch:
        until(lambda: watch.reports[0], "the proxy is watched")
        words = ["topic", "move", "large", "--to", taker.name, "--wait", "60", "--yes", "--proxy", cluster.addresses[0]]
        operator = cluster.process("operator", "-m", "pubsub", *words).start()
        while operator.running.poll() is None:
            alice.put("small", b"x")
            served += 1
            report = watch.reports[0]
            assert report is None or all(server["alive"] for server in report["servers"]), "one was taken for dead"
        assert operator.running.returncode == 0, operator.errors.read_text()
    assert served > 10
    assert "large" in cluster.report(taker.name)["topics"]
    for server in cluster.servers:
        grown = memory(server, "VmHWM") - before[server.name]
        assert grown < PAGE_CACHE_BYTES + CHUNKS_BYTES, f"{server.name} grew by {grown // MIB} MiB"
    got = 0
    while got < count:
        got += len(bob.get_many("large", count, timeout=120.0))
    assert nothing(bob, "large")


@pytest.mark.parametrize("role", ["giver", "taker", "proxy"])
def test_a_process_killed_during_a_move_continues_the_move(cluster: Cluster, role: str) -> None:
    cluster.run(2, 2)
    taking = Taking(cluster.client("bob"))
    taking.intend("a", True)
    putting = Putting(cluster.client("alice"), "alice", padding=len(BODY))
    for _ in range(16):
        putting.put_many("a", 16)
    victims = {"proxy": cluster.proxies[0]}
    for server in cluster.servers:
        victims["giver" if "a" in cluster.report(server.name)["topics"] else "taker"] = server
    giver, taker = victims["giver"].name, victims["taker"].name
    words = ["topic", "move", "a", "--to", taker, "--wait", "30", "--yes"]
    operator = cluster.process("operator", "-m", "pubsub", *words, "--proxy", cluster.addresses[1]).start()
    with Wire(cluster.addresses[1]) as wire:
        # On a busy machine it may have arrived between two looks: then the kill comes right after.
        until(lambda: wire.report(giver)["topics"].get("a", {"frozen": taker})["frozen"], "it is on its way")
    victims[role].kill()
    for _ in range(3):
        putting.put("a", wait=False)
    victims[role].start()
    assert operator.wait() == 0, operator.errors.read_text()
    with Watch(cluster.addresses) as watch:
        until(lambda: watch.settled(["a"], 2), "one server has it")
        assert watch.holders(0)["a"] == [taker]
    putting.flush()
    putting.put("a")
    put_end(cluster, ["a"])
    taking.drain("a")
    for client in cluster.clients:
        client.close()
    assert check([cluster.state("alice")], [cluster.state("bob")]) == []
