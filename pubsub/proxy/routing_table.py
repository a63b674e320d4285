"""The routing table: which server holds which topic, as announced, and whom a new topic is given to.

What holds a topic is a *store*, the data directory, not the name under which it was started: a store that returns under
another server ID brings its topics along, and an empty store under a known ID does not inherit what the old one holds.
So the table is keyed by store, remembers stores whose server is dead (a topic of theirs is unavailable, never given to
another), and notes every change of what it remembers in `changes`, which the shell writes to the routes file before it
forwards anything that came after.

A topic that nobody holds is assigned to the live server with the fewest topics, those just assigned included; ties go
to the smallest ID (Pires et al., section 3). An assignment is tentative, kept in memory, until the server announces the
topic; it is replaced if that server dies first, and forgotten when nobody used it for a while. But what was forwarded
to it may have made the topic there, and the announcement been lost: until that server says all it holds, nobody is told
that the topic is whole.

A server that gave a topic away says to whom. Its word may come before the receiver's own; so the receiver counts as a
holder from then on, by hearsay, until an announcement of its own that was made after the join says whether it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.base.liveness import Liveness
from pubsub.protocol.names import format_holder, is_hex, parse_holder, parse_number
from pubsub.protocol.stores import GONE_MAX
from pubsub.proxy.in_flight import Flight

TENTATIVE_MAX: Final = 10_000
"""Assignments that no server has announced yet; at this number a new topic is answered `full`."""

HOLDERS_PER_TOPIC: Final = 4
"""Topics have so many holders on average at most: the table has room for that many times topics_max. One has one."""

DEAD_MAX: Final = 100_000
"""Logs given up that are remembered."""

UNHEARD_MAX: Final = 1_000
"""Stores that are remembered, beyond which none is that was only heard of."""

TENTATIVE_SECONDS: Final = 60.0
"""An assignment that nobody used for so long is forgotten: the server did not make the topic."""


@dataclass(frozen=True, slots=True)
class StoreRow:
    """What the routes file keeps of a store.

    Attributes:
        store: its ID.
        server: the ID of the server that brought it last.
        incarnation, change: of the highest announcement that was accepted.
        address: where that server was reached by other servers.
        overflow: whether it holds topics that are not in the table, because topics_max was reached.
        heard: whether it has ever said all it holds; else it was only heard of.
    """

    store: str
    server: str
    incarnation: int
    change: int
    address: str
    overflow: bool = False
    heard: bool = True


@dataclass(frozen=True, slots=True)
class GoneStore:
    """What the routes file keeps of a store that is in the roster no more (see `roster`).

    Attributes:
        incarnation: up to which it counts as gone.
        here: whether only this proxy forgot it, because servers_max was reached: nobody else is told.
    """

    store: str
    incarnation: int
    here: bool = False


@dataclass(frozen=True, slots=True)
class DeadLog:
    """A log that operators gave up, with the holder whose it was: it must not come back.

    Attributes:
        server, store, address: the holder's; store and address are "" where they were not known.
    """

    topic: str
    log: str
    server: str
    store: str
    address: str = ""


@dataclass(slots=True)
class RouteChanges:
    """What the routes file does not have yet: the latest value of each row, None where it is to be deleted."""

    stores: dict[str, StoreRow | None] = field(default_factory=dict)
    holders: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """(topic, store) to log."""
    dead: dict[tuple[str, str], DeadLog] = field(default_factory=dict)
    """By (topic, log); never deleted."""
    gone: dict[str, GoneStore | None] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.stores) or bool(self.holders) or bool(self.dead) or bool(self.gone)

    def clear(self) -> None:
        """All of it was written."""
        self.stores.clear()
        self.holders.clear()
        self.dead.clear()
        self.gone.clear()


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a routes file holds; `holders` are (topic, store, log)."""

    stores: Sequence[StoreRow] = ()
    holders: Sequence[tuple[str, str, str]] = ()
    dead: Sequence[DeadLog] = ()
    gone: Sequence[GoneStore] = ()


