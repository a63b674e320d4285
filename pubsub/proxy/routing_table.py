"""The routing table: the holders of each topic, as announced, and the assignment of new topics.

A topic is held by a *store*, that is a data directory, and not by a server ID. A store that returns under another
server ID still holds its topics. An empty store under a known ID holds none of the old one's. So the table is keyed by
store. It remembers the stores of dead servers: their topics are unavailable, and never assigned to another server. It
notes every change in `changes`. The shell writes these to the routes file before it forwards later messages.

A topic without a holder is assigned to the live server with the fewest topics, counting recent assignments. Ties go to
the smallest ID (Pires et al., section 3). See `assignments`.

A server that gave a topic away names the receiver. Its report may arrive before the receiver's announcement. So the
receiver counts as a holder from then on. An announcement that it made after the merge replaces the report.

The rules are those of docs/explanation/ownership.md, O1, O2 and O12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.base.liveness import Liveness
from pubsub.protocol.names import format_holder, is_hex, parse_holder, parse_number
from pubsub.protocol.stores import GONE_MAX
from pubsub.proxy.assignments import TENTATIVE_MAX, Assignments
from pubsub.proxy.remembered import AbandonedLog, Remembered, RemovedStore, RouteChanges, StoreRow
from pubsub.proxy.server import Server

HOLDERS_PER_TOPIC: Final = 4
"""The table has room for this many times topics_max holders. A topic normally has one holder."""

ABANDONED_MAX: Final = 100_000
"""Limit of abandoned logs."""

UNCONFIRMED_MAX: Final = 1_000
"""Number of known stores beyond which no store is added that has not announced itself."""


OTHER_DEFAULTS_MAX: Final = 8
"""Servers with other defaults that an answer names."""


class RoutingTable:
    """Topics and their holders.

    Args:
        topics_max: limit of topics in the table, assigned ones included.
    """

    def __init__(self, topics_max: int) -> None:
        self.topics_max = topics_max
        self.servers: dict[str, Server] = {}
        self.links: dict[bytes, Server] = {}
        self._holders = 0
        self.changes = RouteChanges()
        self.single: dict[str, Server] = {}
        """Topics with one holder, nearly all of them. Most messages need no other look-up."""
        self.contested: dict[str, list[Server]] = {}
        """Topics with more than one holder, in the order of their IDs."""
        self.fresh: list[str] = []
        """Topics that have their first holder since `ProxyPatterns.begun`, if `watched` is set."""
        self.watched = False
        self.assignments = Assignments()
        self.abandoned: dict[str, dict[str, AbandonedLog]] = {}
        """Abandoned logs, by topic and log."""
        self.stale: dict[str, str] = {}
        """By store that came back as an older copy: the warning about it."""
        self.awaited: dict[str, Server] = {}
        """Stores that servers have named and that have never announced themselves here."""
        self.gone: dict[str, RemovedStore] = {}
        self._signs = 1.0, 3, 0.0

    def restore(self, remembered: Remembered, interval: float, liveness: int, now: float) -> None:
        """Take in the contents of the routes file; none of these servers counts as alive."""
        self._signs = interval, liveness, now
        for row in remembered.stores:
            signs = Liveness(interval, liveness, now)
            signs.forget()
            self.servers[row.store] = Server(row, signs)
            if not row.announced:
                self.awaited[row.store] = self.servers[row.store]
        self.gone = {gone.store: gone for gone in remembered.gone}
        for topic, store, log in remembered.holders:
            self._hold(self.servers[store], topic, log)
        for topic, store, after in remembered.given:
            if after > self.servers[store].change:
                self.servers[store].given[topic] = after
        for lost in remembered.abandoned:
            self.abandoned.setdefault(lost.topic, {})[lost.log] = lost

    def holders(self, topic: str) -> Sequence[Server]:
        """Return the holders of the topic, alive or not."""
        server = self.single.get(topic)
        return server.alone if server is not None else self.contested.get(topic, ())

    def topics(self) -> Iterator[tuple[str, Sequence[Server]]]:
        """Yield every topic that has a holder, contested ones first."""
        yield from self.contested.items()
        for topic, server in self.single.items():
            yield topic, server.alone

    def __len__(self) -> int:
        return len(self.single) + len(self.contested)

    def room(self) -> int:
        """Return the number of topics that still fit into the table."""
        return max(0, self.topics_max - len(self) - len(self.assignments.tentative))

    def alive(self, now: float) -> list[Server]:
        return [server for server in self.links.values() if server.liveness.alive(now)]

    def named(self, server_id: str) -> Server | None:
        """Return the connected server with this ID."""
        return next((server for server in self.links.values() if server.id == server_id), None)

    def with_other_defaults(self, server: Server) -> str:
        """Return the IDs of some servers, alive or not, that have other defaults than this one, separated by commas."""
        others = (one.id or one.store for one in self.servers.values() if one.defaults != server.defaults)
        return ",".join(islice(others, OTHER_DEFAULTS_MAX))

    # Announcements ----------------------------------------------------------------------------------------------------

    def attach(self, server: Server, link: bytes) -> list[Server]:
        """Connect `server` at `link`.

        Returns:
            Other servers with the same ID, which are now disconnected.
        """
        if server.link is not None:
            self.links.pop(server.link, None)
        self.servers[server.store] = server
        replaced = [other for other in self.links.values() if other.id == server.id]
        for other in replaced:
            self.detach(other)
        if server.link != link:
            server.in_flight.restart()
        server.link = link
        self.links[link] = server
        return replaced

    def rename(self, server: Server, server_id: str) -> None:
        """Record that the store has another server ID now."""
        server.id = server_id
        for topic, holders in self.contested.items():
            if topic in server.topics:
                holders.sort(key=_in_order)

    def detach(self, server: Server) -> None:
        """Disconnect the server; its topics stay in the table."""
        server.liveness.forget()
        if server.link is not None:
            self.links.pop(server.link, None)
            server.link = None

    def evict(self) -> bool:
        """Forget a store that is not connected and holds nothing; return False if there is none."""
        for server in self.servers.values():
            if server.link is None and server.announced and not (server.topics or server.overflow or server.assigned):
                self.forget_store(RemovedStore(server.store, server.incarnation, here=True))
                return True
        return False

    def await_store(self, server: Server) -> None:
        """Add a store that has not announced itself."""
        self.servers[server.store] = self.awaited[server.store] = server
        self.note(server)

    def forget_store(self, gone: RemovedStore) -> None:
        """Remove a store without known topics from the store directory."""
        if self.servers.pop(gone.store, None) is not None:
            self.changes.stores[gone.store] = None
        self.awaited.pop(gone.store, None)
        self.stale.pop(gone.store, None)
        self.gone[gone.store] = self.changes.gone[gone.store] = gone
        if len(self.gone) > GONE_MAX:
            oldest = min(self.gone.values(), key=lambda one: one.incarnation)
            del self.gone[oldest.store]
            self.changes.gone[oldest.store] = None

    def replace(self, server: Server, topics: dict[str, str], change: int = NUMBER_MAX) -> int:
        """Set the server's topics to exactly these; return the number of topics that did not fit into the table."""
        for topic in [topic for topic in server.topics if not topics.get(topic)]:
            if change >= server.given.get(topic, 0):
                self._drop(server, topic)
        server.abandoned = {topic: log for topic, log in server.abandoned.items() if topics.get(topic)}
        return self.update(server, topics, change)

    def update(self, server: Server, topics: dict[str, str], change: int = NUMBER_MAX) -> int:
        """Add or remove these topics of the server; return the number of topics that did not fit into the table.

        Args:
            topics: as in `Periodic`.
            change: the change number of the announcement.
        """
        over = 0
        for topic, value in topics.items():
            log, *ended = value.split(",")
            if "." in log or not log:
                if change >= server.given.get(topic, 0):
                    self._drop(server, topic)
                if log:
                    over += not self._learn_of(topic, log, ended)
                else:
                    server.abandoned.pop(topic, None)
                continue
            given_up = [one for one in (log, *ended) if one in self.abandoned[topic]] if topic in self.abandoned else []
            if given_up:
                server.abandoned[topic] = given_up[0]
            else:
                server.abandoned.pop(topic, None)
            if given_up:
                self._drop(server, topic)
            elif server.topics.get(topic) != log:
                if not self._fits(topic) or (topic not in server.topics and not self._has_room_for_holders()):
                    over += 1
                    continue
                self._hold(server, topic, log)
                self._note_holder(server, topic, log)
        if server.given:
            server.given = {topic: after for topic, after in server.given.items() if after > change}
        return over

    def _learn_of(self, topic: str, holder: str, facts: Sequence[str]) -> bool:
        """Take in a giver's report that another server received a topic; return False if the table is full."""
        try:
            server_id, log = parse_holder(holder)
            store, after = facts[0], parse_number(facts[1])
        except (ValueError, IndexError):
            return True
        server = self.servers.get(store)
        # If the store has sent a full announcement since it was given up, a topic that it receives now is new.
        back = server is not None and server.back
        given_up = any(
            lost.log == log or (lost.store == store and not back) for lost in self.abandoned.get(topic, {}).values()
        )
        # If no announcement of the store is missing, a later one already covers this topic.
        if given_up or not is_hex(store) or (server is not None and server.complete and server.change >= after):
            return True
        if not self._fits(topic) or not self._has_room_for_holders():
            return False
        if server is None:
            if len(self.servers) >= UNCONFIRMED_MAX:
                return False
            signs = Liveness(*self._signs)
            signs.forget()
            server = Server(StoreRow(store, server_id, 0, 0, "", announced=False), signs)
            self.await_store(server)
        # A long store directory is sent without server IDs. To give up a holder, an operator needs its ID.
        if not server.id:
            self.rename(server, server_id)
            self.note(server)
        server.given[topic] = after
        server.digest = b""
        if topic not in server.topics:
            self._hold(server, topic, log)
        self._note_holder(server, topic, server.topics[topic])
        return True

    def abandon(self, lost: AbandonedLog) -> bool:
        """Forget a holder of a topic and bar its log permanently; return False if too many logs are barred.

        Args:
            lost: the holder; its log is "" if it is uncertain that this server holds the topic.
        """
        self.assignments.give_up(lost.topic, lost.server)
        if not lost.log:
            return True
        logs = self.abandoned.setdefault(lost.topic, {})
        if lost.log not in logs and sum(map(len, self.abandoned.values())) >= ABANDONED_MAX:
            return False
        if lost.store in self.servers:
            self.servers[lost.store].back = False
        for server in list(self.holders(lost.topic)):
            if server.store != lost.store and server.topics[lost.topic] != lost.log:
                continue
            server.back = False
            # The last log announced here may be older than the log that the operator named.
            known = AbandonedLog(lost.topic, server.topics[lost.topic], server.id, server.store, server.address)
            logs[known.log] = self.changes.abandoned[known.topic, known.log] = known
            self._drop(server, lost.topic)
            server.digest = b""
        if lost.log not in logs:
            logs[lost.log] = self.changes.abandoned[lost.topic, lost.log] = lost
        return True

    def note(self, server: Server) -> None:
        """Note a change of the store's own row."""
        self.changes.stores[server.store] = server.row()

    def _note_holder(self, server: Server, topic: str, log: str) -> None:
        self.changes.holders[topic, server.store] = log
        self.changes.given[topic, server.store] = server.given.get(topic, 0)

    def _fits(self, topic: str) -> bool:
        return (
            topic in self.single
            or topic in self.contested
            or topic in self.assignments.tentative
            or len(self) + len(self.assignments.tentative) < self.topics_max
        )

    def _has_room_for_holders(self) -> bool:
        return self._holders < HOLDERS_PER_TOPIC * self.topics_max

    def _hold(self, server: Server, topic: str, log: str) -> None:
        if topic not in server.topics:
            self._holders += 1
            only = self.single.pop(topic, None)
            if only is not None:
                self.contested[topic] = sorted((only, server), key=_in_order)
            elif topic in self.contested:
                self.contested[topic].append(server)
                self.contested[topic].sort(key=_in_order)
            else:
                self.single[topic] = server
                if self.watched:
                    self.fresh.append(topic)
        server.topics[topic] = log
        self.assignments.announced(topic, server)

    def _drop(self, server: Server, topic: str) -> None:
        if server.topics.pop(topic, None) is None:
            return
        self._holders -= 1
        self.changes.holders[topic, server.store] = None
        if self.single.get(topic) is server:
            del self.single[topic]
            return
        others = self.contested[topic]
        others.remove(server)
        if len(others) == 1:
            del self.contested[topic]
            self.single[topic] = others[0]

    # Choosing ---------------------------------------------------------------------------------------------------------

    def choose(self, topic: str, log: str, avoid: str, now: float) -> Server | None:
        """Return the live holder for a request, or None if no holder is alive.

        Args:
            topic: a topic with a holder.
            log: the log of the client's last answer; its holder is preferred.
            avoid: a log that could not serve the request; its holder is chosen only if no other is alive.
            now: the monotonic clock, in seconds.
        """
        live = [server for server in self.holders(topic) if server.alive(now)]
        if log:
            for server in live:
                if server.topics[topic] == log != avoid:
                    return server
        others = [server for server in live if server.topics[topic] != avoid] or live
        return min(others, key=_in_order) if others else None

    def assign(self, topic: str, now: float) -> Server | None:
        """Assign a topic without a holder to a server; None if no live server takes topics."""
        return self.assignments.assign(topic, self.links.values(), now)

    def claim(self, topics: Iterable[str], server: Server, now: float) -> None:
        """Reassign topics to a server that got them from another proxy (see `Assignments.claim`)."""
        self.assignments.claim((topic for topic in topics if not self.holders(topic)), server, now)

    def may_assign(self, topic: str) -> bool:
        """Return whether the limits allow another assignment."""
        tentative = self.assignments.tentative
        return topic in tentative or (len(tentative) < TENTATIVE_MAX and self.room() > 0)

    def named_holders(self, topic: str, but: Server | None = None) -> str:
        """Return all known holders of the topic but `but`, dead ones included, in the format of a STATUS."""
        return ",".join(format_holder(one.id, one.topics[topic]) for one in self.holders(topic) if one is not but)


def _in_order(holder: Server) -> tuple[str, str]:
    """Return the key by which the holders of a topic are sorted."""
    return holder.id, holder.store
