"""`pubsub witness reset`: the primary gets the request, and the command sees the proxy's vote."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from pubsub.cli.app import main
from pubsub.messenger.framing import unpack
from pubsub.protocol import Outcome, Status
from pubsub.protocol.register import Admit, Look, View, VoteOutcome
from tests.proxy.peers import Running, ServerPeer, running
from tests.proxy.stage import log_id
from tests.server.running import Running as Server
from tests.server.running import until

A, B = "a" * 16, "b" * 16
STORE = log_id("s1")
VIEW = View(100, A, "tcp://a:1", (A, B), (A, B))


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Running]:
    context: zmq.Context[Any] = zmq.Context()
    with running(tmp_path, context, heartbeat_seconds=30.0) as made:  # Its servers are the test's, and do not beat.
        yield made
    context.destroy(0)


def primary(proxy: Running) -> ServerPeer:
    """Member A of s1, of whose register the proxy knows nothing."""
    server = proxy.server()
    assert server.announce({}, incarnation=100, member=A).outcome is Outcome.SUCCESS
    return server


def admit(server: ServerPeer) -> None:
    """Give the proxy its row."""
    identity = server.vote(Look("s1", STORE, 5)).identity
    assert server.vote(Admit("s1", STORE, 6, identity, 150, 100, VIEW)).outcome is VoteOutcome.REPORTED


def reset(proxy: Running, *options: str) -> int:
    return main(["witness", "reset", "s1", "--proxy", proxy.process.bind, *options])


def answer(server: ServerPeer, outcome: Outcome, reason: str = "") -> None:
    """Answer the command that comes next; where it is to be done, do it."""
    origin, head, *_ = server.request()
    assert b"OPERATE pubsub-operator s1 reset " in head
    if outcome is Outcome.SUCCESS:
        admit(server)
    server.send(Status("s1", outcome, reason=reason), origin=origin, destination=unpack(head).source, source=0)


def test_the_primary_gives_the_proxy_its_vote_back(proxy: Running, capsys: pytest.CaptureFixture[str]) -> None:
    server = primary(proxy)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(answer, server, Outcome.SUCCESS)
        assert reset(proxy, "--yes") == 0
        done.result(120)
    assert "the proxy has a vote on s1 again" in capsys.readouterr().out
    assert proxy.process.core.members.registers.rows[STORE].view == VIEW


def test_a_refusal_of_the_primary_is_shown_and_changes_nothing(
    proxy: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    server = primary(proxy)
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(answer, server, Outcome.REFUSED, "other_proxies_report_its_promises")
        assert reset(proxy, "--yes") == 15
        done.result(120)
    assert "other proxies report its promises" in capsys.readouterr().err
    assert not proxy.process.core.members.registers.rows


def test_a_reset_has_no_effect_if_every_proxy_has_its_vote(proxy: Running, capsys: pytest.CaptureFixture[str]) -> None:
    server = primary(proxy)  # It is heard while its socket is there.
    admit(server)
    assert reset(proxy) == 0
    assert "every proxy has a vote on s1" in capsys.readouterr().out


def test_an_unknown_server_has_its_own_exit_code(proxy: Running) -> None:
    primary(proxy)
    assert main(["witness", "reset", "s9", "--proxy", proxy.process.bind, "--yes"]) == 13


# With servers that run


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(0)


def view_of(proxy: Running) -> View | None:
    rows = list(proxy.process.core.members.registers.rows.values())
    return rows[0].view if rows else None


def in_sync(proxy: Running) -> int:
    view = view_of(proxy)
    return len(view.in_sync) if view is not None else 0


@pytest.fixture
def servers() -> Iterator[list[Server]]:
    made: list[Server] = []
    yield made
    for one in made:
        if one.thread.is_alive():
            one.stop()


def test_a_reset_of_the_only_proxys_vote_allows_a_takeover_again(
    tmp_path: Path, context: zmq.Context[Any], servers: list[Server], capsys: pytest.CaptureFixture[str]
) -> None:
    def start(name: str, **changed: Any) -> None:
        facts = {"heartbeat_seconds": 0.2, "skew_seconds": 1.0, **changed}
        servers.append(Server(tmp_path / name, SimpleNamespace(endpoint=at["servers"]), **facts))  # type: ignore[arg-type]

    with running(tmp_path / "p1", context, heartbeat_seconds=0.2) as before:
        at = {"bind": before.process.bind, "servers": before.process.servers, "heartbeat_seconds": 0.2}
        start("a")
        start("b", standby_of=servers[0].process.address)
        until(lambda: in_sync(before) == 2)
    with running(tmp_path / "empty", context, **at) as proxy:
        until(lambda: proxy.process.core.table.links)
        assert view_of(proxy) is None
        assert reset(proxy, "--yes") == 0
        assert "the proxy has a vote on s1 again" in capsys.readouterr().out
        view = view_of(proxy)
        assert view is not None
        assert len(view.in_sync) == 2
        assert reset(proxy, "--yes") == 0, "typed twice"
        assert "every proxy has a vote on s1" in capsys.readouterr().out
        servers[0].stop()
        until(lambda: (now := view_of(proxy)) is not None and now.primary != view.primary)
        assert [one.error for one in servers] == [None, None]
