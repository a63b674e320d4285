"""Servers with keys, and a proxy with a key that a test drives by hand; it answers while a test waits for it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import zmq

from pubsub.messenger.curve import CurveClient, CurveServer, Pair
from pubsub.messenger.framing import pack, unpack
from pubsub.messenger.sockets import open_dealer, open_router
from pubsub.messenger.zap_handler import ZapHandler
from pubsub.protocol import Heartbeat, Message, Outcome, Periodic, Status, Transfer, decode, encode, join_topics
from pubsub.protocol.transfers import Owners
from pubsub.security import zap
from pubsub.security.access import Access
from pubsub.security.authorized import parse
from pubsub.security.files import make_key_file
from pubsub.security.keys import format_public
from pubsub.security.pairs import new_pair

LOG = "a" * 16


class Ring:
    """The keys of a cluster, and its file of who is authorized.

    Args:
        directory: where keys and file lie.
        names: whom to make keys for: "server s1", "proxy p1".
    """

    def __init__(self, directory: Path, *names: str) -> None:
        self.directory = directory
        self.path = directory / "authorized"
        self.pairs: dict[str, Pair] = {}
        self.lines: list[tuple[str, bytes]] = []
        for name in names:
            self.add(name)
        self.write()

    def add(self, name: str) -> Pair:
        """Makes a key, the first of that name or another one, and a line for it; `write` has it count."""
        pair = new_pair()
        self.pairs[name] = pair
        self.lines.append((name, pair.public))
        return pair

    def revoke(self, name: str, key: bytes | None = None) -> None:
        """Takes the lines of a name out, or that of one key."""
        self.lines = [line for line in self.lines if line[0] != name or key not in {None, line[1]}]
        self.write()

    def write(self) -> None:
        """Has the file say it, as `pubsub keys authorize` does: a new one takes its name."""
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(f"{name} {format_public(key)}\n" for name, key in self.lines))
        fresh.chmod(0o600)
        fresh.rename(self.path)

    def access(self) -> Access:
        return Access(parse(self.path.read_bytes()))

    def keep(self, name: str, directory: Path) -> Path:
        """The directory of a process, with its key in it."""
        (directory / "key").unlink(missing_ok=True)
        make_key_file(directory / "key", self.pairs[name].secret)
        return directory

    def settings(self, server: str) -> dict[str, Any]:
        """Of a server whose directory has its name."""
        directory = self.keep(f"server {server}", self.directory / server)
        keys = (format_public(self.pairs["proxy p1"].public),)
        return {"id": server, "directory": directory, "authorized": self.path, "proxy_keys": keys}


class KeyedProxy:
    """A proxy with a key.

    Args:
        ring: whose servers it lets in.
        pair: its key; by default that of p1.
        endpoint: where it listens.
    """

    def __init__(self, ring: Ring, pair: Pair | None = None, endpoint: str = "tcp://127.0.0.1:0") -> None:
        self.context: zmq.Context[Any] = zmq.Context()
        self.access = ring.access()
        self.zap_handler = ZapHandler(self.context, lambda frames: self.access.zap(frames))  # noqa: PLW0108 - replaced
        curve = CurveServer(pair or ring.pairs["proxy p1"], "servers")
        self.sock, self.endpoint = open_router(self.context, endpoint, curve=curve)
        self.poller = zmq.Poller()
        for sock in (self.zap_handler.sock, self.sock):
            self.poller.register(sock, zmq.POLLIN)
        self.links: dict[str, bytes] = {}
        self.topics: dict[str, set[str]] = {}
        """What each server holds, by its announcements."""
        self.addresses: dict[str, str] = {}
        self.answers: dict[int, Status] = {}
        self._callback = 100

    def pump(self, milliseconds: int = 20) -> None:
        """Let in who comes, and answer what came."""
        ready = dict(self.poller.poll(milliseconds))
        if self.zap_handler.sock in ready:
            self.zap_handler.take()
        if self.sock in ready:
            link, _, head, *rest = self.sock.recv_multipart()
            prefix = unpack(head)
            message = decode(head[prefix.length :], rest[0] if rest else None)
            if isinstance(message, Status):
                self.answers[prefix.destination] = message
            else:
                self._answer(link, prefix.source, message)

    def _answer(self, link: bytes, source: int, message: Message) -> None:
        if isinstance(message, Periodic):
            self.links[message.sender], self.addresses[message.sender] = link, message.address
            held = self.topics[message.sender] = self.topics.get(message.sender, set()) if message.partial else set()
            for topic, log in (message.topics or {}).items():
                (held.discard if not log or "." in log else held.add)(topic)
            self.send(link, Status("p1", Outcome.SUCCESS, change=message.change))
        elif isinstance(message, Owners):
            others = join_topics(dict.fromkeys(message.topics or {}, ""))
            self.send(link, Status("p1", Outcome.SUCCESS, body=others), destination=source)
        elif isinstance(message, Heartbeat) and not message.leaving:
            self.send(link, Heartbeat("p1", 0))

    def send(self, link: bytes, message: Message, origin: bytes = b"", callback: int = 0, destination: int = 0) -> None:
        head, body = encode(message)
        frames = [link, origin, pack(1, callback, destination) + head, *([body] if len(body) else [])]
        with contextlib.suppress(zmq.ZMQError):  # It is gone, or has connected anew.
            self.sock.send_multipart(frames)

    def until(self, condition: Callable[[], object], what: str, seconds: float = 30.0) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
            self.pump()

    def ready(self, *servers: str) -> None:
        """Have these servers announce themselves, anew where they had before."""
        for server in servers:
            self.links.pop(server, None)
        self.until(lambda: all(server in self.links for server in servers), f"{servers} announce themselves")

    def say(self, server: str, message: Message) -> None:
        """Say something of its own to a server."""
        self.send(self.links[server], message)

    def ask(self, server: str, message: Message, seconds: float = 30.0) -> Status:
        """Ask a server for a client, again and again until it answers."""
        deadline = time.monotonic() + seconds
        while True:
            self._callback += 1
            callback = self._callback
            self.send(self.links[server], message, b"cX", callback)
            patience = time.monotonic() + 2.0
            while time.monotonic() < patience:
                self.pump()
                if callback in self.answers:
                    return self.answers.pop(callback)
            assert time.monotonic() < deadline, f"{server} does not answer {message}"

    def close(self) -> None:
        self.context.destroy(0)  # Also what a test that failed has left open.


def connected(context: zmq.Context[Any], endpoint: str, pair: Pair, expected: bytes) -> zmq.Socket[bytes]:
    """A socket as another process would open it, with its key."""
    return open_dealer(context, endpoint, curve=CurveClient(pair, (expected,)))


def offer(sender: str) -> list[bytes]:
    head, _ = encode(Transfer(sender, "t", "offer", "1" * 16, 0, LOG))
    return [pack(1, 7, 0) + head]


def answer(sock: zmq.Socket[bytes], seconds: float = 20.0) -> Any:
    assert sock.poll(int(seconds * 1000)), "no answer"
    head, *rest = sock.recv_multipart()
    return decode(head[unpack(head).length :], rest[0] if rest else None)


class Rogue:
    """A server that lets everybody in, and keeps what it is sent."""

    def __init__(self, context: zmq.Context[Any], pair: Pair) -> None:
        self.zap_handler = ZapHandler(context, lambda frames: zap.reply(zap.read(frames), zap.OK, "", "x"))
        self.sock, self.endpoint = open_router(context, "tcp://127.0.0.1:0", curve=CurveServer(pair, "x"))

    def heard(self) -> bool:
        self.zap_handler.take()
        return bool(self.sock.poll(0))
