"""Servers with keys as processes: how they start, how a key is replaced, and topics that move while one is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub.cli import main
from pubsub.messenger.sockets import open_router
from pubsub.protocol import Get, Merge, Outcome, Report, Subscribe
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair
from pubsub.server.process import ServerProcess, run_server
from tests.faults import forkserver
from tests.faults.cluster import Process
from tests.server.keyed import KeyedProxy, Ring
from tests.server.stage import Stage, bodies, put

BATCHES, BATCH_BYTES = 64, 1024 * 1024
"""What a topic holds that is on its way for long enough to be killed meanwhile: a chunk each."""


class Child:
    """A server in a process of its own."""

    def __init__(self, ring: Ring, proxy: KeyedProxy, name: str, *more: str) -> None:
        ring.keep(f"server {name}", ring.directory / name)
        key = format_public(ring.pairs["proxy p1"].public)
        self.name, self._proxy, self._ring = name, proxy, ring
        command = [
            *("-m", "pubsub", "server", "start", "--id", name, "--dir", str(ring.directory / name)),
            *("--proxy", proxy.endpoint, "--proxy-key", key, "--authorized", str(ring.path)),
            *("--heartbeat-seconds", "0.2", *more),
        ]
        self._process = Process(name, ring.directory, command)
        self.start()

    def start(self) -> None:
        self._process.start()
        self._proxy.ready(self.name)

    def end(self, number: int = signal.SIGKILL) -> int:
        self.popen.send_signal(number)
        code = self.popen.wait(20)
        self._process.end()
        return code

    @property
    def popen(self) -> subprocess.Popen[bytes] | forkserver.Child:
        return self._process.running


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path, "proxy p1", "server s1", "server s2", "client alice")


@pytest.fixture
def proxy(ring: Ring) -> Iterator[KeyedProxy]:
    proxy = KeyedProxy(ring)
    yield proxy
    proxy.close()


@pytest.fixture
def run(ring: Ring, proxy: KeyedProxy) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(name: str, *more: str) -> Child:
        children.append(Child(ring, proxy, name, *more))
        return children[-1]

    yield start
    for child in children:
        if child.popen.poll() is None:
            child.end()


# How it starts


@pytest.fixture
def start(
    ring: Ring, proxy: KeyedProxy, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Starts a server that is expected not to get far: its exit code, and what it says."""
    for name in [name for name in os.environ if name.startswith("PUBSUB_")]:
        monkeypatch.delenv(name)

    def run(*options: str, keyed: bool = True) -> tuple[int, str]:
        directory = ring.directory / "s1"
        words = ["server", "start", "--id", "s1", "--dir", str(directory), "--proxy", proxy.endpoint]
        if keyed:
            ring.keep("server s1", directory)
            words += ["--proxy-key", format_public(ring.pairs["proxy p1"].public), "--authorized", str(ring.path)]
        code = main([*words, *options])
        said = capsys.readouterr()
        assert said.out == ""
        return code, said.err

    return run


def test_a_broken_access_list_is_one_line_at_the_start(ring: Ring, start: Callable[..., tuple[int, str]]) -> None:
    ring.path.write_text(ring.path.read_text() + "server s3 pk_broken\n")
    code, said = start()
    assert code == 8
    assert said.count("\n") == 1
    assert f"authorized file {ring.path}, line 5" in said


def test_a_missing_access_list_does_not_count_as_empty(ring: Ring, start: Callable[..., tuple[int, str]]) -> None:
    ring.path.unlink()
    code, said = start()
    assert (code, said.count("\n")) == (8, 1)
    assert str(ring.path) in said


def test_a_key_that_others_can_read_is_not_used(ring: Ring, start: Callable[..., tuple[int, str]]) -> None:
    other = ring.keep("server s1", ring.directory / "elsewhere") / "key"
    other.chmod(0o644)
    code, said = start("--key", str(other))
    assert (code, said.count("\n")) == (8, 1)
    assert f"chmod 600 {other}" in said


