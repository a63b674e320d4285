"""A server's links: the end of a link to the other member is seen at once, and reported once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import open_dealer, open_router
from pubsub.messenger.wakeup import Wakeup
from pubsub.protocol import Outcome, Status, Transfer, decode, encode
from pubsub.server.links import Links, reject
from tests.server.running import until


@pytest.fixture
def context() -> Iterator[zmq.Context[Any]]:
    made: zmq.Context[Any] = zmq.Context()
    yield made
    made.destroy(0)


@pytest.fixture
def poller() -> zmq.Poller:
    return zmq.Poller()


@pytest.fixture
def links(context: zmq.Context[Any], poller: zmq.Poller) -> Iterator[Links]:
    wakeup = Wakeup()
    made = Links(context, poller, wakeup, None)
    yield made
    made.goodbye()
    wakeup.close()


def heard(links: Links, router: zmq.Socket[bytes], sock: zmq.Socket[bytes]) -> None:
    """A message comes through."""
    assert links.send(sock, [b"hello"])
    assert router.poll(30_000)
    router.recv_multipart()


def test_the_end_of_a_members_link_wakes_the_loop_and_is_reported_once(
    context: zmq.Context[Any], poller: zmq.Poller, links: Links
) -> None:
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    sock = links.to_member(endpoint)
    heard(links, router, sock)
    assert not poller.poll(0)
    assert not links.ended(sock)
    router.close(0)
    assert poller.poll(30_000)
    until(lambda: links.ended(sock))
    assert not poller.poll(0)
    assert not links.ended(sock)


def test_a_link_that_is_made_again_by_itself_can_end_again(context: zmq.Context[Any], links: Links) -> None:
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    sock = links.to_member(endpoint)
    for _ in range(2):
        heard(links, router, sock)
        router.close(0)
        until(lambda: links.ended(sock))
        router, _ = open_router(context, endpoint)
    heard(links, router, sock)
    assert not links.ended(sock)
    router.close(0)


def test_a_link_without_a_listener_has_not_ended(context: zmq.Context[Any], poller: zmq.Poller, links: Links) -> None:
    with socket.socket() as bound:  # It listens to nobody, and nobody else can take its port meanwhile.
        bound.bind(("127.0.0.1", 0))
        sock = links.to_member(f"tcp://127.0.0.1:{bound.getsockname()[1]}")
        assert not poller.poll(300)
        assert not links.ended(sock)


def test_a_closed_link_is_not_polled(context: zmq.Context[Any], poller: zmq.Poller, links: Links) -> None:
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    sock = links.to_member(endpoint)
    heard(links, router, sock)
    links.close(sock)
    assert poller.sockets == []
    router.close(0)


@pytest.mark.parametrize("primary", ["tcp://127.0.0.1:21", ""])
def test_a_standby_names_the_primary_to_a_giver(context: zmq.Context[Any], links: Links, primary: str) -> None:
    """And nobody else, and of nothing that it cannot read."""
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    dealer = open_dealer(context, endpoint)
    head, _ = encode(Transfer("s2", "t", "offer", "1" * 16, 0, "2" * 16))
    for frames in ([b"rubbish"], [pack(0, 8, 0) + b"rubbish"], [pack(0, 0, 0) + head], [pack(0, 9, 0) + head]):
        dealer.send_multipart(frames)

    def answered() -> bool:
        reject(links, router, "s1", primary)
        return bool(dealer.poll(20))

    if not primary:
        assert not any(answered() for _ in range(10))
        return
    until(answered)
    (answer,) = dealer.recv_multipart()
    prefix = unpack(answer)
    said = decode(answer[prefix.length :])
    assert (prefix.destination, said) == (9, Status("s1", Outcome.DEPOSED, reason=primary))
    assert not dealer.poll(200)
