"""Accepted peers at a server's own address, the server's own targets, and the limits of a false proxy."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger.framing import pack
from pubsub.messenger.sockets import open_router
from pubsub.messenger.zap_handler import ZapHandler
from pubsub.protocol import Merge, Outcome, Report
from pubsub.protocol.names import keyed_endpoint
from pubsub.security.access import Access
from pubsub.security.authorized import parse
from pubsub.security.fingerprints import fingerprint
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair
from pubsub.security.process_keys import InMemory, ProcessKeys
from pubsub.server import loop
from pubsub.server.links import Links
from pubsub.server.process import ServerProcess
from tests.server.keyed import KeyedProxy, Ring, Rogue, answer, connected, offer
from tests.server.running import Running, until
from tests.server.stage import Stage, put


@pytest.fixture
def ring(tmp_path: Path) -> Ring:
    return Ring(tmp_path, "proxy p1", "server s1", "server s2", "server s3", "client alice")


@pytest.fixture
def proxy(ring: Ring) -> Iterator[KeyedProxy]:
    proxy = KeyedProxy(ring)
    yield proxy
    proxy.close()


@pytest.fixture
def run(ring: Ring, proxy: KeyedProxy) -> Iterator[Callable[..., ServerProcess]]:
    running: list[Running] = []

    def start(server: str = "s1", **changed: Any) -> ServerProcess:
        settings = {"proxies": (proxy.endpoint,), "heartbeat_seconds": 0.2, **ring.settings(server), **changed}
        running.append(Running(settings.pop("directory"), proxy, **settings))  # type: ignore[arg-type]
        return running[-1].process

    yield start
    for server in running:
        server.stop()
        assert server.error is None


@pytest.fixture
def outside() -> Iterator[zmq.Context[Any]]:
    """The context of another process."""
    context: zmq.Context[Any] = zmq.Context()
    yield context
    context.destroy(0)


def arriving(server: ServerProcess) -> set[str]:
    """From whom topics are arriving."""
    return {giver for _, giver in server.core.moves.receiving.incoming}


# Who enters


def test_an_authorized_server_connects_and_its_messages_are_accepted(
    run: Callable[..., ServerProcess], ring: Ring, outside: zmq.Context[Any]
) -> None:
    server = run()
    dealer = connected(outside, server.address, ring.pairs["server s2"], ring.pairs["server s1"].public)
    dealer.send_multipart(offer("s2"))
    assert answer(dealer).step == "accepted"
    assert arriving(server) == {"s2"}


@pytest.mark.parametrize("who", ["client alice", "proxy p1", "stranger", "nobody", "plain", "another server expected"])
def test_only_servers_are_accepted_at_a_servers_address(
    run: Callable[..., ServerProcess], ring: Ring, outside: zmq.Context[Any], who: str
) -> None:
    server = run()
    dealer = outside.socket(zmq.DEALER)
    dealer.linger = 0
    pair = new_pair() if who == "stranger" else ring.pairs.get(who, ring.pairs["server s2"])
    if who == "plain":
        dealer.plain_username, dealer.plain_password = b"server s2", b"x"
    elif who != "nobody":
        dealer.curve_publickey, dealer.curve_secretkey = pair.public, pair.secret
        expected = "server s3" if who == "another server expected" else "server s1"
        dealer.curve_serverkey = ring.pairs[expected].public
    ended = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH
    monitor = dealer.get_monitor_socket(ended | zmq.EVENT_HANDSHAKE_SUCCEEDED)
    dealer.connect(server.address)
    for frames in (offer("s2"), [pack(1, 7, 0) + b"x"]):
        dealer.send_multipart(frames)
    assert monitor.poll(20_000)
    event = int.from_bytes(monitor.recv_multipart()[0][:2], "little")
    assert event & ended, "refused in the handshake"
    assert arriving(server) == set()
    assert server.core.state.counters["connections_established"] == 0
    if who in {"nobody", "plain", "another server expected"}:
        until(lambda: server.core.state.counters["handshakes_failed"])
    refused = {"client alice": "role", "proxy p1": "role", "stranger": "key"}.get(who)
    if refused:
        counted = json.loads(server.core.reports.report(1e9))["counters"]
        assert counted[f"handshakes_refused_{refused}"] >= 1


def test_a_transfer_under_another_servers_id_is_not_taken(
    run: Callable[..., ServerProcess], ring: Ring, outside: zmq.Context[Any]
) -> None:
    server = run()
    dealer = connected(outside, server.address, ring.pairs["server s2"], ring.pairs["server s1"].public)
    dealer.send_multipart(offer("s3"))
    dealer.send_multipart(offer("s2"))
    assert answer(dealer).step == "accepted"
    assert arriving(server) == {"s2"}
    assert server.core.state.counters["servers_under_a_wrong_name"] == 1


def test_a_server_revoked_while_connected_is_ignored_and_its_transfers_end(
    run: Callable[..., ServerProcess], ring: Ring, outside: zmq.Context[Any]
) -> None:
    server = run()
    one = connected(outside, server.address, ring.pairs["server s2"], ring.pairs["server s1"].public)
    other = connected(outside, server.address, ring.pairs["server s3"], ring.pairs["server s1"].public)
    for dealer, name in ((one, "s2"), (other, "s3")):
        dealer.send_multipart(offer(name))
        assert answer(dealer).step == "accepted"
    assert arriving(server) == {"s2", "s3"}
    ring.revoke("server s2")
    until(lambda: arriving(server) == {"s3"})
    one.send_multipart(offer("s2"))
    until(lambda: server.core.state.counters["servers_under_a_wrong_name"])
    other.send_multipart(offer("s3"))
    assert answer(other).step == "accepted"
    assert not one.poll(0)
    assert arriving(server) == {"s3"}
    assert server.core.state.counters["connections_ended"] == 0, "whose line is the same notices nothing"


def test_a_server_authorized_while_it_tries_is_accepted(
    run: Callable[..., ServerProcess], ring: Ring, proxy: KeyedProxy, outside: zmq.Context[Any]
) -> None:
    server = run()
    pair = ring.add("server s4")
    ring.write()
    until(lambda: json.loads(server.core.reports.report(1e9))["authorized_lines"] == 6)
    dealer = connected(outside, server.address, pair, ring.pairs["server s1"].public)
    dealer.send_multipart(offer("s4"))
    assert answer(dealer).step == "accepted"


class Full:
    """Says once that the process is too large."""

    wait_ms = 10

    def __init__(self) -> None:
        self.full = False

    def exceeded(self, now: float) -> bool:
        full, self.full = self.full, False
        return full


def test_an_address_closed_for_want_of_memory_requires_keys_when_it_is_open_again(
    run: Callable[..., ServerProcess], ring: Ring, proxy: KeyedProxy, outside: zmq.Context[Any]
) -> None:
    server = run()
    proxy.ready("s1")
    full = Full()
    server._guard = full  # type: ignore[assignment]
    full.full = True
    proxy.ready("s1")
    assert server.core.state.counters["memory_limit_reached"] == 1
    assert proxy.ask("s1", put("t", 1)).outcome is Outcome.SUCCESS
    stranger = connected(outside, server.address, new_pair(), ring.pairs["server s1"].public)
    friend = connected(outside, server.address, ring.pairs["server s2"], ring.pairs["server s1"].public)
    for dealer in (stranger, friend):
        dealer.send_multipart(offer("s2"))
    assert answer(friend).step == "accepted"
    until(lambda: server._access is not None and server._access.authorizer.access.counters["handshakes_refused_key"])
    assert not stranger.poll(0)


# Whom it speaks to


def test_a_server_announces_an_address_with_its_id_to_a_proxy_with_the_right_key(
    run: Callable[..., ServerProcess], proxy: KeyedProxy
) -> None:
    server = run()
    proxy.ready("s1")
    assert server.address.startswith("tcp://127.0.0.1:")
    assert proxy.addresses["s1"] == keyed_endpoint("s1", server.address)
    assert proxy.ask("s1", put("t", 1)).outcome is Outcome.SUCCESS


@pytest.fixture
def impostor(ring: Ring) -> Iterator[KeyedProxy]:
    """A proxy with another key than the one that servers expect."""
    proxy = KeyedProxy(ring, new_pair())
    yield proxy
    proxy.close()


def test_a_server_does_not_speak_to_a_proxy_with_another_key(
    impostor: KeyedProxy, run: Callable[..., ServerProcess]
) -> None:
    server = run(proxies=(impostor.endpoint,))
    told = f"proxy {impostor.endpoint} has another key than expected: update its key here if it was replaced"
    impostor.until(lambda: told in problems(server) or impostor.links, "somebody has come")
    assert impostor.links == {}
    assert not server.core.proxies.answered_once


def test_a_server_with_keys_does_not_speak_to_a_proxy_without(
    ring: Ring, run: Callable[..., ServerProcess], outside: zmq.Context[Any]
) -> None:
    sock, endpoint = open_router(outside, "tcp://127.0.0.1:0")
    server = run(proxies=(endpoint,))
    until(lambda: f"proxy {endpoint} has no key, but one is expected: start it with its key" in problems(server))
    assert not sock.poll(0)


def test_a_server_refused_by_a_proxy_names_the_remedy_and_connects_without_a_restart(
    ring: Ring, proxy: KeyedProxy, run: Callable[..., ServerProcess]
) -> None:
    everybody = proxy.access
    ring.lines = [line for line in ring.lines if line[0] != "server s1"]
    ring.write()
    proxy.access = ring.access()
    server = run(heartbeat_seconds=2.0)  # The link is not made anew for its silence meanwhile.
    key = format_public(ring.pairs["server s1"].public)
    told = f"proxy {proxy.endpoint} refuses the key {key} of server s1: pubsub keys authorize server s1 {key}"
    proxy.until(lambda: told in problems(server), "it is told")
    assert proxy.links == {}
    proxy.access = everybody
    proxy.ready("s1")
    assert told not in problems(server)


def test_a_new_link_clears_the_problem_of_the_old_one(ring: Ring, proxy: KeyedProxy) -> None:
    everybody, proxy.access = proxy.access, Access(parse(b"# nobody\n"))
    settings, poller = ring.settings("s1"), zmq.Poller()
    server = ServerProcess(Stage.settings_of(settings.pop("directory"), proxies=(proxy.endpoint,), **settings))
    server.start()
    links = Links(server._context, poller, server._wakeup, server._access)
    try:

        def told() -> list[str]:
            links.turn(dict(poller.poll(5)), time.monotonic())
            return list(links.refusals)

        dealer = links.dealer(proxy.endpoint)
        proxy.until(lambda: told() == [proxy.endpoint], "it is told")
        links.close(dealer)
        proxy.access = everybody
        links.dealer(proxy.endpoint)
        proxy.until(lambda: told() == [], "it is taken back")
    finally:
        links.goodbye()
        server.close()


def problems(server: ServerProcess) -> list[str]:
    """What a status command says is wrong with its keys."""
    facts: dict[str, Any] = json.loads(server.core.reports.report(time.monotonic() + 1e6 * next(later)))
    return list(facts["problems"])


later = itertools.count(1)
"""A report that was made a moment ago is given again; each of these asks much later."""


def test_several_keys_of_a_proxy_are_tried_in_turn(
    ring: Ring, proxy: KeyedProxy, run: Callable[..., ServerProcess]
) -> None:
    keys = ",".join(format_public(pair.public) for pair in (new_pair(), ring.pairs["proxy p1"]))
    run(proxy_keys=(keys,), heartbeat_seconds=0.1)
    proxy.ready("s1")


@pytest.mark.parametrize(
    "lie", ["a key that is nobody's", "no id", "a client's id", "a proxy's id", "the proxy itself", "another's id"]
)
def test_a_false_proxy_can_send_a_topic_only_to_an_authorized_server(
    run: Callable[..., ServerProcess], ring: Ring, proxy: KeyedProxy, outside: zmq.Context[Any], lie: str
) -> None:
    server = run()
    proxy.ready("s1")
    assert proxy.ask("s1", put("t", 1)).outcome is Outcome.SUCCESS
    pairs = {"a client's id": "client alice", "a proxy's id": "proxy p1", "another's id": "server s3"}
    rogue = Rogue(outside, ring.pairs[pairs[lie]] if lie in pairs else new_pair())
    names = {"a key that is nobody's": "s9", "a client's id": "alice", "a proxy's id": "p1", "another's id": "s2"}
    address = keyed_endpoint(names[lie], rogue.endpoint) if lie in names else rogue.endpoint
    if lie == "the proxy itself":
        address = proxy.endpoint
    proxy.say("s1", Merge("p1", "t", address))
    if lie == "another's id":  # The address of an authorized server, and the ID of another one.
        proxy.until(lambda: address in server._loop.servers, "it connects")
        counted = (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        monitor = rogue.sock.get_monitor_socket(sum(counted) | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        proxy.until(lambda: rogue.heard() or monitor.poll(0), "it has tried")
        assert int.from_bytes(monitor.recv_multipart()[0][:2], "little") in counted
        rogue.sock.disable_monitor()
    else:
        proxy.until(lambda: server.core.state.counters["addresses_bad"] or rogue.heard(), "it has tried")
        assert server.core.state.counters["addresses_bad"] >= 1
        assert server._loop.servers == {}
    assert not rogue.heard()
    assert server.core.state.topics["t"].frozen == ""
    assert proxy.ask("s1", put("t", 2, previous=1)).outcome is Outcome.SUCCESS


def test_a_topic_goes_to_the_server_that_is_named_and_has_the_key(
    run: Callable[..., ServerProcess], ring: Ring, proxy: KeyedProxy, outside: zmq.Context[Any]
) -> None:
    run()
    proxy.ready("s1")
    assert proxy.ask("s1", put("t", 1)).outcome is Outcome.SUCCESS
    rogue = Rogue(outside, ring.pairs["server s2"])
    proxy.say("s1", Merge("p1", "t", keyed_endpoint("s2", rogue.endpoint)))
    proxy.until(rogue.heard, "it is offered")


def test_a_link_to_a_server_that_is_revoked_is_closed(
    run: Callable[..., ServerProcess],
    ring: Ring,
    proxy: KeyedProxy,
    outside: zmq.Context[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loop, "PEER_SECONDS", 600.0)  # It is not closed for being silent.
    server = run()
    proxy.ready("s1")
    proxy.ask("s1", put("t", 1))
    rogue = Rogue(outside, ring.pairs["server s2"])
    address = keyed_endpoint("s2", rogue.endpoint)
    proxy.say("s1", Merge("p1", "t", address))
    proxy.until(rogue.heard, "it is offered")
    assert address in server._loop.servers
    ring.revoke("server s2")
    proxy.until(lambda: address not in server._loop.servers, "the link is closed")
    proxy.until(lambda: server.core.state.counters["addresses_bad"], "and not opened again")


# What is told


def test_the_report_names_the_digest_of_the_access_list_and_the_counts(
    run: Callable[..., ServerProcess], ring: Ring, proxy: KeyedProxy
) -> None:
    run()
    proxy.ready("s1")
    facts = json.loads(bytes(proxy.ask("s1", Report("op", "s1")).body))
    assert facts["authorized_digest"] == ring.access().authorized.digest
    assert facts["problems"] == []
    assert facts["counters"]["reload_failed"] == 0
    assert facts["address"].startswith("tcp://s1@127.0.0.1:")


def test_a_broken_file_changes_nothing_until_it_is_repaired(
    run: Callable[..., ServerProcess], ring: Ring, proxy: KeyedProxy, outside: zmq.Context[Any]
) -> None:
    server = run()
    good = ring.path.read_bytes()
    ring.path.write_bytes(good + b"server s9 pk_broken\n")
    until(lambda: json.loads(server.core.reports.report(1e9))["counters"].get("reload_failed"))
    dealer = connected(outside, server.address, ring.pairs["server s2"], ring.pairs["server s1"].public)
    dealer.send_multipart(offer("s2"))
    assert answer(dealer).step == "accepted"
    (problem,) = json.loads(server.core.reports.report(1e9))["problems"]
    assert "line 6" in problem
    ring.path.write_bytes(good)
    server.hang_up()
    until(lambda: json.loads(server.core.reports.report(2e9))["problems"] == [])


def test_each_handshake_is_in_the_audit(
    run: Callable[..., ServerProcess], ring: Ring, outside: zmq.Context[Any], tmp_path: Path
) -> None:
    server = run(audit_file=tmp_path / "audit")
    expected = ring.pairs["server s1"].public
    newcomers = [connected(outside, server.address, pair, expected) for pair in (ring.pairs["server s2"], new_pair())]
    until(lambda: (tmp_path / "audit").read_text().count("\n") >= 2)
    lines = {one["what"]: one for one in map(json.loads, (tmp_path / "audit").read_text().splitlines())}
    assert lines["entered"]["user"] == f"server:s2#{fingerprint(ring.pairs['server s2'].public)}"
    assert lines["refused"]["door"] == "servers"
    assert {one["process"] for one in lines.values()} == {"server s1"}
    assert len(newcomers) == 2


# Within a process, and without keys


def test_keys_in_memory_apply_only_outside_the_process(ring: Ring, tmp_path: Path, outside: zmq.Context[Any]) -> None:
    """As in an embedded cluster: its proxy is asked about newcomers, and is reached within the process."""
    context: zmq.Context[Any] = zmq.Context()
    access = ring.access()
    zap_handler = ZapHandler(context, access.zap)
    inner, _ = open_router(context, "inproc://servers")
    keys = ProcessKeys(ring.pairs["server s1"], InMemory(access.authorized))  # type: ignore[arg-type]
    settings = {"proxies": ("inproc://servers",), "directory": tmp_path / "s1", "id": "s1"}
    process = ServerProcess(Stage.settings_of(**settings), context=context, keys=keys)
    process.start()
    try:
        process._turn()
        assert inner.poll(5_000)
        dealer = connected(outside, process.address, ring.pairs["server s2"], ring.pairs["server s1"].public)
        dealer.send_multipart(offer("s2"))

        def turned() -> bool:
            zap_handler.take()
            process._turn()
            return arriving(process) == {"s2"}

        until(turned)
        assert process.core.proxies.address == keyed_endpoint("s1", process.address)
    finally:
        process.close()
        inner.close(0)
        zap_handler.close()
        context.term()


def test_a_server_without_keys_cannot_connect_to_a_proxy_with_one(tmp_path: Path) -> None:
    context: zmq.Context[Any] = zmq.Context()
    inner, _ = open_router(context, "inproc://servers")
    process = ServerProcess(Stage.settings_of(directory=tmp_path, proxies=("inproc://servers",)), context=context)
    process.start()
    try:
        with pytest.raises(ConfigurationError, match="has none"):
            process._links.to_server("tcp://s2@127.0.0.1:5701")
    finally:
        process.close()
        inner.close(0)
        context.term()
