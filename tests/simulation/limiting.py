"""Quotas of topics, and messages with a time to live: some runs have them.

    1   a server appends no put above the quota of its topic: one second's worth at once, and the debt of one put
    2   a put that is put off is stored in the end (the run settles)
    3   a client passes a message over exactly if its time to live has ended by the client's clock
    4   a message that was passed over counts as received; no other one may be missing

The check of the rate keeps its own account, and that of the time to live knows the puts, not the headers.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from pubsub.base.clock import MICROSECONDS
from pubsub.client.core.message import Batch, Message
from pubsub.client.core.prefetch import Taking
from pubsub.client.core.subscription import Subscription
from pubsub.client.flows.gets import Gets
from pubsub.client.ttl import with_ttl
from pubsub.server.requests.puts import Puts
from tests.simulation.fate import Fate

if TYPE_CHECKING:
    from tests.simulation.history import History, Put
    from tests.simulation.world import World

LIMITING: Final = 0.2
"""The share of runs with a time to live, half of which may have quotas too."""

RATES: Final = ("none", "50/s", "100/s")
BYTES: Final = ("none", "4KiB/s", "16KiB/s")
TTLS: Final = (0.05, 0.5, 3.0)

SOME: Final = {"churn": 1.0, "pause": 1.0, "cut": 2.0, "kill": 0.5, "move": 1.0, "kill in commit": 0.3}
"""Faults of which each of the focused runs has about half."""


def limiting(fate: Fate, seed: int) -> Fate:
    """Have some runs limit puts and let messages expire; drawn apart, so that the others stay what they were.

    Readers that compare replays, and handlers that put messages off, expect every message.
    """
    random = Random(f"limits of {seed}")
    if random.random() < LIMITING and not (fate.older or fate.older_members or fate.retries or fate.seekers):
        fate.ttls = random.choice((0.1, 0.4))
        fate.quotas = fate.configurers > 0 and random.random() < 0.5
    return fate


def quota(random: Random) -> dict[str, str]:
    """The settings of a change."""
    return {"rate": random.choice(RATES), "bytes": random.choice(BYTES)}


def brief(world: World, puts: list[Put]) -> dict[str, bytes] | None:
    """Give some puts a time to live; returns the headers of each."""
    if not world.fate.ttls or world.random.random() >= world.fate.ttls:
        return None
    ttl = world.random.choice(TTLS)
    for put in puts:
        put.ttl = ttl
    return dict(with_ttl(None, ttl))


class Account:
    """The check's own account of one quota. `state`: the memory of the process that keeps it."""

    def __init__(self, quota: tuple[int | None, int | None], state: Any, now: float) -> None:
        self.quota, self.state, self.at = quota, state, now
        self.levels = [float(rate or 0) for rate in quota]

    def append(self, amounts: tuple[int, int], now: float) -> bool:
        """Take these amounts; False if one is not there."""
        there = True
        for place, rate in enumerate(self.quota):
            if rate is not None:
                self.levels[place] = min(rate, self.levels[place] + (now - self.at) * rate)
                there = there and self.levels[place] > 1 - 1e-3
                self.levels[place] -= amounts[place]
        self.at = now
        return there


@contextlib.contextmanager
def watched_limits(history: History) -> Iterator[None]:
    """Judge each put that a server appends, and each taking of a client."""
    accounts: dict[tuple[int, str], Account] = {}
    append, take, expired = Puts._append, Subscription.take, Gets.expired

    def seen_append(puts: Any, topic: Any, publisher: int, put: Any, now: float) -> None:
        quota, key = topic.in_force.quota, (id(puts._state), topic.name)
        account = accounts.get(key)
        if quota == (None, None):
            accounts.pop(key, None)
        else:
            if account is None or account.quota != quota or account.state is not puts._state:
                account = accounts[key] = Account(quota, puts._state, now)
            if not account.append((put.count, len(put.body)), now):
                history.violate(f"a put to {topic.name} at {now:.3f} was appended above the quota {quota}")
            history.counters["puts below a quota"] += 1
        append(puts, topic, publisher, put, now)

    def over(message: Message, wall: float) -> bool:
        put = history.puts.get(message.body.decode())
        if put is None or not put.ttl:
            return False
        return message.stamp + round(put.ttl * MICROSECONDS) <= int(wall * MICROSECONDS)

    def seen_take(sub: Subscription, records_max: int, wall: float = 0.0) -> Any:
        taking = take(sub, records_max, wall)
        if isinstance(taking, Taking):
            for message in Batch(sub.topic, taking.pieces):
                if over(message, wall):
                    history.violate(f"{sub.client} got {message.body!r} after its time to live")
            for message in Batch(sub.topic, taking.expired):
                if not over(message, wall):
                    history.violate(f"{sub.client} passed over {message.body!r} within its time to live")
        return taking

    def seen_expired(gets: Gets, topic: str, pieces: Any) -> None:
        for message in Batch(topic, pieces):
            history.passed.add((gets.session.name, topic, message.body.decode()))
            history.counters["messages passed over"] += 1
        expired(gets, topic, pieces)

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Puts, "_append", seen_append))
        stack.enter_context(mock.patch.object(Subscription, "take", seen_take))
        stack.enter_context(mock.patch.object(Gets, "expired", seen_expired))
        yield


def limited(seed: int) -> Fate:
    """Topics with low quotas and messages that live shortly, while servers and clients end and topics move."""
    random = Random(f"limited {seed}")
    return Fate(
        servers=2,
        proxies=random.choice((1, 2)),
        clients=3,
        topics=random.choice((1, 2)),
        seconds=4.0,
        think=random.choice((0.005, 0.02)),
        delay=random.choice((0.002, 0.02)),
        skew=0.1,
        heartbeat=0.3,
        late=random.choice((0.0, 0.05)),
        late_seconds=1.0,
        reorder=random.choice((0.0, 0.2)),
        duplicate=random.choice((0.0, 0.2)),
        bursts=random.choice((0.0, 0.3)),
        configurers=2,
        quotas=True,
        ttls=random.choice((0.0, 0.3, 0.6)),
        faults={name: rate for name, rate in SOME.items() if random.random() < 0.5},
    )
