"""Bytes recorded on the way to a keyed proxy have no effect when they are replayed."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import zmq

from pubsub.protocol import Outcome, Put, Status
from tests.proxy.locked import Locked, locked
from tests.proxy.peers import Running, running, wait_until
from tests.proxy.stage import log_id


class Relay:
    """Stands between one client and a proxy, passes on what both say, and remembers what the client said."""

    def __init__(self, address: str) -> None:
        host, port = address.removeprefix("tcp://").split(":")
        self.proxy = host, int(port)
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self.said = b""
        self._up: socket.socket | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        self._listening.settimeout(10)
        down, _ = self._listening.accept()
        up = self._up = socket.create_connection(self.proxy)
        with selectors.DefaultSelector() as selector, down, up:
            for one, other in ((down, up), (up, down)):
                selector.register(one, selectors.EVENT_READ, other)
            while not self._ends.is_set():
                for key, _ in selector.select(0.05):
                    assert isinstance(key.fileobj, socket.socket)
                    found = key.fileobj.recv(65_536)
                    if not found:
                        return
                    if key.fileobj is down:
                        self.said += found
                    key.data.sendall(found)

    def repeat(self, what: bytes) -> None:
        """Say something again in the same connection."""
        assert self._up is not None
        self._up.sendall(what)

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self._listening.close()


@contextmanager
def relayed(proxy: Running) -> Iterator[Relay]:
    relay = Relay(proxy.process.bind)
    try:
        yield relay
    finally:
        relay.close()


PUT = Put("ann", "t", 1, "0" * 16, 1, 0, 0, body=b"pay 100")


def again(proxy: Locked, relay: Relay, put: bytes) -> None:
    relay.repeat(put)
    wait_until(lambda: proxy.count("handshakes_failed") > 0)  # So ZeroMQ calls it: a nonce came twice.


def anew(_: Locked, relay: Relay, __: bytes) -> None:
    with socket.create_connection(relay.proxy) as connection:
        connection.sendall(relay.said)
        connection.settimeout(10)
        while connection.recv(65_536):  # Until the proxy ends it.
            continue


@pytest.mark.parametrize("how", [again, anew])
def test_recorded_bytes_are_not_accepted_again(tmp_path: Path, how: Callable[[Locked, Relay, bytes], None]) -> None:
    with locked(tmp_path) as proxy, relayed(proxy) as relay:
        server, ann = proxy.serving("t"), proxy.peer("ann", relay.address)
        ann.send(PUT)
        answer = Status("s1", Outcome.SUCCESS, message=(log_id("x"), 1))
        server.send(answer, origin=server.request()[0], destination=40, source=0)
        assert ann.status() == answer
        before = len(relay.said)
        ann.send(PUT)
        server.request()
        wait_until(lambda: len(relay.said) > before)
        assert b"pay 100" not in relay.said
        how(proxy, relay, relay.said[before:])
        bob = proxy.peer("bob")
        bob.send(Put("bob", "t", 1, "1" * 16, 1, 0, 0, body=b"the next"))
        assert server.request()[2] == b"the next"


def test_recorded_bytes_are_accepted_again_without_keys(tmp_path: Path) -> None:
    """So what the test above does is an attack."""
    context: zmq.Context[bytes] = zmq.Context()
    with running(tmp_path, context) as proxy, relayed(proxy) as relay:
        server = proxy.server()
        server.announce({"t": log_id("t")})
        ann = proxy.client()
        ann.socket.disconnect(proxy.process.bind)
        ann.socket.connect(relay.address)
        ann.send(PUT)
        server.request()
        before = len(relay.said)
        ann.send(PUT)
        server.request()
        assert b"pay 100" in relay.said
        relay.repeat(relay.said[before:])
        assert server.request()[2] == b"pay 100"
    context.destroy(0)
