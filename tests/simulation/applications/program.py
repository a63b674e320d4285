"""The common part of an application's threads: its client, habits, directory and the errors that it may meet.

The threads know the documented calls and errors of the client and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

import apsw

from pubsub.client.core.subscription import DROPPED, PURGED
from pubsub.errors import DataLoss, Refused, StateCopied, StorageError
from tests.simulation.clients import ClientNode
from tests.simulation.deleting import note_told
from tests.simulation.history import ASKED, EXCUSED, KEPT, History, Reading
from tests.simulation.purged import lost_range
from tests.simulation.retrying import Retries
from tests.simulation.world import World

GIVING_UP = {"abandon", "put back"}
"""After these faults a client may receive messages of a lost log again: its own counters must drop the duplicates."""


ITERATES: Final[dict[str, Any]] = {
    "publishes": True,
    "reads": True,
    "by_get": True,
    "relays": False,
    "bare": False,
    "beside": ["iterate", "subscribe"],
}
"""Habits of clients that iterate and subscribe again meanwhile without a demand of the service."""


@dataclass
class Habits:
    """The acts that an application does and the ones that it does not.

    Attributes:
        by_get: it takes by calls that return messages, and otherwise by handlers; relays: handlers put their messages
            again.
        beside: the ways in which other threads take beside the thread of each topic.
        publishers: the threads that publish.
        bare: it reads without the client's counters of taken messages. So it must not leave: a returning subscriber may
            need them.
    """

    publishes: bool
    reads: bool
    by_get: bool
    relays: bool
    beside: list[str]
    publishers: tuple[str, ...]
    bare: bool


def draw(random: Random, name: str, *, gives_up: bool) -> Habits:
    """Habits; somebody publishes and somebody reads in every run.

    Args:
        random: the run's.
        name: the client's.
        gives_up: whether something of the run may be given up.
    """
    publishes = random.random() < 0.8 or name == "c1"
    reads = random.random() < 0.9 or not publishes or name == "c2"
    by_get = random.random() < 0.25
    relays = not by_get and random.random() < 0.5
    ways = ("get", "iterate", "iterate", "process") if by_get else ("process",)
    beside = [random.choice(ways) for _ in range(random.choice((0, 0, 1, 3)))]
    publishers = ("main", "side") if random.random() < 0.3 else ("main",)
    bare = not by_get and random.random() < 0.3 and not gives_up
    return Habits(publishes, reads, by_get, relays, beside, publishers, bare)


class Program:
    """The program of one client.

    Args:
        topics: the present topics.

    Attributes:
        life: number of replacements of its directory; replicas: number of other directories opened beside it.
        copied: the time of the copy to which its directory was restored.
        count: number of messages that it has put; it numbers them.
        finishing: whether it finishes its work and begins no more.
    """

    def __init__(self, world: World, node: ClientNode, history: History, topics: Callable[[], list[str]]) -> None:
        self.world, self.node, self.history, self.topics = world, node, history, topics
        self.name = node.name
        self.habits = draw(world.random, self.name, gives_up=bool(GIVING_UP & world.fate.faults.keys()))
        if world.fate.iterates:
            self.habits = replace(self.habits, **ITERATES)
        if world.fate.retries:
            # Only `process` takes messages that were put aside, so a program that ends with `get` puts none aside.
            beside = ["get" if self.habits.by_get else way for way in self.habits.beside]
            self.habits = replace(self.habits, bare=False, beside=beside)
        if node.database:  # A commit in doubt may have taken what a call would have returned.
            self.habits = replace(self.habits, by_get=False, bare=False, beside=["process"] * len(self.habits.beside))
        self.life = self.replicas = self.count = 0
        self.copied = 0.0
        self.finishing = False
        self.retries = Retries(self)
        self.in_batches = self.retries.hold == "all" and Random(f"batches of {world.seed} {node.name}").random() < 0.3
        """Whether its handlers get many messages at once; drawn apart, so that other runs stay what they were."""

    def next(self, action: Callable[[], None]) -> None:
        """Have a thread go on after it has thought for a while."""
        seconds = 0.02 if self.finishing else self.world.random.expovariate(1 / self.world.fate.think)
        self.node.later(seconds, action)

    def number(self) -> int:
        """Of the next message that it puts."""
        self.count += 1
        return self.count

    def reading(self, topic: str) -> Reading:
        """The recorded reading of a topic."""
        return self.history.reading(self.name, topic, by_get=self.habits.by_get)

    def readings(self) -> list[Reading]:
        """The same of all topics that it reads."""
        return [reading for reading in self.history.readings.values() if reading.client == self.name]

    # Its directory

    def directory_replaced(self, since: float | None) -> None:
        """The directory is empty (`since` is None) or as at an earlier time: later changes are unknown to it."""
        self.life += 1
        self.copied = since or 0.0
        for put in self.history.puts.values():
            if put.source[0] != self.name:
                continue
            unfinished = put.state in {ASKED, KEPT} or put.follows or put.group
            if unfinished or (since is not None and put.invoked >= since):
                put.state = EXCUSED
        for reading in self.readings():
            if since is None:
                # A new directory with a slow clock, or an abandoned holder, may lose promised messages.
                strict = not ({"clock"} | GIVING_UP) & self.world.fate.faults.keys()
                reading.lose_directory(strict=strict)
            else:
                reading.begin_line(self.world.now)  # The rows that the copy has handled are in it, and count once.
                reading.unsure = False
            reading.confirmed = None
            reading.wanted = False
            reading.begin_part(emptied=True)

    def twinned(self) -> None:
        """A copy of the directory is opened elsewhere: a message goes to one of the two only."""
        self.life += 1
        self.copied = self.world.now
        for reading in self.readings():
            reading.shared = True

    # Errors

    def failed(self, error: Exception | None) -> None:
        """An error that a call raised: those that may be, and those that say that something is broken."""
        if isinstance(error, StateCopied):
            if not self.life:
                self.history.violate(f"{self.name}: {error}")
            self._renew()
        elif isinstance(error, DataLoss) and error.reason == PURGED:
            self.node.compare()
            if not self.history.purges.covers(error):
                self.history.violate(f"{self.name} is told of a purge that nobody asked for: {error}")
            self._lack(error)
        elif isinstance(error, DataLoss) and error.reason == DROPPED and error.topic in self.history.dropping:
            self.node.compare()
            self.reading(error.topic).dropped.append(lost_range(error))
        elif isinstance(error, DataLoss) and self._may_lack(error):
            self.node.compare()  # The place behind it is stored over with the next message that is taken.
            self._lack(error)
        elif isinstance(error, DataLoss) and self.history.tell(self.name, error.topic, error.first, self.node.life):
            note_told(self.history, self.reading(error.topic), error)
            self.reading(error.topic).make_anew(self.world.now)
        elif isinstance(error, DataLoss | Refused) or (
            isinstance(error, StorageError | apsw.Error) and not self.node.explains(error)
        ):
            self.history.violate(f"{self.name}: {type(error).__name__}: {error}")

    def _may_lack(self, error: DataLoss) -> bool:
        """Whether records of a topic may be lost: bits of it have flipped, or a limit was reached."""
        known = self.world.fate.tight or error.topic in self.history.damaged
        return known and "hand them out" in error.reason

    def _lack(self, error: DataLoss) -> None:
        reading = self.reading(error.topic)
        # A client that a signal cut off raises the last loss again when it is opened again.
        if reading.lost.get(error.first) == self.node.life and error.reason != PURGED:
            self.history.violate(f"{self.name} is told twice: {error}")
        elif error.first not in reading.lost and (self.world.fate.tight or error.reason == PURGED):
            first, last = (int(place.partition(".")[2]) for place in (error.first, error.last))
            reading.excused += last - first + 1
        reading.lost[error.first] = self.node.life
        reading.purged = reading.purged or error.reason == PURGED

    def _renew(self) -> None:
        self.directory_replaced(self.copied)
        try:
            # The unfinished puts of an older copy may have been finished since. If they were kept, they would be put
            # once more.
            self.node.calls.renew(keep=False)
            self.node.compare()
        except StorageError as error:
            self.failed(error)
