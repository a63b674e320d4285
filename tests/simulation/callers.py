"""Calls in a run: a worker, callers that ask again, and the judgement on the outcome of each call.

    1   a call has its effect once, or not at all if its reply is an error
    2   a reply belongs to its effect: no caller gets one without an effect, or one of another call
    3   a caller that asks again gets the same reply, in every life, and a call that was made is never forgotten
    4   no worker begins a call after its deadline
    5   each call has a reply when all has settled

The effect is a row of the worker's own table with a unique token, and the reply contains the token.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import apsw

from pubsub.client.core.calling import DONE, EXPIRED, FAILED, Reply, Request
from pubsub.client.errors import CallExpired, CallFailed, CallKept, NoSuchCall
from pubsub.client.flows.serving import Serving
from pubsub.client.storage.transaction import Transaction
from pubsub.errors import StorageError, Unavailable
from tests.simulation.clients import ClientNode, HandlerError
from tests.simulation.disk import NAME
from tests.simulation.history import History

if TYPE_CHECKING:
    from tests.simulation.fate import Fate
    from tests.simulation.world import World

SERVICE = "service"
LOSING = {"abandon", "put back", "flip"}
"""Faults that may lose a put permanently: runs with these have no calls."""

CALLING = 0.25
"""How many of the other runs have calls."""


def calling(fate: Fate, seed: int) -> Fate:
    """Add callers to some runs; drawn separately, so that the other runs stay the same.

    Args:
        fate: of a run without.
        seed: the run's.
    """
    random = Random(f"calls of {seed}")
    if random.random() >= CALLING or LOSING & fate.faults.keys() or fate.tight:
        return fate
    return replace(fate, callers=random.choice((1, 2, 3)))


class Worker:
    """The program that serves."""

    def __init__(self, world: World, node: ClientNode, history: History) -> None:
        self.world, self.node, self.history = world, node, history
        self.effects: dict[str, list[tuple[str, float, float | None]]] = {}
        node.on_start = self._started

    def _started(self) -> None:
        self.node.session.store.db.execute(
            "create table if not exists effects (n integer primary key, id, token, at, deadline)"
        )
        self.node.later(0.01, self._serve)

    def _serve(self) -> None:
        calls = self.node.calls
        serving = Serving(self.node.session, calls.gets, calls.subscribing, SERVICE, 0, 1)
        self.node.call(serving.serve(self._handle, None, None), self._over)

    def _handle(self, request: Request, transaction: Transaction) -> bytes:
        random, token = self.world.random, f"{self.world.random.getrandbits(60):x}"
        transaction.execute(
            "insert into effects (id, token, at, deadline) values (?, ?, ?, ?)",
            (request.id, token, self.node.host.wall(), request.deadline),
        )
        if random.random() < max(0.05, self.world.fate.handler_fails):
            raise HandlerError("on purpose")
        return f"{request.id}={token}".encode()

    def _over(self, result: Any, error: Exception | None) -> None:
        failed = isinstance(error, StorageError) and not self.node.host.disk.explains(error)
        if failed or not isinstance(error, StorageError | Unavailable | None):
            self.history.violate(f"{self.node.name} serves no more: {type(error).__name__} {error}")
        self.node.later(0.2, self._serve)

    def settled(self) -> str:
        return "" if self.node.alive else f"{self.node.name} does not run"

    def collect(self) -> None:
        """Read its table, as it is on the disk."""
        for call, token, at, deadline in _rows(self.node, "select id, token, at, deadline from effects order by n"):
            self.effects.setdefault(call, []).append((token, at, deadline))


class Caller:
    """A program that calls, and asks again, also after its restarts."""

    def __init__(self, world: World, node: ClientNode, history: History) -> None:
        self.world, self.node, self.history = world, node, history
        self.planned: dict[str, float | None] = {}
        self.made: set[str] = set()
        self.replies: dict[str, tuple[str, str]] = {}
        self.finishing = False
        self.busy = 0
        node.on_start = self._started

    def _started(self) -> None:
        self.busy = 0
        for _ in range(2):
            self.node.later(0.01, self._go)

    def _next(self) -> None:
        seconds = 0.05 if self.finishing else self.world.random.expovariate(1 / max(0.02, self.world.fate.think))
        self.node.later(seconds, self._go)

    def _go(self) -> None:
        random = self.world.random
        if self.finishing:
            open_calls = [call for call in self.planned if call not in self.replies]
            if open_calls:
                self._call(random.choice(open_calls))
            elif self.planned and random.random() < 0.2:
                self._ask(random.choice(list(self.planned)))
            else:
                self._next()
        elif self.planned and random.random() < 0.4:
            known = random.choice(list(self.planned))
            if known in self.made and random.random() < 0.7:
                self._ask(known)
            else:
                self._call(known)
        else:
            call = f"{self.node.name}-{len(self.planned) + 1}"
            self.planned[call] = random.choice((None, None, 0.1, 1.0, 10.0))
            self._call(call)

    def _call(self, call: str) -> None:
        flow = self.node.calls.calling.call(SERVICE, call.encode(), None, call, b"", None, self.planned[call], 1)
        self.node.call(flow, partial(self._told, call))

    def _ask(self, call: str) -> None:
        seconds = self.world.random.choice((0.0, 0.2, 1.0))
        self.node.call(self.node.calls.calling.reply(call, seconds), partial(self._told, call))

    def _told(self, call: str, result: Reply | None, error: Exception | None) -> None:
        if isinstance(result, Reply):
            self._keep(call, DONE, result.body.decode())
        elif isinstance(error, CallFailed | CallExpired):
            self._keep(call, FAILED if isinstance(error, CallFailed) else EXPIRED, str(error))
        elif isinstance(error, CallKept):
            self.made.add(call)
        elif isinstance(error, NoSuchCall):
            if call in self.made:
                self.history.violate(f"{self.node.name} has forgotten call {call}")
        elif not isinstance(error, StorageError | Unavailable) or (
            isinstance(error, StorageError) and not self.node.host.disk.explains(error)
        ):
            self.history.violate(f"{self.node.name} asked for {call}: {type(error).__name__} {error}")
        self._next()

    def _keep(self, call: str, outcome: str, said: str) -> None:
        self.made.add(call)
        self.history.counters[f"calls: {outcome}"] += call not in self.replies
        before = self.replies.setdefault(call, (outcome, said))
        if before != (outcome, said):
            self.history.violate(f"{self.node.name} was told {before} and {(outcome, said)} of call {call}")

    def settled(self) -> str:
        missing = [call for call in self.planned if call not in self.replies]
        if not self.node.alive or missing:
            return f"{self.node.name} waits for {missing[:3]}"
        return ""


class Calls:
    """The worker and the callers of a run, if it has any.

    Args:
        world, history: the run's.
        make: a client of a name.
    """

    def __init__(self, world: World, history: History, make: Callable[[str], ClientNode]) -> None:
        self.history = history
        self.callers = [Caller(world, make(f"q{n}"), history) for n in range(1, world.fate.callers + 1)]
        self.workers = [Worker(world, make("v1"), history)] if self.callers else []

    @property
    def parties(self) -> list[Caller | Worker]:
        return [*self.callers, *self.workers]

    @property
    def nodes(self) -> list[ClientNode]:
        return [party.node for party in self.parties]

    def finish(self) -> None:
        """Make no more calls, and wait for those that were made."""
        for caller in self.callers:
            caller.finishing = True

    def judge(self) -> None:
        """The outcome of each call; the run is over."""
        for party in self.parties:
            party.node.end("over")
            for line in party.node.found:
                self.history.violate(line)
        for worker in self.workers:
            worker.collect()
            for caller in self.callers:
                self._judge(caller, worker.effects)

    def _judge(self, caller: Caller, effects: dict[str, list[tuple[str, float, float | None]]]) -> None:
        for call, (outcome, said) in caller.replies.items():
            own = effects.get(call, [])
            if len(own) > (outcome == DONE):
                self.history.violate(f"call {call} had its effect {len(own)} times, and its reply is {outcome}")
            if outcome == DONE and said not in {f"{call}={token}" for token, *_ in own}:
                self.history.violate(f"call {call} was told {said}, and its effects are {own}")
            for _, at, deadline in own:
                if deadline is not None and at > deadline + 0.001:
                    self.history.violate(f"call {call} was begun at {at:.3f}, behind its deadline {deadline:.3f}")


def _rows(node: ClientNode, statement: str) -> list[tuple[Any, ...]]:
    path = f"/{node.name}/{node.name}.db"
    if path not in node.host.disk.files:
        return []
    db = apsw.Connection(path, vfs=NAME)
    db.pragma("locking_mode", "exclusive")
    try:
        there = list(db.execute("select 1 from sqlite_schema where name = 'effects'"))
        return list(db.execute(statement)) if there else []
    finally:
        db.close()
