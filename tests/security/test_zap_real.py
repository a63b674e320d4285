"""Access answers a real ZeroMQ: accepted peers, the names on their messages, and refused peers."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import zmq
from zmq.utils import z85

from pubsub.security.access import Access
from pubsub.security.authorized import parse
from pubsub.security.fingerprints import fingerprint
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair, new_pair

SECONDS = 10.0


class Door:
    """A ROUTER that asks for keys, with its handler in the same loop."""

    def __init__(self, domain: str, rules: str) -> None:
        self.access = Access(parse(rules.encode()))
        self.context = zmq.Context()
        self.handler = self.context.socket(zmq.ROUTER)
        self.handler.bind("inproc://zeromq.zap.01")
        self.pair = new_pair()
        self.router = self.context.socket(zmq.ROUTER)
        self.router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self.router.zap_domain = domain.encode()
        self.router.curve_server = True
        self.router.curve_secretkey = z85.encode(self.pair.secret)
        port = self.router.bind_to_random_port("tcp://127.0.0.1")
        self.address = f"tcp://127.0.0.1:{port}"
        self.clients = zmq.Context()  # Theirs, in which nobody handles ZAP.

    def connect(self, pair: Pair | None) -> zmq.Socket[bytes]:
        dealer = self.clients.socket(zmq.DEALER)
        dealer.linger = 0
        if pair is not None:
            dealer.curve_serverkey = z85.encode(self.pair.public)
            dealer.curve_publickey, dealer.curve_secretkey = z85.encode(pair.public), z85.encode(pair.secret)
        return dealer

    def plain(self) -> zmq.Socket[bytes]:
        dealer = self.connect(None)
        dealer.plain_username, dealer.plain_password = b"admin", b"admin"
        return dealer

    def try_it(self, dealer: zmq.Socket[bytes]) -> tuple[str | None, int]:
        """The User-Id of a message that arrives, or None and the event by which the dealer was told why not."""
        monitor = dealer.get_monitor_socket(
            zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
            | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_DISCONNECTED
        )  # fmt: skip
        dealer.connect(self.address)
        dealer.send(b"hello")
        poller = zmq.Poller()
        for socket in (self.handler, self.router, monitor):
            poller.register(socket, zmq.POLLIN)
        deadline = time.monotonic() + SECONDS
        try:
            while time.monotonic() < deadline:
                ready = dict(poller.poll(100))
                if self.handler in ready:
                    self.handler.send_multipart(self.access.zap(self.handler.recv_multipart()))
                if self.router in ready:
                    frames = self.router.recv_multipart(copy=False)
                    return str(frames[-1].get("User-Id")), 0
                if monitor in ready:
                    return None, int.from_bytes(monitor.recv_multipart()[0][:2], "little")
        finally:
            dealer.disable_monitor()
            dealer.close()
        pytest.fail("neither let in nor refused")

    def close(self) -> None:
        for context, sockets in ((self.clients, []), (self.context, [self.router, self.handler])):
            for socket in sockets:
                socket.close(0)
            context.destroy(0)


ALICE, SERVER, STRANGER = new_pair(), new_pair(), new_pair()
RULES = f"client alice {format_public(ALICE.public)} put=*\nserver s1 {format_public(SERVER.public)}\n"


@pytest.fixture
def door() -> Iterator[Door]:
    made = Door("clients", RULES)
    yield made
    made.close()


def test_an_authorized_client_connects_and_its_messages_name_its_user(door: Door) -> None:
    user, _ = door.try_it(door.connect(ALICE))
    assert user == f"client:alice#{fingerprint(ALICE.public)}"
    assert door.access.decide(user, "put", "alice", "orders", "").allowed


def test_an_unauthorized_key_and_a_key_of_another_role_are_refused(door: Door) -> None:
    assert door.try_it(door.connect(STRANGER)) == (None, zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    assert door.try_it(door.connect(SERVER)) == (None, zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    assert door.access.counters == {"handshakes_refused_key": 1, "handshakes_refused_role": 1}
    refused = [handshake.fingerprint for handshake in door.access.take_handshakes()]
    assert refused == [fingerprint(STRANGER.public), fingerprint(SERVER.public)]


def test_a_client_without_a_key_or_with_a_password_reaches_no_zap_handler(door: Door) -> None:
    assert door.try_it(door.connect(None))[0] is None
    assert door.try_it(door.plain())[0] is None
    assert door.access.counters["handshakes_entered"] == 0


def test_a_client_that_expects_another_server_key_does_not_connect(door: Door) -> None:
    dealer = door.connect(ALICE)
    dealer.curve_serverkey = z85.encode(STRANGER.public)
    assert door.try_it(dealer)[0] is None
    assert door.access.counters["handshakes_entered"] == 0


def test_a_later_authorized_key_connects_without_a_restart(door: Door) -> None:
    assert door.try_it(door.connect(STRANGER))[0] is None
    door.access.replace(parse(f"{RULES}client bob {format_public(STRANGER.public)}\n".encode()))
    assert door.try_it(door.connect(STRANGER))[0] == f"client:bob#{fingerprint(STRANGER.public)}"
