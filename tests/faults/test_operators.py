"""The acts of operators on a running cluster: by commands, while clients run."""

from __future__ import annotations

import io
import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from pubsub import Client
from pubsub.cli import main
from pubsub.errors import DataLoss, Superseded, Unavailable
from tests.faults.cluster import Cluster, Process, until
from tests.faults.hostile import KEYS, with_keys

pytestmark = pytest.mark.faults
PATIENT = ("--wait", "30", "--yes", "--json")


class Operator:
    """Runs `pubsub …` against a cluster, and says what came of it."""

    def __init__(self, cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
        self._cluster, self._capsys = cluster, capsys

    def __call__(self, *words: str, proxies: list[str] | None = None) -> tuple[int, Any, str]:
        """Exit code, facts, the line of the error."""
        facts = self._cluster.key_settings()
        named = [word for address in proxies or self._cluster.addresses for word in ("--proxy", address)]
        named += [word for key in facts.get("proxy_keys", ()) for word in ("--proxy-key", key)]
        named += ["--key", facts["key_file"]] if facts else []
        return self._run([*words, *named, *(PATIENT if "--json" not in words else ())])

    def _run(self, words: list[str]) -> tuple[int, Any, str]:
        self._capsys.readouterr()
        code, (out, err) = main(words), self._capsys.readouterr()
        return code, json.loads(out) if out.startswith("{") else out, err

    def offline(self, *words: str) -> tuple[int, Any, str]:
        """The same without a cluster."""
        return self._run([*words, "--json"])

    def done(self, *words: str) -> Any:
        code, facts, err = self(*words)
        assert not code, err
        return facts


@pytest.fixture
def operator(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Operator:
    return Operator(cluster, capsys)


def holders(cluster: Cluster, topic: str, proxy: int = 0) -> list[str]:
    return cluster.holders(topic, proxy)


def drained(client: Client, topic: str, count: int) -> list[bytes]:
    got: list[bytes] = []
    until(lambda: got.extend(m.body for m in client.get_many(topic, count, timeout=1.0)) or len(got) >= count, topic)
    return got


def test_a_topic_moves_under_traffic_without_an_effect_on_clients(cluster: Cluster, operator: Operator) -> None:
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


def test_an_impossible_move_is_one_line_with_its_own_exit_code(cluster: Cluster, operator: Operator) -> None:
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
    assert (code, err) == (14, f"pubsub: error: server {other.name} is not connected to any proxy; start it first\n")
    code, _, err = operator("topic", "move", "t", "--to", giver, proxies=["tcp://127.0.0.1:9"])
    assert code == 4


def test_an_operator_command_without_a_yes_does_nothing(
    cluster: Cluster, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_drained_server_holds_no_topic_and_gets_none_until_it_is_reopened(
    cluster: Cluster, operator: Operator
) -> None:
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
    assert "no other connected server takes topics" in err


def test_a_dead_subscriber_is_unsubscribed_and_learns_so_on_its_return(cluster: Cluster, operator: Operator) -> None:
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


# Giving up


def split(cluster: Cluster) -> tuple[Client, Client]:
    """t is held by s1 only, u by s2 only; alice puts, bob reads both."""
    cluster.run(proxies=2, servers=2)
    alice, bob = cluster.client("alice"), cluster.client("bob")
    for topic, server in (("t", "s1"), ("u", "s2")):
        bob.subscribe(topic)
        alice.put_many(topic, [b"1", b"2", b"3"])
        assert holders(cluster, topic) == [server]
    assert drained(bob, "t", 1) == [b"1"]
    return alice, bob


def lose(cluster: Cluster, number: int) -> None:
    """A server goes and is not heard any more."""
    process = cluster.servers[number - 1]
    process.kill()
    for proxy in range(len(cluster.proxies)):
        until(
            lambda proxy=proxy: all(
                not s["alive"] for s in cluster.report("-", proxy)["servers"] if s["id"] == process.name
            ),
            "it is dead",
        )


def read_on(client: Client, topic: str) -> None:
    """Take what is there, until the client objects."""
    until(lambda: client.get_many(topic, 1, timeout=1.0) is None, "the client objects")


def test_clients_continue_after_abandon_and_the_loss_is_reported_once(cluster: Cluster, operator: Operator) -> None:
    alice, bob = split(cluster)
    lose(cluster, 1)
    with pytest.raises(Unavailable):
        alice.put("t", b"4", timeout=0.5)
    facts = operator.done("topic", "abandon", "t", "--server", "s1")
    assert len(facts["logs"]) == 1
    assert operator.done("topic", "abandon", "t", "--server", "s1")["logs"] == facts["logs"], "it can be repeated"
    alice.flush()
    alice.put("t", b"5")
    with pytest.raises(DataLoss) as told:
        read_on(bob, "t")
    assert told.value.topic == "t"
    bob.get_many("t", 10, timeout=0.5)
    alice.put("t", b"6")
    assert drained(bob, "t", 1)[-1] == b"6"
    assert len(bob.dead_letters("t")) == 1
    assert holders(cluster, "t", 0) == holders(cluster, "t", 1) == ["s2"]
    assert cluster.report("s2")["topics"]["t"]["others"] == []


def test_the_copy_that_comes_back_is_set_aside_and_can_be_exported(
    cluster: Cluster, operator: Operator, tmp_path: Path
) -> None:
    alice, _ = split(cluster)
    lose(cluster, 1)
    operator.done("topic", "abandon", "t", "--server", "s1")
    alice.put("t", b"4")
    cluster.servers[0].start().ready()
    until(lambda: cluster.report("s1").get("quarantined_topics"), "it is told")
    report = cluster.report("s1")
    assert "t" not in report["topics"]
    assert [one["topic"] for one in report["quarantined_topics"]] == ["t"]
    assert holders(cluster, "t", 0) == holders(cluster, "t", 1) == ["s2"]
    alice.put("t", b"5")
    assert cluster.report("s2")["topics"]["t"]["records"] == 2
    cluster.servers[0].kill()
    code, facts, err = operator.offline(
        "server", "export", str(tmp_path / "kept"), "--dir", str(cluster.directory / "s1"), "--quarantined"
    )
    assert (code, err) == (0, "")
    assert facts["count"] == 3
    bodies = sorted(path.read_bytes() for path in (tmp_path / "kept" / "server_s1" / "t" / "messages").iterdir())
    assert bodies == [b"1", b"2", b"3"]


def test_a_topic_of_a_live_or_unknown_server_is_not_abandoned(cluster: Cluster, operator: Operator) -> None:
    split(cluster)
    code, _, err = operator("topic", "abandon", "t", "--server", "s1")
    assert code == 15
    assert "server s1 is connected to a proxy and holds t" in err
    code, _, err = operator("topic", "abandon", "u", "--server", "s9")
    assert code == 13
    cluster.proxies[1].kill()
    code, _, err = operator("topic", "abandon", "t", "--server", "s9")
    assert code == 4
    assert "every proxy must answer" in err
    assert err.count("\n") == 1


def test_all_topics_of_a_lost_server_are_given_up_by_one_command(
    cluster: Cluster, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, _ = split(cluster)
    names = ["t"]
    for name in ("v", "w", "x"):
        alice.put(name, b"1")
        names += [name] if holders(cluster, name) == ["s1"] else []
    assert len(names) > 1
    code, _, err = operator("topic", "abandon", "--all", "--server", "s1")
    assert (code, err) == (
        15,
        "pubsub: error: server s1 is connected to a proxy; stop it first if its store is lost\n",
    )
    lose(cluster, 1)
    code, _, err = operator("topic", "abandon", "t", "--all", "--server", "s1")
    assert (code, err.count("\n")) == (2, 1)
    monkeypatch.setattr("sys.stdin", io.StringIO("y\ns2\n"))
    code, _, err = operator("topic", "abandon", "--all", "--server", "s1", "--json")
    assert code == 1
    assert f"{len(names)} topics are given up: {', '.join(names)}." in err.replace("\n", " ")
    facts = operator.done("topic", "abandon", "--all", "--server", "s1")
    assert facts["server"] == "s1"
    assert [row["topic"] for row in facts["topics"]] == names
    assert all(len(row["logs"]) == 1 for row in facts["topics"])
    for name in names:
        alice.put(name, b"2", timeout=120.0)
        assert holders(cluster, name, 0) == holders(cluster, name, 1) == ["s2"]
    again = "topic", "abandon", "--all", "--server", "s1"
    until(lambda: operator(*again)[0] == 13, "the proxies' reports have no topic of it any more")
    operator.done("server", "forget", "s1")


def test_an_empty_server_under_the_lost_ones_id_is_not_said_to_hold_its_topics(
    cluster: Cluster, operator: Operator
) -> None:
    split(cluster)
    lose(cluster, 1)
    shutil.rmtree(cluster.directory / "s1")
    cluster.servers[0].start().ready()
    code, _, err = operator("topic", "abandon", "t", "--server", "s1")
    assert (code, err) == (
        15,
        "pubsub: error: server s1 runs on another store, which does not hold t; stop it, repeat this command, and"
        " start it again\n",
    )
    lose(cluster, 1)
    operator.done("topic", "abandon", "t", "--server", "s1")
    cluster.servers[0].start().ready()


def test_a_giver_whose_receiver_is_lost_takes_the_topic_back(cluster: Cluster, operator: Operator) -> None:
    alice, bob = split(cluster)
    cluster.servers[1].pause()  # It answers no offer, and does not count as dead yet.
    code, _, _ = operator("topic", "move", "t", "--to", "s2", "--wait", "0.3", "--yes", "--json")
    assert code in {4, 14}
    cluster.servers[1].resume()
    until(lambda: holders(cluster, "t") in (["s1"], ["s2"]), "it is where it is")
    alice.put("t", b"4")
    assert drained(bob, "t", 3) == [b"2", b"3", b"4"]


@pytest.mark.parametrize("keys", KEYS, ids=with_keys)
def test_a_topic_on_its_way_to_a_lost_server_is_taken_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: bool
) -> None:
    """Only proxies say so to the server that gives it: to give up what is not known to be held needs no log."""
    with Cluster(tmp_path, keys=keys) as cluster:
        cluster.run(proxies=2, servers=2)
        operator = Operator(cluster, capsys)
        alice = cluster.client("alice")
        for number in range(64):
            alice.put("t", b"%d " % number + bytes(1024 * 1024))
        (giver,) = holders(cluster, "t")
        receiver = next(server for server in cluster.servers if server.name != giver)
        code, _, _ = operator("topic", "move", "t", "--to", receiver.name, "--wait", "0.1", "--yes", "--json")
        receiver.kill()
        assert code == 4, "it takes longer"
        named = f"tcp://{receiver.name}@127.0.0.1:" if keys else "tcp://127.0.0.1:"
        assert cluster.report(giver)["topics"]["t"]["frozen"].startswith(named)
        until(lambda: operator("topic", "abandon", "t", "--server", receiver.name)[0] == 0, "nobody hears it any more")
        assert cluster.report(giver)["topics"]["t"]["frozen"] == ""
        alice.put("t", b"64 ")
        assert holders(cluster, "t") == [giver]


# Copies put back


def end(process: Process) -> None:
    """SIGTERM, so that all of the store is in its file."""
    process.running.send_signal(signal.SIGTERM)
    assert process.wait() == 0


def put_back(cluster: Cluster, copy: Path) -> None:
    """The server's store is gone, and this copy is in its place."""
    end(cluster.servers[0])
    shutil.rmtree(cluster.directory / "s1")
    shutil.copytree(copy, cluster.directory / "s1")


@pytest.mark.parametrize("shown_by", ["proxy", "client"])
def test_a_restored_only_copy_continues_and_each_client_learns_of_the_loss_once(
    cluster: Cluster, operator: Operator, shown_by: str
) -> None:
    cluster.run(proxies=2, servers=1)
    alice, carol = cluster.client("alice"), cluster.client("carol")
    ahead, behind, late = cluster.client("ahead"), cluster.client("behind"), cluster.client("late")
    ahead.subscribe("t")
    behind.subscribe("t")
    alice.put_many("t", [b"1", b"2"])
    assert drained(behind, "t", 1) == [b"1"]
    end(cluster.servers[0])
    shutil.copytree(cluster.directory / "s1", cluster.directory / "copy")
    cluster.servers[0].start().ready()
    alice.put_many("t", [b"3", b"4"])
    late.subscribe("t")
    alice.put("t", b"5")
    assert drained(ahead, "t", 5) == [b"1", b"2", b"3", b"4", b"5"]
    if shown_by == "proxy":
        carol.put("new", b"it is announced at once")
    put_back(cluster, cluster.directory / "copy")
    alice.put("t", b"6", wait=False)
    cluster.servers[0].start()
    if shown_by == "proxy":
        assert cluster.servers[0].wait() == 8
        cluster.servers[0].start()  # It knows by itself now.
        assert cluster.servers[0].wait() == 8
        assert "pubsub server restored" in cluster.servers[0].errors.read_text()
    else:
        cluster.servers[0].ready()
        until(lambda: cluster.report("s1")["topics"]["t"]["held_back"], "a client showed it")
        end(cluster.servers[0])

    code, facts, err = operator.offline("server", "restored", "--dir", str(cluster.directory / "s1"), "--yes")
    assert (code, err, facts["server"], facts["topics"]) == (0, "", "s1", ["t"])
    cluster.servers[0].start().ready()
    alice.flush()
    carol.put("t", b"7")

    for client in (ahead, behind, late):
        got: list[bytes] = []
        with pytest.raises(DataLoss):
            until(lambda client=client, got=got: got.extend(m.body for m in client.get_many("t", timeout=0.5)), "told")
        # Who was behind may have had the rest in its memory already.
        assert got == [b"2", b"3", b"4", b"5"][: len(got)]
        assert len(got) > 0 if client is behind else not got
        assert len(client.dead_letters("t")) == 1
    alice.put("t", b"8")
    assert drained(ahead, "t", 3) == drained(behind, "t", 3) == [b"6", b"7", b"8"]
    late.get_many("t", timeout=0.1)
    alice.put("t", b"9")
    assert drained(late, "t", 1)[-1] == b"9"
    topic = cluster.report("s1")["topics"]["t"]
    assert topic["records"] < 20
    assert topic["backlog"] < 20


def test_a_restored_copy_of_a_moved_topic_joins_the_holder_and_takes_nothing_from_it(
    cluster: Cluster, operator: Operator
) -> None:
    alice, bob = split(cluster)
    end(cluster.servers[0])
    shutil.copytree(cluster.directory / "s1", cluster.directory / "copy")
    cluster.servers[0].start().ready()
    alice.put("t", b"4")
    operator.done("topic", "move", "t", "--to", "s2")
    alice.put("t", b"5")
    put_back(cluster, cluster.directory / "copy")
    code, _, err = operator.offline("server", "restored", "--dir", str(cluster.directory / "s1"), "--yes")
    assert (code, err) == (0, "")
    cluster.servers[0].start().ready()
    until(lambda: all(len(holders(cluster, "t", proxy)) == 1 for proxy in (0, 1)), "one holder")
    alice.put("t", b"6")
    assert drained(bob, "t", 5) == [b"2", b"3", b"4", b"5", b"6"]
    assert bob.dead_letters("t") == []


def test_a_running_server_and_a_directory_without_a_store_are_not_restored(
    cluster: Cluster, operator: Operator
) -> None:
    cluster.run(proxies=1, servers=1)
    code, _, err = operator.offline("server", "restored", "--dir", str(cluster.directory / "s1"), "--yes")
    assert code == 9
    assert "in use" in err
    code, _, err = operator.offline("server", "restored", "--dir", str(cluster.directory / "none"), "--yes")
    assert code == 8
    assert err.count("\n") == 1
