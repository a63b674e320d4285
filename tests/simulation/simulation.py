"""One run: a world drawn from a seed, a phase with faults, a phase in which everything must settle, the judgement."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from io import StringIO
from random import Random
from unittest import mock

import pubsub.client.core.chain
import pubsub.client.flows.calls
import pubsub.client.flows.gets
import pubsub.client.storage.store
import pubsub.proxy.assignments
import pubsub.proxy.routing_table
import pubsub.proxy.servers
import pubsub.proxy.traffic
import pubsub.server.moves.chunks
import pubsub.server.moves.giving
import pubsub.server.moves.moves
import pubsub.server.moves.receiving
import pubsub.server.offline.restore
import pubsub.server.process
import pubsub.server.requests.admission
import pubsub.server.standby.disk
import pubsub.server.standby.following
import pubsub.server.standby.local_file
import pubsub.server.standby.pages
import pubsub.server.standby.segment
import pubsub.server.standby.snapshot
import pubsub.server.standby.stream
import pubsub.server.storage.store
import pubsub.server.topic.delivery
import pubsub.server.upkeep.retention
import pubsub.server.upkeep.staging
from tests.simulation.actors import CHUNK_MAX, Application
from tests.simulation.callers import Calls, calling
from tests.simulation.clients import ClientNode
from tests.simulation.damage import flip
from tests.simulation.disk import Disk, disks, untidy
from tests.simulation.fate import MOMENTS, PAIR_FAULTS, PAIR_MOMENTS, Fate, complete, draw
from tests.simulation.files import SYSTEM, open_beside
from tests.simulation.history import History
from tests.simulation.members import MemberNode, MemberStore, Paired, members_of, small_stream
from tests.simulation.messengers import Talker
from tests.simulation.moments import Moments
from tests.simulation.nodes import ProxyNode, Router, ServerNode
from tests.simulation.operators import Operators
from tests.simulation.pairs import Pairs
from tests.simulation.situations import counted
from tests.simulation.tasks import RangeReader, Sink, Task
from tests.simulation.told import Told
from tests.simulation.twins import Twin
from tests.simulation.world import Process, World

SETTLE_SECONDS = 60.0
"""Virtual time within which everything has settled after the last fault."""

FLIGHTS_MAX = 500

SHORT_SECONDS = 2.5
"""Virtual length of the phase with faults in a shortened run."""

SCARCE = (
    (pubsub.proxy.assignments, "TENTATIVE_MAX", 1),
    (pubsub.proxy.routing_table, "TENTATIVE_MAX", 1),
    (pubsub.server.moves.giving, "GIFTS_MAX", 1),
    (pubsub.server.moves.receiving, "INCOMING_MAX", 1),
    (
        pubsub.server.moves.receiving,
        "IDLE_SECONDS",
        15.0,
    ),  # Else the only place is taken for longer than a run settles.
    (pubsub.server.moves.receiving, "PIECES_MAX", 10),
    (pubsub.server.requests.admission, "PIECES_MAX", 10),
    (pubsub.server.topic.delivery, "BATCHES_MAX", 1),
    (pubsub.server.upkeep.staging, "PIECES_MAX", 10),
)
"""Limits that runs with `scarce` reach. The only place for what arrives is free again within the time to settle."""


@dataclass
class Result:
    """What came of a run.

    Attributes:
        operations: client calls and delivered records.
        delivered: messages that reached somebody.
        counters: of the servers, and how often which fault was injected.
    """

    seed: int
    violations: list[str]
    operations: int = 0
    trace: int = 0
    events: int = 0
    virtual: float = 0.0
    seconds: float = 0.0
    counters: dict[str, int] = field(default_factory=dict)
    delivered: int = 0


class Seeded:
    """In place of `secrets`, for store IDs."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def token_hex(self, size: int) -> str:
        return self._random.randbytes(size).hex()


