"""The supervisor that restarts ended processes, as an operating system or a person does: at once, or much later."""

from __future__ import annotations

from tests.simulation.cast import Cast
from tests.simulation.members import Paired
from tests.simulation.world import Process

LOOK_SECONDS = 2.0
"""Seconds between two looks for processes that ended by themselves."""

FLIGHTS_MAX = 500
"""Answers that a client may wait for."""


class Supervisor:
    """Starts everybody of one run again; of a pair both members."""

    def __init__(self, cast: Cast) -> None:
        self.cast, self.world = cast, cast.world

    def restart(self, node: Process | Paired) -> None:
        """Somebody starts it again, sooner or later."""
        if isinstance(node, Paired):
            for member in node.members:
                self.restart(member)
            return
        if not node.restarting:
            node.restarting = True
            seconds = self.cast.random.choice((0.001, 0.1, 1.0, 4.0)) * self.cast.random.random()
            self.world.after(0.5 if self.world.over else seconds, self.start, node)

    def start(self, node: Process | Paired) -> None:
        """Start it now, if it is down; again and again until it runs."""
        if isinstance(node, Paired):
            for member in node.members:
                self.start(member)
            return
        node.restarting = False
        if not node.alive:
            node.start()
            if not node.alive:
                self.restart(node)

    def kill(self, node: Process | Paired) -> None:
        """The target is killed, of a pair the primary, except in the end phase."""
        if isinstance(node, Paired):
            node = node.active
        if not self.world.over:
            node.end("killed")
            self.restart(node)

    def kill_for(self, node: Process | Paired, seconds: float) -> None:
        """The target is killed, and not restarted for this time."""
        node.end("killed")
        node.restarting = True
        self.world.after(seconds, self.start, node)

    def watch(self) -> None:
        """Ensure, until the end, that a process that ended by itself returns, and that nothing grows."""
        for node in self.cast.nodes:
            if not node.alive:
                self.restart(node)
        for client in self.cast.clients:
            if client.alive and len(client.session.core.flights) > FLIGHTS_MAX:
                self.cast.history.violate(f"{client.name} waits for {len(client.session.core.flights)} answers")
        self.world.after(LOOK_SECONDS, self.watch)
