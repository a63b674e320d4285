"""Topics that the proxy assigned to a server and that no server has announced yet.

An assignment is tentative and in memory only. It is replaced if its server dies first, and forgotten after a time
without use. But a forwarded request may have created the topic on that server, and the announcement may be lost. Until
the server's next full announcement the topic is in doubt: the proxy does not confirm sole ownership of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pubsub.proxy.server import Server

TENTATIVE_MAX: Final = 10_000
"""Limit of tentative assignments. Beyond it a request for a new topic is answered `full`."""

TENTATIVE_SECONDS: Final = 60.0
"""Time without use after which an assignment is forgotten, because the server did not create the topic."""


@dataclass(slots=True)
class Assignment:
    """The server of a topic that no server has announced, and the monotonic time of the last request."""

    server: Server
    used: float


class Assignments:
    """Tentative assignments, and the doubts that earlier ones left.

    Attributes:
        tentative: by topic.
        doubts: by topic, servers that may have created it without an announcement that arrived here.
        beyond: by store, servers that may have created any topic: their doubts did not fit into `doubts`.
        preferred: by deleted topic, the store that held it, which knows what its subscribers have lost.
    """

    def __init__(self) -> None:
        self.tentative: dict[str, Assignment] = {}
        self.doubts: dict[str, set[Server]] = {}
        self.beyond: dict[str, Server] = {}
        self.preferred: dict[str, str] = {}

    def assigned(self, topic: str, now: float) -> Server | None:
        """Return the live server that the topic is assigned to, if any."""
        assignment = self.tentative.get(topic)
        return assignment.server if assignment is not None and assignment.server.alive(now) else None

    def assign(self, topic: str, servers: Iterable[Server], now: float) -> Server | None:
        """Assign a topic to a server; the same one as before while that server is alive and takes topics.

        Args:
            topic: a topic without a holder.
            servers: the connected servers.
            now: the monotonic clock, in seconds.

        Returns:
            The server, or None if no live server takes topics.
        """
        assignment = self.tentative.get(topic)
        if assignment is not None and assignment.server.alive(now) and not assignment.server.draining:
            assignment.used = now
            return assignment.server
        live = [server for server in servers if server.liveness.alive(now) and not server.draining]
        if not live:
            return None
        before = [server for server in live if server.store == self.preferred.get(topic)]
        server = min(before or live, key=lambda one: (len(one.topics) + one.assigned, one.id, one.store))
        self._give(topic, server, now)
        return server

    def claim(self, topics: Iterable[str], server: Server, now: float) -> None:
        """Reassign topics to a server that got them from another proxy and has a lower ID than the assigned one.

        Two proxies may assign a topic to two servers. Neither server creates it before sole ownership is confirmed.
        Without a winner both would wait for each other.

        Args:
            topics: topics without a holder.
            server: the server that asks.
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
        """End the assignment of a topic that its server has announced."""
        assignment = self.tentative.get(topic)
        if assignment is not None and assignment.server is server:
            self._end(topic)

    def expire(self, now: float) -> None:
        """Forget assignments without use for TENTATIVE_SECONDS."""
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
        """End all doubts about a server that has announced all its topics."""
        self.beyond.pop(server.store, None)
        # A store that was forgotten and came back is another object with the same store ID.
        for topic, servers in list(self.doubts.items()):
            for one in [one for one in servers if one.store == server.store]:
                self._settle(topic, one)

    def give_up(self, topic: str, server_id: str) -> None:
        """End the doubt about a topic at servers with this ID: an operator gave up the topic there."""
        for server in sorted(self.doubts.get(topic, ()), key=lambda server: server.store):
            if server.id == server_id:
                self._settle(topic, server)

    def _settle(self, topic: str, server: Server) -> None:
        self.doubts[topic].discard(server)
        if not self.doubts[topic]:
            del self.doubts[topic]

    def may_be_making(self, server: Server, topic: str) -> bool:
        """Return whether a topic was assigned to a server that has sent no full announcement since."""
        assignment = self.tentative.get(topic)
        given = assignment is not None and assignment.server is server
        return given or server in self.doubts.get(topic, ()) or server.store in self.beyond

    def undecided(self, server: Server, topics: Iterable[str]) -> bool:
        """Return whether one of the topics may exist on another server, because it was assigned there."""
        if len(self.doubts) >= TENTATIVE_MAX or any(store != server.store for store in self.beyond):
            return True
        return any(
            (topic in self.tentative and self.tentative[topic].server is not server)
            or (topic in self.doubts and self.doubts[topic] != {server})
            for topic in topics
        )
