"""The processes of one run: servers, proxies, clients and all others, in the numbers of its fate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

from tests.simulation import deleting
from tests.simulation.applications.application import Application
from tests.simulation.callers import Calls
from tests.simulation.clients import ClientNode
from tests.simulation.compacting import Compacted
from tests.simulation.configuring import Configured, Configurer
from tests.simulation.creating import Creator
from tests.simulation.database.connecting import Databases
from tests.simulation.database.plan import database_of
from tests.simulation.database.usurping import Usurper
from tests.simulation.deleting import Deleter
from tests.simulation.disk import disks
from tests.simulation.families import Family
from tests.simulation.grouping.judging import Audit
from tests.simulation.grouping.overseer import Overseer
from tests.simulation.grouping.plan import plans
from tests.simulation.grouping.record import Crew, Crews
from tests.simulation.grouping.worker import Worker
from tests.simulation.history import History
from tests.simulation.lettering import Letters
from tests.simulation.looking import Looker
from tests.simulation.members import MemberNode, Paired, Server, members_of
from tests.simulation.messengers import Talker
from tests.simulation.nodes import ProxyNode, ServerNode
from tests.simulation.purging import Purger
from tests.simulation.replicas import Replica
from tests.simulation.seeking import Seeker
from tests.simulation.table_reading import TableReader
from tests.simulation.tasks import RangeReader, Sink, Task
from tests.simulation.told import Told
from tests.simulation.twins import Twin
from tests.simulation.world import Process, World


class Cast:
    """All processes of one run, and the records about them.

    They are made in the order of the draws: the history of a seed depends on it.

    Args:
        world: their world, empty before.

    Attributes:
        history: acts and observations of users; told: answers of members of pairs.
        counters: number of faults, moments and situations.
        witnesses: proxies that only vote; voters: these and the proxies.
        twins: copies of clients that were opened while the client ran; replicas: other directories of them.
        usurpers: second processes of clients with a database.
    """

    def __init__(self, world: World) -> None:
        self.world, self.fate, self.random = world, world.fate, world.random
        self.counters: Counter[str] = Counter()
        alone = self.fate.servers == 1
        self.history = History(self.fate.skew, alone)
        self.told = Told(world, self.history, alone)
        world.databases = Databases(world, self.counters)
        file_system = disks()
        file_system.disks = {}
        names = [f"p{n}" for n in range(1, self.fate.proxies + 1)]
        self.proxies = [ProxyNode(world, world.host(name, 0.0)) for name in names]
        self.witnesses = [ProxyNode(world, world.host("w1", 0.0), witness=True)] if self.fate.witness else []
        self.voters = [*self.proxies, *self.witnesses]
        self.servers = self._servers()
        self.clients: list[ClientNode] = []
        self.applications: list[Application] = []
        for n in range(1, self.fate.clients + 1):
            self.clients.append(self._client(f"c{n}"))
            self.applications.append(Application(world, self.clients[-1], self.history, self.topics))
        self.calls = Calls(world, self.history, self._client_in_step)
        self.tasks = self._tasks()
        self.talkers = self._talkers()
        self.configured = Configured(world, self.history)
        self.compacted = Compacted(self.fate.latest, lambda: max(host.wall() for host in world.hosts.values()))
        self.configurers = self._configurers()
        self.seekers, self.lookers = self._seekers()
        self.purgers = self._purgers()
        self.families = self._families()
        self.deleters = self._deleters()
        self.creators = self._creators()
        self.tables = self._tables()
        self.letters = Letters()
        self.crews, self.workers, self.overseers = self._groups()
        self.audit = Audit(self.crews, self.workers, self.overseers, self.servers, self.fate)
        self.twins: list[Twin] = []
        self.replicas: list[Replica] = []
        self.usurpers: list[Usurper] = []
        file_system.disks = {name: host.disk for name, host in world.hosts.items()}

    # How they are made

    def _servers(self) -> list[Server]:
        """The first ones are pairs, and the last ones of an older release."""
        world, half = self.world, self.fate.skew / 2
        voters = tuple(node.name for node in self.voters)
        servers: list[Server] = []
        for n in range(1, self.fate.servers + 1):
            if n > self.fate.pairs:
                host = world.host(f"s{n}", self.random.uniform(-half, half))
                servers.append(ServerNode(world, host, voters))
            else:
                hosts = [world.host(f"s{n}{letter}", self.random.uniform(-half, half)) for letter in "ab"]
                one, other = (MemberNode(world, host, voters, f"s{n}", self.told) for host in hosts)
                servers.append(Paired(f"s{n}", (one, other)))
        plain = [node for node in servers if isinstance(node, ServerNode)]
        for node in plain[len(plain) - min(self.fate.older, len(plain)) :]:
            node.older = True
        for paired in servers:
            if isinstance(paired, Paired):
                for member in paired.members[: self.fate.older_members]:
                    member.older = True
        return servers

    def proxy_names(self) -> tuple[str, ...]:
        """Of all proxies, in the order in which a client is to try them."""
        return tuple(self.random.sample([proxy.name for proxy in self.proxies], len(self.proxies)))

    def _client(self, name: str) -> ClientNode:
        """A client with a clock of any time."""
        order = self.proxy_names()
        host = self.world.host(name, self.random.choice((0.0, 1.0, -3000.0, 86400.0)))
        safe = self.random.random() < self.fate.power_safe
        return ClientNode(self.world, host, order, power_safe=safe, database=database_of(self.fate, name))

    def _client_in_step(self, name: str) -> ClientNode:
        """A client in step with true time: the deadlines of calls depend on clocks."""
        order = self.proxy_names()
        safe = self.random.random() < self.fate.power_safe
        return ClientNode(self.world, self.world.host(name, 0.0), order, power_safe=safe)

    def _tasks(self) -> list[Sink | RangeReader]:
        proxies = tuple(proxy.name for proxy in self.proxies)
        tasks: list[Sink | RangeReader] = []
        for kind, letter, number in ((Sink, "k", self.fate.sinks), (RangeReader, "n", self.fate.ranges)):
            for n in range(1, number + 1):
                topic = f"t{self.random.randrange(self.fate.topics) + 1}"
                host = self.world.host(f"{letter}{n}", 0.0)
                tasks.append(kind(self.world, host, proxies, self.history, topic))
        return tasks

    def _configurers(self) -> list[Configurer]:
        found = []
        for n in range(1, self.fate.configurers + 1):
            topic = f"t{self.random.randrange(self.fate.topics) + 1}"
            host, proxies = self.world.host(f"o{n}", 0.0), tuple(proxy.name for proxy in self.proxies)
            found.append(Configurer(self.world, host, proxies, self.history, topic, self.configured))
        return found

    def _seekers(self) -> tuple[list[Seeker], list[Looker]]:
        """Clients that seek, most of them on topics that keep all; each with a reader of that topic's history."""
        seekers, lookers = [], []
        for n in range(1, self.fate.seekers + 1):
            topic = f"t{self.random.randrange(self.fate.topics) + 1}"
            proxies = tuple(proxy.name for proxy in self.proxies)
            seekers.append(Seeker(self.world, self._client_in_step(f"x{n}"), self.history, topic))
            seekers[-1].servers = self.servers
            lookers.append(Looker(self.world, self.world.host(f"y{n}", 0.0), proxies, self.history, topic))
            operator = self.world.host(f"z{n}", 0.0)
            self.configurers.append(Configurer(self.world, operator, proxies, self.history, topic, self.configured))
            self.configurers[-1].only_ever = self.random.random() < 0.8
        return seekers, lookers

    def _purgers(self) -> list[Purger]:
        found = []
        for n in range(1, self.fate.purgers + 1):
            topic = f"t{self.random.randrange(self.fate.topics) + 1}"
            host, proxies = self.world.host(f"u{n}", 0.0), tuple(proxy.name for proxy in self.proxies)
            found.append(Purger(self.world, host, proxies, self.history, topic, lambda: self.servers))
        return found

    def _deleters(self) -> list[Deleter]:
        found = []
        for n in range(1, self.fate.deleters + 1):
            topic = f"t{self.random.randrange(self.fate.topics) + 1}"
            host, proxies = self.world.host(f"d{n}", 0.0), tuple(node.name for node in self.voters)
            found.append(Deleter(self.world, host, proxies, self.history, topic, partial(self._look, topic)))
        return found

    def _creators(self) -> list[Creator]:
        topics = [] if self.fate.auto else [f"t{n}" for n in range(1, self.fate.topics + 1)]
        proxies = tuple(proxy.name for proxy in self.proxies)
        return [
            Creator(self.world, self.world.host(f"e{topic}", 0.0), proxies, self.history, topic) for topic in topics
        ]

    def _look(self, topic: str) -> None:
        deleting.look(self.history, self.servers, self.ends, topic)

    @property
    def ends(self) -> dict[str, list[float]]:
        """By client, the times at which its process ended."""
        return {client.name: client.ended_at for client in self.clients}

    def _families(self) -> list[Family]:
        """In step with true time, and with every proxy: each must confirm a pattern."""
        found = []
        for n in range(1, self.fate.families + 1):
            order, host = self.proxy_names(), self.world.host(f"f{n}", 0.0)
            safe = self.random.random() < self.fate.power_safe
            found.append(Family(self.world, host, order, self.history, lambda: self.servers, power_safe=safe))
        return found

    def _tables(self) -> list[TableReader]:
        found = []
        for n in range(1, self.fate.tables + 1):
            topic = f"t{self.random.randrange(self.fate.topics) + 1}"
            host, proxies = self.world.host(f"b{n}", 0.0), tuple(proxy.name for proxy in self.proxies)
            found.append(TableReader(self.world, host, proxies, self.history, topic))
        return found

    def _groups(self) -> tuple[Crews, list[Worker], list[Overseer]]:
        """The members of consumer groups, and an operator of each group."""
        made = plans(self.fate) if self.fate.groups else []
        crews = Crews(self.history, [Crew(plan) for plan in made])
        workers = []
        for name in sorted({member for plan in made for member in plan.members}):
            own = [plan for plan in made if name in plan.members]
            host, order = self.world.host(name, 0.0), self.proxy_names()
            workers.append(Worker(self.world, host, order, crews, own))
        proxies = tuple(proxy.name for proxy in self.proxies)
        overseers = [
            Overseer(self.world, self.world.host(f"h{n}", 0.0), proxies, self.history, crew)
            for n, crew in enumerate(crews.all, 1)
        ]
        return crews, workers, overseers

    def _talkers(self) -> list[Talker]:
        """An endpoint and the Messengers that talk to it."""
        world, number = self.world, self.fate.talkers
        endpoints = [Talker(world, world.host(f"m{n}", 0.0), self.history, ()) for n in range(min(1, number))]
        addresses = tuple(talker.address for talker in endpoints)
        others = [Talker(world, world.host(f"m{n}", 0.0), self.history, addresses) for n in range(1, number + 1)]
        return endpoints + others

    # The processes

    @property
    def users(self) -> list[ClientNode | Task | Talker]:
        """All processes outside the service."""
        seekers = (seeker.node for seeker in self.seekers)
        return [
            *self.clients, *self.calls.nodes, *self.tasks, *self.talkers, *self.configurers, *self.purgers, *seekers,
            *self.lookers, *self.families, *self.deleters, *self.creators, *self.tables, *self.workers, *self.overseers,
        ]  # fmt: skip

    @property
    def nodes(self) -> list[Process]:
        """All processes, but those of twins."""
        return [*self.voters, *self.processes(), *self.users]

    def processes(self) -> list[ServerNode]:
        """Of all servers; each member of a pair is one."""
        return [node for server in self.servers for node in members_of(server)]

    @property
    def pairs(self) -> list[Paired]:
        """Those servers that are pairs."""
        return [server for server in self.servers if isinstance(server, Paired)]

    def server(self, name: str) -> Server:
        """The one of this name."""
        return next(server for server in self.servers if server.name == name)

    def topics(self) -> list[str]:
        """Topics appear one after the other."""
        share = min(1.0, self.world.now / self.fate.seconds)
        return [f"t{n}" for n in range(1, min(self.fate.topics, max(1, int(self.fate.topics * share + 0.999))) + 1)]

    # The targets of faults

    def anyone(self) -> Process:
        """Servers, users and proxies as often as each other, however many there are."""
        users: Sequence[Process] = self.deleters or self.users  # With deletions no client is killed: see `deleting`.
        kind: Sequence[Process | Paired] = self.random.choice((self.servers, users, self.voters))
        found = self.random.choice(kind)
        return self.process_of(found) if isinstance(found, Paired) else found

    def process_of(self, server: Server) -> ServerNode:
        """The process of a server, one of its members' where it has two."""
        return self.random.choice(server.members) if isinstance(server, Paired) else server

    def any_server(self) -> ServerNode:
        """The process of any server."""
        return self.process_of(self.random.choice(self.servers))
