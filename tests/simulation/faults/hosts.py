"""Hosts: their disks are full, fail or flip bits, and their clocks jump."""

from __future__ import annotations

from tests.simulation.cast import Cast
from tests.simulation.damage import flip
from tests.simulation.faults.kinds import Fault
from tests.simulation.supervisor import Supervisor


class Hosts:
    """The faults of the hosts of one run."""

    def __init__(self, cast: Cast, supervisor: Supervisor) -> None:
        self.cast, self.supervisor = cast, supervisor
        self.world, self.random = cast.world, cast.random

    def faults(self) -> dict[str, Fault]:
        """By name."""
        return {"full": self.full, "refuse": self.refuse, "fail": self.fail, "flip": self.flip, "clock": self.clock}

    def full(self) -> None:
        """A disk is full for a while."""
        disk = self.cast.anyone().host.disk
        if self.cast.fate.pairs and self.random.random() < 0.5:  # Between two writes of one loop, as it may be.
            disk.full_in = self.random.randrange(10)
        else:
            disk.full = True
        self.world.after(2.0 * self.random.random(), disk.make_room)

    def refuse(self) -> None:
        """A commit or a few find no space; the next one does."""
        self.cast.anyone().host.disk.refusals = self.random.choice((1, 1, 2, 5))

    def fail(self) -> None:
        """One access of a disk fails."""
        self.cast.anyone().host.disk.fail_in = self.random.randrange(20)

    def flip(self) -> None:
        """A bit of a stored batch of a server flips while the server is down."""
        server = self.cast.any_server()
        if not server.alive or server.restarting:
            return
        server.end("killed")
        damaged = flip(server, self.random)
        if damaged is not None:
            topic, bodies = damaged
            self.world.note(f"{server.name} has damaged {bodies} of {topic}")
            self.cast.history.damaged.setdefault(topic, set()).update(bodies)
        self.supervisor.restart(server)

    def clock(self) -> None:
        """A wall clock jumps: a client's by hours, a server's within the bound of their differences."""
        if self.random.random() < 0.5:
            host = self.random.choice(self.cast.clients).host
            host.skew += self.random.choice((-1.0, 1.0)) * self.random.choice((0.5, 60.0, 7200.0))
        else:
            half = self.cast.fate.skew / 2
            self.cast.any_server().host.skew = self.random.uniform(-half, half)
