"""Liveness of the servers: heartbeats both ways, and the notices when a server falls silent, leaves or returns."""

from __future__ import annotations

from math import isfinite

from pubsub.config.settings import ProxySettings
from pubsub.messenger.framing import Prefix
from pubsub.protocol import Outcome
from pubsub.proxy.notices import Notices, Routine
from pubsub.proxy.replies import Replies
from pubsub.proxy.routing_table import RoutingTable
from pubsub.proxy.server import Server


class Presence:
    """The connected servers and their signs of life.

    Args:
        now: the monotonic clock, in seconds.

    Attributes:
        deadline: the monotonic time of the next call of `tick`.
    """

    def __init__(
        self, settings: ProxySettings, table: RoutingTable, replies: Replies, notices: Notices, now: float
    ) -> None:
        self._settings, self._table, self._replies, self._notices = settings, table, replies, notices
        self.deadline = self._ticked = now

    def agree(self, now: float) -> bool:
        """Return whether all live servers name the same proxies."""
        return len({server.proxies for server in self._table.alive(now)}) <= 1

    def count_alive(self, server: Server, now: float, *, again: bool = False) -> None:
        """Count the server as alive. `again`: its connection has lasted, and only its heartbeats had ended."""
        if not server.was_alive:
            server.was_alive, server.gone, server.handing = True, None, None
            text = f"server {server.id} {'sends heartbeats again' if again else 'is connected'}"
            self._notices.say(f"heard {server.store}", Routine(text), now)
            self._notices.settled(f"silent {server.store}")

    def unreachable(self, link: bytes, now: float) -> None:
        """Count a server as dead, because its link is closed."""
        server = self._table.links.get(link)
        if server is not None:
            server.liveness.forget()
            self.died(server, now)

    def died(self, server: Server, now: float, *, left: bool = False) -> None:
        """Count the server as dead. `left`: it sent a last heartbeat."""
        overdue = server.handing is not None and not server.hands_over(now)
        if server.was_alive or overdue:
            if server.was_alive:
                silence = server.liveness.silence(now)
                server.gone = now - silence if not left and isfinite(silence) else now
            server.was_alive = False
            subject = "hands over" if server.hands_over(now) else "silent"
            self._notices.say(f"{subject} {server.store}", self._silence(server, now, left=left), now)
            self._notices.settled(f"heard {server.store}")
            server.handing = None if overdue else server.handing
        if server.newcomer is not None:
            self._replies.tell(server.newcomer, Prefix(0, 0, 0, 0), Outcome.ANNOUNCE, "the_other_one_is_gone")
            server.newcomer = None

    def _silence(self, server: Server, now: float, *, left: bool) -> str:
        """Return the notice about a server that is not alive any more.

        It is a `Routine` if no topic becomes unavailable.
        """
        if server.hands_over(now):
            return Routine(f"server {server.id} changes its primary, as planned; requests wait for the other member")
        silence = server.liveness.silence(now)
        if left:
            what = f"server {server.id} has left"
        elif isfinite(silence):
            what = f"no heartbeat from server {server.id} for {silence:.1f} s"
        else:
            what = f"the connection to server {server.id} is closed"
        alone = sum(self._table.single.get(topic) is server for topic in server.topics)
        if not server.topics:
            return Routine(f"{what}; it holds no topic")
        said = f"{what}; topics that it alone holds are unavailable: {alone}"
        return Routine(said) if left else said

    def tick(self, now: float) -> None:
        """Send due heartbeats and find silent servers.

        Call it before messages are handled that arrived meanwhile. After a pause of this process its servers only seem
        silent, so no other process may take the place of one of them.
        """
        if now - self._ticked > 2 * self._settings.heartbeat_seconds:
            for server in self._table.links.values():
                if server.was_alive:
                    server.liveness.received(now)
        self._ticked = now
        deadline = now + self._settings.heartbeat_seconds
        for server in list(self._table.links.values()):
            if server.liveness.due(now) or len(server.in_flight):
                self._replies.beat(server, now)
            alive = server.liveness.alive(now)
            if alive:
                self.count_alive(server, now, again=True)
            else:
                self.died(server, now)
            deadline = min(deadline, server.liveness.deadline())
            if alive:
                deadline = min(deadline, server.liveness.expiry())
        self.deadline = deadline

    def leave(self, now: float) -> None:
        """Send a last heartbeat to each server, because the process ends."""
        for server in self._table.links.values():
            self._replies.beat(server, now, leaving=1)
