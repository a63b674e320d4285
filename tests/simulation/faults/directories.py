"""Directories that are lost, put back to an older copy, or copied and opened elsewhere: of clients and of proxies."""

from __future__ import annotations

from tests.simulation.applications.application import Application
from tests.simulation.cast import Cast
from tests.simulation.clients import ClientNode
from tests.simulation.disk import disks
from tests.simulation.faults.kinds import Fault
from tests.simulation.faults.operators import Operators
from tests.simulation.nodes import ProxyNode
from tests.simulation.pairs import Pairs
from tests.simulation.replicas import Replica
from tests.simulation.supervisor import Supervisor
from tests.simulation.twins import Twin


class Directories:
    """The faults of the directories of one run."""

    def __init__(self, cast: Cast, supervisor: Supervisor, operators: Operators, pairs: Pairs) -> None:
        self.cast, self.supervisor, self.operators, self.pairs = cast, supervisor, operators, pairs
        self.world, self.random = cast.world, cast.random
        self._copies: dict[str, tuple[float, dict[str, bytes]]] = {}
        """Of clients: the time at which each directory was made, and its content."""

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {
            "empty": self.empty,
            "copy": self.copy,
            "twin": self.twin,
            "replica": self.replica,
            "lose routes": self.lose_routes,
        }

    # Of clients

    def empty(self) -> None:
        """A client finds its directory empty."""
        application = self.random.choice(self.cast.applications)
        if not application.program.habits.bare:
            self.replace(application, None, {})

    def copy(self) -> None:
        """A client's directory is copied; or, where there is a copy, put back to it."""
        application = self.random.choice(self.cast.applications)
        if application.program.habits.bare:
            return
        known = self._copies.pop(application.name, None)
        if known is None:
            application.node.end("killed")
            self._copies[application.name] = (self.world.now, application.node.host.disk.copy())
            self.supervisor.restart(application.node)
        else:
            self.replace(application, *known)

    def replace(self, application: Application, since: float | None, files: dict[str, bytes]) -> None:
        """A client's directory has these files from now on, which are as of some time; None: of none."""
        node = application.node
        node.end("killed")
        self.world.note(f"{node.name} finds its directory as of {since}")
        application.records.collect()
        application.program.directory_replaced(since)
        node.host.disk.restore(files)
        self._copies.pop(application.name, None)
        self.supervisor.restart(node)

    def twin(self) -> None:
        """A copy of a client's directory is opened on another host while the client goes on."""
        of = self.random.choice(self.cast.applications)
        known = any(twin.of is of for twin in self.cast.twins)
        habits = of.program.habits
        if habits.by_get or habits.bare or not habits.reads or not of.node.alive or known:
            return
        host = self.world.host(f"{of.name}b", 0.0)
        disks().disks[host.name] = host.disk
        copy = of.node.host.disk.copy()
        host.disk.restore({f"/{host.name}/{of.name}.db{path.partition('.db')[2]}": copy[path] for path in copy})
        node = ClientNode(self.world, host, self.cast.proxy_names(), power_safe=False, client=of.name)
        of.program.twinned()
        self.cast.twins.append(Twin(self.world, of, node, self.cast.history))
        self.world.note(f"{node.name} is a copy of {of.name}")
        node.start()
        self.world.after(4.0 * self.random.random(), node.end, "over")

    def replica(self) -> None:
        """A second directory of a client is opened on another host while the client goes on."""
        of = self.random.choice(self.cast.applications)
        known = any(one.of is of and one.node.alive for one in self.cast.replicas)
        if of.program.habits.bare or not of.program.habits.reads or known:
            return
        number = len(self.cast.replicas) + 1
        # A client with a slow clock may get the outcome superseded though none of its requests took effect.
        host = self.world.host(f"{of.name}r{number}", of.node.host.skew)
        disks().disks[host.name] = host.disk
        node = ClientNode(self.world, host, self.cast.proxy_names(), power_safe=False, client=of.name)
        of.program.replicas += 1
        self.cast.replicas.append(Replica(self.world, of, node, number))
        self.world.note(f"{node.name} is another directory of {of.name}")
        node.start()
        self.world.after(4.0 * self.random.random(), self.cast.replicas[-1].end)

    # Of proxies

    def lose_routes(self) -> None:
        """Proxies lose their directories, some or all, once or twice, mostly while a server is away.

        Before all of them lose theirs, a remaining one must know every store. None may be the only one that remembers
        an abandoned log: otherwise no process could know of it.
        """
        stores = {server.store_id() for server in self.cast.servers}
        if not all(stores - {server.store_id()} <= server.witnessed() for server in self.cast.servers):
            return
        proxies = self.cast.proxies
        losers = self.random.sample(proxies, self.random.randrange(1, len(proxies) + 1))
        if self.random.random() < 0.5 and not self.operators.gave_up():
            losers = list(proxies)
        if len(losers) == len(proxies) and self.operators.gave_up():
            losers.pop()
        losers += [witness for witness in self.cast.witnesses if self.random.random() < 0.5]
        server = self.random.choice(self.cast.servers)
        if self.random.random() < 0.8 and server.alive and not server.restarting and len(self.cast.servers) > 1:
            self.supervisor.kill_for(server, 1.0 + 4.0 * self.random.random())
        for proxy in losers:
            self.world.after(0.3 * self.random.random(), self._lose, proxy)
            if self.random.random() < 0.3:
                self.world.after(0.5 + 2.0 * self.random.random(), self._lose, proxy)

    def _lose(self, proxy: ProxyNode) -> None:
        if self.world.over or proxy.restarting:
            return
        if not (self.pairs.may_lose(proxy) and self.operators.remembered_without(proxy)):
            return
        self.world.note(f"{proxy.name} loses its directory")
        proxy.end("killed")
        proxy.host.disk.restore({})
        self.supervisor.restart(proxy)
