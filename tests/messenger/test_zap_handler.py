"""The ZAP handler: any polling thread answers ZeroMQ's questions, and without an answer no peer is accepted."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import zmq

from pubsub.errors import ConfigurationError
from pubsub.messenger.curve import CurveClient, CurveServer
from pubsub.messenger.sockets import open_dealer, open_router
from pubsub.messenger.zap_handler import QUESTIONS_MAX, ZapHandler
from pubsub.security.pairs import new_pair

SERVER, CLIENT = new_pair(), new_pair()
TCP = "tcp://127.0.0.1:0"


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(0)


class Answers:
    """Lets everybody in, or nobody; remembers who asked."""

    def __init__(self, status: bytes = b"200") -> None:
        self.status = status
        self.asked: list[tuple[str, bytes]] = []

    def __call__(self, frames: Sequence[bytes]) -> list[bytes]:
        self.asked.append((frames[4].decode(), frames[8]))
        return [*frames[:4], self.status, b"", b"client:ann", b""]


def connect(context: zmq.Context[Any], address: str) -> zmq.Socket[bytes]:
    dealer = open_dealer(context, address, curve=CurveClient(CLIENT, (SERVER.public,)))
    dealer.send(b"hello")
    return dealer


def test_an_accepted_client_is_known_by_its_messages_and_a_refused_one_sends_none(context: zmq.Context[Any]) -> None:
    for status, enters in ((b"200", True), (b"400", False)):
        answers = Answers(status)
        keeper = ZapHandler(context, answers)
        router, address = open_router(context, TCP, curve=CurveServer(SERVER, "clients"))
        dealer = connect(context, address)
        assert keeper.sock.poll(10_000)
        keeper.take()
        assert answers.asked == [("clients", CLIENT.public)]
        assert bool(router.poll(10_000 if enters else 300)) == enters
        if enters:
            assert router.recv(copy=False).get("User-Id") == "client:ann"
        for sock in (dealer, router):
            sock.close(0)
        keeper.close()


def test_no_client_is_accepted_without_a_zap_handler(context: zmq.Context[Any]) -> None:
    router, address = open_router(context, TCP, curve=CurveServer(SERVER, "clients"))
    dealer = connect(context, address)
    assert not router.poll(300)
    dealer.close(0)


def test_handshakes_wait_for_a_loop_that_is_late(context: zmq.Context[Any]) -> None:
    keeper = ZapHandler(context, Answers())
    router, address = open_router(context, TCP, curve=CurveServer(SERVER, "clients"))
    peers = [connect(context, address) for _ in range(3)]
    assert keeper.sock.poll(10_000)
    assert not router.poll(500)
    arrived, deadline = 0, time.monotonic() + 30
    while arrived < len(peers):
        assert time.monotonic() < deadline
        keeper.sock.poll(100)
        keeper.take()
        while router.poll(100):
            router.recv_multipart()
            arrived += 1
    keeper.close()


def test_many_questions_do_not_delay_messages(context: zmq.Context[Any]) -> None:
    answered: list[object] = []

    def answer(frames: Sequence[bytes]) -> list[bytes]:
        answered.append(frames)
        return []  # Nothing to say is allowed too.

    keeper = ZapHandler(context, answer)
    asker = context.socket(zmq.DEALER)
    asker.sndhwm = 0
    asker.connect("inproc://zeromq.zap.01")
    for _ in range(QUESTIONS_MAX + 50):
        asker.send(b"")
    keeper.take()
    assert len(answered) == QUESTIONS_MAX
    keeper.take()
    assert len(answered) == QUESTIONS_MAX + 50
    keeper.take()
    asker.close(0)
    keeper.close()


def test_a_vanished_peer_of_a_handshake_does_no_harm(context: zmq.Context[Any]) -> None:
    keeper = ZapHandler(context, lambda frames: [b"gone", b"", b"1.0", b"1", b"200", b"", b"", b""])
    asker = context.socket(zmq.DEALER)
    asker.connect("inproc://zeromq.zap.01")
    asker.send(b"")
    assert keeper.sock.poll(10_000)
    keeper.take()
    asker.close(0)
    keeper.close()


def test_a_second_zap_handler_in_a_context_is_refused_until_the_first_has_left(
    context: zmq.Context[Any],
) -> None:
    keeper = ZapHandler(context, Answers())
    with pytest.raises(ConfigurationError, match="use another context for endpoints with keys"):
        ZapHandler(context, Answers())
    keeper.close()
    ZapHandler(context, Answers()).close()
    context.term()  # Nothing is left over that it would wait for.