@contextlib.contextmanager
def small(random: Random, counters: dict[str, int] | None = None) -> Iterator[None]:
    """Limits so small that a run reaches them, and store IDs from the seed; situations are counted."""
    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (pubsub.proxy.assignments, "TENTATIVE_SECONDS", 12.0),
            (pubsub.proxy.servers, "EXPIRE_SECONDS", 1.0),
            (pubsub.proxy.traffic, "_recv", Router.recv),
            (pubsub.proxy.traffic, "_send", Router.send),
            (pubsub.proxy.traffic, "_get", Router.get),
            (pubsub.client.storage.store, "CHECKPOINT_PAGES", 80),
            (pubsub.client.core.chain, "SINGLY_SECONDS", 1.0),
            (pubsub.client.flows.gets, "CHUNK_MAX", CHUNK_MAX),
            (pubsub.server.moves.chunks, "CHUNK_BATCHES", 4),
            (pubsub.server.moves.chunks, "CHUNK_ITEMS", 3),
            (pubsub.server.upkeep.retention, "ROUND_SECONDS", 1.0),
            (pubsub.server.upkeep.retention, "LOOK_SECONDS", 0.3),
            (pubsub.server.upkeep.retention, "PIECE_BATCHES_MIN", 8),
            (pubsub.server.upkeep.staging, "LEFT_SECONDS", 20.0),
            (pubsub.server.storage.store, "secrets", Seeded(random)),
            (pubsub.server.offline.restore, "secrets", Seeded(random)),
            (pubsub.client.storage.store, "secrets", Seeded(random)),
            (pubsub.client.flows.calls, "secrets", Seeded(random)),
            (pubsub.server.process, "Store", MemberStore),
            (pubsub.server.standby.disk, "hold", lambda directory: StringIO()),
            (pubsub.server.standby.disk, "Store", MemberStore),
            (pubsub.server.standby.disk, "SystemRandom", lambda: random),
            (pubsub.server.standby.disk, "LOG_BYTES_MAX", 10_000),
            (pubsub.server.standby.disk, "Stream", small_stream),
            (pubsub.server.standby.stream, "RECENT_BYTES_MAX", 5_000),
            (pubsub.server.standby.snapshot, "open_database", open_beside),
            (pubsub.server.standby.local_file, "os", SYSTEM),
            (pubsub.server.standby.pages, "os", SYSTEM),
            (pubsub.server.standby.segment, "os", SYSTEM),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        stack.enter_context(untidy())
        stack.enter_context(counted({} if counters is None else counters))
        stack.callback(SYSTEM.forget)
        yield


@contextlib.contextmanager
def scarce(so: bool) -> Iterator[None]:
    """Tables and looks so small that a run reaches them, where it is `so`."""
    with contextlib.ExitStack() as stack:
        for target, name, value in SCARCE if so else ():
            stack.enter_context(mock.patch.object(target, name, value))
        yield


