"""Moves of topics from server to server, and faults in the middle of one."""

from __future__ import annotations

from tests.simulation.cast import Cast
from tests.simulation.faults.kinds import Fault
from tests.simulation.faults.operators import Operators
from tests.simulation.members import Server
from tests.simulation.nodes import ProxyNode
from tests.simulation.supervisor import Supervisor

LOOK_SECONDS = 0.002
LOOKS_MAX = 400
"""Looks for the receiver to have joined a log."""


class Moves:
    """The moves of one run that are no operator's drain."""

    def __init__(self, cast: Cast, supervisor: Supervisor, operators: Operators) -> None:
        self.cast, self.supervisor, self.operators = cast, supervisor, operators
        self.world, self.random = cast.world, cast.random

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {"move": self.move}

    def move(self) -> None:
        """A topic is given to another server by its holder, or by a seeming one."""
        if len(self.cast.servers) < 2:
            return
        proxy = self.random.choice(self.cast.proxies)
        if not proxy.alive or not proxy.core.table.single:
            return
        topic = self.random.choice(sorted(proxy.core.table.single))
        giver = self.cast.server(proxy.core.table.single[topic].id)
        receiver = self.random.choice([server for server in self.cast.servers if server is not giver])
        self.operators.move(proxy, giver, receiver, topic)
        chance = self.random.random()
        if chance < 0.3:  # Somebody dies in the middle of it.
            victim = self.random.choice([receiver, giver])
            self.world.after(self.random.choice((0.005, 0.05)) * self.random.random(), self.supervisor.kill, victim)
        elif chance < 0.5:  # Some step of it is lost.
            when = self.random.choice((0.02, 0.1, 0.3)) * self.random.random()
            names = (giver.host.name, receiver.host.name)
            self.world.after(when, self.world.network.cut, *names, 0.3 + self.random.random())
        elif chance < 0.8 and giver.alive and topic in giver.core.state.topics:
            self._until_joined(proxy, giver, receiver, topic, giver.core.state.topics[topic].open.id, LOOKS_MAX)

    def _until_joined(
        self,
        proxy: ProxyNode,
        giver: Server,
        receiver: Server,
        topic: str,
        log: str,
        looks: int,
    ) -> None:
        """Act when the receiver has joined a log: until the giver knows of the join, all messages exist twice."""
        if self.world.over or not giver.alive or not receiver.alive or not looks:
            return
        held = receiver.core.state.topics.get(topic)
        if held is None or log not in held.logs:
            self.world.after(LOOK_SECONDS, self._until_joined, proxy, giver, receiver, topic, log, looks - 1)
            return
        how = self.random.choice(("kill the giver", "kill the receiver", "go on"))
        self.world.note(f"{receiver.name} has joined {topic} of {giver.name}: {how}")
        if how == "kill the giver":
            self.supervisor.kill(giver)
        elif how == "kill the receiver":
            self.supervisor.kill(receiver)
        else:  # The giver misses the join, and the receiver has given the topic on before the giver asks.
            self.world.network.cut(receiver.host.name, giver.host.name, 0.5 + 2.0 * self.random.random())
            others = [server for server in self.cast.servers if server not in {giver, receiver}]
            self.operators.move(proxy, receiver, self.random.choice(others or [giver]), topic)
