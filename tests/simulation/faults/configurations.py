"""Servers' configuration files that change one after another, and hosts with a clock that is days ahead."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.cast import Cast
from tests.simulation.faults.kinds import Fault
from tests.simulation.nodes import ServerNode
from tests.simulation.supervisor import Supervisor

RULES: tuple[tuple[str, ...], ...] = (
    (),
    ("> keep=1s",),
    ("> keep=4s",),
    ("t1 keep=10s", "> keep=1s"),
    ("*.> keep=none", "t1 keep=5 records", "> keep=none"),
    ("> keep=ever",),
)
"""Defaults of topics' settings, as an operator changes them."""

AHEAD_SECONDS = 8 * 86_400.0


class Configurations:
    """The files and the clocks of one run's servers."""

    def __init__(self, cast: Cast, supervisor: Supervisor) -> None:
        self.cast, self.supervisor = cast, supervisor
        self.world, self.random = cast.world, cast.random
        self.target: tuple[str, ...] = ()

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {"defaults": self.defaults, "wrong clock": self.wrong_clock}

    def defaults(self) -> None:
        """The operator goes on with a change of all files, or begins another one; read at a start."""
        behind = [node for node in self.cast.processes() if node.settings.topic_defaults != self.target]
        if not behind:
            self.target = self.random.choice(RULES)
            return
        node = self.random.choice(behind)
        if node.alive:
            node.end("killed")
        self._give(node)
        self.supervisor.restart(node)

    def _give(self, node: ServerNode) -> None:
        node.settings = replace(node.settings, topic_defaults=self.target)
        self.world.note(f"{node.name} has the defaults {self.target}")

    def wrong_clock(self) -> None:
        """A server starts on a host that has a clock days ahead, or a right one again."""
        node = self.cast.any_server()
        ahead = node.host.skew > AHEAD_SECONDS / 2
        node.host.skew += -AHEAD_SECONDS if ahead else AHEAD_SECONDS
        self.world.note(
            f"the clock of {node.name} is {'right again' if ahead else 'days ahead'} from its next start on"
        )
        if node.alive:
            node.end("killed")
        self.supervisor.restart(node)

    def finish(self) -> None:
        """Give every server the same file, so that it starts with it."""
        for node in self.cast.processes():
            if node.settings.topic_defaults != self.target:
                node.end("killed")
                self._give(node)
