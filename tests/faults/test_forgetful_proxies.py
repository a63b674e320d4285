"""Every proxy starts with an empty directory while a server is away: its topics are waited for, not begun anew."""

from __future__ import annotations

import shutil
import signal

import pytest

from pubsub.errors import InDoubt, Unavailable
from tests.faults.cluster import Cluster, Process, until
from tests.faults.test_operators import Operator, drained, holders, lose, operator, split

__all__ = ["operator"]

pytestmark = pytest.mark.faults

WAIT = ("--startup-wait-seconds", "0.3")
"""Far less than the owner is away."""


def forget(cluster: Cluster, away: Process) -> None:
    """A server is killed, and every proxy starts with an empty directory; until all hear the other servers again."""
    if away.running.poll() is None:
        until(lambda: all(server["announced"] for server in cluster.report("-")["servers"]), "all are heard")
        for proxy in range(len(cluster.proxies)):
            until(lambda proxy=proxy: _told(cluster, proxy), "each server was told of the other")
        away.kill()
    for proxy in cluster.proxies:
        proxy.kill()
        shutil.rmtree(cluster.directory / proxy.name)
    for proxy in cluster.proxies:
        proxy.start(*WAIT)
    for number in range(len(cluster.proxies)):
        until(lambda number=number: _settled(cluster, number, away.name), "it hears the others and has waited")


def _told(cluster: Cluster, proxy: int) -> bool:
    known = {server["store"] for server in cluster.report("-", proxy)["servers"]}
    return all(
        known <= {cluster.report(server.name)["store"], *cluster.report(server.name)["stores"]}
        for server in cluster.servers
    )


def _settled(cluster: Cluster, proxy: int, away: str) -> bool:
    report = cluster.report("-", proxy)
    heard = {server["id"] for server in report["servers"] if server["alive"]}
    return not report["starting"] and heard == {server.name for server in cluster.servers} - {away}


def test_nothing_is_lost_when_every_proxy_has_forgotten_and_an_owner_is_away(
    cluster: Cluster, operator: Operator
) -> None:
    cluster.run(proxies=2, servers=2)
    alice, bob = cluster.client("alice"), cluster.client("bob")
    bob.subscribe("t")
    sent = [b"%d" % number for number in range(13)]
    alice.put_many("t", sent)
    (name,) = holders(cluster, "t")
    owner = next(server for server in cluster.servers if server.name == name)
    forget(cluster, owner)
    with pytest.raises(InDoubt):
        alice.put("t", b"13", timeout=1.5)
    with pytest.raises(Unavailable, match=f"server {name} with store .* never announced itself here"):
        bob.get_many("t", 100, timeout=0.5)
    shown = operator("status", "--wait", "5", "--json")[1]["warnings"]
    waiting = [line for line in shown if f"waiting for server {name} (store " in line]
    assert [line[:3] for line in waiting] == ["p1:", "p2:"]
    owner.start()
    owner.ready()
    alice.flush()
    assert drained(bob, "t", 14) == [*sent, b"13"]
    until(lambda: not any("waiting for" in line for line in cluster.report("-")["warnings"]), "nobody is awaited")


def test_a_server_that_will_not_come_back_is_forgotten_and_topics_begin_anew(
    cluster: Cluster, operator: Operator
) -> None:
    cluster.run(proxies=2, servers=2)
    alice = cluster.client("alice")
    alice.put("t", b"1")
    (name,) = holders(cluster, "t")
    owner = next(server for server in cluster.servers if server.name == name)
    other = next(server for server in cluster.servers if server.name != name)
    forget(cluster, owner)
    code, _, err = operator("server", "forget", other.name)
    refusal = f"server {other.name} is connected and cannot be forgotten; stop it first if its store is lost"
    assert (code, err) == (15, f"pubsub: error: {refusal}\n")
    assert operator("server", "forget", "s9")[0] == 13
    code, _, err = operator("topic", "abandon", "t", "--server", name)
    assert code == 13
    assert err.endswith(f"; if its disk is lost: pubsub server forget {name}\n")
    cluster.proxies[1].running.send_signal(signal.SIGSTOP)
    assert operator("server", "forget", name, "--patience", "0.5")[0] == 4
    cluster.proxies[1].running.send_signal(signal.SIGCONT)
    assert operator.done("server", "forget", name)["server"] == name
    carl = cluster.client("carl")
    carl.put("u", b"2")
    assert holders(cluster, "u") == [other.name]


def test_an_abandoned_topic_is_quarantined_though_every_proxy_has_forgotten_it(
    cluster: Cluster, operator: Operator
) -> None:
    alice, _ = split(cluster)
    lose(cluster, 1)
    operator.done("topic", "abandon", "t", "--server", "s1")
    alice.put("t", b"4")
    forget(cluster, cluster.servers[0])
    assert all(cluster.report("-", proxy)["abandoned"] == [] for proxy in (0, 1))
    cluster.servers[0].start().ready()
    until(lambda: cluster.report("s1")["quarantined_topics"], "it is told")
    assert [one["topic"] for one in cluster.report("s1")["quarantined_topics"]] == ["t"]
    until(lambda: [holders(cluster, "t", proxy) for proxy in (0, 1)] == [["s2"], ["s2"]], "s2 is its only holder")
    alice.put("t", b"5")
    assert cluster.report("s2")["topics"]["t"]["records"] == 2


def test_a_proxy_that_remembers_replaces_one_that_has_forgotten(cluster: Cluster) -> None:
    cluster.run(proxies=2, servers=2)
    alice = cluster.client("alice")
    alice.put("t", b"1")
    (name,) = holders(cluster, "t")
    next(server for server in cluster.servers if server.name == name).kill()
    cluster.proxies[0].kill()
    shutil.rmtree(cluster.directory / "p1")
    cluster.proxies[0].start(*WAIT)
    until(lambda: _settled(cluster, 0, name), "it hears the other server")
    cluster.client("carl").put("u", b"2")
    assert holders(cluster, "u", 1) == [server.name for server in cluster.servers if server.name != name]
