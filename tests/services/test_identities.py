"""Callers and workers have no routing ID of their own, so that no program of the Guide takes it for a command."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import zmq

from pubsub.messenger import sockets
from pubsub.services.client import ServiceClient
from pubsub.services.core.interface import BaseCore, Dial, Send
from pubsub.services.engine import Engine
from pubsub.services.kinds import CALLERS, WORKERS
from pubsub.services.worker import Worker
from tests.services.guide import SpQueue
from tests.services.running import Running

COMMANDS = bytes(range(7))
"""What a first byte may not be: ZeroMQ's own zero, and the commands of the Guide's protocols."""


def test_calls_are_answered_through_the_guide_s_c_queue() -> None:
    with SpQueue() as queue, Running() as running:
        running.worker(Worker("shout", broker=queue.workers, kind="simple", handler=lambda got: got.body.upper()))
        with ServiceClient(queue.clients, kind="lazy", timeout=5.0, tries=2) as client:
            assert [client.call("shout", b"hello %d" % n).body for n in range(5)] == [b"HELLO %d" % n for n in range(5)]
        assert {peer[:1] for peer in queue.peers} == {b"\0"}


@pytest.fixture
def listener():
    context = zmq.Context()
    sock = context.socket(zmq.ROUTER)
    sock.linger = 0
    at = f"tcp://127.0.0.1:{sock.bind_to_random_port('tcp://127.0.0.1')}"

    def peer() -> bytes:
        assert sock.poll(10_000)
        return sock.recv_multipart()[0]

    yield at, peer
    context.destroy(0)


@pytest.mark.parametrize("kind", sorted(CALLERS))
def test_a_caller_of_each_kind_has_a_routing_id_of_zeromq(kind: str, listener) -> None:
    at, peer = listener
    with ServiceClient([at], kind=kind, timeout=30.0, tries=1) as client:
        client.submit("shout", b"hello")
        assert peer()[:1] == b"\0"


@pytest.mark.parametrize("kind", sorted(WORKERS))
def test_a_worker_of_each_kind_has_a_routing_id_of_zeromq(kind: str, listener) -> None:
    at, peer = listener
    with Running() as running:
        running.worker(Worker("shout", broker=at, kind=kind))
        assert peer()[:1] == b"\0"


class _Dials(BaseCore):
    """Dials once, and says a word."""

    def __init__(self, at: str, *, lasting: bool) -> None:
        super().__init__()
        self._sends += [Dial("one", at, lasting), Send("one", b"", (b"hello",))]


@pytest.mark.parametrize("lasting", [True, False])
def test_a_connection_that_lasts_has_a_routing_id_that_is_no_command(
    lasting: bool, listener: tuple[str, Callable[[], bytes]]
) -> None:
    at, peer = listener
    engine = Engine(_Dials(at, lasting=lasting))
    engine.open()
    thread = threading.Thread(target=engine.run, daemon=True)
    thread.start()
    found = peer()
    engine.stop()
    thread.join(30.0)
    engine.close()
    assert found.startswith(sockets.ROUTING_ID_LEAD) is lasting
    assert (found[0] in COMMANDS) is not lasting


def test_connections_of_topics_have_routing_ids_that_are_no_commands() -> None:
    with zmq.Context() as context:
        made = [sockets.open_dealer(context, "tcp://127.0.0.1:1") for _ in range(8)]
        found = [sock.getsockopt(zmq.ROUTING_ID) for sock in made]
        for sock in made:
            sock.close(0)
    assert len(set(found)) == 8
    assert all(isinstance(name, bytes) and name[0] not in COMMANDS for name in found)
