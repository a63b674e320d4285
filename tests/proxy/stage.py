"""A ProxyCore with named peers: its input and its output are messages instead of bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from pubsub.base.liveness import Liveness
from pubsub.config.settings import ProxySettings
from pubsub.messenger.framing import pack, unpack
from pubsub.protocol import Get, Heartbeat, Message, Owners, Periodic, Put, Report, Status, Subscribe, decode, encode
from pubsub.protocol.stores import Known, format_stores
from pubsub.proxy.core import ProxyCore
from pubsub.proxy.remembered import Remembered, StoreRow
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server

PROXIES = "tcp://p1,tcp://p2"


def log_id(name: str) -> str:
    """A log or store ID that differs from others."""
    return name.encode().hex().rjust(16, "0")[-16:]


def settings(**changed: Any) -> ProxySettings:
    return ProxySettings(**{"id": "p1", "bind": "inproc://p1", "directory": Path("unused"), **changed})


class Said(NamedTuple):
    """A message that the proxy sends: to a client or a server, with the client's origin where it is forwarded."""

    to_server: bool
    link: bytes
    origin: bytes
    destination: int
    message: Message


class Stage:
    """A proxy after its start-up wait, unless `starting`; time moves only by `sleep`."""

    def __init__(self, *, starting: bool = False, remembered: Remembered | None = None, **changed: Any) -> None:
        self.now = 1000.0
        if not starting:
            changed.setdefault("startup_wait_seconds", 0.0)
        self.core = ProxyCore(settings(**changed), self.now, 1_700_000_000.0, remembered)

    # Input from peers

    def announce(
        self,
        server: str,
        topics: dict[str, str] | None = None,
        *,
        store: str = "",
        incarnation: int = 1,
        change: int = 1,
        link: bytes = b"",
        partial: int = 0,
        previous: int = 0,
        proxies: str = PROXIES,
        stamp: int = 0,
        draining: int = 0,
        stores: str | None = None,
        gone: str = "",
        made: int = 0,
        member: str = "",
        address: str = "",
    ) -> Status | None:
        """PERIODIC; returns the answer. The store and the link have the name of the server by default.

        Args:
            stores: the server's store directory; None: all stores that the proxy knows.
        """
        if stores is None:
            known = self.core.table.servers.items()
            stores = format_stores({one: Known(other.id, max(0, other.incarnation)) for one, other in known})
        said = Periodic(
            server, log_id(store or server), incarnation, change, address or f"tcp://{server}", proxies, stamp,
            partial, {topic: log and log_id(log) for topic, log in (topics or {}).items()}, previous, draining,
            stores, gone, made, member,
        )  # fmt: skip
        return self._answer(link or server.encode(), said)

    def announce_all(self, server: str, topics: dict[str, str], patterns: str, change: int = 1) -> list[Said]:
        """PERIODIC of all topics, with the digest of the server's patterns; returns all that the proxy then sends."""
        known = self.core.table.servers.items()
        message = Periodic(
            server, log_id(server), 1, change, f"tcp://{server}", PROXIES, 0,
            topics={topic: log_id(log) for topic, log in topics.items()},
            stores=format_stores({one: Known(other.id, max(0, other.incarnation)) for one, other in known}),
            patterns=patterns,
        )  # fmt: skip
        self.from_server(server.encode(), b"", message)
        return self.said()

    def heartbeat(
        self, server: str, *, link: bytes = b"", leaving: int = 0, stamp: int = 0, empty: int = 0
    ) -> Status | None:
        return self._answer(link or server.encode(), Heartbeat(server, stamp, leaving, empty))

    def whole(self, server: str, *topics: str) -> Status:
        answer = self._answer(server.encode(), Owners(server, dict.fromkeys(topics, "")))
        assert answer is not None
        return answer

    def _answer(self, link: bytes, message: Message) -> Status | None:
        self.from_server(link, b"", message)
        answers = [s for s in self.said() if s.to_server and s.link == link and isinstance(s.message, Status)]
        assert len(answers) <= 1
        return answers[0].message if answers else None  # type: ignore[return-value]

    def from_server(self, link: bytes, origin: bytes, message: Message, destination: int = 0) -> None:
        header, body = encode(message)
        frames = (origin, pack(1, 17, destination) + header, *((body,) if len(body) else ()))
        self.core.server_message(link, frames, self.now)

    def request(self, message: Message, client: bytes = b"C", source: int = 40) -> list[Said]:
        """A client's request; returns the message that the proxy sends on.

        The short way is tried first, as in the shell.
        """
        header, body = encode(message)
        frames = (pack(7, source, 0) + header, *((body,) if len(body) else ()))
        short = self.core.route(frames[0], self.now)
        self.core.client_message(client, frames, self.now)
        said = self.said()
        if short is not None:
            assert [s.link for s in said if s.to_server] == [short], "the two ways disagree"
        return said

    def subscribe(self, topic: str, **named: str) -> str:
        return self.outcome(Subscribe("ann", topic, 1, 1, **named))

    def put(self, topic: str, **named: str) -> str:
        return self.outcome(Put("ann", topic, 1, "0" * 16, 1, 0, 0, **named))

    def get(self, topic: str, **named: str) -> str:
        return self.outcome(Get("ann", topic, None, 1, 1, **named))

    def outcome(self, message: Message) -> str:
        """`-> s1` for a request that went to a server (by its link), otherwise the outcome and the reason.

        Messages that the proxy itself sends to servers are omitted.
        """
        (said,) = [said for said in self.request(message) if said.origin or not said.to_server]
        if said.to_server:
            assert said.origin == b"cC"
            assert said.message == message
            return f"-> {said.link.decode()}"
        assert isinstance(said.message, Status)
        assert (said.link, said.destination) == (b"C", 40)
        return f"{said.message.outcome.value} {said.message.reason}"

    # Output of the proxy

    def said(self) -> list[Said]:
        """The messages that the proxy sends now."""
        out = []
        for to_server, link, frames in self.core.replies.take():
            origin = bytes(frames[0]) if to_server else b""
            head, *body = frames[1:] if to_server else frames
            prefix = unpack(bytes(head))
            message = decode(bytes(head)[prefix.length :], body[0] if body else b"")
            out.append(Said(to_server, link, origin, prefix.destination, message))
        return out

    def sleep(self, seconds: float, *beating: str) -> list[Said]:
        """Let time pass, ticking as the shell does; these servers (by link) go on sending heartbeats."""
        out = []
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 0.5)
            self.core.tick(self.now)
            for link in beating:
                self.from_server(link.encode(), b"", Heartbeat(link))
            out += self.said()
        return out

    def log(self) -> str:
        return "\n".join(self.core.notices.take())


def server(table: RoutingTable, name: str, now: float = 0.0, store: str = "") -> Server:
    """A server that is connected to a table at `now`, under a link of its own name."""
    one = Server(StoreRow(log_id(store or name), name, 1, 1, f"tcp://{name}"), Liveness(1.0, 3, now))
    table.attach(one, name.encode())
    return one


REMEMBERED = Remembered([StoreRow(log_id("s1"), "s1", 1, 1, "tcp://s1")], [("t", log_id("s1"), log_id("x"))])


def report(stage: Stage) -> dict[str, object]:
    (said,) = stage.request(Report("ann", "-"))
    assert isinstance(said.message, Status)
    loaded: dict[str, object] = json.loads(bytes(said.message.body))
    return loaded


def contested() -> Stage:
    stage = Stage()
    stage.announce("s1", {"t": "one"})
    stage.announce("s2", {"t": "two", "u": "x"})
    return stage
