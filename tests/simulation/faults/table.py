"""All faults by name, and each that a run is to have, again and again."""

from __future__ import annotations

from tests.simulation.cast import Cast
from tests.simulation.faults.configurations import Configurations
from tests.simulation.faults.databases import OfDatabases
from tests.simulation.faults.deaths import Deaths
from tests.simulation.faults.directories import Directories
from tests.simulation.faults.groups import Groups
from tests.simulation.faults.hosts import Hosts
from tests.simulation.faults.kinds import Fault
from tests.simulation.faults.members import Members
from tests.simulation.faults.moments import Moments
from tests.simulation.faults.moves import Moves
from tests.simulation.faults.networks import Networks
from tests.simulation.faults.operators import Operators
from tests.simulation.faults.spoiling import Spoiling
from tests.simulation.pairs import Pairs
from tests.simulation.supervisor import Supervisor


class Faults:
    """The faults of one run.

    Args:
        cast: their targets.
        supervisor: starts the processes that they ended.
        pairs: states the limits for faults of pairs.

    Attributes:
        operators, directories: have more acts than faults.
        by_name: all faults.
    """

    def __init__(self, cast: Cast, supervisor: Supervisor, pairs: Pairs) -> None:
        self.cast, self.world = cast, cast.world
        self.operators = Operators(cast, supervisor)
        self.networks = Networks(cast)
        self.configurations = Configurations(cast, supervisor)
        self.directories = Directories(cast, supervisor, self.operators, pairs)
        kinds = (
            Deaths(cast, supervisor),
            self.networks,
            Hosts(cast, supervisor),
            Moves(cast, supervisor, self.operators),
            self.directories,
            self.operators,
            Members(cast, supervisor, self.operators, pairs),
            Moments(cast, supervisor, self.operators),
            Spoiling(cast, supervisor),
            self.configurations,
            Groups(cast, supervisor),
            OfDatabases(cast, supervisor),
        )
        self.by_name: dict[str, Fault] = {name: fault for kind in kinds for name, fault in kind.faults().items()}

    def begin(self) -> None:
        """Make each fault act at the rate of the run's fate, until the end phase."""
        fate = self.cast.fate
        if "full start" in fate.faults:
            for node in self.cast.processes():
                node.host.disk.keeps_reserve = True
        if "quarters" in fate.faults:
            self.networks.quarters()
        elif fate.divided:
            self.networks.divide()
        for name in fate.faults:
            self._later(name)

    def _later(self, name: str) -> None:
        self.world.after(self.cast.random.expovariate(self.cast.fate.faults[name]), self._strike, name)

    def _strike(self, name: str) -> None:
        if not self.world.over:
            self.cast.counters[f"fault: {name}"] += 1
            self.by_name[name]()
            self._later(name)
