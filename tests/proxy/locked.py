"""A proxy that asks for keys, and peers with keys, without, or with the wrong ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import zmq

from pubsub.messenger.curve import CurveClient
from pubsub.protocol import Message, Outcome, Put, Report, Status
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import Pair, new_pair
from tests.proxy.peers import Peer, Running, ServerPeer, get, wait_until
from tests.proxy.stage import log_id


@cache
def pair(name: str) -> Pair:
    """The pair of somebody: the same each time."""
    return new_pair()


def line(role: str, name: str, *rights: str, key: str = "") -> str:
    """A line of the file of who is authorized."""
    return " ".join([role, name, format_public(pair(key or name).public), *rights])


USUAL = (
    line("proxy", "p1"),
    line("server", "s1"),
    line("server", "s2"),
    line("client", "ann", "put=t,u,new-*", "get=t,u,new-*", "names=shared"),
    line("client", "bob", "put=*", "get=*"),
    line("client", "ops", "status", "operate"),
)


def write(path: Path, *lines: str) -> None:
    """The file as an operator's tool writes it: a new one takes its name."""
    beside = path.with_suffix(".new")
    beside.write_text("".join(f"{one}\n" for one in lines))
    beside.replace(path)


class Locked(Running):
    """A proxy with keys; its peers live in a ZeroMQ context of their own."""

    def __init__(self, directory: Path, **changed: Any) -> None:
        self.authorized, self.audit = directory / "authorized", directory / "audit"
        make_key_file(directory / "p1" / "key", pair("p1").secret)
        write(self.authorized, *USUAL)
        self.peers: zmq.Context[Any] = zmq.Context()
        files = {"authorized": self.authorized, "audit_file": self.audit}
        super().__init__(directory / "p1", zmq.Context(), **files | changed)

    def stop(self) -> float:
        self.peers.destroy(0)
        seconds = super().stop()
        self.context.term()
        return seconds

    def peer(self, name: str, address: str = "") -> Peer:
        """A client, with the key that it is named after."""
        return Peer(self.peers, address or self.process.bind, curve=CurveClient(pair(name), (pair("p1").public,)))

    def store(self, name: str = "s1", address: str = "", key: str = "") -> ServerPeer:
        """A server, with the key that it is named after, or another one."""
        curve = CurveClient(pair(key or name), (pair("p1").public,))
        return ServerPeer(self.peers, address or self.process.servers, curve=curve)

    def serving(self, *topics: str, name: str = "s1") -> ServerPeer:
        """A server that has announced these topics."""
        server = self.store(name)
        answer = server.announce({topic: log_id(topic) for topic in topics}, name=name)
        assert answer.outcome is Outcome.SUCCESS, answer
        return server

    def authorize(self, *lines: str) -> None:
        """Other lines in the file; the proxy has read them when this returns."""
        before = self.count("reloads")
        write(self.authorized, *lines)
        self.process.hang_up()
        wait_until(lambda: self.count("reloads") > before)

    def count(self, name: str) -> int:
        """A counter of the proxy's."""
        assert self.process._access is not None
        return int(
            self.process._access.authorizer.report()["counters"].get(name, 0) or self.process.core.counters[name]
        )

    def written(self, what: str) -> list[dict[str, Any]]:
        """The lines of the audit of one kind."""
        lines = map(json.loads, self.audit.read_text().splitlines() if self.audit.exists() else ())
        return [line for line in lines if line["what"] == what]

    def report(self) -> dict[str, Any]:
        """What the operator is told."""
        answer = self.peer("ops").ask(Report("ops", "-"))
        assert answer.outcome is Outcome.SUCCESS, answer
        found: dict[str, Any] = json.loads(bytes(answer.body))
        return found


@contextmanager
def locked(directory: Path, **changed: Any) -> Iterator[Locked]:
    proxy = Locked(directory, **changed)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()


def denied(answer: Status) -> str:
    """The sentence of an answer that says no."""
    assert answer.outcome is Outcome.DENIED, answer
    return bytes(answer.body).decode()


ADDRESSES = pytest.mark.parametrize("addresses", [{}, {"servers": None}], ids=["two ports", "one port"])
SERVES = Status("s1", Outcome.SUCCESS, message=(log_id("x"), 1), records=1, body=b"secret")


def put(topic: str = "t", sender: str = "ann") -> Put:
    return Put(sender, topic, 1, "0" * 16, 1, 0, 0, body=b"x")


def raw(client: Peer, *frames: bytes) -> None:
    client.socket.send_multipart(frames)


def serves(proxy: Locked, server: ServerPeer, client: Peer, sender: str = "ann") -> bool:
    """Whether a client is served: its GET reaches the server, and the answer comes back."""
    client.send(get("t", sender))
    server.send(SERVES, origin=server.request()[0], destination=40, source=0)
    return client.status() == SERVES


class Outsider(Peer):
    """Somebody who may not enter: where he was refused fast enough ZeroMQ has no connection any more to speak by."""

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self.socket, self.id = socket, 0
        socket.sndtimeo = 0

    def send(self, message: Message, **where: Any) -> None:
        with suppress(zmq.Again):
            super().send(message, **where)


def outsider(proxy: Locked, address: str, how: str) -> Outsider:
    """Somebody who connects in a way that nobody may."""
    if how in {"stranger", "ann", "s1", "p1"}:
        return Outsider(proxy.peer(how, address).socket)
    socket = proxy.peers.socket(zmq.DEALER)
    if how == "PLAIN":
        socket.plain_username, socket.plain_password = b"ann", b"ann"
    elif how == "wrong proxy key":
        curve = CurveClient(pair("ann"), (pair("stranger").public,))
        socket.curve_publickey, socket.curve_secretkey = curve.pair.public, curve.pair.secret
        socket.curve_serverkey = curve.expected[0]
    socket.connect(address)
    return Outsider(socket)
