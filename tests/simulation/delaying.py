"""Delayed puts: some runs have them, each message comes once and not before its time, and all have come in the end.

A server keeps to its own clock, which is within the bound of the others'. The stamp of a delivered message is that
clock, so it is never below the due time. The due times are moments of the true time. A client's own clock may be wrong
by hours, and says nothing then about the moment that its user means.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, Final

from pubsub.errors import InDoubt
from tests.simulation.fate import Fate
from tests.simulation.history import ACKED, KEPT
from tests.simulation.world import EPOCH

if TYPE_CHECKING:
    from tests.simulation.applications.publisher import Publisher

DELAYING: Final = 0.25
"""The share of runs with delayed puts."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def delaying(fate: Fate, seed: int) -> Fate:
    """Have some runs delay puts; drawn apart, so that the others stay what they were.

    Servers of an older release refuse a delayed put. So they are in none of these runs.
    """
    random = Random(f"delays of {seed}")
    if random.random() < DELAYING and not (fate.older or fate.older_members):
        fate.delays = random.choice((0.05, 0.2, 0.5))
    return fate


def put_later(publisher: Publisher, topic: str, thread: str) -> None:
    """Put some messages with one due time."""
    random, now = publisher.world.random, publisher.world.now
    due = round(now + random.choice((-0.2, 0.2, 1.0, 3.0)) * random.random(), 6)
    puts = [publisher.new(topic, thread) for _ in range(random.choice((1, 1, 3)))]
    for put in puts:
        put.due = due
    wait = random.random() < 0.8
    earlier = publisher.unresolved(topic)

    def then(result: Any, error: Exception | None) -> None:
        if error is None:
            counters = [row.counter + n for row in result for n in range(row.count)]
            for put, counter in zip(puts, counters, strict=True):
                put.counter = counter
            for put in (*puts, *(earlier if wait else ())):
                publisher.move(put, ACKED if wait else KEPT)
        elif isinstance(error, InDoubt):
            for put in puts:
                publisher.move(put, KEPT)
        publisher.program.failed(error)
        publisher.program.next(partial(publisher.publish, thread))

    moment = _EPOCH + timedelta(microseconds=round((EPOCH + due) * 1_000_000))
    bodies = [put.body.encode() for put in puts]
    calls = publisher.node.calls.puts
    publisher.node.call(calls.put_many(topic, bodies, None, None, wait, deliver_at=moment), then)
    publisher.history.counters["delayed puts"] += len(puts)
