"""One run: a world drawn from a seed, a phase with faults, a phase in which everything must settle, the judgement.

The faults are those of docs/explanation/cores-and-shells.md, A8.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.simulation.callers import calling
from tests.simulation.cast import Cast
from tests.simulation.compacting import keyed
from tests.simulation.configuring import configured, watched
from tests.simulation.creating import creating
from tests.simulation.database.plan import basing
from tests.simulation.delaying import delaying
from tests.simulation.deleting import deleting
from tests.simulation.families import families
from tests.simulation.fate import Fate, complete, draw
from tests.simulation.faults.table import Faults
from tests.simulation.grouping.plan import grouping
from tests.simulation.grouping.record import watched_groups
from tests.simulation.judgement import Judgement
from tests.simulation.lettering import watched_letters
from tests.simulation.limiting import limiting, watched_limits
from tests.simulation.limits import scarce, small
from tests.simulation.looking import watched_starts
from tests.simulation.mixtures import mixing
from tests.simulation.nodes import ServerNode
from tests.simulation.pacing import paced
from tests.simulation.pairs import Pairs
from tests.simulation.purging import purging
from tests.simulation.retaining import Retaining, defaulted, expiring, often
from tests.simulation.retrying import retrying
from tests.simulation.seeking import sought
from tests.simulation.supervisor import Supervisor
from tests.simulation.world import World

SETTLE_SECONDS = 60.0
"""Virtual time within which everything has settled after the last fault."""

SHORT_SECONDS = 2.5
"""Virtual length of the phase with faults in a shortened run."""


@dataclass
class Result:
    """The result of a run.

    Attributes:
        operations: client calls and delivered records.
        delivered: messages that reached a subscriber.
        counters: of the servers, and the number of each injected fault.
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


DRAWN_APART = (
    calling,
    configured,
    retrying,
    purging,
    defaulted,
    sought,
    delaying,
    families,
    limiting,
    deleting,
    creating,
    mixing,
    grouping,
    basing,
)
"""What some runs have besides. Each has random numbers of its own, so that the other runs stay what they were."""


def drawn(random: Random, seed: int) -> Fate:
    """The world that a seed draws; `random` is the run's."""
    fate = complete(draw(random), seed)
    for change in DRAWN_APART:
        fate = change(fate, seed)
    return fate


