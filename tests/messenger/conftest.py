import contextlib
import socket
import threading
import time
from collections.abc import Callable

import pytest
import zmq

from pubsub.messenger import Messenger, MessengerLimits


@pytest.fixture
def until() -> Callable[[Callable[[], object]], None]:
    """Polls a condition with a deadline."""

    def poll(condition: Callable[[], object], seconds: float = 10.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true in time"
            time.sleep(0.002)

    return poll


class Relay:
    """Passes TCP connections on to a target; can cut one half of them without a word to the other."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("tcp://").partition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self.pairs: list[tuple[socket.socket, socket.socket]] = []
        self._silent: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            self.pairs.append((client, server))
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self._pump, args=(source, sink), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while chunk := source.recv(65_536):
                if sink not in self._silent:
                    sink.sendall(chunk)
        if source not in self._silent and sink not in self._silent:
            self._shut(sink)

    @staticmethod
    def _shut(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    def cut(self, side: int) -> None:
        """Close what is open on one side (0: the client's, 1: the server's); the other side is not told."""
        for pair in self.pairs:
            self._silent.update(pair)
            self._shut(pair[side])

    def close(self) -> None:
        self._shut(self._listener)
        self._listener.close()
        for pair in self.pairs:
            for sock in pair:
                self._shut(sock)
                sock.close()


@pytest.fixture
def relay_to():
    relays = []

    def make(target: str) -> Relay:
        relays.append(Relay(target))
        return relays[-1]

    yield make
    for relay in relays:
        relay.close()


@pytest.fixture
def context():
    with zmq.Context() as context:
        yield context
        context.destroy(0)


@pytest.fixture
def make(context):
    made = []

    def messenger(**limits) -> Messenger:
        made.append(Messenger(context, limits=MessengerLimits(**limits)))
        return made[-1]

    yield messenger
    for each in made:
        each.close()


@pytest.fixture(params=["tcp", "ipc", "inproc"])
def endpoint(request, tmp_path):
    return {"tcp": "tcp://127.0.0.1:0", "ipc": f"ipc://{tmp_path}/socket", "inproc": "inproc://here"}[request.param]