class Server:
    """A store, and the server that brought it last.

    Attributes:
        id, store, incarnation, change, address: as announced last.
        proxies: the proxies it names; None while it was not heard since this proxy started.
        topics: topic to log.
        hearsay: topics that others gave it, and its change number after the join: what it announced before says nothing
            of these.
        dead: topics that it announced with a log that was given up, and that log: it is not their holder.
        assigned: topics given to it that it has not announced.
        link: the routing ID under which it is reached; None: not connected since this proxy started, or it left.
        liveness: signs of life, both ways.
        complete: whether `topics` is all it holds, as far as it can tell; False after a gap in its announcements.
        overflow: whether it holds topics beyond topics_max, which are not in the table.
        draining: whether it is to be given no new topic.
        digest: of the body of the last full announcement, while nothing has changed since.
        flight: what is on its way to it.
        newcomer: the link of a server that waits for this one to be silent.
        was_alive: whether it was alive when that was looked at last.
        heard: whether it has ever said all it holds.
        back: whether it has said all it holds since this proxy started, and since anything of it was given up.
        said_all: when its last full announcement since this proxy started was made, by its clock; 0: there was none.
    """

    __slots__ = (
        "address",
        "alone",
        "assigned",
        "back",
        "change",
        "complete",
        "dead",
        "digest",
        "draining",
        "flight",
        "heard",
        "hearsay",
        "id",
        "incarnation",
        "link",
        "liveness",
        "newcomer",
        "overflow",
        "proxies",
        "said_all",
        "store",
        "topics",
        "was_alive",
    )

    def __init__(self, row: StoreRow, liveness: Liveness) -> None:
        self.id, self.store, self.incarnation, self.change = row.server, row.store, row.incarnation, row.change
        self.address, self.overflow, self.heard = row.address, row.overflow, row.heard
        self.said_all, self.back = 0, False
        self.proxies: tuple[str, ...] | None = None
        self.topics: dict[str, str] = {}
        self.hearsay: dict[str, int] = {}
        self.dead: dict[str, str] = {}
        self.assigned = 0
        self.link: bytes | None = None
        self.liveness = liveness
        self.flight = Flight()
        self.complete = True
        self.draining = False
        self.digest = b""
        self.newcomer: bytes | None = None
        self.was_alive = False
        self.alone = (self,)

    def alive(self, now: float) -> bool:
        """Whether it is connected and was heard within its patience."""
        return self.link is not None and self.liveness.alive(now)

    def row(self) -> StoreRow:
        """What the routes file keeps of it."""
        return StoreRow(self.store, self.id, self.incarnation, self.change, self.address, self.overflow, self.heard)


@dataclass(slots=True)
class _Assignment:
    server: Server
    used: float


