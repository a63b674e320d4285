"""Services with keys: accepted peers, the rights to call and to serve, and the answers to refused peers."""

from __future__ import annotations

import pytest

from pubsub.errors import KeyRefused
from pubsub.services.access import Locks
from pubsub.services.client import ServiceClient
from pubsub.services.core.interface import Asked
from pubsub.services.core.queue import BACKEND, FRONTEND, PirateQueue
from pubsub.services.engine import Engine
from pubsub.services.errors import CallTimeout
from pubsub.services.kinds import QUEUES
from pubsub.services.worker import Worker
from tests.faults.cluster import until
from tests.services.locked import Ring
from tests.services.running import Running


@pytest.fixture
def ring():
    return Ring()


@pytest.fixture
def running():
    with Running() as made:
        yield made


@pytest.fixture
def server(ring, running):
    ring.authorize("alice", "call=bill*")
    return running.worker(Worker("billing", bind="tcp://127.0.0.1:0", locks=ring.listening("server")))


def client(server: Worker, locks: Locks, **named: object) -> ServiceClient:
    return ServiceClient(server.address, **({"kind": "lazy", "locks": locks} | named))


def test_a_client_with_the_right_is_answered(ring, server):
    with client(server, ring.calling("alice", "server")) as alice:
        assert alice.call("", b"x", timeout=10.0).body == b"x"


@pytest.mark.parametrize("rights", [(), ("call=stock",), ("serve=billing",), ("put=*", "get=*", "operate")], ids=str)
def test_a_client_without_the_right_is_not_answered_and_the_denial_is_counted(ring, running, rights):
    ring.authorize("alice", *rights)
    server = running.worker(Worker("billing", bind="tcp://127.0.0.1:0", locks=ring.listening("server")))
    with client(server, ring.calling("alice", "server"), timeout=3.0, tries=1) as alice:
        future = alice.submit("", b"x")
        until(lambda: server._core.counters["denied"] == 1, "the request is denied")
        assert server._engine._access.counters["denied"] == 1
        future.cancel()


def test_an_unknown_key_is_refused_at_once(ring, server):
    ring.pair("server")
    with client(server, ring.calling("mallory", "server"), timeout=60.0) as mallory:
        with pytest.raises(KeyRefused, match="does not know the key pk_") as caught:
            mallory.call("", b"x")
        assert caught.value.exit_code == 21


def test_a_server_key_other_than_the_expected_one_is_refused(ring, server):
    with (
        client(server, ring.calling("alice", "another"), timeout=60.0) as alice,
        pytest.raises(KeyRefused, match="its key is not pk_"),
    ):
        alice.call("", b"x")


def test_a_client_without_a_key_is_asked_for_one(server):
    with client(server, Locks(), timeout=60.0) as nobody, pytest.raises(KeyRefused, match="wants a key"):
        nobody.call("", b"x")


def test_a_key_for_a_server_without_keys_is_not_used(ring, running):
    open_server = running.worker(Worker(bind="tcp://127.0.0.1:0"))
    with (
        client(open_server, ring.calling("alice", "server"), timeout=60.0) as alice,
        pytest.raises(KeyRefused, match="has no key"),
    ):
        alice.call("", b"x")


def test_one_of_several_expected_keys_is_found(ring, server):
    with client(server, ring.calling("alice", "old", "server"), timeout=20.0) as alice:
        assert alice.call("", b"x").body == b"x"


def test_a_key_revoked_while_connected_gets_no_more_answers(ring, server):
    with client(server, ring.calling("alice", "server"), timeout=10.0) as alice:
        assert alice.call("", b"x").body == b"x"
        ring.revoke("alice")
        server.hang_up()

        def denied() -> bool:
            try:
                alice.call("", b"x", timeout=0.5, tries=1)
            except (CallTimeout, KeyRefused):
                return True
            return False

        until(denied, "alice is denied")


@pytest.mark.parametrize("kind", ["simple", "paranoid"])
def test_a_queue_accepts_callers_and_workers_by_their_rights(ring, running, kind):
    core = QUEUES[kind]("billing", 0.2, 3)
    ports = PirateQueue.ports("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")
    engine = running.engine(Engine(core, ports, locks=ring.listening("queue")))
    ring.authorize("carl", "call=*")
    ring.authorize("willy", "serve=billing")
    engine.hang_up()
    until(lambda: len(engine._access._authorizer.access.authorized.lines) == 2, "the queue knows them")
    fake = Worker("x", broker=engine.addresses[BACKEND], kind=kind, locks=ring.calling("carl", "queue"))
    running.worker(fake)
    until(lambda: core.counters["denied"], "who may only call does not serve")
    assert not core._free
    running.worker(Worker("x", broker=engine.addresses[BACKEND], kind=kind, locks=ring.calling("willy", "queue")))
    until(lambda: core._free, "who may serve does")
    with ServiceClient(engine.addresses[FRONTEND], kind="lazy", locks=ring.calling("carl", "queue")) as carl:
        assert carl.call("", b"x").body == b"x"


def test_a_message_that_needs_no_right_still_needs_an_authorized_key(ring, running, server):
    ring.authorize("alice")
    server.hang_up()
    access = server._engine._access
    until(lambda: not access._authorizer.access.authorized.lines[0].call, "alice may do nothing any more")
    (line,) = access._authorizer.access.authorized.lines
    assert access.allows(line.user, None, 0.0)
    assert not access.allows(line.user, Asked("call", "billing"), 0.0)
    assert not access.allows("client:bob#00000000", None, 0.0)
    assert not access.allows(line.user, Asked("call", "x" * 10_000), 0.0)
