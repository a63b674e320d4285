"""Runs in which only an operator creates topics (`topics_auto = false`).

A creator per topic creates it, again and again, because an operator may delete it meanwhile. Clients put and subscribe
before that, are refused, and try again. All that holds for other runs holds for these: nothing that was kept is lost.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from pubsub.protocol import Configure, Outcome, Status
from tests.simulation.tasks import Task

if TYPE_CHECKING:
    from tests.simulation.fate import Fate

CREATING = 0.08
"""Share of runs in which only an operator creates topics."""


def creating(fate: Fate, seed: int) -> Fate:
    """Have an operator create the topics of some runs; drawn apart, so that the others stay what they were.

    Changes of settings have a judgement of their own, which knows no creations. Sinks, readers of ranges, seekers and
    clients with patterns expect no refusal.
    """
    random = Random(f"creations of {seed}")
    others: tuple[object, ...] = fate.configurers, fate.seekers, fate.sinks, fate.ranges, fate.families, fate.quotas
    if random.random() < CREATING and not (any(others) or fate.older or fate.older_members or fate.latest):
        fate.auto = False
    return fate


class Creator(Task):
    """Creates one topic."""

    def go(self) -> None:
        self.finished = self.finishing
        version = f"{self.world.random.getrandbits(64):016x}"
        self.ask(Configure(self.name, self.topic, version, create=1, values=b"{}"), self._created)

    def _created(self, status: Status) -> None:
        if status.outcome not in {Outcome.SUCCESS, Outcome.SUPERSEDED}:
            self.history.violate(f"{self.name} cannot create {self.topic}: {status.outcome} {status.reason}")
        self.history.counters["creations answered"] += 1
        self.soon(0.2 + self.world.random.expovariate(1 / 0.5), self.go)  # Deletions may follow to the end.

    def settled(self) -> str:
        """What is still open, "" where nothing is."""
        return "" if self.finished else f"{self.name} has not created {self.topic}"
