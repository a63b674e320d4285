"""What operators do to a running cluster, as they do it: by commands, while clients go on."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from pubsub import Client
from pubsub.cli import main
from pubsub.errors import Superseded
from pubsub.protocol import Report
from tests.faults.cluster import Cluster, until
from tests.faults.wire import Wire

pytestmark = pytest.mark.faults

PATIENT = ("--wait", "30", "--yes", "--json")


class Operator:
    """Runs `pubsub …` against a cluster, and says what came of it."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster, self._capsys = cluster, capsys

    def __call__(self, *words: str, proxies: list[str] | None = None) -> tuple[int, Any, str]:
        """Exit code, facts, the line of the error."""
        self._capsys.readouterr()
        named = [word for address in proxies or self._cluster.addresses for word in ("--proxy", address)]
        code = main([*words, *named, *(PATIENT if "--json" not in words else ())])
        shown = self._capsys.readouterr()
        return code, json.loads(shown.out) if shown.out.startswith("{") else shown.out, shown.err

    def done(self, *words: str) -> Any:
        code, facts, err = self(*words)
        assert code == 0, err
        return facts


@pytest.fixture
def operator(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(cluster, capsys)


def holders(cluster: Cluster, topic: str, proxy: int = 0) -> list[str]:
    with Wire(cluster.addresses[proxy]) as wire:
        report = json.loads(bytes(wire.ask(Report("test", "-", topic)).body))
    return [holder["server"] for row in report["topics"] for holder in row["holders"]]


def drained(client: Client, topic: str, count: int) -> list[bytes]:
    got: list[bytes] = []
    until(lambda: got.extend(m.body for m in client.get_many(topic, count, timeout=1.0)) or len(got) >= count, topic)
    return got


def test_a_topic_moves_under_traffic_and_nobody_notices(cluster: Cluster, operator: Operator) -> None:
    cluster.run(proxies=2, servers=2)
    alice, bob = cluster.client("alice"), cluster.client("bob")
    bob.subscribe("t")
    alice.put_many("t", [b"%d" % n for n in range(50)])
    (giver,) = holders(cluster, "t")
    to = "s2" if giver == "s1" else "s1"
    facts = operator.done("topic", "move", "t", "--to", to)
    assert (facts["from"], facts["to"], facts["moved"]) == (giver, to, True)
    assert holders(cluster, "t", 0) == holders(cluster, "t", 1) == [to]
    alice.put_many("t", [b"%d" % n for n in range(50, 100)])
    assert drained(bob, "t", 100) == [b"%d" % n for n in range(100)]
    assert operator.done("topic", "move", "t", "--to", to)["moved"] is False


def test_what_cannot_be_moved_is_one_line_and_an_exit_code_of_its_own(cluster: Cluster, operator: Operator) -> None:
    cluster.run(proxies=1, servers=2)
    cluster.client("alice").put("t", b"x")
    (giver,) = holders(cluster, "t")
    other = next(process for process in cluster.servers if process.name != giver)
    code, _, err = operator("topic", "move", "nowhere", "--to", giver)
    assert (code, err) == (13, "pubsub: error: topic nowhere is not known to any proxy\n")
    code, _, err = operator("topic", "move", "t", "--to", "s9")
    assert (code, err.count("\n")) == (13, 1)
    other.kill()
    until(lambda: not [s for s in cluster.report("-")["servers"] if s["id"] == other.name and s["alive"]], "it is dead")
    code, _, err = operator("topic", "move", "t", "--to", other.name)
    assert (code, err) == (14, f"pubsub: error: server {other.name} is not heard by any proxy\n")
    code, _, err = operator("topic", "move", "t", "--to", giver, proxies=["tcp://127.0.0.1:9"])
    assert code == 4


def test_without_a_yes_nothing_is_done(cluster: Cluster, operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("no\n"))
    cluster.run(proxies=1, servers=2)
    cluster.client("alice").put("t", b"x")
    (giver,) = holders(cluster, "t")
    to = "s2" if giver == "s1" else "s1"
    code, _, err = operator("topic", "move", "t", "--to", to, "--json")
    assert code == 1
    assert "not confirmed, nothing was done" in err
    assert "nothing is lost" in err.replace("\n", " ")
    assert holders(cluster, "t") == [giver]


def test_a_drained_server_holds_nothing_and_gets_nothing_until_it_is_told(cluster: Cluster, operator: Operator) -> None:
    cluster.run(proxies=2, servers=3)
    alice, bob = cluster.client("alice"), cluster.client("bob")
    names = [f"t{n}" for n in range(6)]
    for name in names:
        bob.subscribe(name)
        alice.put(name, name.encode())
    facts = operator.done("server", "drain", "s1")
    assert {row["to"] for row in facts["moved"]} <= {"s2", "s3"}
    assert len(facts["moved"]) == 2
    assert cluster.report("s1")["topics"] == {}
    cluster.servers[0].kill()
    cluster.servers[0].start().ready()
    until(lambda: any(s["id"] == "s1" and s["alive"] for s in cluster.report("-")["servers"]), "s1 is back")
    for name in ("new1", "new2", "new3"):
        alice.put(name, b"x")
        assert holders(cluster, name) != ["s1"]
    code, _, err = operator("topic", "move", "t0", "--to", "s1")
    assert code == 15
    assert "draining" in err
    operator.done("server", "drain", "s1", "--stop")
    alice.put("last", b"x")
    assert holders(cluster, "last") == ["s1"]
    assert [drained(bob, name, 1) for name in names] == [[name.encode()] for name in names]


def test_the_last_server_is_not_drained(cluster: Cluster, operator: Operator) -> None:
    cluster.run(proxies=1, servers=1)
    cluster.client("alice").put("t", b"x")
    code, _, err = operator("server", "drain", "s1")
    assert code == 15
    assert "no other server is heard that takes topics" in err


def test_a_dead_subscriber_is_unsubscribed_and_told_when_it_comes_back(cluster: Cluster, operator: Operator) -> None:
    cluster.run(proxies=1, servers=1)
    alice, bob = cluster.client("alice"), cluster.client("bob")
    bob.subscribe("t")
    alice.put_many("t", [b"1", b"2", b"3"])
    code, _, _ = operator("topic", "unsubscribe", "t", "--subscriber", "nobody")
    assert code == 13
    facts = operator.done("topic", "unsubscribe", "t", "--subscriber", "bob")
    assert facts["given_up"] == 3
    assert cluster.report("s1")["topics"]["t"]["subscribers"] == {}
    with pytest.raises(Superseded, match="ended elsewhere"):
        bob.get("t", timeout=5.0)
    bob.subscribe("t")
    alice.put("t", b"4")
    assert drained(bob, "t", 1) == [b"4"]