class Simulation:
    """One run.

    Args:
        seed: its only input.
        fate: instead of the one that the seed draws.
        log: gets a line for everything that happens.
    """

    def __init__(self, seed: int, fate: Fate | None = None, log: Callable[[str], None] | None = None) -> None:
        self.random = random = Random(seed)
        self.seed, self.fate = seed, fate or calling(complete(draw(random), seed), seed)
        fate = self.fate
        self.world = world = World(seed, fate, random)
        world.log = log
        self.counters: dict[str, int] = {}
        self.history = History(fate.skew, fate.servers == 1)
        file_system = disks()
        file_system.disks = {}
        proxies = tuple(f"p{n}" for n in range(1, fate.proxies + 1))
        self.proxies = [ProxyNode(world, world.host(name, 0.0)) for name in proxies]
        half = fate.skew / 2
        self.witnesses = [ProxyNode(world, world.host("w1", 0.0), witness=True)] if fate.witness else []
        self.told = Told(world, self.history, fate.servers == 1)
        voters = (*proxies, *(node.name for node in self.witnesses))
        self.servers: list[ServerNode | Paired] = []
        for n in range(1, fate.servers + 1):
            if n > fate.pairs:
                host = world.host(f"s{n}", random.uniform(-half, half))
                self.servers.append(ServerNode(world, host, voters))
            else:
                hosts = [world.host(f"s{n}{letter}", random.uniform(-half, half)) for letter in "ab"]
                one, other = (MemberNode(world, host, voters, f"s{n}", self.told) for host in hosts)
                self.servers.append(Paired(f"s{n}", (one, other)))
        plain = [node for node in self.servers if isinstance(node, ServerNode)]
        for node in plain[len(plain) - min(fate.older, len(plain)) :]:
            node.older = True
        self.clients = []
        self.applications = []
        for n in range(1, fate.clients + 1):
            order = tuple(random.sample(proxies, len(proxies)))
            node = ClientNode(
                world,
                world.host(f"c{n}", random.choice((0.0, 1.0, -3000.0, 86400.0))),
                order,
                power_safe=random.random() < fate.power_safe,
            )
            self.clients.append(node)
            self.applications.append(Application(world, node, self.history, self.topics))
        self.calls = Calls(world, self.history, lambda name: self._client(name, proxies))
        self.tasks: list[Task] = []
        for kind, letter, number in ((Sink, "k", fate.sinks), (RangeReader, "n", fate.ranges)):
            for n in range(1, number + 1):
                topic = f"t{random.randrange(fate.topics) + 1}"
                host = world.host(f"{letter}{n}", 0.0)
                self.tasks.append(kind(world, host, proxies, self.history, topic))
        endpoints = [Talker(world, world.host(f"m{n}", 0.0), self.history, ()) for n in range(min(1, fate.talkers))]
        addresses = tuple(talker.address for talker in endpoints)
        self.talkers = endpoints + [
            Talker(world, world.host(f"m{n}", 0.0), self.history, addresses) for n in range(1, fate.talkers + 1)
        ]
        self.twins: list[Twin] = []
        file_system.disks = {name: host.disk for name, host in world.hosts.items()}
        self.copies: dict[str, tuple[float, dict[str, bytes]]] = {}
        self.over = False
        self.operators = Operators(self)
        self._pairs, self._moments = Pairs(self), Moments(self)
        if "full start" in fate.faults:
            for node in self.processes():
                node.host.disk.keeps_reserve = True

    def _client(self, name: str, proxies: tuple[str, ...]) -> ClientNode:
        """A client in step with true time: deadlines of calls are told by clocks."""
        random = self.random
        order = tuple(random.sample(proxies, len(proxies)))
        safe = random.random() < self.fate.power_safe
        return ClientNode(self.world, self.world.host(name, 0.0), order, power_safe=safe)

    @property
    def nodes(self) -> list[Process]:
        users = [*self.clients, *self.calls.nodes, *self.tasks, *self.talkers]
        return [*self.proxies, *self.witnesses, *self.processes(), *users]

    def processes(self) -> list[ServerNode]:
        """Of all servers; each member of a pair is one."""
        return [node for server in self.servers for node in members_of(server)]

    @property
    def pairs(self) -> list[Paired]:
        """Those servers that are pairs."""
        return [server for server in self.servers if isinstance(server, Paired)]

    def topics(self) -> list[str]:
        """Topics appear one after the other."""
        share = min(1.0, self.world.now / self.fate.seconds)
        return [f"t{n}" for n in range(1, min(self.fate.topics, max(1, int(self.fate.topics * share + 0.999))) + 1)]

    def run(self) -> Result:
        """The whole run."""
        started = time.process_time()
        world = self.world
        with small(self.random, self.counters), scarce(self.fate.scarce):
            for node in self.nodes:
                world.at(world.random.random() * 0.3, node.start)
            if "quarters" in self.fate.faults:
                self._quarters()
            elif self.fate.divided:
                self._divide()
            for fault in self.fate.faults:
                self._later(fault)
            world.at(0.5, self._look)
            world.run(self.fate.seconds)
            open_end = self._settle()
            if open_end:
                self.history.violate(f"after {SETTLE_SECONDS:g} s without faults: {open_end}")
            self._collect()
            violations = self.history.judge()
        for node in self.nodes:
            if not isinstance(node, ServerNode):
                node.end("over")
        callers = [*self.clients, *self.calls.nodes, *self.tasks, *self.talkers, *(twin.node for twin in self.twins)]
        operations = sum(caller.operations for caller in callers)
        for server in self.servers:
            for name, value in (server.totals + (server.core.state.counters if server.alive else Counter())).items():
                self.counters[name] = self.counters.get(name, 0) + value
        self.counters.update(self.history.counters)
        self.counters.update(self.told.counters)
        return Result(
            self.seed, violations, operations, world.trace, world.events, world.now,
            time.process_time() - started, self.counters, self.history.delivered,
        )  # fmt: skip

    # Faults

    def _later(self, fault: str) -> None:
        self.world.after(self.random.expovariate(self.fate.faults[fault]), self._strike, fault)

    def _strike(self, fault: str) -> None:
        if self.over:
            return
        self.counters[f"fault: {fault}"] = self.counters.get(f"fault: {fault}", 0) + 1
        of_pairs = fault in PAIR_FAULTS or fault in PAIR_MOMENTS
        strikes = self._pairs if of_pairs else self._moments if fault in MOMENTS else self
        getattr(strikes, "_" * (strikes is self) + fault.replace(" ", "_"))()
        self._later(fault)

    def _anyone(self) -> Process:
        """Servers, clients and proxies as often as each other, however many there are."""
        users = [*self.clients, *self.calls.nodes, *self.tasks, *self.talkers]
        votes = [*self.proxies, *self.witnesses]
        kind: Sequence[Process | Paired] = self.random.choice((self.servers, users, votes))
        found = self.random.choice(kind)
        return self._process(found) if isinstance(found, Paired) else found

    def _process(self, server: ServerNode | Paired) -> ServerNode:
        """The process of a server, one of its members' where it has two."""
        return self.random.choice(server.members) if isinstance(server, Paired) else server

    def restart(self, node: Process | Paired) -> None:
        """Somebody starts it again, sooner or later."""
        if isinstance(node, Paired):
            for member in node.members:
                self.restart(member)
            return
        if not node.restarting:
            node.restarting = True
            seconds = self.random.choice((0.001, 0.1, 1.0, 4.0)) * self.random.random()
            self.world.after(0.5 if self.over else seconds, self._start, node)

    def _start(self, node: Process | Paired) -> None:
        if isinstance(node, Paired):
            for member in node.members:
                self._start(member)
            return
        node.restarting = False
        if not node.alive:
            node.start()
            if not node.alive:
                self.restart(node)

    def _look(self) -> None:
        """See to it that who ended by itself comes back, and that nothing grows."""
        for node in self.nodes:
            if not node.alive:
                self.restart(node)
        for client in self.clients:
            if client.alive and len(client.session.core.flights) > FLIGHTS_MAX:
                self.history.violate(f"{client.name} waits for {len(client.session.core.flights)} answers")
        self.world.after(2.0, self._look)

    def _kill(self) -> None:
        node = self._anyone()
        if isinstance(node, ServerNode) and self.random.random() < 0.6:
            node.kill_at_step = self.random.choice(("before commit", "after commit", "while sending"))
            self.world.after(1.0, self.restart, node)
        else:
            node.end("killed")
            self.restart(node)

    def _kill_now(self, node: Process | Paired) -> None:
        if isinstance(node, Paired):
            node = node.active
        if not self.over:
            node.end("killed")
            self.restart(node)

    def _outage(self) -> None:
        """A server is away for seconds while proxies are started anew: what it holds must not be given away."""
        server = self.random.choice(self.servers)
        if not server.alive or server.restarting or len(self.servers) < 2:
            return
        server.end("killed")
        server.restarting = True
        self.world.after(2.5 + 2.0 * self.random.random(), self._start, server)
        for proxy in self.proxies:
            self.world.after(0.3 * self.random.random(), self._kill_now, proxy)

    def _lose_routes(self) -> None:
        """Proxies lose their directories, some or all, once or twice, mostly while a server is away.

        Where all are to lose theirs, one that is left must know of every store, and none may have to remember what was
        given up: nobody could know of it then.
        """
        stores = {server.store_id() for server in self.servers}
        if not all(stores - {server.store_id()} <= server.witnessed() for server in self.servers):
            return
        losers = self.random.sample(self.proxies, self.random.randrange(1, len(self.proxies) + 1))
        if self.random.random() < 0.5 and not self.operators.gave_up():
            losers = list(self.proxies)
        if len(losers) == len(self.proxies) and self.operators.gave_up():
            losers.pop()
        losers += [witness for witness in self.witnesses if self.random.random() < 0.5]
        server = self.random.choice(self.servers)
        if self.random.random() < 0.8 and server.alive and not server.restarting and len(self.servers) > 1:
            server.end("killed")
            server.restarting = True
            self.world.after(1.0 + 4.0 * self.random.random(), self._start, server)
        for proxy in losers:
            self.world.after(0.3 * self.random.random(), self._lose_directory, proxy)
            if self.random.random() < 0.3:
                self.world.after(0.5 + 2.0 * self.random.random(), self._lose_directory, proxy)

    def _lose_directory(self, proxy: ProxyNode) -> None:
        if self.over or proxy.restarting:
            return
        if not (self._pairs.may_lose(proxy) and self.operators.remembered_without(proxy)):
            return
        self.world.note(f"{proxy.name} loses its directory")
        proxy.end("killed")
        proxy.host.disk.restore({})
        self.restart(proxy)

    def _close(self) -> None:
        """A client's program ends in good order, and is started again."""
        node = self.random.choice(self.clients)
        node.close()
        self.restart(node)

    def _kill_endpoint(self) -> None:
        self._kill_now(self.talkers[0])

    def _kill_in_commit(self) -> None:
        node = self._anyone()
        if node.alive:
            node.host.disk.kill_in = self.random.randrange(12)
            self.world.after(1.0, self.restart, node)

    def _power(self) -> None:
        node = self._anyone()
        self._cut_power(node)
        self.restart(node)

    def _client_power(self) -> None:
        """A client's host loses power, and the client finds another proxy than the one it had."""
        node = self.random.choice(self.clients)
        if node.alive and self.random.random() < 0.7:
            self._part(node.name, self.proxy_of(node).name, 3.0)
        self._cut_power(node)
        self.restart(node)

    def proxy_of(self, node: ClientNode) -> ProxyNode:
        address = node.settings.proxies[node.session.core.proxy]
        return next(proxy for proxy in self.proxies if address in proxy.addresses)

    def _cut_power(self, node: Process) -> None:
        for link in node.links:
            link.silent = self.random.random() < 0.5
        node.end("power cut")
        node.host.disk.cut_power(self.random)
        node.host.boot += 1
        self.world.note(f"{node.name} lost power")
        for application in self.applications:
            if application.node is node:
                application.lost_power()

    def _pause(self) -> None:
        self._anyone().pause(self.random.choice((0.2, 1.0, 3.0)) * self.random.random())

    def _pair(self) -> tuple[str, str]:
        a, b = self.random.sample(self.nodes, 2)
        return a.name, b.name

    def _partition(self) -> None:
        a, b = self._pair()
        seconds = self.random.choice((0.5, 2.0, 5.0)) * self.random.random()
        self.world.note(f"{a} and {b} are cut for {seconds:.2f}")
        self.world.network.cut(a, b, seconds)
        self.world.network.cut(b, a, seconds)

    def _cut(self) -> None:
        self._partition()

    def _detour(self) -> None:
        """A client cannot reach one of its proxies for a while, and takes another."""
        self._part(self.random.choice(self.clients).name, self.random.choice(self.proxies).name, 4.0)

    def _part(self, one: str, other: str, seconds_max: float) -> None:
        seconds = seconds_max * self.random.random()
        self.world.note(f"{one} and {other} are cut for {seconds:.2f}")
        self.world.network.cut(one, other, seconds)
        self.world.network.cut(other, one, seconds)

    def _one_way(self) -> None:
        a, b = self._pair()
        self.world.network.cut(a, b, self.random.choice((0.5, 2.0, 5.0)) * self.random.random())

    def _clog(self) -> None:
        a, b = self._pair()
        self.world.network.clog(a, b, 3.0 * self.random.random(), self.random.choice((0.1, 1.0)))

    def _churn(self) -> None:
        """The servers fall into two groups, each with proxies of its own."""
        self._divide()

    def _divide(self) -> None:
        random, network = self.random, self.world.network
        seconds = random.choice((1.0, 4.0, 8.0)) * random.random()
        sides: dict[bool, list[str]] = {True: [], False: []}
        for nodes in (self.proxies, self.processes()):
            names = random.sample([node.name for node in nodes], len(nodes))
            half = random.randrange(1, len(names)) if len(names) > 1 else 1
            sides[True] += names[:half]
            sides[False] += names[half:]
        self.world.note(f"{sides[True]} and {sides[False]} are cut for {seconds:.2f}")
        for a in sides[True]:
            for b in sides[False]:
                network.cut(a, b, seconds)
                network.cut(b, a, seconds)

    def _move(self) -> None:
        """A topic is given to another server by whoever holds it, or seems to."""
        if len(self.servers) < 2:
            return
        proxy = self.random.choice(self.proxies)
        if not proxy.alive or not proxy.core.table.single:
            return
        topic = self.random.choice(sorted(proxy.core.table.single))
        giver = self.server(proxy.core.table.single[topic].id)
        receiver = self.random.choice([server for server in self.servers if server is not giver])
        self._give(proxy, giver, receiver, topic)
        chance = self.random.random()
        if chance < 0.3:  # Somebody dies in the middle of it.
            victim = self.random.choice([receiver, giver])
            self.world.after(self.random.choice((0.005, 0.05)) * self.random.random(), self._kill_now, victim)
        elif chance < 0.5:  # Some step of it is lost.
            when = self.random.choice((0.02, 0.1, 0.3)) * self.random.random()
            self.world.after(
                when, self.world.network.cut, giver.host.name, receiver.host.name, 0.3 + self.random.random()
            )
        elif chance < 0.8 and giver.alive and topic in giver.core.state.topics:
            self._watch(proxy, giver, receiver, topic, giver.core.state.topics[topic].open.id, 400)

    def _give(self, proxy: ProxyNode, giver: ServerNode, receiver: ServerNode, topic: str) -> None:
        self.world.note(f"{proxy.name} has {giver.name} give {topic} to {receiver.name}")
        proxy.merge(giver.name, topic, receiver.address)

    def _watch(
        self, proxy: ProxyNode, giver: ServerNode, receiver: ServerNode, topic: str, log: str, looks: int
    ) -> None:
        """Strike when the receiver has joined a log: until the giver knows of it everything is there twice."""
        if self.over or not giver.alive or not receiver.alive or not looks:
            return
        held = receiver.core.state.topics.get(topic)
        if held is None or log not in held.logs:
            self.world.after(0.002, self._watch, proxy, giver, receiver, topic, log, looks - 1)
            return
        how = self.random.choice(("kill the giver", "kill the receiver", "go on"))
        self.world.note(f"{receiver.name} has joined {topic} of {giver.name}: {how}")
        if how == "kill the giver":
            self._kill_now(giver)
        elif how == "kill the receiver":
            self._kill_now(receiver)
        else:  # The giver is not told, and the receiver has given the topic on before the giver asks again.
            self.world.network.cut(receiver.host.name, giver.host.name, 0.5 + 2.0 * self.random.random())
            others = [server for server in self.servers if server not in {giver, receiver}]
            self._give(proxy, receiver, self.random.choice(others or [giver]), topic)

    def _drain(self) -> None:
        self.operators.drain()

    def _abandon(self) -> None:
        self.operators.abandon()

    def _put_back(self) -> None:
        self.operators.put_back()

    def _flip(self) -> None:
        """A bit of what a server has stored flips while it is down."""
        server = self._process(self.random.choice(self.servers))
        if not server.alive or server.restarting:
            return
        server.end("killed")
        damaged = flip(server, self.random)
        if damaged is not None:
            topic, bodies = damaged
            self.world.note(f"{server.name} has damaged {bodies} of {topic}")
            self.history.damaged.setdefault(topic, set()).update(bodies)
        self.restart(server)

    def _quarters(self) -> None:
        """Each proxy is alone with a server, then with that of another one, and then all are together."""
        network, seconds = self.world.network, 1.5 + self.random.random()
        parts = len(self.proxies)
        kinds = (self.proxies, self.processes())
        names = [(node.name, n % parts) for nodes in kinds for n, node in enumerate(nodes)]
        self.world.note(f"all are apart for {seconds:.2f}")
        for a, one in names:
            for b, other in names:
                if one != other:
                    network.cut(a, b, seconds if one // 2 == other // 2 else seconds + 1.5)

    def _full(self) -> None:
        disk = self._anyone().host.disk
        if self.fate.pairs and self.random.random() < 0.5:  # Between two writes of one loop, as it may be.
            disk.full_in = self.random.randrange(10)
        else:
            disk.full = True
        self.world.after(2.0 * self.random.random(), self._space, disk)

    @staticmethod
    def _space(disk: Disk) -> None:
        disk.full, disk.full_in = False, None

    def _refuse(self) -> None:
        """A commit or a few find no space; the next one does."""
        self._anyone().host.disk.refusals = self.random.choice((1, 1, 2, 5))

    def _fail(self) -> None:
        self._anyone().host.disk.fail_in = self.random.randrange(20)

    def _clock(self) -> None:
        if self.random.random() < 0.5:
            host = self.random.choice(self.clients).host
            host.skew += self.random.choice((-1.0, 1.0)) * self.random.choice((0.5, 60.0, 7200.0))
        else:
            half = self.fate.skew / 2
            self._process(self.random.choice(self.servers)).host.skew = self.random.uniform(-half, half)

    def _empty(self) -> None:
        application = self.random.choice(self.applications)
        if not application.bare:
            self._replace(application, None, {})

    def _copy(self) -> None:
        application = self.random.choice(self.applications)
        if application.bare:
            return
        known = self.copies.pop(application.name, None)
        if known is None:
            application.node.end("killed")
            self.copies[application.name] = (self.world.now, application.node.host.disk.copy())
            self.restart(application.node)
        else:
            self._replace(application, *known)

    def _twin(self) -> None:
        """A copy of a client's directory is opened on another host while the client goes on."""
        of = self.random.choice(self.applications)
        if of.by_get or of.bare or not of.reads or not of.node.alive or any(twin.of is of for twin in self.twins):
            return
        host = self.world.host(f"{of.name}b", 0.0)
        disks().disks[host.name] = host.disk
        host.disk.restore(
            {
                f"/{host.name}/{of.name}.db{path.partition('.db')[2]}": data
                for path, data in of.node.host.disk.copy().items()
            }
        )
        order = tuple(self.random.sample([proxy.name for proxy in self.proxies], len(self.proxies)))
        node = ClientNode(self.world, host, order, power_safe=False, client=of.name)
        of.twinned()
        self.twins.append(Twin(self.world, of, node, self.history))
        self.world.note(f"{node.name} is a copy of {of.name}")
        node.start()
        self.world.after(4.0 * self.random.random(), node.end, "over")

    def _replace(self, application: Application, since: float | None, files: dict[str, bytes]) -> None:
        node = application.node
        node.end("killed")
        self.world.note(f"{node.name} finds its directory as of {since}")
        application.collect()
        application.copied = since or 0.0
        application.directory_replaced(since)
        node.host.disk.restore(files)
        self.copies.pop(application.name, None)
        self.restart(node)

    # The end

    def _heal(self) -> None:
        world, fate = self.world, self.fate
        self.over = True
        world.note("everything is well from here on")
        fate.loss = fate.late = fate.reorder = fate.duplicate = 0.0
        fate.delay = 0.001
        world.network.heal()
        for node in self.nodes:
            self._space(node.host.disk)
            node.host.disk.refusals = 0
            node.host.disk.kill_in = node.host.disk.fail_in = None
            if isinstance(node, ServerNode):
                node.kill_at_step = ""
            node.resume()
            if not node.alive:
                node.start()
        self.operators.finish()
        for twin in self.twins:
            twin.node.end("over")
        for application in self.applications:
            application.finish()
        self.calls.finish()
        for other in (*self.tasks, *self.talkers):
            other.finishing = True

    def _settle(self) -> str:
        self._heal()
        end = self.world.now + SETTLE_SECONDS
        well = 0
        what = ""
        while self.world.now < end and well < 3:
            self.world.run(self.world.now + 0.5)
            what = self._open_end()
            well = 0 if what else well + 1
        return what

    def _open_end(self) -> str:
        for node in self.nodes:
            if not node.alive:
                return f"{node.name} does not run"
        if what := self._pairs.open_end():
            return what
        for topic in sorted({name for server in self.servers for name in server.core.state.topics}):
            holders = [server.name for server in self.servers if topic in server.core.state.topics]
            if len(holders) > 1:
                return f"{topic} is held by {' and '.join(holders)}"
            if self.server(holders[0]).core.state.topics[topic].frozen:
                return f"{topic} is frozen at {holders[0]}"
            for proxy in self.proxies:
                known = [holder.id for holder in proxy.core.table.holders(topic)]
                if known != holders:
                    return f"{topic} is held by {holders[0]}, and {proxy.name} believes by {known}"
        for party in (*self.applications, *self.calls.parties, *self.tasks, *self.talkers):
            what = party.settled()
            if what:
                return what
        return ""

    def server(self, name: str) -> ServerNode:
        return next(server for server in self.servers if server.name == name)

    def _collect(self) -> None:
        for application in self.applications:
            application.node.end("over")
            application.collect()
            application.settle_letters()
            self._check_left(application)
        self.calls.judge()
        for client in self.clients:
            for line in client.found:
                self.history.violate(line)
        for line in self._pairs.differences():
            self.history.violate(line)
        for server in self.servers:
            server.compare()
            for line in server.found:
                self.history.violate(line)
        if len(self.servers) == 1:
            for twin in self.twins:
                twin.judge()

    def _check_left(self, application: Application) -> None:
        """Who has unsubscribed is subscribed nowhere."""
        for server in self.servers:
            for topic in server.core.state.topics.values():
                subscription = topic.subscriptions.get(application.name)
                reading = self.history.readings.get((application.name, topic.name))
                left = reading is not None and not reading.wanted and reading.asked is not None
                if (
                    left
                    and topic.name in application.drained
                    and subscription is not None
                    and subscription.on
                    and not application.life
                    and topic.name not in self.history.given_up  # Where it left may be what was given up.
                ):
                    self.history.violate(f"{application.name} left {topic.name}, and is subscribed at {server.name}")


def shortened(seed: int) -> Fate:
    """The world that a seed draws, with a phase of faults so short that some hundred runs take a minute or two."""
    fate = complete(draw(Random(seed)), seed)
    fate.seconds = min(fate.seconds, SHORT_SECONDS)
    return fate


def simulate(seed: int, fate: Fate | None = None, log: Callable[[str], None] | None = None) -> Result:
    """Run one seed."""
    logging.disable(logging.CRITICAL)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None  # What a dead process leaves behind is closed without its disk.
    try:
        return Simulation(seed, fate, log).run()
    finally:
        sys.unraisablehook = hook
        logging.disable(logging.NOTSET)
