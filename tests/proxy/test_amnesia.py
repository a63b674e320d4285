"""One of 1, 2, 3 or 5 proxies has lost its directory: possible changes of the register, and the return of the vote."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import zmq

from pubsub.protocol.register import Admit, Forget, Look, Prepare, View, Vote, VoteOutcome
from pubsub.proxy.remembered import RegisterRow
from pubsub.server.standby.election.acceptor_recovery import AcceptorRecovery
from pubsub.server.standby.election.proposer import Chosen, Identity, Outcome, Proposer
from tests.ports import free_port
from tests.proxy.peers import Running, ServerPeer, wait_until, where_another_was
from tests.proxy.stage import log_id

A, B = "a" * 16, "b" * 16
STORE = log_id("s1")
FIRST = View(100, A, "tcp://a:1", (A, B), (A, B))
ALONE = FIRST._replace(in_sync=(A,))
PROMISED = 900
"""A ballot that every proxy has promised before one of them loses its directory."""


class Cluster:
    """Some proxies that run, and both members as they ask them: member A is the primary."""

    def __init__(self, directory: Path, count: int) -> None:
        self.directory, self.context = directory, zmq.Context[Any]()
        self.proxies = [self._proxy(directory / f"p{place}", f"p{place}") for place in range(count)]
        self.names = [proxy.process.servers for proxy in self.proxies]
        self.peers = [ServerPeer(self.context, name) for name in self.names]
        self.a, self.b = self._proposer(A), self._proposer(B)
        self.a.view, self.a.unsettled = FIRST, False
        self.acceptor_recovery = AcceptorRecovery(self.a, Random(1))
        self.now = 0.0
        for peer in self.peers:
            identity = peer.vote(Look("s1", STORE, 1)).identity
            assert peer.vote(Admit("s1", STORE, 2, identity, 100, 100, FIRST)).outcome is VoteOutcome.REPORTED
            assert peer.vote(Prepare("s1", STORE, B, PROMISED, 3, "resume")).outcome is VoteOutcome.PROMISED

    def _proxy(self, directory: Path, name: str) -> Running:
        """At ports that nobody else takes while it does not run."""
        bind, servers = (f"tcp://127.0.0.1:{free_port()}" for _ in range(2))
        return Running(directory, self.context, id=name, bind=bind, servers=servers).start()

    def _proposer(self, member: str) -> Proposer:
        identity = Identity("s1", STORE, member, f"tcp://{member[0]}:1")
        return Proposer(identity, self.names, 1.0, 3.0, Random(member))

    def row(self, place: int = 0) -> RegisterRow | None:
        return self.proxies[place].process.core.members.registers.rows.get(STORE)

    def lose(self) -> None:
        """The first proxy is started again at its addresses, with an empty directory."""
        old = self.proxies[0]
        old.stop()
        at = {"bind": old.process.bind, "servers": old.process.servers, "id": "p0"}
        self.proxies[0] = where_another_was(lambda: Running(self.directory / "empty", self.context, **at))
        self.peers[0].socket.close(0)
        self.peers[0] = ServerPeer(self.context, self.names[0])

    def pump(self) -> Outcome | None:
        """Carry all that member A has to say, until there is nothing more."""
        outcome = None
        while self.a.outgoing:
            sent, self.a.outgoing[:] = list(self.a.outgoing), []
            for whom, message in sent:
                if isinstance(message, Forget):
                    self.b.forget(message.identity, self.now)
                    self.acceptor_recovery.forgotten(Forget("s1", STORE, B, message.identity, done=1))
                else:
                    vote = self.peers[self.names.index(whom)].vote(message)
                    outcome = self.heard(whom, vote) or outcome
        return outcome

    def heard(self, whom: str, vote: Vote) -> Outcome | None:
        outcome = self.a.receive(whom, vote, self.now)
        self.acceptor_recovery.receive(whom, vote, self.now)
        return outcome

    def drop(self) -> bool:
        """Try to go on without the other member; whether that is chosen."""
        self.now += 100.0
        self.a.begin("remove_from_sync", self.now, wall_ms=1000, term=100)
        chosen = isinstance(self.pump(), Chosen)
        self.a.cancel(self.now)
        return chosen

    def look(self) -> None:
        self.acceptor_recovery.look()
        self.pump()

    def close(self) -> None:
        for proxy in self.proxies:
            proxy.stop()
        self.context.destroy(0)


@pytest.fixture
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, request.param)
    yield made
    made.close()


@pytest.mark.parametrize(("cluster", "at_once"), [(2, False), (3, True), (5, True)], indirect=["cluster"])
def test_a_proxy_gets_its_vote_back_through_the_others_and_is_bound_as_before(cluster: Cluster, at_once: bool) -> None:
    cluster.lose()
    assert cluster.drop() is at_once, "of two proxies both are a majority"
    assert cluster.row() is None
    cluster.look()
    wait_until(lambda: cluster.row() is not None)
    row = cluster.row()
    assert row is not None
    assert row.promised >= PROMISED
    assert row.view == (ALONE if at_once else FIRST)
    assert cluster.drop()
    cluster.look()
    assert [*cluster.acceptor_recovery.outcomes.values()] == [VoteOutcome.REPORTED] * len(cluster.names)


@pytest.mark.parametrize("cluster", [1], indirect=True)
def test_the_only_proxy_has_no_vote_until_an_operator_gives_one(cluster: Cluster) -> None:
    cluster.lose()
    for _ in range(3):
        cluster.look()
    assert not cluster.drop()
    assert cluster.row() is None
    assert cluster.acceptor_recovery.reset(2000) == ""
    cluster.pump()
    row = cluster.row()
    assert row is not None
    assert row.promised >= max(2000, PROMISED)
    assert cluster.drop()


@pytest.mark.parametrize("cluster", [2, 3], indirect=True)
def test_an_operator_gives_no_vote_while_other_proxies_can_report(cluster: Cluster) -> None:
    cluster.lose()
    assert cluster.acceptor_recovery.reset(2000) == "other_proxies_report_its_promises"
    cluster.pump()
    assert cluster.row() is None
