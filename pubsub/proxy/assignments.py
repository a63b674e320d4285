"""Topics that were given to a server and that no server has announced yet.

An assignment is tentative and kept in memory. It is replaced if its server dies first, and forgotten when nobody used
it for a while. But what was forwarded to that server may have made the topic there, and the announcement been lost:
until it says all it holds there is a doubt, and nobody is told that the topic has no other holder.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pubsub.proxy.server import Server

TENTATIVE_MAX: Final = 10_000
"""Assignments that no server has announced yet; at this number a new topic is answered `full`."""

TENTATIVE_SECONDS: Final = 60.0
"""An assignment that nobody used for so long is forgotten: the server did not make the topic."""


@dataclass(slots=True)
class Assignment:
    """A topic's server for the time being, and when that was asked for last."""

    server: Server
    used: float


class Assignments:
    """Tentative assignments, and the doubts that earlier ones left.

    Attributes:
        tentative: by topic.
        doubts: servers that were given a topic, and may have made it without this proxy having heard.
        beyond: servers that may have made any topic: there were more doubts than are remembered by topic.
    """

    def __init__(self) -> None:
        self.tentative: dict[str, Assignment] = {}
        self.doubts: dict[str, set[Server]] = {}
        self.beyond: dict[str, Server] = {}

    def assigned(self, topic: str, now: float) -> Server | None:
        """Whom the topic was given to, while that server is alive."""
        assignment = self.tentative.get(topic)
        return assignment.server if assignment is not None and assignment.server.alive(now) else None

    def assign(self, topic: str, servers: Iterable[Server], now: float) -> Server | None:
        """Give a topic that nobody holds to a server; the same one as before while that may have it.

        Args:
            topic: held by nobody.
            servers: those that are connected.
            now: the monotonic clock, in seconds.

        Returns:
            The server; None where none is alive that takes topics.
        """
        assignment = self.tentative.get(topic)
        if assignment is not None and assignment.server.alive(now) and not assignment.server.draining:
            assignment.used = now
            return assignment.server
        live = [server for server in servers if server.liveness.alive(now) and not server.draining]
        if not live:
            return None
        server = min(live, key=lambda one: (len(one.topics) + one.assigned, one.id, one.store))
        self._give(topic, server, now)
        return server

    def claim(self, topics: Iterable[str], server: Server, now: float) -> None:
        """A server that was given topics elsewhere asks for them: of two that nobody has heard of, the lower ID wins.

        Two proxies that gave a topic to two servers, where neither makes it before it is known to be the only one,
        would have both wait for each other.

        Args:
            topics: held by nobody.
            server: who asks.
            now: the monotonic clock, in seconds.
        """
        for topic in topics:
            assignment = self.tentative.get(topic)
            if assignment is not None and server.id < assignment.server.id:
                self._give(topic, server, now)

    def _give(self, topic: str, server: Server, now: float) -> None:
        assignment = self.tentative.get(topic)
        if assignment is not None:
            self._doubt(topic, assignment.server)
            self._end(topic)
        self.tentative[topic] = Assignment(server, now)
        server.assigned += 1

    def announced(self, topic: str, server: Server) -> None:
        """The server holds the topic: it was given no assignment in vain."""
        assignment = self.tentative.get(topic)
        if assignment is not None and assignment.server is server:
            self._end(topic)

    def expire(self, now: float) -> None:
        """Forget the assignments that nobody used for TENTATIVE_SECONDS."""
        for topic in [t for t, a in self.tentative.items() if now - a.used >= TENTATIVE_SECONDS]:
            server = self.tentative[topic].server
            if not server.alive(now):
                self._doubt(topic, server)
            self._end(topic)

    def _end(self, topic: str) -> None:
        self.tentative.pop(topic).server.assigned -= 1

    # Doubts -----------------------------------------------------------------------------------------------------------

    def _doubt(self, topic: str, server: Server) -> None:
        if topic in self.doubts or len(self.doubts) < TENTATIVE_MAX:
            self.doubts.setdefault(topic, set()).add(server)
        else:
            self.beyond[server.store] = server

    def settle(self, server: Server) -> None:
        """The server has said all it holds."""
        self.beyond.pop(server.store, None)
        # A store that was forgotten meanwhile, and has come back, is known as another object.
        for topic, servers in list(self.doubts.items()):
            for one in [one for one in servers if one.store == server.store]:
                self._settle(topic, one)

    def give_up(self, topic: str, server_id: str) -> None:
        """What a server of this ID may have made of the topic will not come back."""
        for server in sorted(self.doubts.get(topic, ()), key=lambda server: server.store):
            if server.id == server_id:
                self._settle(topic, server)

    def _settle(self, topic: str, server: Server) -> None:
        self.doubts[topic].discard(server)
        if not self.doubts[topic]:
            del self.doubts[topic]

    def may_be_making(self, server: Server, topic: str) -> bool:
        """Whether a server was given a topic and has not said since what it holds."""
        assignment = self.tentative.get(topic)
        given = assignment is not None and assignment.server is server
        return given or server in self.doubts.get(topic, ()) or server.store in self.beyond

    def undecided(self, server: Server, topics: Iterable[str]) -> bool:
        """Whether one of the topics was given to another server, which may be making it just now, or has made it."""
        if len(self.doubts) >= TENTATIVE_MAX or any(store != server.store for store in self.beyond):
            return True
        return any(
            (topic in self.tentative and self.tentative[topic].server is not server)
            or (topic in self.doubts and self.doubts[topic] != {server})
            for topic in topics
        )
