"""Handlers that fail, put messages off and reject them; redrives; and the judgement on the order and the attempts.

In these runs a put has one of three keys. A client names one value of `hold` for all its calls of `process`. Its
directory is not lost, copied or opened twice, since messages that were put aside are in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from pubsub.client.core.outcomes import Later, Reject
from pubsub.errors import PubsubError
from tests.simulation.fate import Fate

if TYPE_CHECKING:
    from tests.simulation.applications.program import Program

RETRIED = 0.6
"""Share of the runs without these faults."""

GONE = frozenset({"empty", "copy", "twin", "replica", "abandon", "put back"})
"""Faults that these runs do not have."""

INEXACT = frozenset({"clock", "full", "fail"})
"""Faults that may shorten a wait."""


def retrying(fate: Fate, seed: int) -> Fate:
    """Have handlers of some runs put messages off; drawn apart, so that the others stay what they were."""
    random = Random(f"retries of {seed}")
    if random.random() >= RETRIED or GONE & fate.faults.keys():
        return fate
    fate.retries = random.randrange(1, 1 << 30)
    fate.handler_fails = max(fate.handler_fails, 0.1)
    return fate


def key_of(index: int) -> bytes:
    """The key of a put."""
    return b"k%d" % (index % 3)


@dataclass
class Handed:
    """The facts about a message that a handler was given.

    Attributes:
        attempts: number of its last attempt, and of one more if that was raised from; failures: errors of the handler
            since the last power cut.
        due: time on the host's clock before which it must not come again.
    """

    attempts: int = 0
    failures: int = 0
    due: float = 0.0


@dataclass
class Retries:
    """The retries of one program.

    Attributes:
        hold: the messages that wait behind its own ones.
        redriven: topic and body of messages that were handed over again: these keep no order.
    """

    program: Program
    hold: str = "all"
    redriven: set[tuple[str, str]] = field(default_factory=set)
    handed: dict[tuple[str, str], Handed] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.world = self.program.world
        self._random = Random(f"{self.world.fate.retries} {self.program.name}")
        if self.on:
            self.hold = self._random.choice(("all", "key", "key", "none"))
        self.redrives = self.on and not (self.world.fate.letters and self._random.random() < 0.6)
        """Whether dead letters are handed over again; otherwise all of them stay in the table."""

    @property
    def on(self) -> bool:
        return self.world.fate.retries > 0

    def begin(self) -> None:
        """The process has started."""
        if self.redrives:
            self.program.node.later(0.4, self._redrive)

    def lost_power(self) -> None:
        """Attempts and waits that no fsync covered may be gone."""
        self.handed.clear()

    def _redrive(self) -> None:
        node = self.program.node
        if self.program.finishing:
            return
        node.later(0.4, self._redrive)
        letters = {(row[0], bytes(row[6]).decode()) for row in node.session.store.dead_letters(None) if row[6]}
        self.redriven |= letters
        for letter in letters:
            self.handed.pop(letter, None)
        try:
            found = node.calls.redriving.redrive("all", None, None, None)
            self.program.history.counters["letters redriven"] += found
        except PubsubError as error:
            self.program.failed(error)

    def given(self, topic: str, body: str, message: Any) -> bool:
        """A handler was given a message; True if it was put aside before."""
        if not self.on:
            return False
        one, now = self.handed.setdefault((topic, body), Handed()), self.program.node.host.monotonic()
        name, history = self.program.name, self.program.history
        if message.attempts < max(1, one.attempts):
            history.violate(f"{name} begins attempt {message.attempts} at {body} instead of {one.attempts}")
        if now < one.due - 0.001 and not INEXACT & self.world.fate.faults.keys():
            history.violate(f"{name} was given {body} {one.due - now:.3f} s before it was due")
        one.attempts, one.due = message.attempts, 0.0
        return self.program.node.session.core.subscriptions[topic].row is not None

    def decide(self, topic: str, body: str) -> None:
        """Have the handler put the message off, or reject it."""
        chance = self._random.random() if self.on and not self.program.finishing else 1.0
        if chance < 0.15:
            seconds = self._random.choice((0.0, 0.05, 0.4))
            self._wait(topic, body, seconds)
            self.program.history.counters["messages put off"] += 1
            raise Later(seconds)
        if chance < 0.2:
            self.program.history.counters["messages rejected"] += 1
            if self.world.fate.letters and self._random.random() < 0.2:  # In the commit of the dead letter, mostly.
                self.program.node.host.disk.kill_in = self._random.randrange(8)
            raise Reject("on purpose")

    def fails(self, topic: str, body: str) -> None:
        """The handler is about to fail."""
        if self.on:
            one = self.handed[topic, body]
            one.failures += 1
            if one.failures > self.world.fate.attempts:
                self.program.history.violate(f"{self.program.name} failed {one.failures} times on {body}")
            self._wait(topic, body, min(0.1, 0.02 * 2 ** (one.failures - 1)))

    def _wait(self, topic: str, body: str, seconds: float) -> None:
        self.handed[topic, body].due = self.program.node.host.monotonic() + seconds
        self.handed[topic, body].attempts += 1  # An attempt that an exception ended counts, also over a kill.

    def judge(self, rows: list[tuple[str, str]]) -> None:
        """Each message was handled once, and those of a key in the order of their puts. `rows`: topic and body."""
        name, history = self.program.name, self.program.history
        if not self.on or self.program.life:
            return
        newest: dict[Any, int] = {}
        seen: set[tuple[str, str]] = set()
        for topic, body in rows:
            if (topic, body) in seen:
                history.violate(f"{name} handled {body} of {topic} twice")
            seen.add((topic, body))
            put = history.puts.get(body)
            if put is None or not put.key or self.hold != "key" or (topic, body) in self.redriven:
                continue
            lane = topic, put.key, put.source
            if put.index < newest.get(lane, 0):
                history.violate(f"{name} handled {body} of {topic} before an earlier one of its key")
            newest[lane] = max(put.index, newest.get(lane, 0))