def test_incomplete_keys_are_refused_before_anything_is_made(ring: Ring, start: Callable[..., tuple[int, str]]) -> None:
    code, said = start("--authorized", str(ring.path), keyed=False)
    assert (code, said.count("\n")) == (8, 1)
    assert "pubsub keys new server s1" in said
    code, said = start("--proxy-key", format_public(ring.pairs["proxy p1"].public), keyed=False)
    assert (code, said.count("\n")) == (8, 1)
    assert "server s1 has none" in said
    assert not (ring.directory / "s1").exists()
    ring.keep("server s1", ring.directory / "s1")
    code, said = start(keyed=False)
    assert (code, said.count("\n")) == (8, 1)
    assert "--authorized" in said
    code, said = start("--authorized", str(ring.path), keyed=False)
    assert (code, said.count("\n")) == (8, 1)
    assert "--proxy-key" in said
    assert [path.name for path in (ring.directory / "s1").iterdir() if path.suffix == ".db"] == []


def test_a_server_without_keys_listens_for_other_hosts_only_with_insecure(
    start: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    everywhere = ("--bind", "tcp://0.0.0.0:0", "--advertise", "tcp://127.0.0.1:5701")
    code, said = start(*everywhere, keyed=False)
    assert code == 8
    assert said == (
        "pubsub: error: server s1 would listen on tcp://0.0.0.0:0 without keys, for anyone who reaches it: "
        "pubsub keys new server s1, or --insecure\n"
    )
    told: dict[str, Any] = {"bind": "tcp://0.0.0.0:0", "advertise": "tcp://127.0.0.1:5701", "insecure": True}
    process = ServerProcess(Stage.settings_of(tmp_path / "s2", audit_file=tmp_path / "audit", **told))
    process.start()
    process.close()
    (line,) = map(json.loads, (tmp_path / "audit").read_text().splitlines())
    assert (line["what"], line["address"], line["process"]) == ("insecure", "tcp://0.0.0.0:0", "server s1")


def test_a_server_with_a_key_may_listen_for_other_hosts(ring: Ring, proxy: KeyedProxy, tmp_path: Path) -> None:
    told = {**ring.settings("s1"), "bind": "tcp://0.0.0.0:0", "advertise": "tcp://127.0.0.1:5701"}
    process = ServerProcess(Stage.settings_of(told.pop("directory"), **told, proxies=(proxy.endpoint,)))
    process.start()
    assert process.core.proxies.address == "tcp://s1@127.0.0.1:5701"
    process.close()


def test_the_address_names_the_server_over_ipc_too(ring: Ring, proxy: KeyedProxy, tmp_path: Path) -> None:
    told = {**ring.settings("s1"), "bind": f"ipc://{tmp_path}/s"}
    process = ServerProcess(Stage.settings_of(told.pop("directory"), **told, proxies=(proxy.endpoint,)))
    process.start()
    assert process.core.proxies.address == f"ipc://s1@{tmp_path}/s"
    process.close()


def test_a_hang_up_opens_the_audit_anew_and_ends_nothing(
    ring: Ring, proxy: KeyedProxy, run: Callable[..., Child], tmp_path: Path
) -> None:
    audit = tmp_path / "audit"
    server = run("s1", "--audit-file", str(audit))
    audit.rename(tmp_path / "audit.1")
    server.popen.send_signal(signal.SIGHUP)
    proxy.until(audit.exists, "the audit file is there again")
    assert audit.stat().st_mode & 0o777 == 0o600
    assert proxy.ask("s1", put("t", 1)).outcome is Outcome.SUCCESS
    assert server.end(signal.SIGTERM) == 0


def test_a_hang_up_during_the_start_ends_nothing(
    ring: Ring, proxy: KeyedProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of whoever rotates the files of processes that were started a moment ago."""
    ended: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: ended.append(number))
        for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)
    }

    def start(process: ServerProcess) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        process.stop()

    monkeypatch.setattr(ServerProcess, "start", start)
    monkeypatch.setattr(ServerProcess, "run", lambda *_: None)
    told = ring.settings("s1")
    try:
        run_server(Stage.settings_of(told.pop("directory"), **told, proxies=(proxy.endpoint,)))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert ended == []


# Topics on their way


def fill(proxy: KeyedProxy, server: str) -> list[bytes]:
    """Bob subscribes, and a topic gets more than travels in a moment."""
    assert proxy.ask(server, Subscribe("bob", "t", 5, 5)).outcome is Outcome.SUCCESS
    for number in range(BATCHES):
        body = b"%d " % number + bytes(BATCH_BYTES)
        assert proxy.ask(server, put("t", number + 1, [body], previous=number)).outcome is Outcome.SUCCESS
    return [b"%d" % number for number in range(BATCHES)]


def received(proxy: KeyedProxy, server: str) -> list[bytes]:
    """All that bob receives of it: of each record what stands before the blank."""
    got: list[bytes] = []
    last = None
    while (answer := proxy.ask(server, Get("bob", "t", last, 5, 5, records_max=100))).outcome is Outcome.SUCCESS:
        got += [body.partition(b" ")[0] for body in bodies(answer)]
        last = answer.message
    assert answer.outcome is Outcome.EMPTY
    return got


def frozen(proxy: KeyedProxy, server: str) -> str:
    """For whom a server has frozen the topic."""
    topics = json.loads(bytes(proxy.ask(server, Report("op", server)).body))["topics"]
    return str(topics["t"]["frozen"])


def give(proxy: KeyedProxy) -> None:
    """The topic is on its way from s1 to s2."""
    address = proxy.addresses["s2"]
    assert address.startswith("tcp://s2@127.0.0.1:")
    proxy.say("s1", Merge("p1", "t", address))
    proxy.until(lambda: frozen(proxy, "s1") == address, "it is on its way")


def arrived(proxy: KeyedProxy) -> None:
    proxy.until(lambda: "t" in proxy.topics["s2"] and "t" not in proxy.topics["s1"], "it has arrived", 60.0)


@pytest.mark.parametrize("killed", ["s1", "s2"], ids=["the giver", "the receiver"])
@pytest.mark.slow
def test_a_topic_moves_between_servers_with_keys_though_one_is_killed_on_the_way(
    proxy: KeyedProxy, run: Callable[..., Child], killed: str
) -> None:
    servers = {name: run(name) for name in ("s1", "s2")}
    everything = fill(proxy, "s1")
    give(proxy)
    servers[killed].end()
    assert "t" not in proxy.topics["s2"], "it was still on its way"
    servers[killed].start()
    arrived(proxy)
    assert received(proxy, "s2") == everything


@pytest.mark.parametrize("replaced", ["s1", "s2"], ids=["the giver's key", "the receiver's key"])
@pytest.mark.slow
def test_a_key_is_replaced_while_a_topic_is_on_its_way(
    ring: Ring, proxy: KeyedProxy, run: Callable[..., Child], replaced: str
) -> None:
    """Two lines, the new key in the place of the old one, a restart, and the old line is taken out."""
    servers = {name: run(name) for name in ("s1", "s2")}
    everything = fill(proxy, "s1")
    old: Pair = ring.pairs[f"server {replaced}"]
    ring.add(f"server {replaced}")
    ring.write()
    proxy.access = ring.access()
    give(proxy)
    servers[replaced].end()
    assert "t" not in proxy.topics["s2"], "it was still on its way"
    ring.keep(f"server {replaced}", ring.directory / replaced)
    servers[replaced].start()
    arrived(proxy)
    ring.revoke(f"server {replaced}", old.public)
    proxy.access = ring.access()
    assert received(proxy, "s2") == everything
    assert proxy.ask("s2", put("t", BATCHES + 1, [b"more "], previous=BATCHES)).outcome is Outcome.SUCCESS
    proxy.say("s2", Merge("p1", "t", proxy.addresses["s1"]))
    proxy.until(lambda: "t" in proxy.topics["s1"] and "t" not in proxy.topics["s2"], "it goes back", 60.0)


def test_a_server_continues_at_another_port_with_a_topic_on_its_way(
    ring: Ring, proxy: KeyedProxy, run: Callable[..., Child]
) -> None:
    """What the giver noted before it was killed too names whose key it was for."""
    servers = {name: run(name) for name in ("s1", "s2")}
    everything = fill(proxy, "s1")
    give(proxy)
    for server in servers.values():
        server.end()
    before = proxy.addresses["s2"]
    context: zmq.Context[Any] = zmq.Context()
    taken, _ = open_router(context, before.replace("s2@", ""))
    for server in servers.values():
        server.start()
    assert proxy.addresses["s2"] not in {before, ""}
    assert frozen(proxy, "s1") == before

    def told() -> bool:
        proxy.say("s1", Merge("p1", "t", proxy.addresses["s2"]))
        for _ in range(20):
            proxy.pump()
        return "t" in proxy.topics["s2"] and "t" not in proxy.topics["s1"]

    proxy.until(told, "it has arrived", 60.0)
    taken.close(0)
    context.term()
    assert received(proxy, "s2") == everything
