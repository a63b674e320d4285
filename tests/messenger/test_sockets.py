"""The sockets: options that the service depends on, frames copied or shared, and unsendable messages."""

import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import zmq

from pubsub.base.limits import BODY_BYTES_MAX, HEADER_LENGTH_MAX
from pubsub.errors import ConfigurationError
from pubsub.messenger import sockets
from pubsub.messenger.sockets import (
    COPY_BYTES_MAX,
    FRAMES_MAX,
    Connections,
    open_dealer,
    open_router,
    receive,
    receive_frames,
    send,
    send_frames,
)
from tests.faults.hostile import raw

MIB = 1024 * 1024


@pytest.fixture
def pair(context, until):
    """A DEALER and the ROUTER it is connected to, which has heard it."""
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    dealer = open_dealer(context, endpoint)
    dealer.send(b"here")
    routing, _ = router.recv_multipart()
    return dealer, router, routing


def arrived(sock):
    assert sock.poll(10_000)
    return receive_frames(sock, known=True)


def test_a_router_returns_its_port(context):
    _, endpoint = open_router(context, "tcp://127.0.0.1:0")
    assert endpoint.startswith("tcp://127.0.0.1:")
    assert not endpoint.endswith((":0", "*"))
    with pytest.raises(ConfigurationError, match="in use by another process"):
        open_router(context, endpoint)


@pytest.mark.parametrize("endpoint", ["", "nonsense", "tcp://", "tcp://127.0.0.1", "http://a:1"])
def test_an_invalid_address_is_a_configuration_error_on_one_line(context, endpoint):
    for attempt in (open_router, open_dealer):
        with pytest.raises(ConfigurationError) as caught:
            attempt(context, endpoint)
        assert "\n" not in str(caught.value)


def test_every_dealer_has_a_fresh_random_routing_id(context):
    dealers = [open_dealer(context, "inproc://nobody") for _ in range(3)]
    routing_ids = {dealer.getsockopt(zmq.ROUTING_ID) for dealer in dealers}
    assert len(routing_ids) == 3
    assert {len(routing) for routing in routing_ids} == {16}
    assert not any(routing.startswith(b"\0") for routing in routing_ids)


@pytest.mark.parametrize("size", [0, 1, COPY_BYTES_MAX, COPY_BYTES_MAX + 1, 1_000_000])
@pytest.mark.parametrize("parts", [0, 1, 2])
def test_frames_arrive_unchanged_in_both_directions(pair, size, parts):
    dealer, router, routing = pair
    bodies = [bytes([65 + n]) * size for n in range(parts)]
    assert send_frames(dealer, b"", b"head", bodies)
    assert arrived(router) == [routing, b"head", *bodies]
    assert send_frames(router, routing, b"head", tuple(map(memoryview, bodies)))
    assert arrived(dealer) == [b"head", *bodies]


def test_small_frames_are_copied_and_large_ones_are_not(pair):
    dealer, router, _ = pair
    send_frames(dealer, b"", b"x" * COPY_BYTES_MAX, [b"x" * (COPY_BYTES_MAX + 1)])
    _, small, large = arrived(router)
    assert isinstance(small, bytes)
    assert isinstance(large, memoryview)


def test_an_empty_socket_returns_no_message(pair):
    dealer, router, _ = pair
    assert receive_frames(dealer) is None
    assert receive_frames(router, known=True) is None
    assert receive(dealer) is None


def test_a_message_of_too_many_frames_is_removed_and_the_next_one_arrives(pair):
    dealer, router, routing = pair
    dealer.send_multipart([b"x"] * (FRAMES_MAX + 5))
    dealer.send_multipart([b"next"])
    assert arrived(router) == []
    assert arrived(router) == [routing, b"next"]


def test_a_message_to_a_peer_that_is_gone_is_reported_and_the_next_one_is_sound(pair):
    dealer, router, routing = pair
    assert not send_frames(router, b"\x01nobody", b"head", [b"a", b"b"])
    assert not send(router, [b"\x01nobody", b"head", b"a"])
    assert send_frames(router, routing, b"head", [b"body"])
    assert arrived(dealer) == [b"head", b"body"]


def test_a_queue_at_its_high_water_mark_is_reported(context, monkeypatch):
    monkeypatch.setattr(sockets, "HIGH_WATER_MARK", 5)
    dealer = open_dealer(context, "tcp://127.0.0.1:1")
    taken = [send_frames(dealer, b"", b"head", [b"body"]) for _ in range(10)]
    assert taken == [True] * 5 + [False] * 5


def test_connections_are_counted_by_their_kind(context):
    counters = {}
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    connections = Connections(context, router, counters, ("accepted", "established", "ended"))
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    stranger = socket.create_connection((host, int(port)))
    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
    dealer = open_dealer(context, endpoint)
    dealer.send(b"here")
    assert router.poll(10_000)
    while counters != {"accepted": 2, "established": 1, "ended": 1}:
        assert connections.sock.poll(10_000), counters
        connections.take()
    stranger.close()
    connections.close()


