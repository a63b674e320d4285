"""A queue, its workers and callers in one seeded world: messages are late, processes die, stand still and come back.

First the safety phase, with faults; then they end, and what is left must come to its end, and every call be answered.
What must hold (`World.flaws` lists what did not): a reply is that of its call; a call ends once, and in its time; a
worker has one request at a time; callers are answered while one of the workers stands still for good.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from pubsub.services.core.interface import Answered, Dial, GivenUp, HangUp, Patience, Requested, Send
from pubsub.services.core.lazy import lazy_caller
from pubsub.services.core.queue import BACKEND, FRONTEND
from pubsub.services.kinds import QUEUES, WORKERS

FRONT, BACK = "tcp://front:1", "tcp://back:1"
PATIENCE = Patience(2.5, 3)
WORKERS_COUNT, CALLERS_COUNT = 3, 3
FAULT_SECONDS, QUIET_SECONDS = 60.0, 60.0
LATE_SECONDS_MAX = 0.3


@dataclass
class Node:
    """A process with a core.

    Attributes:
        standing: it stands still; what comes waits.
        life: rises with each start, so that what belongs to an earlier one is known.
    """

    name: str
    make: Callable[[], Any]
    core: Any = None
    standing: bool = False
    life: int = 0
    dialled: dict[str, bytes] = field(default_factory=dict)
    waiting: list[Callable[[], None]] = field(default_factory=list)
    busy: int = 0
    due: float = float("inf")


class World:
    """All of it.

    Args:
        seed: of everything that is left to chance.
        kind: of queue and workers.
        queue, worker, caller: cores in place of the usual ones.
    """

    def __init__(
        self,
        seed: int,
        kind: str,
        queue: Callable[[], Any] | None = None,
        worker: Callable[[], Any] | None = None,
        caller: Callable[[Sequence[str]], Any] = lazy_caller,
    ) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.flaws: list[str] = []
        self.answered: dict[str, float] = {}
        self._order, self._tokens, self._ids = count(), count(1), count(1)
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._calls: dict[tuple[str, int], tuple[bytes, float]] = {}
        self._links: dict[bytes, tuple[Node, int, str, str]] = {}
        self._slow = True
        self.queue = Node("queue", queue or (lambda: QUEUES[kind]("queue", 1.0, 3)))
        make = worker or (lambda: WORKERS[kind]("echo", BACK))
        self.workers = [Node(f"w{number}", make) for number in range(WORKERS_COUNT)]
        self.callers = [Node(f"c{number}", lambda: caller([FRONT])) for number in range(CALLERS_COUNT)]
        for node in (self.queue, *self.workers, *self.callers):
            self.start(node)
        for node in self.callers:
            self.call(node)

    # Time

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._order), what))

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, what = heapq.heappop(self._events)
            what()
        self.now = until

    # Processes

    def start(self, node: Node) -> None:
        node.life += 1
        node.core, node.standing, node.busy, node.due = node.make(), False, 0, float("inf")
        node.dialled.clear()
        node.waiting.clear()
        node.core.start(self.now)
        self.settle(node)

    def kill(self, node: Node) -> None:
        node.core, node.life = None, node.life + 1
        for link in [link for link, (owner, *_) in self._links.items() if owner is node]:
            del self._links[link]
        if node is self.queue:
            for owner, life, port, _ in list(self._links.values()):
                self.at(owner, life, lambda owner=owner, port=port: owner.core.ended(port, self.now), self.delay())

    def delay(self) -> float:
        return self.chance.uniform(0.001, LATE_SECONDS_MAX if self.chance.random() < 0.1 else 0.01)

    def at(self, node: Node, life: int, what: Callable[[], None], seconds: float) -> None:
        """Have something happen at a process, in this life of it; once it does not stand still."""

        def happen() -> None:
            if node.life != life or node.core is None:
                return
            if node.standing:
                node.waiting.append(happen)
                return
            what()
            self.settle(node)

        self.later(seconds, happen)

    def stand(self, node: Node, seconds: float) -> None:
        node.standing, life = True, node.life

        def go_on() -> None:
            if node.life == life:
                node.standing = False
                waiting, node.waiting = node.waiting, []
                for what in waiting:
                    what()

        self.later(seconds, go_on)

    def settle(self, node: Node) -> None:
        """Do what a core wants done."""
        while (sends := node.core.take_sends()) or (events := node.core.take_events()):
            for act in sends:
                self.act(node, act)
            for event in [] if sends else events:
                self.happened(node, event)
        due = node.core.timer()
        if due is not None and (due < node.due or node.due <= self.now):
            node.due = due
            self.at(node, node.life, lambda: self.tick(node), max(0.0, due - self.now))

    def tick(self, node: Node) -> None:
        node.due = float("inf")
        if (due := node.core.timer()) is not None and due <= self.now:
            node.core.tick(self.now)

    def act(self, node: Node, act: Any) -> None:
        if isinstance(act, Dial | HangUp):
            self._links.pop(node.dialled.pop(act.port, b""), None)
            node.busy = 0  # Whoever is there now has given it nothing; what it still works on is nobody's.
            if isinstance(act, Dial):
                link = node.dialled[act.port] = b"\x01%d" % next(self._ids)
                self._links[link] = node, node.life, act.port, FRONTEND if act.address == FRONT else BACKEND
        elif node is self.queue:
            self.down(act)
        else:
            self.up(node.dialled.get(act.port, b""), act)

    def up(self, link: bytes, act: Send) -> None:
        """To the queue; where it is dead the message waits in the socket until it is back."""
        if link not in self._links:
            return
        frames, port = list(act.frames), self._links[link][3]
        if self.queue.core is None:
            self.later(0.5, lambda: self.up(link, act))
        elif not (port == FRONTEND and not self.queue.core.reads(FRONTEND)):
            self.at(self.queue, self.queue.life, lambda: self.arrive(link, port, frames, act), self.delay())
        else:
            self.later(0.02, lambda: self.up(link, act))

    def arrive(self, link: bytes, port: str, frames: list[bytes], act: Send) -> None:
        if port == FRONTEND and not self.queue.core.reads(FRONTEND):
            self.later(0.02, lambda: self.up(link, act))
        else:
            self.queue.core.receive(port, link, frames, self.now)

    def down(self, send: Send) -> None:
        """From the queue."""
        link = self._links.get(send.peer)
        if link is None:
            self.queue.core.undelivered(send, self.now, gone=True)
            return
        node, life, port, _ = link

        def come() -> None:
            if node.dialled.get(port) == send.peer:
                node.core.receive(port, b"", list(send.frames), self.now)

        self.at(node, life, come, self.delay())

    # Calls and work

    def call(self, node: Node) -> None:
        token = next(self._tokens)
        body = b"%s asks %d" % (node.name.encode(), token)
        self._calls[node.name, token] = body, self.now
        node.core.call(token, "echo", (body,), PATIENCE, self.now)
        self.settle(node)

    def happened(self, node: Node, event: Any) -> None:
        if isinstance(event, Requested):
            node.busy += 1
            if node.busy > 1:
                self.flaws.append(f"{self.now:.2f} {node.name} has {node.busy} requests")
            # Some requests take long, longer than a caller waits.
            seconds = self.chance.choice([0.01, 0.05, 0.2, 0.2, 3.0 if self._slow else 0.2])
            link = node.dialled.get("queue")
            self.at(node, node.life, lambda: self.work(node, event, link), seconds)
        elif isinstance(event, Answered | GivenUp):
            self.ended(node, event)

    def work(self, node: Node, event: Requested, link: bytes | None) -> None:
        node.busy -= link == node.dialled.get("queue")
        node.core.reply(event.token, event.body, self.now)

    def ended(self, node: Node, event: Any) -> None:
        body, began = self._calls.pop((node.name, event.token), (b"", 0.0))
        if not body:
            self.flaws.append(f"{self.now:.2f} {node.name}: {event} of no call")
        elif isinstance(event, Answered):
            self.answered[node.name] = self.now
            if event.body != (body,):
                self.flaws.append(f"{self.now:.2f} {node.name}: {body!r} was answered {event.body!r}")
        if self.now - began > PATIENCE.try_seconds * PATIENCE.tries + 0.001:
            self.flaws.append(f"{self.now:.2f} {node.name}: {body!r} took {self.now - began:.2f} s")
        self.later(self.chance.uniform(0.0, 0.2), lambda: self.call(node))

    # Faults

    def fault(self) -> None:
        """One fault now, and when it is over."""
        node = self.chance.choice([self.queue, *self.workers])
        if node.core is None or node.standing:
            return
        seconds = self.chance.uniform(0.1, 6.0)
        if self.chance.random() < 0.5:
            self.kill(node)
            self.later(seconds, lambda: self.start(node))
        else:
            self.stand(node, seconds)

    def judge(self) -> list[str]:
        """Faults, then quiet; what did not hold."""
        while self.now < FAULT_SECONDS:
            self.fault()
            self.run(self.now + self.chance.uniform(0.5, 5.0))
        self.stand(self.workers[0], 10 * QUIET_SECONDS)  # One never comes back, and the others have its work.
        self._slow = False
        self.run(self.now + QUIET_SECONDS)
        for caller in self.callers:
            if self.now - self.answered.get(caller.name, 0.0) > 10.0:
                self.flaws.append(f"{caller.name} was answered last at {self.answered.get(caller.name)}")
        return self.flaws
