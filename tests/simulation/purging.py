"""Operators that purge topics in a run, and the judgement on the messages that they deleted.

    1   a subscriber is told that an operator purged messages only below the places of a purge of unread messages
    2   a subscriber gets each message or is told that it is lost, and a purge excuses only messages put before it
    3   a batch that settings keep goes only below the places of a purge
    4   after a purge of unread messages that was answered, a new reader gets no message acknowledged before it began

The places are those of the first answer. A copy of a store that was put back may bring purged messages back, so rule 4
holds for runs without such copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING

from pubsub.errors import StoreDamaged
from pubsub.protocol import Outcome, Status
from pubsub.protocol.purges import decode_found, encode_places
from pubsub.protocol.topic_objects import Purge
from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.fate import Fate
from tests.simulation.purged import COPIES, Purged, judge_shown, read_all
from tests.simulation.tasks import Task

if TYPE_CHECKING:
    from tests.simulation.history import History
    from tests.simulation.members import Server
    from tests.simulation.world import Host, World

PURGING = 0.15
"""Share of runs with purges."""


def purging(fate: Fate, seed: int) -> Fate:
    """Have some runs purge topics; drawn apart, so that the other runs stay the same.

    Servers of an older release take no purge. A reader of ranges fails at a loss, and limits in bytes and flipped bits
    excuse losses of their own.
    """
    random = Random(f"purges of {seed}")
    if random.random() >= PURGING or fate.older or fate.older_members:
        return fate
    fate.purgers = random.choice((1, 1, 2))
    fate.purges_unread = not (fate.ranges or fate.tight or "flip" in fate.faults) and random.random() < 0.6
    return fate


def purged_split(seed: int) -> Fate:
    """A topic that two servers hold again and again; operators purge it and keep much of it."""
    random = Random(f"purges {seed}")
    return Fate(
        servers=2,
        proxies=2,
        clients=2,
        topics=1,
        seconds=random.choice((6.0, 10.0)),
        think=random.choice((0.02, 0.1)),
        divided=random.random() < 0.5,
        delay=random.choice((0.002, 0.05)),
        late=random.choice((0.0, 0.02)),
        skew=0.1,
        heartbeat=0.2,
        configurers=random.choice((0, 1, 1)),
        purgers=random.choice((1, 2)),
        purges_unread=random.random() < 0.7,
        faults=drawn_faults(
            random,
            some={"move": 1.0, "kill": 0.5, "churn": 1.0, "pause": 0.5, "kill in commit": 0.5},
            detour=random.choice((0.3, 1.0)),
        ),
    )


class Purger(Task):
    """Purges a topic from time to time."""

    def __init__(
        self,
        world: World,
        host: Host,
        proxies: tuple[str, ...],
        history: History,
        topic: str,
        servers: Callable[[], Iterable[Server]],
    ) -> None:
        super().__init__(world, host, proxies, history, topic)
        self._servers = servers
        self.think = world.random.choice((0.3, 2.0))

    def go(self) -> None:
        if self.finishing:
            self.finished = True
            return
        self._look()
        unread = self.world.fate.purges_unread and self.world.random.random() < 0.5
        purge = Purged(self.topic, unread, self.world.now)
        self.history.purges.all.append(purge)
        self.ask(Purge(self.name, self.topic, int(unread)), lambda status: self._found(purge, status))

    def _found(self, purge: Purged, status: Status) -> None:
        if status.outcome is not Outcome.SUCCESS:
            if status.outcome is not Outcome.UNKNOWN:
                self.history.violate(f"{self.name} cannot purge {self.topic}: {status.outcome} {status.reason}")
            self._later()
            return
        purge.places, purge.known_at = decode_found(bytes(status.body)).places, self.world.now
        wanted = Purge(self.name, self.topic, int(purge.unread), places=encode_places(purge.places))
        self.ask(wanted, lambda done: self._purged(purge, done))

    def _purged(self, purge: Purged, status: Status) -> None:
        purge.answered = status.outcome is Outcome.SUCCESS
        if purge.answered:
            self._look()
            self.world.note(f"{self.name} has purged {self.topic} to {purge.places}, unread: {purge.unread}")
        elif status.outcome is not Outcome.UNKNOWN:
            self.history.violate(f"{self.name} cannot purge {self.topic}: {status.outcome} {status.reason}")
        self._later()

    def _look(self) -> None:
        """Read the topic at its holders as a new reader does."""
        for server in self._servers():
            topic = server.core.state.topics.get(self.topic) if server.alive else None
            if topic is not None and not set(COPIES) & self.world.fate.faults.keys():
                try:
                    bodies, losses = read_all(topic, server.core.state)
                except StoreDamaged:
                    continue
                judge_shown(self.history, self.world.fate, self.topic, bodies)
                for loss in losses:
                    self.history.violate(f"a new reader of {self.topic} is told that {loss} are lost")

    def _later(self) -> None:
        self.soon(self.world.random.expovariate(1 / self.think), self.go)

    def settled(self) -> str:
        """The part that is still open; "" if none is."""
        return "" if self.finished else f"{self.name} has not finished to purge {self.topic}"
