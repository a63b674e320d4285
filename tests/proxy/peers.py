"""A proxy that runs, and its peers: DEALERs that speak in messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import zmq

from pubsub.errors import ConfigurationError, StorageError
from pubsub.messenger.curve import CurveClient
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import open_dealer
from pubsub.protocol import Get, Message, Periodic, Status, decode, encode
from pubsub.protocol.register import Accept, Admit, Look, Prepare, Vote
from pubsub.proxy.process import ProxyProcess
from tests.proxy.stage import log_id, settings

PATIENCE_MS = 30_000
TCP = "tcp://127.0.0.1:0"


class Peer:
    """A client or a server: a DEALER that speaks in messages."""

    def __init__(
        self, context: zmq.Context[Any], address: str, *, curve: CurveClient | None = None, **options: int
    ) -> None:
        self.socket = open_dealer(context, address, curve=curve)
        for name, value in options.items():
            setattr(self.socket, name, value)
        self.id = 0

    def send(self, message: Message, *, origin: bytes | None = None, destination: int = 0, source: int = 40) -> None:
        header, body = encode(message)
        self.id += 1
        frames = [pack(self.id, source, destination) + header, *((body,) if len(body) else ())]
        self.socket.send_multipart([*((origin,) if origin is not None else ()), *frames])

    def frames(self) -> list[bytes]:
        assert self.socket.poll(PATIENCE_MS), "nothing came"
        return self.socket.recv_multipart()

    def status(self) -> Status:
        head, *body = self.frames()
        prefix = unpack(head)
        assert prefix.destination == 40
        message = decode(head[prefix.length :], body[0] if body else b"")
        assert isinstance(message, Status)
        return message

    def ask(self, message: Message) -> Status:
        self.send(message)
        return self.status()


class ServerPeer(Peer):
    """A server with one topic, which announces itself and answers."""

    def announce(
        self,
        topics: dict[str, str],
        *,
        name: str = "s1",
        incarnation: int = 1,
        change: int = 1,
        partial: int = 0,
        member: str = "",
    ) -> Status:
        self.send(periodic(topics, name, incarnation, change, partial, member), origin=b"")
        return self.told()

    def vote(self, asked: Prepare | Accept | Look | Admit) -> Vote:
        """What the proxy says to a question about a register; heartbeats and other answers are left out."""
        self.send(asked, origin=b"")
        while True:
            origin, head, *body = self.frames()
            message = decode(head[unpack(head).length :], body[0] if body else b"")
            if not origin and isinstance(message, Vote) and message.token == asked.token:
                return message

    def told(self) -> Status:
        """What the proxy itself says next, heartbeats left out."""
        while True:
            origin, head, *body = self.frames()
            assert origin == b""
            message = decode(head[unpack(head).length :], body[0] if body else b"")
            if isinstance(message, Status):
                return message

    def request(self) -> list[bytes]:
        """The next request of a client, as it came."""
        while True:
            frames = self.frames()
            if frames[0]:
                return frames


def periodic(
    topics: dict[str, str],
    name: str = "s1",
    incarnation: int = 1,
    change: int = 1,
    partial: int = 0,
    member: str = "",
) -> Periodic:
    return Periodic(name, log_id(name), incarnation, change, f"tcp://{name}", "p", 0, partial, topics, member=member)


class Running:
    """A proxy that runs on a thread."""

    def __init__(self, directory: Path, context: zmq.Context[Any], **changed: Any) -> None:
        changed = {"bind": TCP, "servers": TCP, "startup_wait_seconds": 0.0, "heartbeat_seconds": 5.0, **changed}
        self.context = context
        keys = changed.pop("keys", None)
        self.process = ProxyProcess(settings(directory=directory, **changed), context=context, keys=keys)
        self.error: BaseException | None = None
        self.prepare: Callable[[ProxyProcess], None] = lambda process: None

    def start(self) -> Running:
        self.process.start()
        self.prepare(self.process)
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def _run(self) -> None:
        try:
            self.process.run()
        except StorageError as error:
            self.error = error

    def stop(self) -> float:
        began = time.monotonic()
        self.process.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()
        self.process.close()
        return time.monotonic() - began

    def client(self, **options: int) -> Peer:
        return Peer(self.context, self.process.bind, **options)

    def server(self, **options: int) -> ServerPeer:
        return ServerPeer(self.context, self.process.servers, **options)


@contextmanager
def running(directory: Path, context: zmq.Context[Any], **changed: Any) -> Iterator[Running]:
    proxy = Running(directory, context, **changed).start()
    try:
        yield proxy
    finally:
        proxy.stop()


def where_another_was(make: Callable[[], Running]) -> Running:
    """A proxy at addresses that were in use: in a shared context ZeroMQ frees them a moment after they are closed."""
    deadline = time.monotonic() + 30.0
    while True:
        try:
            return make().start()
        except ConfigurationError:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.005)


def get(topic: str = "t", sender: str = "ann", **named: Any) -> Get:
    return Get(sender, topic, None, 1, 1, **named)
