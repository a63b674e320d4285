"""Members of a store with a register, and a proxy over real sockets: votes only from the disk, takeovers, witnesses."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub.errors import StoreFull
from pubsub.protocol import Heartbeat, Outcome, Put
from pubsub.protocol.register import Accept, Admit, Forget, Look, Prepare, View, VoteOutcome
from pubsub.protocol.stores import Known, format_stores
from pubsub.proxy.process import ProxyProcess
from pubsub.proxy.remembered import RegisterRow, RouteChanges
from pubsub.proxy.routes_file import RoutesStore
from tests.proxy.locked import locked
from tests.proxy.peers import Running, ServerPeer, get, periodic, running, wait_until
from tests.proxy.stage import log_id

A, B = "a" * 16, "b" * 16
STORE = log_id("s1")
FIRST = View(100, A, "tcp://a:1", (A, B), (A, B))
NEVER = 3600.0
"""Seconds between heartbeats of a proxy that sends none by itself while a test runs."""


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(0)


def look(token: int = 5, sender: str = "s1") -> Look:
    return Look(sender, STORE, token)


def prepare(ballot: int, token: int, sender: str = "s1", kind: str = "resume") -> Prepare:
    return Prepare(sender, STORE, B, ballot, token, kind)


def admitted(member: ServerPeer) -> str:
    """Give the proxy its row; returns the identity of its routes file."""
    identity = member.vote(look()).identity
    vote = member.vote(Admit("s1", STORE, 6, identity, 100, 100, FIRST))
    assert (vote.outcome, vote.view) == (VoteOutcome.REPORTED, FIRST)
    return identity


class Watched:
    """A proxy's routes file that takes its time, and may be on a full disk.

    Attributes:
        rows: the registers that are on the disk.
    """

    def __init__(self, store: RoutesStore) -> None:
        self._store = store
        self.rows: dict[str, RegisterRow] = {}
        self.full = False

    def write(self, changes: RouteChanges) -> None:
        if self.full:
            raise StoreFull("routes.db", "no space is left on the disk")
        time.sleep(0.05)  # Long enough that a vote sent before it would be seen to come first.
        self._store.write(changes)
        self.rows |= changes.registers

    def close(self) -> None:
        self._store.close()


def watched(directory: Path, context: zmq.Context[Any]) -> tuple[Running, Watched]:
    """A proxy that runs, and its routes file."""
    proxy, found = Running(directory, context), []

    def prepare_store(process: ProxyProcess) -> None:
        assert process._store is not None
        found.append(Watched(process._store))
        process._store = found[0]  # type: ignore[assignment]

    proxy.prepare = prepare_store
    return proxy.start(), found[0]


def test_a_vote_is_sent_only_after_its_row_is_written(tmp_path: Path, context: zmq.Context[Any]) -> None:
    proxy, disk = watched(tmp_path, context)
    try:
        member = proxy.server()
        admitted(member)
        assert disk.rows == {STORE: RegisterRow(STORE, 100, 100, FIRST, "s1")}
        for ballot in range(200, 205):
            assert member.vote(prepare(ballot, ballot)).outcome is VoteOutcome.PROMISED
            assert disk.rows[STORE].promised == ballot
    finally:
        proxy.stop()


def test_a_restarted_proxy_keeps_its_promises(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with running(tmp_path, context) as proxy:
        identity = admitted(proxy.server())
        assert proxy.server().vote(prepare(200, 1)).outcome is VoteOutcome.PROMISED
    with running(tmp_path, context) as proxy:
        vote = proxy.server().vote(prepare(200, 2))
        assert (vote.outcome, vote.promised, vote.identity) == (VoteOutcome.REFUSED, 200, identity)


def test_a_proxy_that_lost_its_file_has_no_vote_and_another_identity(tmp_path: Path, context: zmq.Context[Any]) -> None:
    with running(tmp_path / "before", context) as proxy:
        identity = admitted(proxy.server())
    with running(tmp_path / "after", context) as proxy:
        vote = proxy.server().vote(prepare(200, 2))
        assert vote.outcome is VoteOutcome.NEW
        assert vote.identity != identity


def test_a_proxy_with_a_full_disk_is_silent_and_bound_by_unsent_promises(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    proxy, disk = watched(tmp_path, context)
    try:
        member = proxy.server()
        admitted(member)
        disk.full = True
        member.send(prepare(200, 1), origin=b"")
        wait_until(lambda: bool(proxy.process.core.suspended))
        member.send(look(2), origin=b"")
        wait_until(lambda: proxy.process.core.counters["votes_withheld"] == 1)
        assert not member.socket.poll(0)
        disk.full = False

        def votes() -> bool:
            member.send(look(3), origin=b"")
            return bool(member.socket.poll(50))

        wait_until(votes)
        assert member.vote(prepare(200, 4)).outcome is VoteOutcome.REFUSED
        assert disk.rows[STORE].promised == 200
    finally:
        proxy.stop()


def test_requests_go_to_the_new_primary_at_once_and_the_old_one_learns_so(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    with running(tmp_path, context, heartbeat_seconds=NEVER) as proxy:
        old, new, client = proxy.server(), proxy.server(), proxy.client()
        admitted(new)
        topics = {"t": log_id("x")}
        assert old.announce(topics, incarnation=100, member=A).outcome is Outcome.SUCCESS
        client.send(get())
        assert b"GET" in old.request()[1]
        assert new.vote(prepare(200, 1, kind="takeover")).outcome is VoteOutcome.PRIMARY_ALIVE
        assert new.announce(topics, incarnation=200, member=B).outcome is Outcome.SUCCESS
        client.send(get())
        assert b"GET" in new.request()[1]
        told = old.told()
        assert (told.outcome, told.term) == (Outcome.DEPOSED, 200)
        told = old.announce(topics, incarnation=100, change=2, member=A)
        assert (told.outcome, told.term) == (Outcome.DEPOSED, 200)


def test_the_other_members_question_reveals_the_end_of_the_primarys_process(
    tmp_path: Path, context: zmq.Context[Any]
) -> None:
    with running(tmp_path, context, heartbeat_seconds=NEVER) as proxy:
        old, new = proxy.server(), proxy.server()
        admitted(new)
        old.announce({}, incarnation=100, member=A)
        assert new.vote(look(1)).silence_ms >= 0
        old.socket.close(0)
        wait_until(lambda: new.vote(look(2)).silence_ms == -1)
        assert new.vote(prepare(200, 3, kind="takeover")).outcome is VoteOutcome.PROMISED


def test_only_the_server_of_a_store_asks_about_it_with_keys(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        primary, standby, other = proxy.store(), proxy.store(), proxy.store("s2")
        primary.announce({}, incarnation=100, member=A)
        admitted(standby)
        other.send(prepare(200, 1), origin=b"")
        wait_until(lambda: proxy.count("servers_under_a_wrong_name") == 1)
        other.send(prepare(200, 1, sender="s2"), origin=b"")
        wait_until(lambda: proxy.count("registers_asked_by_others") == 1)
        vote = standby.vote(prepare(200, 2))
        assert (vote.outcome, vote.promised) == (VoteOutcome.PROMISED, 200)


def test_another_server_with_a_key_cannot_vote_or_depose_or_forget_a_store(tmp_path: Path) -> None:
    with locked(tmp_path) as proxy:
        primary, standby, other = proxy.store(), proxy.store(), proxy.store("s2")
        primary.announce({}, incarnation=100, member=A)
        admitted(standby)
        table, rows = proxy.process.core.table, proxy.process.core.members.registers.rows
        before = rows[STORE]
        announced = replace(periodic({}, "s2", 300, 9, member=B), store=STORE)
        other.send(announced, origin=b"")
        assert other.told().outcome is Outcome.TAKEN
        primary.send(Heartbeat("s1", leaving=1), origin=b"")
        assert other.told().outcome is Outcome.ANNOUNCE, "it may try again, the store is heard no more"
        other.send(announced, origin=b"")
        told = other.told()
        assert (told.outcome, told.reason) == (Outcome.REFUSED, "the_register_of_this_store_is_of_server_s1")
        # It says of itself what is believed of anybody, and that the other store is gone, which holds nothing.
        gone = format_stores({STORE: Known("", 500)})
        other.send(replace(periodic({}, "s2"), gone=gone), origin=b"")
        wait_until(lambda: STORE not in table.servers)
        other.send(announced, origin=b"")
        wait_until(lambda: proxy.count("announcements_refused") == 2)
        for asked in (prepare(200, 1, "s2"), Accept("s2", STORE, B, 200, 1, FIRST), Forget("s2", STORE, B, "f" * 16)):
            other.send(asked, origin=b"")
        wait_until(lambda: proxy.count("registers_asked_by_others") == 2)
        wait_until(lambda: proxy.count("refused") == 1)
        assert rows == {STORE: before}
        vote = standby.vote(prepare(200, 2))
        assert (vote.outcome, vote.promised) == (VoteOutcome.PROMISED, 200)


def test_a_client_with_a_key_cannot_ask_for_votes(tmp_path: Path) -> None:
    with locked(tmp_path, servers=None) as proxy:
        primary, client = proxy.store(), proxy.peer("bob")
        primary.announce({}, incarnation=100, member=A)
        admitted(primary)
        client.send(prepare(200, 1))
        assert client.status().outcome is Outcome.DENIED
        client.send(prepare(200, 1), origin=b"")
        assert primary.vote(prepare(200, 2)).outcome is VoteOutcome.PROMISED


@pytest.mark.parametrize("topic", ["t", "new"])
def test_a_witness_votes_and_routes_nothing(tmp_path: Path, context: zmq.Context[Any], topic: str) -> None:
    with running(tmp_path, context, witness=True) as proxy:
        server, client = proxy.server(), proxy.client()
        server.announce({"t": log_id("x")}, incarnation=100, member=A)
        admitted(server)
        answer = client.ask(Put("ann", topic, 1, "0" * 16, 1, 0, 99, body=b"x"))
        assert (answer.outcome, answer.reason) == (Outcome.UNAVAILABLE, "this_proxy_is_a_witness")