class RoutingTable:
    """Topics and who holds them.

    Args:
        topics_max: topics in the table, tentative ones included.
    """

    def __init__(self, topics_max: int) -> None:
        self.topics_max = topics_max
        self.servers: dict[str, Server] = {}
        self.links: dict[bytes, Server] = {}
        self._holders = 0
        self.changes = RouteChanges()
        self.single: dict[str, Server] = {}
        """Topics with one holder: nearly all of them, and the only look-up that most messages need."""
        self.contested: dict[str, list[Server]] = {}
        """Topics with more than one holder, in the order of their IDs."""
        self.tentative: dict[str, _Assignment] = {}
        self.dead: dict[str, dict[str, DeadLog]] = {}
        """Logs that were given up, by topic and log."""
        self.doubts: dict[str, set[Server]] = {}
        """Servers that were given a topic, and may have made it without this proxy having heard."""
        self.stale: dict[str, str] = {}
        """Stores whose last announcement was that of an older copy, and what is to be said of them."""
        self.awaited: dict[str, Server] = {}
        """Stores that were never heard, only heard of."""
        self.gone: dict[str, GoneStore] = {}
        self._signs = 1.0, 3, 0.0

    def restore(self, remembered: Remembered, interval: float, liveness: int, now: float) -> None:
        """Take over what the routes file holds; none of these servers counts as alive."""
        self._signs = interval, liveness, now
        for row in remembered.stores:
            signs = Liveness(interval, liveness, now)
            signs.forget()
            self.servers[row.store] = Server(row, signs)
            if not row.heard:
                self.awaited[row.store] = self.servers[row.store]
        self.gone = {gone.store: gone for gone in remembered.gone}
        for topic, store, log in remembered.holders:
            self._hold(self.servers[store], topic, log)
        for dead in remembered.dead:
            self.dead.setdefault(dead.topic, {})[dead.log] = dead

    def holders(self, topic: str) -> Sequence[Server]:
        """Who holds the topic, alive or not."""
        server = self.single.get(topic)
        return server.alone if server is not None else self.contested.get(topic, ())

    def topics(self) -> Iterator[tuple[str, Sequence[Server]]]:
        """Every topic that has a holder, contested ones first."""
        yield from self.contested.items()
        for topic, server in self.single.items():
            yield topic, server.alone

    def __len__(self) -> int:
        return len(self.single) + len(self.contested)

    def room(self) -> int:
        """How many topics more the table takes."""
        return max(0, self.topics_max - len(self) - len(self.tentative))

    def alive(self, now: float) -> list[Server]:
        """The servers that are alive."""
        return [server for server in self.links.values() if server.liveness.alive(now)]

    def named(self, server_id: str) -> Server | None:
        """The connected server with this ID."""
        return next((server for server in self.links.values() if server.id == server_id), None)

    # Announcements ----------------------------------------------------------------------------------------------------

    def attach(self, server: Server, link: bytes) -> list[Server]:
        """From now on `server` is reached at `link`; returns others of the same ID, which are connected no more."""
        if server.link is not None:
            self.links.pop(server.link, None)
        self.servers[server.store] = server
        replaced = [other for other in self.links.values() if other.id == server.id]
        for other in replaced:
            self.detach(other)
        if server.link != link:
            server.flight.restart()
        server.link = link
        self.links[link] = server
        return replaced

    def detach(self, server: Server) -> None:
        """The server is gone; what it holds stays remembered."""
        server.liveness.forget()
        if server.link is not None:
            self.links.pop(server.link, None)
            server.link = None

    def evict(self) -> bool:
        """Forget a store that is not connected and holds nothing; False where there is none."""
        for server in self.servers.values():
            if server.link is None and server.heard and not server.topics and not server.overflow:
                self.forget_store(GoneStore(server.store, server.incarnation, here=True))
                return True
        return False

    def await_store(self, server: Server) -> None:
        """Note a store that was only heard of."""
        self.servers[server.store] = self.awaited[server.store] = server
        self.note(server)

    def forget_store(self, gone: GoneStore) -> None:
        """A store that holds nothing which is known here is in the roster no more."""
        if self.servers.pop(gone.store, None) is not None:
            self.changes.stores[gone.store] = None
        self.awaited.pop(gone.store, None)
        self.gone[gone.store] = self.changes.gone[gone.store] = gone
        if len(self.gone) > GONE_MAX:
            oldest = min(self.gone.values(), key=lambda one: one.incarnation)
            del self.gone[oldest.store]
            self.changes.gone[oldest.store] = None

    def replace(self, server: Server, topics: dict[str, str], change: int = NUMBER_MAX) -> int:
        """The server holds exactly these; returns how many did not fit into the table."""
        for topic in [topic for topic in server.topics if not topics.get(topic)]:
            if change >= server.hearsay.get(topic, 0):
                self._drop(server, topic)
        server.dead = {topic: log for topic, log in server.dead.items() if topics.get(topic)}
        return self.update(server, topics, change)

    def update(self, server: Server, topics: dict[str, str], change: int = NUMBER_MAX) -> int:
        """The server holds these too, or no more; returns how many did not fit into the table.

        Args:
            topics: as in `Periodic`.
            change: of the announcement.
        """
        over = 0
        for topic, value in topics.items():
            log, *ended = value.split(",")
            if "." in log or not log:
                if change >= server.hearsay.get(topic, 0):
                    self._drop(server, topic)
                if log:
                    self._hear_of(topic, log, ended)
                else:
                    server.dead.pop(topic, None)
                continue
            given_up = [one for one in (log, *ended) if one in self.dead[topic]] if topic in self.dead else []
            if given_up:
                server.dead[topic] = given_up[0]
            else:
                server.dead.pop(topic, None)
            if given_up:
                self._drop(server, topic)
            elif server.topics.get(topic) != log:
                if not self._fits(topic) or (topic not in server.topics and not self._has_room_for_holders()):
                    over += 1
                    continue
                self._hold(server, topic, log)
                self.changes.holders[topic, server.store] = log
        if server.hearsay:
            server.hearsay = {topic: after for topic, after in server.hearsay.items() if after > change}
        return over

    def _hear_of(self, topic: str, holder: str, facts: Sequence[str]) -> None:
        """A topic was given to a server, which may not have been heard to say so yet."""
        try:
            server_id, log = parse_holder(holder)
            store, after = facts[0], parse_number(facts[1])
        except (ValueError, IndexError):
            return
        server = self.servers.get(store)
        # A store that has said all it holds since is a holder like any other: what it is given now is new.
        back = server is not None and server.back
        given_up = any(
            dead.log == log or (dead.store == store and not back) for dead in self.dead.get(topic, {}).values()
        )
        if given_up or not is_hex(store) or not self._fits(topic) or not self._has_room_for_holders():
            return
        if server is None:
            if len(self.servers) >= UNHEARD_MAX:
                return
            signs = Liveness(*self._signs)
            signs.forget()
            server = Server(StoreRow(store, server_id, 0, 0, "", heard=False), signs)
            self.await_store(server)
        if server.change >= after:
            return  # What was announced since says all there is to say.
        server.hearsay[topic] = after
        server.digest = b""
        if topic not in server.topics:
            self._hold(server, topic, log)
            self.changes.holders[topic, store] = log

    def settle_doubts(self, server: Server) -> None:
        """The server has said all it holds."""
        for topic in [topic for topic, servers in self.doubts.items() if server in servers]:
            self._settle_doubt(topic, server)

    def _settle_doubt(self, topic: str, server: Server) -> None:
        self.doubts[topic].discard(server)
        if not self.doubts[topic]:
            del self.doubts[topic]

    def give_up(self, dead: DeadLog) -> bool:
        """Forget a holder of a topic, and remember that its log must not come back; False where no more fit.

        Args:
            dead: without a log where it is only in doubt whether that server holds the topic.
        """
        doubted = sorted(self.doubts.get(dead.topic, ()), key=lambda server: server.store)
        for server in [one for one in doubted if dead.server == one.id]:
            self._settle_doubt(dead.topic, server)
        if not dead.log:
            return True
        logs = self.dead.setdefault(dead.topic, {})
        if dead.log not in logs and sum(map(len, self.dead.values())) >= DEAD_MAX:
            return False
        if dead.store in self.servers:
            self.servers[dead.store].back = False
        for server in list(self.holders(dead.topic)):
            if server.store != dead.store and server.topics[dead.topic] != dead.log:
                continue
            server.back = False
            # What this proxy heard of last may be an older log than the one that is named.
            known = DeadLog(dead.topic, server.topics[dead.topic], server.id, server.store, server.address)
            logs[known.log] = self.changes.dead[known.topic, known.log] = known
            self._drop(server, dead.topic)
            server.digest = b""
        if dead.log not in logs:
            logs[dead.log] = self.changes.dead[dead.topic, dead.log] = dead
        return True

    def note(self, server: Server) -> None:
        """What is kept of the store itself has changed."""
        self.changes.stores[server.store] = server.row()

    def _fits(self, topic: str) -> bool:
        return (
            topic in self.single
            or topic in self.contested
            or topic in self.tentative
            or len(self) + len(self.tentative) < self.topics_max
        )

    def _has_room_for_holders(self) -> bool:
        return self._holders < HOLDERS_PER_TOPIC * self.topics_max

    def _hold(self, server: Server, topic: str, log: str) -> None:
        if topic not in server.topics:
            self._holders += 1
            only = self.single.pop(topic, None)
            if only is not None:
                self.contested[topic] = sorted((only, server), key=lambda holder: (holder.id, holder.store))
            elif topic in self.contested:
                self.contested[topic].append(server)
                self.contested[topic].sort(key=lambda holder: (holder.id, holder.store))
            else:
                self.single[topic] = server
        server.topics[topic] = log
        assignment = self.tentative.get(topic)
        if assignment is not None and assignment.server is server:
            self._unassign(topic)

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
        """The live holder that a request goes to; None where no holder is alive.

        Args:
            topic: held by somebody.
            log: the one the client's last answer came from: its holder is taken.
            avoid: one whose holder could not serve the request: its holder is taken only if no other is alive.
        """
        live = [server for server in self.holders(topic) if server.alive(now)]
        if log:
            for server in live:
                if server.topics[topic] == log != avoid:
                    return server
        others = [server for server in live if server.topics[topic] != avoid] or live
        return min(others, key=lambda server: (server.id, server.store)) if others else None

    def assigned(self, topic: str, now: float) -> Server | None:
        """Whom the topic was given to, while that server is alive."""
        assignment = self.tentative.get(topic)
        return assignment.server if assignment is not None and assignment.server.alive(now) else None

    def assign(self, topic: str, now: float) -> Server | None:
        """Give a topic that nobody holds to a server; the same one as before while that may have it.

        Returns:
            The server; None where none is alive that takes topics.
        """
        assignment = self.tentative.get(topic)
        if assignment is not None and assignment.server.alive(now) and not assignment.server.draining:
            assignment.used = now
            return assignment.server
        live = [server for server in self.alive(now) if not server.draining]
        if not live:
            return None
        server = min(live, key=lambda one: (len(one.topics) + one.assigned, one.id, one.store))
        if assignment is not None:
            self._doubt(topic, assignment.server)
            self._unassign(topic)
        self.tentative[topic] = _Assignment(server, now)
        server.assigned += 1
        return server

    def claim(self, topics: Iterable[str], server: Server, now: float) -> None:
        """A server that was given topics elsewhere asks for them: of two that nobody has heard of, the lower ID wins.

        Two proxies that gave a topic to two servers, where neither makes it before it is known to be the only one,
        would have both wait for each other.
        """
        for topic in topics:
            assignment = self.tentative.get(topic)
            if assignment is not None and not self.holders(topic) and server.id < assignment.server.id:
                self._doubt(topic, assignment.server)
                self._unassign(topic)
                self.tentative[topic] = _Assignment(server, now)
                server.assigned += 1

    def may_assign(self, topic: str) -> bool:
        """Whether the limits allow one assignment more."""
        return topic in self.tentative or (len(self.tentative) < TENTATIVE_MAX and self.room() > 0)

    def expire(self, now: float) -> None:
        """Forget the assignments that nobody used for TENTATIVE_SECONDS."""
        for topic in [t for t, a in self.tentative.items() if now - a.used >= TENTATIVE_SECONDS]:
            server = self.tentative[topic].server
            if not server.alive(now):
                self._doubt(topic, server)
            self._unassign(topic)

    def _doubt(self, topic: str, server: Server) -> None:
        if topic in self.doubts or len(self.doubts) < TENTATIVE_MAX:
            self.doubts.setdefault(topic, set()).add(server)

    def _unassign(self, topic: str) -> None:
        self.tentative.pop(topic).server.assigned -= 1

    def may_be_making(self, server: Server, topic: str) -> bool:
        """Whether a server was given a topic and has not said since what it holds."""
        assignment = self.tentative.get(topic)
        return (assignment is not None and assignment.server is server) or server in self.doubts.get(topic, ())

    def named_holders(self, topic: str, but: Server | None = None) -> str:
        """All holders of the topic that are known, dead ones included, as a STATUS names them; `but`: without it."""
        return ",".join(format_holder(one.id, one.topics[topic]) for one in self.holders(topic) if one is not but)

    def undecided(self, server: Server, topics: Iterable[str]) -> bool:
        """Whether one of the topics was given to another server, which may be making it just now, or has made it."""
        if len(self.doubts) >= TENTATIVE_MAX:
            return True
        return any(
            (topic in self.tentative and self.tentative[topic].server is not server)
            or (topic in self.doubts and self.doubts[topic] != {server})
            for topic in topics
        )
