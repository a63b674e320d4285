"""The facts that an attempt to connect reveals of an address."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest
import zmq

from pubsub.base.reachability import mechanism, obstacles, rejection


def test_a_listening_socket_is_no_obstacle(tmp_path: Path) -> None:
    with zmq.Context() as context:
        for endpoint in ("tcp://127.0.0.1:*", f"ipc://{tmp_path}/s"):
            with context.socket(zmq.ROUTER) as router:
                router.linger = 0
                router.bind(endpoint)
                address = router.last_endpoint.decode()
                assert rejection(address, 10.0) == ""
                assert obstacles([address]) == f"{address}: no answer"
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    assert rejection(address) == "Connection refused"
    assert rejection(f"ipc://{tmp_path}/none") == "No such file or directory"
    assert rejection("inproc://x") == ""


def test_each_address_is_named_with_its_reason(tmp_path: Path) -> None:
    first, second = f"ipc://{tmp_path}/a", f"ipc://{tmp_path}/b"
    assert obstacles([first, second]) == f"{first}: No such file or directory; {second}: No such file or directory"


@pytest.mark.parametrize("endpoint", ["tcp://127.0.0.1:*", "tcp://[::1]:*", "ipc://{}/s"])
@pytest.mark.parametrize("name", ["NULL", "PLAIN", "CURVE"])
def test_the_mechanism_of_a_zeromq_socket_is_found(tmp_path: Path, endpoint: str, name: str) -> None:
    context = zmq.Context()
    with context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.ipv6 = True
        if name == "PLAIN":
            router.plain_server = True
        elif name == "CURVE":
            router.curve_server = True
            router.curve_secretkey = zmq.curve_keypair()[1]
        router.bind(endpoint.format(tmp_path))
        assert mechanism(router.last_endpoint.decode(), 10.0) == name
    context.term()


@pytest.mark.parametrize("words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" + b"x" * 32, b"\xff" * 9, b"\xff" * 64])
def test_a_socket_other_than_zeromq_has_no_mechanism(words: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(words)

        thread = threading.Thread(target=serve)
        thread.start()
        assert mechanism(f"tcp://127.0.0.1:{listening.getsockname()[1]}") == ""
        thread.join()


def test_a_silent_or_absent_socket_has_no_mechanism(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        assert mechanism(address, 0.01) == ""
    assert mechanism(address) == ""
    assert mechanism(f"ipc://{tmp_path}/none") == ""
    assert mechanism("inproc://x") == ""
    assert mechanism("tcp://nowhere") == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the process there is no ZeroMQ socket: it answers 'HTTP/1.1'"),
        (b"-ERR unknown command\r\n", "the process there is no ZeroMQ socket: it answers '-ERR unk'"),
        (b"\x15\x03\x01\0\x02", "the process there is no ZeroMQ socket: it answers '\\x15\\x03\\x01\\x00\\x02'"),
        (b"", ""),  # A balancer behind which nobody is, or that is full: nothing is known.
    ],
)
def test_a_listener_other_than_zeromq_is_named(words: bytes, said: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(len(words) and 11)
                connection.sendall(words)

        thread = threading.Thread(target=serve)
        thread.start()
        assert rejection(f"tcp://127.0.0.1:{listening.getsockname()[1]}", 10.0) == said
        thread.join()


def test_a_listener_that_sends_nothing_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
        assert "sends nothing: it is stopped, or is no ZeroMQ socket" in rejection(address, 0.05)
