"""Networks that are cut, in one direction or both, and clogged."""

from __future__ import annotations

from tests.simulation.cast import Cast
from tests.simulation.faults.kinds import Fault


class Networks:
    """The faults between the hosts of one run."""

    def __init__(self, cast: Cast) -> None:
        self.cast = cast
        self.network, self.random = cast.world.network, cast.random

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {
            "cut": self.cut,
            "one way": self.one_way,
            "clog": self.clog,
            "detour": self.detour,
            "churn": self.divide,
            "quarters": self.quarters,
        }

    def cut(self) -> None:
        """Two hosts do not hear each other for a while."""
        one, other = self._two()
        self.network.part(one, other, self.random.choice((0.5, 2.0, 5.0)) * self.random.random())

    def one_way(self) -> None:
        """One host does not hear another for a while."""
        one, other = self._two()
        self.network.cut(one, other, self.random.choice((0.5, 2.0, 5.0)) * self.random.random())

    def clog(self) -> None:
        """Messages from one host to another are long on their way for a while."""
        one, other = self._two()
        self.network.clog(one, other, 3.0 * self.random.random(), self.random.choice((0.1, 1.0)))

    def _two(self) -> tuple[str, str]:
        one, other = self.random.sample(self.cast.nodes, 2)
        return one.name, other.name

    def detour(self) -> None:
        """A client cannot reach one of its proxies for a while, and takes another."""
        client, proxy = self.random.choice(self.cast.clients), self.random.choice(self.cast.proxies)
        self.network.part(client.name, proxy.name, 4.0 * self.random.random())

    def divide(self) -> None:
        """The servers fall into two groups, each with proxies of its own."""
        random = self.random
        seconds = random.choice((1.0, 4.0, 8.0)) * random.random()
        sides: dict[bool, list[str]] = {True: [], False: []}
        for nodes in (self.cast.proxies, self.cast.processes()):
            names = random.sample([node.name for node in nodes], len(nodes))
            half = random.randrange(1, len(names)) if len(names) > 1 else 1
            sides[True] += names[:half]
            sides[False] += names[half:]
        self.cast.world.note(f"{sides[True]} and {sides[False]} are cut for {seconds:.2f}")
        for one in sides[True]:
            for other in sides[False]:
                self.network.cut(one, other, seconds)
                self.network.cut(other, one, seconds)

    def quarters(self) -> None:
        """Each proxy is alone with a server, then with that of another one, and then all are together."""
        seconds = 1.5 + self.random.random()
        parts = len(self.cast.proxies)
        kinds = (self.cast.proxies, self.cast.processes())
        names = [(node.name, n % parts) for nodes in kinds for n, node in enumerate(nodes)]
        self.cast.world.note(f"all are apart for {seconds:.2f}")
        for one, quarter in names:
            for other, another in names:
                if quarter != another:
                    together = quarter // 2 == another // 2
                    self.network.cut(one, other, seconds if together else seconds + 1.5)
