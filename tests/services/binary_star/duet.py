"""A pair of servers in a simulation of their own: two servers, the link between them, clients that reach both.

Time is virtual and the seed is the only input. What a server is told happens in the order of its shell: all words that
have arrived, then the requests, then what is due.

Faults
    death       a server ends, with what waits in its sockets. What it said is still on its way, and arrives.
    start       another life, after anything from nothing to seconds. It hears and is heard once it is connected.
    stop        the process stands still for up to some seconds. What arrives meanwhile waits, then comes at once.
    delay       a word is on its way for up to DELAY_MAX, and is not overtaken on one connection.
    cut         the link carries nothing, in one direction or both. Clients still reach both servers.

The rule: at no moment at which a server takes a request would the other take one too. It can only hold while the link
is not cut, and while a word is heard within half a heartbeat: DELAY_MAX and a turn of the loop, and for who has just
started CONNECT_MAX with them. The other hears who has started once it has connected again, RECONNECT_MAX later.

Where cuts are among the faults it is not asked for, and what is: that the pair is one again a few seconds after the
link is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from random import Random
from typing import Final

from pubsub.services.core.binary_star.star import BinaryStar
from pubsub.services.core.binary_star.states import Role, State, Word

DELAY_MAX: Final = 0.25
CONNECT_MAX: Final = 0.15
RECONNECT_MAX: Final = 1.05
TURN_MAX: Final = 0.05
STOP_MAX: Final = 5.0
AWAY_MAX: Final = 4.0
SETTLED: Final = 12.0
"""Seconds after the last fault in which one server is to be active: three times what two servers take to begin."""


class Doubled(AssertionError):
    """Two servers would have taken requests."""


@dataclass
class Server:
    """One place of the pair, through its lives."""

    role: Role
    make: Callable[[Role, float], BinaryStar]
    star: BinaryStar | None = None
    life: int = 0
    started: float = 0.0
    hears_from: float = 0.0
    heard_from: float = 0.0
    stopped_until: float = 0.0
    words: list[Word] = field(default_factory=list)
    requests: int = 0
    taken: int = 0
    refused: int = 0
    last_arrival: float = 0.0
    last_heard: int = 0
    """The life whose word arrives last."""

    def start(self, now: float, hears_from: float, heard_from: float) -> None:
        self.life += 1
        self.star = self.make(self.role, now)
        self.started, self.hears_from, self.heard_from = now, hears_from, heard_from
        self.stopped_until = 0.0

    def die(self) -> None:
        self.star, self.words, self.requests = None, [], 0

    def could_take(self, now: float) -> bool:
        """Whether it would take a request that it came to now."""
        star = self.star
        return star is not None and star.state is State.ACTIVE and now < star.lapses_at()


class Duet:
    """A run.

    Args:
        seed: of everything that happens.
        make: what makes a server, by its role and the time; another one than `BinaryStar` to break it on purpose.
        in_order: words of two lives do not overtake each other, as on a socket that connects again.
    """

    def __init__(
        self, seed: int, make: Callable[[Role, float], BinaryStar] = BinaryStar, *, in_order: bool = True
    ) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.servers = (Server(Role.PRIMARY, make), Server(Role.BACKUP, make))
        self.cut = {Role.PRIMARY: False, Role.BACKUP: False}
        """Whether what the server of a role says is lost."""
        self.checking = True
        self._in_order = in_order
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = 0
        self.said: list[tuple[float, Role, Word]] = []

    def at(self, when: float, what: Callable[[], None]) -> None:
        """Have something happen."""
        self._order += 1
        heappush(self._queue, (max(when, self.now), self._order, what))

    def run(self, until: float) -> None:
        """All that happens up to a time."""
        while self._queue and self._queue[0][0] <= until:
            self.now, _, what = heappop(self._queue)
            what()
        self.now = until

    def start(self, server: Server) -> None:
        """Another life of a server."""
        if server.star is not None:
            return
        hears_from = self.now + self.random.uniform(0.0, CONNECT_MAX)
        server.start(
            self.now, hears_from, self.now + self.random.uniform(0.0, self.random.choice((0.0, 0.1, RECONNECT_MAX)))
        )
        self._wake(server, server.life, self.now)

    def stop(self, server: Server, seconds: float) -> None:
        """A server stands still."""
        if server.star is not None:
            server.stopped_until = max(server.stopped_until, self.now + seconds)
            self._wake(server, server.life, server.stopped_until)

    def request(self, server: Server) -> None:
        """A client asks a server for something."""
        if server.star is not None:
            server.requests += 1
            self._wake(server, server.life, self.now + self.random.uniform(0.0, TURN_MAX))

    def _wake(self, server: Server, life: int, when: float) -> None:
        self.at(when, lambda: self._turn(server, life))

    def _turn(self, server: Server, life: int) -> None:
        star = server.star
        if star is None or server.life != life or self.now < server.stopped_until:
            return
        words, server.words = server.words, []
        for word in words:
            star.receive(word, self.now)
        requests, server.requests = server.requests, 0
        for _ in range(requests):
            self._ask(server, star)
        word = star.due(self.now)
        if word is not None:
            self._say(server, word)
        self._wake(server, life, star.deadline() + self.random.uniform(0.0, TURN_MAX))

    def _ask(self, server: Server, star: BinaryStar) -> None:
        if not star.request(self.now):
            server.refused += 1
            return
        server.taken += 1
        if self.checking and self.other(server).could_take(self.now):
            raise Doubled(f"at {self.now:.3f} s {server.role.value} took a request, and the other would have too")

    def other(self, server: Server) -> Server:
        """The other server of the pair."""
        return self.servers[0] if server is self.servers[1] else self.servers[1]

    def _say(self, server: Server, word: Word) -> None:
        self.said.append((self.now, server.role, word))
        other = self.other(server)
        # Who started last connects at once; who was there before may just be waiting until it tries again.
        connected = self.now >= (other.hears_from if other.started > server.started else server.heard_from)
        if self.cut[server.role] or other.star is None or not connected:
            return
        arrival = self.now + self.random.uniform(0.0, DELAY_MAX)
        if self._in_order or other.last_heard == server.life:
            arrival = max(arrival, other.last_arrival)
        other.last_arrival, other.last_heard = arrival, server.life
        life = other.life

        def arrive() -> None:
            if other.star is not None and other.life == life:
                other.words.append(word)
                self._wake(other, life, self.now + self.random.uniform(0.0, TURN_MAX))

        self.at(arrival, arrive)


def disturb(duet: Duet, seconds: float, *, cuts: bool = False) -> None:
    """Requests to both servers and faults of every kind, for so long; then all faults are over."""
    random = duet.random
    for server in duet.servers:
        duet.at(random.uniform(0.0, 3.0), partial(duet.start, server))
    moment = 0.0
    while moment < seconds:
        moment += random.expovariate(20.0)
        duet.at(moment, lambda: duet.request(random.choice(duet.servers)))
    moment = 3.0
    pace = random.choice((0.1, 0.3, 1.0))
    while (moment := moment + random.expovariate(pace)) < seconds:
        duet.at(moment, lambda: _fault(duet, cuts=cuts))
    duet.run(seconds)
    duet.cut = dict.fromkeys(duet.cut, False)
    for server in duet.servers:
        duet.start(server)


def _fault(duet: Duet, *, cuts: bool) -> None:
    random = duet.random
    server = random.choice(duet.servers)
    kind = random.choice(("restart", "restart", "both", "stop", *(("cut",) if cuts else ())))
    if kind == "restart":
        _restart(duet, server)
    elif kind == "both":
        for one in duet.servers:
            _restart(duet, one)
    elif kind == "stop":
        duet.stop(server, random.uniform(0.0, random.choice((1.6, STOP_MAX))))
    else:
        ways = [server.role] if random.random() < 0.5 else list(Role)
        duet.cut.update(dict.fromkeys(ways, True))
        duet.at(duet.now + random.uniform(0.0, 8.0), lambda: duet.cut.update(dict.fromkeys(ways, False)))


def _restart(duet: Duet, server: Server) -> None:
    server.die()
    away = duet.random.uniform(0.0, duet.random.choice((0.1, 0.5, AWAY_MAX)))
    duet.at(duet.now + away, lambda: duet.start(server))
