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

SOME: Final = {"churn": 1.0, "pause": 1.0, "cut": 2.0, "lose routes": 1.0, "kill": 0.3, "move": 0.5}
"""Faults of which each of the focused runs has about half."""

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


def delayed_due_in_split(seed: int) -> Fate:
    """A topic that two servers hold, while delayed messages of both become due."""
    random = Random(f"delayed {seed}")
    return Fate(
        servers=2,
        proxies=2,
        clients=3,
        topics=1,
        seconds=random.choice((4.0, 6.0)),
        think=random.choice((0.02, 0.05)),
        divided=True,
        delay=random.choice((0.002, 0.02)),
        skew=0.1,
        heartbeat=0.2,
        late=0.05,
        late_seconds=random.choice((1.0, 3.0)),
        reorder=random.choice((0.0, 0.2)),
        duplicate=random.choice((0.0, 0.2)),
        delays=random.choice((0.4, 0.8)),
        faults={"detour": 2.0} | {name: rate for name, rate in SOME.items() if random.random() < 0.5},
    )


def delayed_and_repeated(seed: int) -> Fate:
    """The same with late repeats of puts, which reach another server when the first one has delivered the message."""
    random, fate = Random(f"repeated {seed}"), delayed_due_in_split(seed)
    fate.proxies, fate.late, fate.duplicate = random.choice((2, 3)), 0.1, random.choice((0.1, 0.3))
    fate.faults |= {"churn": 3.0, "pause": 2.0, "drain": random.choice((0.2, 0.5))}
    return fate
