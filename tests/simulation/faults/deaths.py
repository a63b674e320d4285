"""Deaths: processes are killed at any step, paused, closed, or lose power with their host."""

from __future__ import annotations

from tests.simulation.cast import Cast
from tests.simulation.clients import ClientNode
from tests.simulation.faults.kinds import Fault
from tests.simulation.nodes import ProxyNode, ServerNode
from tests.simulation.supervisor import Supervisor


class Deaths:
    """How processes of one run end."""

    def __init__(self, cast: Cast, supervisor: Supervisor) -> None:
        self.cast, self.supervisor = cast, supervisor
        self.world, self.random = cast.world, cast.random

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {
            "kill": self.kill,
            "kill in commit": self.kill_in_commit,
            "kill endpoint": self.kill_endpoint,
            "close": self.close,
            "power": self.power,
            "client power": self.client_power,
            "pause": self.pause,
            "outage": self.outage,
        }

    def kill(self) -> None:
        """Somebody is killed, a server maybe at a step of its loop."""
        node = self.cast.anyone()
        if isinstance(node, ServerNode) and self.random.random() < 0.6:
            node.kill_at_step = self.random.choice(("before commit", "after commit", "while sending"))
            self.world.after(1.0, self.supervisor.restart, node)
        else:
            node.end("killed")
            self.supervisor.restart(node)

    def kill_in_commit(self) -> None:
        """Somebody is killed between two accesses of its disk."""
        node = self.cast.anyone()
        if node.alive:
            node.host.disk.kill_in = self.random.randrange(12)
            self.world.after(1.0, self.supervisor.restart, node)

    def kill_endpoint(self) -> None:
        """The Messenger that others talk to is killed."""
        self.supervisor.kill(self.cast.talkers[0])

    def close(self) -> None:
        """A client's program ends in good order, and is started again."""
        node = self.random.choice(self.cast.clients)
        node.close()
        self.supervisor.restart(node)

    def power(self) -> None:
        """Somebody's host loses power."""
        node = self.cast.anyone()
        node.lose_power()
        self.supervisor.restart(node)

    def client_power(self) -> None:
        """A client's host loses power, and the client finds another proxy than the one it had."""
        node = self.random.choice(self.cast.clients)
        if node.alive and self.random.random() < 0.7:
            self.world.network.part(node.name, self._proxy_of(node).name, 3.0 * self.random.random())
        node.lose_power()
        self.supervisor.restart(node)

    def _proxy_of(self, node: ClientNode) -> ProxyNode:
        """The proxy that a client is connected to."""
        address = node.settings.proxies[node.session.core.proxy]
        return next(proxy for proxy in self.cast.proxies if address in proxy.addresses)

    def pause(self) -> None:
        """Somebody is paused, maybe for longer than anybody's patience."""
        self.cast.anyone().pause(self.random.choice((0.2, 1.0, 3.0)) * self.random.random())

    def outage(self) -> None:
        """A server is away for seconds while proxies restart: its topics must not be assigned to others."""
        server = self.random.choice(self.cast.servers)
        if not server.alive or server.restarting or len(self.cast.servers) < 2:
            return
        self.supervisor.kill_for(server, 2.5 + 2.0 * self.random.random())
        for proxy in self.cast.proxies:
            self.world.after(0.3 * self.random.random(), self.supervisor.kill, proxy)