class Simulation:
    """One run.

    Args:
        seed: its only input.
        fate: instead of the one that the seed draws.
        log: gets a line for every event.

    Attributes:
        cast: the processes; faults: the faults on them; pairs: those of two members, in particular.
    """

    def __init__(self, seed: int, fate: Fate | None = None, log: Callable[[str], None] | None = None) -> None:
        random = Random(seed)
        self.seed, self.fate = seed, fate or drawn(random, seed)
        self.world = World(seed, self.fate, random)
        self.world.log = log
        self.cast = Cast(self.world)
        self.supervisor = Supervisor(self.cast)
        self.pairs = Pairs(self.cast)
        self.faults = Faults(self.cast, self.supervisor, self.pairs)
        self.judgement = Judgement(self.cast, self.pairs)
        if self.fate.faults.keys() & {"defaults", "wrong clock"}:
            self.cast.configured.retaining = Retaining(removed=self._removed)

    def run(self, *, whole: bool = True) -> Result:
        """The whole run. If not `whole`, it ends within half a virtual second of the first violation."""
        started = time.process_time()
        world, cast = self.world, self.cast
        with (
            small(world.random, cast.counters),
            scarce(self.fate.scarce),
            watched(cast.configured),
            keyed(cast.compacted),
            often(cast.configured.retaining),
            expiring(cast.history),
            watched_starts(cast.history),
            watched_limits(cast.history),
            watched_letters(cast.letters),
            paced(world, cast.history),
            watched_groups(cast.crews),
            world.databases.in_force(),
        ):
            for node in cast.nodes:
                world.at(world.random.random() * 0.3, node.start)
            self.faults.begin()
            world.at(0.5, self.supervisor.watch)
            if whole:
                world.run(self.fate.seconds)
            else:
                self._run_to_violation()
            if whole or not cast.history.violations:
                self._heal()
                if open_end := self._settle(whole=whole):
                    cast.history.violate(f"after {SETTLE_SECONDS:g} s without faults: {open_end}")
            violations = self.judgement.judge() if whole or not cast.history.violations else cast.history.violations
        for node in cast.nodes:
            if not isinstance(node, ServerNode):
                node.end("over")
        for worker in cast.workers:
            worker.bury()
        self._count()
        operations = sum(
            user.operations
            for user in (*cast.users, *(one.node for one in (*cast.twins, *cast.replicas, *cast.usurpers)))
        )
        return Result(
            self.seed, violations, operations, world.trace, world.events, world.now,
            time.process_time() - started, cast.counters, cast.history.delivered,
        )  # fmt: skip

    def _run_to_violation(self) -> None:
        world = self.world
        while world.now < self.fate.seconds and not self.cast.history.violations:
            world.run(min(world.now + 0.5, self.fate.seconds))

    def _removed(self) -> set[str]:
        """The stores that a proxy knows as removed."""
        return {store for proxy in self.cast.proxies if proxy.life for store in proxy.core.table.gone}

    def _heal(self) -> None:
        """From here on there are no faults, all processes run, and users finish their work."""
        world, cast, fate = self.world, self.cast, self.fate
        world.over = True
        world.note("everything is well from here on")
        fate.loss = fate.late = fate.reorder = fate.duplicate = 0.0
        fate.delay = 0.001
        world.network.heal()
        self.faults.configurations.finish()
        cast.audit.absence.begin()
        world.databases.mend()
        for node in cast.nodes:
            node.host.disk.mend()
            if isinstance(node, ServerNode):
                node.kill_at_step = ""
            node.resume()
            if not node.alive:
                node.start()
        self.faults.operators.finish()
        for twin in cast.twins:
            twin.node.end("over")
        for replica in cast.replicas:
            replica.end()
        for usurper in cast.usurpers:
            usurper.node.end("over")
        for application in cast.applications:
            application.finish()
        cast.calls.finish()
        for task in cast.tasks:
            task.finishing = True
        others = *cast.purgers, *cast.deleters, *cast.creators, *cast.seekers, *cast.lookers, *cast.families
        others += *cast.workers, *cast.overseers
        for party in (*cast.talkers, *cast.configurers, *others, *cast.tables):
            party.finishing = True

    def _settle(self, *, whole: bool) -> str:
        """Wait until nothing is open for a while; returns the open work at the end of the time."""
        end = self.world.now + SETTLE_SECONDS
        well = 0
        what = ""
        while self.world.now < end and well < 3 and (whole or not self.cast.history.violations):
            self.world.run(self.world.now + 0.5)
            what = self.judgement.open_end()
            well = 0 if what else well + 1
        return what

    def _count(self) -> None:
        """Add the counts of servers, users and members."""
        counters = self.cast.counters
        for server in self.cast.servers:
            counters.update(server.totals + (server.core.state.counters if server.alive else Counter()))
        counters.update(self.cast.history.counters)
        counters.update(self.cast.told.counters)


def shortened(seed: int) -> Fate:
    """The world that a seed draws, with a phase of faults so short that some hundred runs take a minute or two."""
    fate = complete(draw(Random(seed)), seed)
    fate.seconds = min(fate.seconds, SHORT_SECONDS)
    return fate


def simulate(
    seed: int, fate: Fate | None = None, log: Callable[[str], None] | None = None, *, whole: bool = True
) -> Result:
    """Run one seed: the whole run, or only to the first violation, where more are of no use."""
    logging.disable(logging.CRITICAL)
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None  # The remains of a dead process are closed without its disk.
    try:
        return Simulation(seed, fate, log).run(whole=whole)
    finally:
        sys.unraisablehook = hook
        logging.disable(logging.NOTSET)
