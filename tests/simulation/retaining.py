"""The judgement on the records that servers let go of by their defaults and by the ages of messages.

    1   a server that held a record protects it by its own default, until it starts again or is removed: no other server
        lets the record go by another default (tests/topics/model/defaults.py)
    2   a record stays for its age by true time, even if the clock of the server's host is wrong
    3   a batch is left out of a delivery only if it is older than `expire` says
    4   in the end every proxy has the defaults of every server that runs

Servers with the same store, one after the other or as members of a pair, are one server here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest import mock

from pubsub.errors import StoreDamaged
from pubsub.protocol.batch import decode_batch
from pubsub.protocol.topic_defaults import TopicDefault, digest
from pubsub.protocol.topic_settings import Amount
from pubsub.server.requests.gets import Gets
from pubsub.server.topic.cursor import Cursor
from pubsub.server.topic.spans import Span
from pubsub.server.topic.topic import Log, Topic
from pubsub.server.upkeep import retention as upkeep
from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.fate import Fate

if TYPE_CHECKING:
    from pubsub.server.upkeep.retention import Retention
    from tests.simulation.cast import Cast
    from tests.simulation.history import History

DEFAULTED = 0.15
"""Share of runs with servers that have defaults."""


def defaulted(fate: Fate, seed: int) -> Fate:
    """Have some runs change the servers' files; drawn apart, so that the others stay what they were."""
    random = Random(f"expiry of {seed}")
    fate.expires = bool(fate.configurers) and not fate.ranges and random.random() < 0.5
    random = Random(f"defaults of {seed}")
    if random.random() >= DEFAULTED or fate.older or fate.older_members:
        return fate
    fate.faults["defaults"] = random.choice((0.5, 2.0))
    return fate


class Protection(NamedTuple):
    """The life in which a server held a log, and its default for the topic."""

    life: int
    default: TopicDefault


@dataclass
class Retaining:
    """The records that servers held in one run, and the times since when.

    Attributes:
        lives: by store, the incarnation of the latest start.
        held: by log and store, the life in which the store held the log last.
        seen: by log, the ends of the log, each with the true time at which it was there first.
    """

    lives: dict[str, int] = field(default_factory=dict)
    held: dict[str, dict[str, Protection]] = field(default_factory=dict)
    seen: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    removed: Callable[[], set[str]] = set
    """Returns the stores that an operator, or a server that left for good, removed."""

    def look(self, retention: Retention, now: float) -> None:
        """Note the records that a server holds.

        Args:
            now: true time.
        """
        state = retention._state
        life = self.lives[state.store_id] = max(state.incarnation, self.lives.get(state.store_id, 0))
        for topic in state.topics.values():
            for log in topic.logs.values():
                self.held.setdefault(log.id, {})[state.store_id] = Protection(life, topic.policy.default)
                ends = self.seen.setdefault(log.id, [])
                if not ends or ends[-1][0] < log.end:
                    ends.append((log.end, now))

    def protects(self, retention: Retention, topic: Topic, log: Log) -> list[TopicDefault]:
        """Return other servers' defaults that hold for a log that goes by this server's default."""
        store = retention._state.store_id
        return [
            one.default
            for other, one in self.held.get(log.id, {}).items()
            if other not in {store, *self.removed()} and one.life == self.lives[other]
        ]

    def age(self, log: str, last: int, now: float) -> float:
        """Return the true age of a record in seconds; a little less than it is."""
        return now - next((at for end, at in self.seen.get(log, ()) if end > last), now)


def often(retaining: Retaining | None) -> contextlib.AbstractContextManager[object]:
    """Look more often for records that may go, since servers that start often would let go of little in a short run."""
    return contextlib.nullcontext() if retaining is None else mock.patch.object(upkeep, "ROUND_SECONDS", 0.3)


def stored(reader: Any, log: Log, low: int, high: int) -> dict[int, str]:
    """Return by offset the messages in [low, high) of a log that have a body; some of them if the store is damaged."""
    out: dict[int, str] = {}
    with contextlib.suppress(StoreDamaged):
        for batch in reader.batches(log.number, low, high):
            bodies = decode_batch(batch.body) if batch.body is not None else []
            out |= {at: bytes(body).decode() for at, body in enumerate(bodies, batch.offset) if low <= at < high}
    return out


@contextlib.contextmanager
def expiring(history: History) -> Iterator[None]:
    """See which batches are left out as too old, and object to each that is not."""
    original = Gets._unexpired

    def seen(self: Any, topic: Topic, cursor: Cursor, spans: tuple[Span, ...], now: float) -> tuple[Span, ...]:
        left = original(self, topic, cursor, spans, now)
        name = next(name for name, one in topic.subscriptions.items() if one.cursor is cursor)
        oldest = self._state.stamps.reading(now) - max((one and one.age) or 0 for one in topic.in_force.expire)
        for old, new in zip(spans, left, strict=True):
            if old.low == new.low:
                continue
            log = topic.logs[old.log]
            bodies = stored(self._state.reader, log, old.low, new.low)
            bare = {at: body for (one, at), body in history.bare.items() if one == log.id and old.low <= at < new.low}
            history.expired |= {(name, topic.name, body) for body in (bare | bodies).values()}
            for offset, _, stamp, _ in self._state.reader.stamps(log.number, old.low, 1000):
                if offset < new.low and stamp > oldest:
                    history.violate(f"{log.id}.{offset} of {topic.name} is left out as too old for {name}, and is not")
        return left

    with mock.patch.object(Gets, "_unexpired", seen):
        yield


def in_force(topic: Topic, default: TopicDefault) -> tuple[Amount, ...]:
    """Return the amounts of `keep` at a server with this default."""
    return tuple(one for one in topic.settings.with_default(default).keep if one is not None)


def judge_defaults(cast: Cast, history: History) -> None:
    """Object to a proxy that does not have the defaults of a server that runs."""
    for server in cast.servers:
        state = server.core.state
        expected = digest(state.defaults)
        for proxy in cast.proxies:
            known = proxy.core.table.servers.get(state.store_id)
            if known is None or known.defaults != expected:
                history.violate(f"{proxy.name} has not the defaults of {server.name}")


def expired(seed: int) -> Fate:
    """Clients that are away for longer than messages are delivered."""
    random = Random(f"expired {seed}")
    return Fate(
        servers=random.choice((1, 2)),
        proxies=2,
        clients=3,
        topics=1,
        seconds=8.0,
        think=random.choice((0.02, 0.1)),
        skew=0.1,
        heartbeat=0.2,
        configurers=2,
        expires=True,
        tight=random.random() < 0.3,
        faults=drawn_faults(
            random, some={"kill": 0.5, "churn": 1.0, "move": 1.0, "detour": 0.5, "cut": 1.0}, **{"client power": 1.0}
        ),
    )