@pytest.mark.parametrize(
    "first", [b"GET / HTTP/1.1\r\n\r\n", b"\1\0" * 50, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"]
)
def test_a_peer_without_the_present_protocol_is_disconnected_at_once(context, first):
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    host, _, port = endpoint.removeprefix("tcp://").partition(":")
    with socket.create_connection((host, int(port)), 10) as stranger:
        stranger.sendall(first)
        try:
            while stranger.recv(4096):
                pass
        except ConnectionError:
            pass
    assert not router.poll(0)


@pytest.mark.parametrize("reads", [True, False])
def test_a_peer_that_sends_no_ping_or_takes_nothing_is_disconnected(context, monkeypatch, reads):
    monkeypatch.setattr(sockets, "SILENT_SECONDS", 0.9)
    counters = {}
    router, endpoint = open_router(context, "tcp://127.0.0.1:0")
    connections = Connections(context, router, counters, ("accepted", "established", "ended"))
    with raw(endpoint, ready=True) as stranger:
        stranger.sendall(b"\0\1x" + (b"\4\7\4PING\0\5" if reads else b""))  # Another one within half a second.
        assert router.poll(10_000)
        routing, _ = router.recv_multipart()
        for _ in range(0 if reads else 100):  # More than the machine takes of it.
            assert send(router, [routing, bytes(MIB)])
        while not counters.get("ended"):
            assert connections.sock.poll(10_000), counters
            connections.take()


ABORTED = """
import socket, struct, sys, time, zmq
from pubsub.messenger import sockets
from tests.faults.hostile import GREETING, raw

sockets.SILENT_SECONDS, context = 0.6, zmq.Context()
reset = struct.pack("ii", 1, 0)
if sys.argv[1] == "router":
    sock, endpoint = sockets.open_router(context, "tcp://127.0.0.1:0", received_max=10)
    peer = raw(endpoint, ready=True)
else:
    listener = socket.create_server(("127.0.0.1", 0))
    sock = sockets.make_dealer(context, "tcp://127.0.0.1:1", 0.1)
    sock.setsockopt(zmq.HEARTBEAT_TIMEOUT, 60_000)
    sock.connect("tcp://127.0.0.1:%d" % listener.getsockname()[1])
    peer, _ = listener.accept()
    listener.close()
    known = b"\\5READY\\x0bSocket-Type\\0\\0\\0\\6ROUTER"
    peer.sendall(GREETING + b"\\4" + bytes([len(known)]) + known)
    heard = b""
    while b"READY" not in heard:
        heard += peer.recv(4096)
peer.settimeout(0.1)
try:
    for _ in range(100):
        peer.sendall((b"\\0\\xc8" + bytes(200)) * 1000)
except TimeoutError:
    pass
routing = sock.recv_multipart()[0] if sys.argv[1] == "router" else None
for _ in range(1000):
    frames = [bytes(10_000)] if routing is None else [routing, bytes(10_000)]
    try:
        sock.send_multipart(frames, zmq.NOBLOCK)
    except zmq.ZMQError:
        break
peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
peer.close()
until = time.monotonic() + 1.0
while time.monotonic() < until:
    time.sleep(0.1)
print("goes on")
"""


@pytest.mark.parametrize("kind", ["router", "dealer"])
def test_a_peer_that_ends_unread_aborts_no_process(kind):
    """What libzmq does with a ping that is due then is no exception, but the end of the process."""
    root = Path(sockets.__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", ABORTED, kind], cwd=root, check=False, capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.returncode) == ("goes on\n", 0), done.stderr


def test_every_socket_bounds_its_queue_and_the_size_of_a_frame(context):
    router, endpoint = open_router(context, "tcp://127.0.0.1:0", received_max=7)
    dealer = open_dealer(context, endpoint)
    for sock in (router, dealer):
        assert sock.maxmsgsize == BODY_BYTES_MAX + HEADER_LENGTH_MAX
        assert sock.sndhwm == sockets.HIGH_WATER_MARK
        assert sock.getsockopt(zmq.HANDSHAKE_IVL) == sockets.HANDSHAKE_SECONDS * 1000
        assert sock.linger == 0
    assert (router.rcvhwm, dealer.rcvhwm) == (7, sockets.HIGH_WATER_MARK)
    assert router.getsockopt(zmq.TCP_MAXRT) == sockets.SILENT_SECONDS * 1000
    assert router.backlog == sockets.BACKLOG
    for sock in (router, dealer):  # A host that is gone says nothing: TCP asks for it.
        asked = sock.getsockopt(zmq.TCP_KEEPALIVE_IDLE), sock.getsockopt(zmq.TCP_KEEPALIVE_INTVL)
        assert sock.getsockopt(zmq.TCP_KEEPALIVE) == 1
        assert sum(asked[:1] + asked[1:] * sock.getsockopt(zmq.TCP_KEEPALIVE_CNT)) == sockets.SILENT_SECONDS
    pinging = open_dealer(context, endpoint, heartbeat_seconds=1.0)
    assert pinging.rcvhwm == 0
    assert pinging.getsockopt(zmq.HEARTBEAT_TTL) == sockets.SILENT_SECONDS * 1000
    assert router.getsockopt(zmq.HEARTBEAT_IVL) == 0


def test_no_socket_is_made_elsewhere():
    """A socket without those options has no bounds. ZeroMQ alone asks the doorkeeper."""
    root = Path(sockets.__file__).parents[1]
    makers = [path.name for path in root.rglob("*.py") if re.search(r"\b_?context\.socket\(", path.read_text())]
    assert sorted(makers) == ["sockets.py", "zap_handler.py"]
