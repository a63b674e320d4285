"""The world: virtual time, one seeded order of events, hosts, and the network between them.

Fault model. All randomness comes from the seed.

* The network delays every message, loses some, delivers some twice and some seconds late, also from dead senders. (Each
  transmission of SUBSCRIBE is another request with its own number. So a transmission doubled by the network is beyond
  the design's rules, and beyond TCP's acts; the retransmissions are within.) A link of a client may reorder. A link of
  a server does not (it is one TCP connection) but loses the messages under way, so that a later message arrives and an
  earlier one does not. A pair of hosts is cut in both directions or in one. A message sent meanwhile is lost or arrives
  when the cut is over. A clogged link delays everything. A dead process does not take messages: a message to it is
  lost, or waits for its next start.
* A process is killed at any step: between two accesses of the disk within a commit, after the commit and before it
  sends, in the middle of sending. It is paused for longer than every patience. Its host loses power: unsynced data is
  gone, in part, or incomplete. It is started again, soon or much later, while its earlier messages are still under way.
* A disk is full for a while, or fails once. A bit of a stored batch of a server flips while the server is down.
* A wall clock jumps: by hours where that may not matter (clients), within the bound where it does (servers). A client's
  directory is emptied, restored to an older copy, or copied and opened elsewhere while the client runs. Or a second,
  empty one is opened under its ID on another host.
* A server is away for seconds while every proxy restarts. In some runs each proxy is alone with a server, then pairs of
  them are together, then all. In some the limits in bytes are so low that they are reached.
* Operators move topics and drain servers at random, abandon the topics of a dead server, which then returns, and lose a
  server's store and restore an older copy of it. Sometimes they leave that half done.

Beside clients there are sinks that publish batches, readers of ranges (`tasks`), and Messengers that talk to each other
without the service (`messengers`).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any
from zlib import crc32

from tests.simulation.disk import Disk
from tests.simulation.fate import Fate

EPOCH = 1_750_000_000.0
FIN_SECONDS = 0.02
"""How long it takes until the other side of a connection sees that a process was killed."""

INBOX_MAX = 2_000


class Host:
    """A machine: its disk, its clocks, its start of the operating system."""

    def __init__(self, world: World, name: str, skew: float) -> None:
        self.world, self.name, self.skew = world, name, skew
        self.base = world.random.uniform(0, 1000)
        self.disk = Disk()
        self.boot = 1

    def monotonic(self) -> float:
        return self.world.now + self.base

    def wall(self) -> float:
        return EPOCH + self.world.now + self.skew


class World:
    """One run's events.

    Attributes:
        now: virtual seconds.
        trace: a checksum of all events so far, in order.
        over: whether the phase with faults is over: from here on all is well.
        databases: those of the clients (`tests.simulation.database`).
    """

    def __init__(self, seed: int, fate: Fate, random: Random) -> None:
        self.seed, self.fate, self.random = seed, fate, random
        self.now = 0.0
        self.trace = 0
        self.events = 0
        self.over = False
        self.log: Callable[[str], None] | None = None
        self._heap: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = count()
        self.hosts: dict[str, Host] = {}
        self.network = Network(self)
        self.databases: Any = None

    def at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._heap, (when, next(self._order), call, arguments))

    def after(self, seconds: float, call: Callable[..., None], *arguments: Any) -> None:
        self.at(self.now + seconds, call, *arguments)

    def run(self, until: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until:
            when, _, call, arguments = heapq.heappop(heap)
            self.now = max(self.now, when)
            self.events += 1
            call(*arguments)
        self.now = max(self.now, until)  # A blocked process has perhaps gone on beyond: see `step`.

    def step(self, until: float) -> bool:
        """Let the next event happen within another one, whose process is blocked meanwhile; False: none is that early.

        Args:
            until: time of the last event that may happen; without one, it is this time now.
        """
        heap = self._heap
        if not heap or heap[0][0] > until:
            self.now = max(self.now, until)
            return False
        when, _, call, arguments = heapq.heappop(heap)
        self.now = max(self.now, when)
        self.events += 1
        call(*arguments)
        return True

    def note(self, text: str) -> None:
        """Something happened: into the trace, and into the log where there is one."""
        self.trace = crc32(b"%.6f %s" % (self.now, text.encode()), self.trace)
        if self.log is not None:
            self.log(f"{self.now:10.4f} {text}")

    def host(self, name: str, skew: float) -> Host:
        self.hosts[name] = Host(self, name, skew)
        return self.hosts[name]


class Process:
    """Something that runs on a host: an inbox, a turn, a time at which it wants one.

    Subclasses give `begin`, `turn` and `deadline`.
    """

    def __init__(self, world: World, host: Host) -> None:
        self.world, self.host, self.name = world, host, host.name
        self.alive = self.paused = False
        self.ended_at: list[float] = []
        self.inbox: list[tuple[Any, ...]] = []
        self.links: list[Link] = []
        self.addresses: list[str] = []
        self._wake_at = float("inf")
        self._busy_until = 0.0
        self.life = 0
        self.restarting = False

    # Life

    def start(self) -> None:
        if self.alive:
            return
        self.life += 1
        self.inbox.clear()
        self.alive, self.paused = True, False
        self.world.note(f"{self.name} starts")
        self._guarded(self.begin)
        if self.alive:
            for address in self.addresses:
                self.world.network.opened(address, self)
            self.wake(self.world.now)

    def end(self, how: str) -> None:
        """The process is gone. The caller sets the reason."""
        if not self.alive:
            return
        self.world.note(f"{self.name} ends: {how}")
        self.alive = False
        self.ended_at.append(self.world.now)
        self.host.disk.end_process()
        self._wake_at = float("inf")
        for link in self.links:
            link.closed_at = self.world.now
        self.links.clear()
        for address in self.addresses:
            self.world.network.routers.pop(address, None)
        self.inbox.clear()
        self.ended()

    def lose_power(self) -> None:
        """Its host is off at once, so that its peers may get no notice."""
        for link in self.links:
            link.silent = self.world.random.random() < 0.5
        self.end("power cut")
        self.host.disk.cut_power(self.world.random)
        self.host.boot += 1
        self.world.note(f"{self.name} lost power")

    def pause(self, seconds: float) -> None:
        if self.alive and not self.paused:
            self.world.note(f"{self.name} is paused for {seconds:.2f}")
            self.paused = True
            self.world.after(seconds, self.resume, self.life)

    def resume(self, life: int | None = None) -> None:
        if self.alive and self.paused and life in {None, self.life}:
            self.world.note(f"{self.name} goes on")
            self.paused = False
            self.wake(self.world.now)

    # Turns

    def arrive(self, *item: Any) -> None:
        if self.alive and len(self.inbox) < INBOX_MAX:
            self.inbox.append(item)
            if not self.paused:
                self.wake(self.world.now + self.world.random.random() * 0.0005)

    def wake(self, when: float) -> None:
        when = max(when, self._busy_until)
        if when < self._wake_at:
            self._wake_at = when
            self.world.at(when, self._turn, self.life, when)

    def _turn(self, life: int, when: float) -> None:
        if life != self.life or when != self._wake_at or not self.alive:
            return
        self._wake_at = float("inf")
        if self.paused:
            return
        self._guarded(self.turn)
        if self.alive:
            # A turn takes its time, in which more arrives for the next one.
            self._busy_until = self.world.now + 2e-4 + self.world.fate.turn * self.world.random.random()
            self.wake(max(self._busy_until, self.deadline() - self.host.base))

    def _guarded(self, call: Callable[[], None]) -> None:
        """A step of this process, which may be its last one."""
        epoch = self.host.disk.epoch
        try:
            call()
        except BaseException as error:
            if self.host.disk.epoch == epoch and not self.expected(error):
                raise
            self.end(f"{type(error).__name__} {error}")
            return
        if self.host.disk.epoch != epoch:  # Another process meanwhile caught the exception.
            self.end("killed")

    def expected(self, error: BaseException) -> bool:
        """Whether a process may end by this."""
        return False

    def begin(self) -> None:
        raise NotImplementedError

    def turn(self) -> None:
        raise NotImplementedError

    def deadline(self) -> float:
        raise NotImplementedError

    def ended(self) -> None:
        """Let go of everything."""


class Link:
    """One connection from a process (a DEALER) to an address (a ROUTER)."""

    __slots__ = ("address", "closed_at", "down", "fifo", "id", "key", "owner", "parked", "silent", "up")

    def __init__(self, owner: Process, address: str, key: Any, link_id: bytes, fifo: bool) -> None:
        self.owner, self.address, self.key, self.id, self.fifo = owner, address, key, link_id, fifo
        self.up = self.down = 0.0
        self.closed_at: float | None = None
        self.silent = False
        self.parked: list[tuple[bytes, ...]] = []


class Network:
    """All connections, and the faults of the ways between hosts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.routers: dict[str, Process] = {}
        self.places: dict[str, str] = {}
        self.links: dict[bytes, Link] = {}
        self.cuts: dict[tuple[str, str], float] = {}
        self.slow: dict[tuple[str, str], tuple[float, float]] = {}
        self._ids = count(1)
        self.sent = 0

    def connect(self, owner: Process, address: str, key: Any, *, fifo: bool) -> Link:
        """A new connection; its messages arrive at its owner as (key, *frames)."""
        link = Link(owner, address, key, b"\x01%015d" % next(self._ids), fifo)
        self.links[link.id] = link
        owner.links.append(link)
        return link

    def close(self, link: Link) -> None:
        if link.closed_at is None:
            link.closed_at = self.world.now
        if link in link.owner.links:
            link.owner.links.remove(link)

    def opened(self, address: str, process: Process) -> None:
        """A process listens at an address: the waiting messages come now."""
        self.routers[address] = process
        self.places[address] = process.name
        for link in list(self.links.values()):
            if link.closed_at is not None and link.closed_at < self.world.now - 60:
                del self.links[link.id]
            elif link.address == address and link.parked:
                parked, link.parked = link.parked, []
                when = self.world.now + 0.05
                for frames in parked:
                    when += 1e-5
                    self.world.at(when, self._at_router, link, frames)
                link.up = max(link.up, when)

    def to_router(self, link: Link, frames: tuple[bytes, ...]) -> None:
        target = self.places.get(link.address)
        if target is not None:
            link.up = self._send(link.owner.name, target, link, link.up, self._at_router, frames)

    def to_dealer(self, sender: Process, link_id: bytes, frames: tuple[bytes, ...]) -> bool:
        """Send to a connection; False where it is known to be closed."""
        link = self.links.get(link_id)
        if link is None or link.closed_at is not None:
            return self.reaches(link_id)
        link.down = self._send(sender.name, link.owner.name, link, link.down, self._at_dealer, frames)
        return True

    def reaches(self, link_id: bytes) -> bool:
        """Whether a connection is there, for all that the other side knows."""
        link = self.links.get(link_id)
        if link is None:
            return False
        return link.closed_at is None or link.silent or self.world.now < link.closed_at + FIN_SECONDS

    def _send(
        self, source: str, target: str, link: Link, last: float, arrive: Callable[..., None], frames: tuple[bytes, ...]
    ) -> float:
        world, fate = self.world, self.world.fate
        chance = world.random.random
        self.sent += 1
        when = world.now + 0.0001 + fate.delay * chance()
        if self.cuts or self.slow:
            until = self.cuts.get((source, target))
            if until is not None and world.now < until:
                if chance() < 0.5:
                    return last
                when = until + chance() * 0.2
            slow = self.slow.get((source, target))
            if slow is not None and world.now < slow[0]:
                when += slow[1] * chance()
        if chance() < fate.loss:
            return last
        if chance() < fate.late:
            when += chance() * fate.late_seconds
        fifo = link.fifo or chance() > fate.reorder
        if fifo:
            when = max(when, last + 1e-7)
        world.at(when, arrive, link, frames)
        if fate.duplicate and chance() < fate.duplicate and b"SUBSCRIBE " not in frames[-1][:40]:
            world.at(when + chance() * world.random.choice((0.5, 0.5, 4.0)), arrive, link, frames)
        return when if fifo else last

    def _at_router(self, link: Link, frames: tuple[bytes, ...]) -> None:
        process = self.routers.get(link.address)
        if process is None:
            if link.closed_at is None and len(link.parked) < 100 and self.world.random.random() < 0.7:
                link.parked.append(frames)
            return
        process.arrive(link.address, link.id, *frames)

    def _at_dealer(self, link: Link, frames: tuple[bytes, ...]) -> None:
        if link.closed_at is None:
            link.owner.arrive(link.key, *frames)

    # Faults

    def cut(self, source: str, target: str, seconds: float) -> None:
        self.cuts[source, target] = self.world.now + seconds

    def part(self, one: str, other: str, seconds: float) -> None:
        """Neither host hears the other for this time."""
        self.world.note(f"{one} and {other} are cut for {seconds:.2f}")
        self.cut(one, other, seconds)
        self.cut(other, one, seconds)

    def clog(self, source: str, target: str, seconds: float, delay: float) -> None:
        self.slow[source, target] = (self.world.now + seconds, delay)

    def heal(self) -> None:
        self.cuts.clear()
        self.slow.clear()
