"""A network that loses, delays, doubles and overtakes, and the clock by which it does: one of it for each run."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from random import Random
from typing import Any


class Network:
    """The way of messages, and the record of a run.

    Attributes:
        random: of the run's seed.
        calm: there are no more faults of messages.
        loss, late: the share of lost messages, and of late or doubled ones.
        cut: pairs of a sender and a receiver that are cut off from each other.
    """

    random: Random
    trace: bool
    now: Any
    made: int
    queue: list[Any]
    nodes: dict[str, Any]
    cut: set[tuple[str, str]]
    objections: list[Any]
    calm: bool
    loss: float
    late: float

    def say(self, *what: Any) -> None:
        if self.trace:
            print(self.now, *what)

    def object(self, *what: Any) -> None:
        self.say("OBJECTION", *what)
        self.objections.append(what)

    def at(self, when: float, call: Callable[..., Any], *args: Any) -> None:
        self.made += 1
        heapq.heappush(self.queue, (when, self.made, call, args))

    def send(self, source: str, target: str, *message: Any) -> None:
        if (source, target) in self.cut:
            return
        r = self.random.random
        delay = 1 + (r() < 0.3)
        if not self.calm:
            fate = r()
            if fate < self.loss:
                return
            if fate > 1 - self.late:
                delay += self.random.randrange(5, 90)
            elif fate > 1 - self.late * 1.5:
                self.at(self.now + delay + self.random.randrange(60), self.deliver, source, target, message)
        self.at(self.now + delay, self.deliver, source, target, message)

    def deliver(self, source: str, target: str, message: Any) -> None:
        node = self.nodes[target]
        if node.up:
            getattr(node, "on_" + message[0])(source, *message[1:])
