"""Operators that change settings of topics in a run, and the judgement on the settings and on the records that went.

    1   a change that was answered is in force in the end, or the settings in force were made from it
    2   a batch goes only if every answered change lets it go that no later one has replaced, in the knowledge of it;
        beyond the limit for consumed bytes a holder goes by the changes that it has (docs/explanation/retention.md, T5)
    3   a topic that is only ever told to keep all has each acknowledged message put since, readable from the begin
    4   no new reader of a topic's begin is told of a loss
    5   a subscriber loses messages by `drop` only, is told of it, and only messages that are old enough

A change replaces those that its base was made from. The check of 2 looks at every batch, one by one.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Any
from unittest import mock

from pubsub.base.clock import MICROSECONDS
from pubsub.errors import StoreDamaged
from pubsub.protocol import Configure, Outcome, Status
from pubsub.protocol.messages import Settings as Ask
from pubsub.protocol.topic_settings import EVER, Amount, encode_settings, parse_drop, parse_expire, parse_keep
from pubsub.server.ownership.sole_owner import SoleOwner, Trimming
from pubsub.server.topic.changes import BodiesDropped
from pubsub.server.topic.settings import Settings
from pubsub.server.topic.topic import Log, Topic
from pubsub.server.upkeep.retention import Retention
from tests.simulation.history import ACKED, History
from tests.simulation.limiting import quota
from tests.simulation.purged import judge_shown, read_all
from tests.simulation.retaining import Retaining, in_force, stored
from tests.simulation.tasks import Task
from tests.simulation.world import Host, World

if TYPE_CHECKING:
    from tests.simulation.fate import Fate
    from tests.simulation.members import Server

CONFIGURED = 0.25
"""Share of runs with changes of settings."""

KEEPS = ("none", "1s", "3s", "10s", "2 records", "9 records", "60B", "400B", "3s,9 records", "ever")
EXPIRIES = ("never", "1s", "2s", "5s")
DROPS = ("never", "never", "2s", "6s", "6s,100B")


def configured(fate: Fate, seed: int) -> Fate:
    """Have some runs change settings; drawn apart, so that the other runs stay the same.

    Servers of an older release take no topic with settings. So they are in none of these runs.
    """
    random = Random(f"settings of {seed}")
    if random.random() >= CONFIGURED or fate.older or fate.older_members:
        return fate
    fate.configurers = random.choice((1, 1, 2, 3))
    fate.drops = not fate.ranges and random.random() < 0.5
    # A holder that does not know the settings yet drops bodies beyond a tight limit.
    fate.latest = random.random() < 0.35 and not fate.tight
    return fate


@dataclass
class Change:
    """A change of a topic's settings.

    Attributes:
        seen: the versions that its base was made from; it replaces these.
        done: True if a server has carried it out; answered: True if the operator knows that.
    """

    version: str
    topic: str
    keep: Amount
    drop: Amount
    seen: frozenset[str] = frozenset()
    expire: Amount | None = None
    done: bool = False
    answered: bool = False
    answered_at: float = float("inf")


@dataclass
class Configured:
    """The changes of one run, by version, and the versions of rows that merges made."""

    world: World
    history: History
    changes: dict[str, Change] = field(default_factory=dict)
    lineage: dict[str, frozenset[str]] = field(default_factory=lambda: {"": frozenset()})
    found: list[str] = field(default_factory=list)
    asked_at: dict[int, tuple[object, float]] = field(default_factory=dict)
    """The time of a server's question whether it is the sole owner, by the ID of the range that it will let go."""
    retaining: Retaining | None = None
    """The messages that servers held, in runs with defaults or wrong clocks."""
    allowed: dict[tuple[int, str], float] = field(default_factory=dict)
    """When the question was asked that allows a server to let go of a topic's batches."""
    warned: dict[tuple[int, str], bool] = field(default_factory=dict)
    """By server and topic, True if the last decided question named servers with other defaults."""
    beyond_limit: set[str] = field(default_factory=set)
    """The messages of batches that went by the limit for consumed bytes, for which another holder may have settings."""

    def row(self, settings: Settings) -> None:
        """Settings are in force at some server."""
        made_from = frozenset(settings.lineage) | ({settings.version} - {""})
        self.lineage[settings.version] = self.lineage.get(settings.version, frozenset()) | made_from
        for version in made_from & self.changes.keys():
            self.changes[version].done = True

    def in_force(self, topic: Topic, asked_at: float) -> list[Change]:
        """Answered changes that no other one has replaced, and that this holder has, or that were answered in time.

        A holder that was the sole owner when it asked may let go of its messages a little later.
        """
        return [
            change
            for change in self.answered(topic.name)
            if change.answered_at < asked_at or topic.settings.made_from(change.version)
        ]

    def answered(self, topic: str) -> list[Change]:
        """Answered changes that no other one has replaced."""
        mine = [change for change in self.changes.values() if change.topic == topic]
        replaced = frozenset().union(*(change.seen for change in mine if change.done))
        return [change for change in mine if change.answered and change.version not in replaced]

    @property
    def slack(self) -> float:
        """Seconds by which a clock that is right enough may be ahead, and a server is late to be looked at."""
        fate = self.world.fate
        return 2 * fate.skew + 3 * fate.heartbeat + 1.0

    def decided(self, key: tuple[int, str], asked: Trimming, sole_owner: bool) -> None:
        """A server got its answer about a topic, its key."""
        self.warned[key] = bool(asked.others_with_other_defaults)
        if sole_owner:
            self.allowed[key] = self.asked_at[id(asked)][1]

    def loses_bodies(self, log: Log, gone: dict[int, str], *, limit: bool) -> None:
        """Messages of a log, by offset, lose their bodies by `drop` or by the limit for consumed bytes."""
        self.history.bare |= {(log.id, offset): body for offset, body in gone.items()}
        self.beyond_limit |= set(gone.values()) if limit else set()

    def violate(self, text: str) -> None:
        if len(self.found) < 10:
            self.found.append(text)


class Configurer(Task):
    """Changes the settings of a topic from time to time."""

    def __init__(
        self, world: World, host: Host, proxies: tuple[str, ...], history: History, topic: str, known: Configured
    ) -> None:
        super().__init__(world, host, proxies, history, topic)
        self.known = known
        self.only_ever = world.random.random() < 0.3
        self.drops = world.fate.drops
        self.think = world.random.choice((0.3, 2.0))

    def go(self) -> None:
        if self.finishing:
            self.finished = True
            return
        self.ask(Ask(self.name, self.topic), self._read)

    def _read(self, status: Status) -> None:
        if status.outcome not in {Outcome.SUCCESS, Outcome.UNKNOWN}:
            self.history.violate(f"{self.name} cannot read settings: {status.outcome} {status.reason}")
            return
        base = "" if status.outcome is Outcome.UNKNOWN else json.loads(bytes(status.body))["version"]
        random = self.world.random
        latest = self.world.fate.latest
        keep = "latest" if latest else "ever" if self.only_ever else random.choice(KEEPS)
        drop = random.choice(DROPS) if self.drops and not self.only_ever else "never"
        version = f"{random.getrandbits(64):016x}"
        seen = self.known.lineage.get(base, frozenset())
        values = {"keep": keep, "drop": drop}
        if self.world.fate.expires:
            values["expire"] = random.choice(EXPIRIES)
        if self.world.fate.quotas:
            values |= quota(random)
        expire = parse_expire(values["expire"]) if "expire" in values else None
        change = Change(version, self.topic, parse_keep(keep), parse_drop(drop), seen, expire)
        self.known.changes[version] = change
        if change.drop != EVER:
            self.history.dropping.add(self.topic)
        values |= {"tombstones": "1s"} if latest else {}
        request = Configure(self.name, self.topic, version, base, values=encode_settings(values))
        self.ask(request, lambda got: self._changed(change, got))

    def _changed(self, change: Change, status: Status) -> None:
        if status.outcome is Outcome.SUCCESS:
            change.answered, change.answered_at = True, self.world.now
            self.world.note(f"{self.name} has set {change.topic} to {change.keep} {change.drop}")
        elif status.outcome is not Outcome.SUPERSEDED:
            self.history.violate(f"{self.name} cannot change settings: {status.outcome} {status.reason}")
        self.soon(self.world.random.expovariate(1 / self.think), self.go)

    def settled(self) -> str:
        """Return the unfinished work as text, "" if there is none."""
        return "" if self.finished else f"{self.name} has not finished with the settings of {self.topic}"


@contextlib.contextmanager
def watched(known: Configured) -> Iterator[None]:
    """See each row of settings, and look at each batch that goes."""
    configure, trimmed, strip, tick = Topic.configure, Retention._trimmed, Retention._strip, Retention.tick
    decided, ask = Retention.decided, SoleOwner.ask
    now = 0.0

    def seen_ask(sole_owner: SoleOwner, name: str, operation: Any, *more: Any) -> bool:
        if isinstance(operation, Trimming):
            known.asked_at[id(operation)] = operation, known.world.now
        return ask(sole_owner, name, operation, *more)

    def seen_decided(retention: Retention, asked: Trimming, sole_owner: bool, at: float) -> None:
        known.decided((id(retention), asked.topic), asked, sole_owner)
        decided(retention, asked, sole_owner, at)

    def seen_configure(topic: Topic, settings: Settings) -> None:
        known.row(settings)
        configure(topic, settings)

    def seen_tick(retention: Retention, at: float) -> Any:
        nonlocal now
        now = at
        if known.retaining is not None:
            known.retaining.look(retention, known.world.now)
        return tick(retention, at)

    def seen_trimmed(retention: Retention, topic: Topic, log: Log, low: int) -> Any:
        _check(known, retention, topic, log, log.low, low, now, dropped=False)
        return trimmed(retention, topic, log, low)

    def seen_strip(retention: Retention) -> Any:
        name, log_id, _, drops = retention._over[0]
        topic = retention._state.topics.get(name)
        log = topic.logs.get(log_id) if topic else None
        rows = strip(retention)
        for row in rows:
            if isinstance(row, BodiesDropped) and topic is not None and log is not None:
                _check(known, retention, topic, log, row.low, row.high, now, dropped=drops, limit=not drops)
                known.loses_bodies(log, stored(retention._state.reader, log, row.low, row.high), limit=not drops)
        return rows

    with contextlib.ExitStack() as stack:
        for target, name, value in (
            (Topic, "configure", seen_configure), (Retention, "tick", seen_tick),
            (Retention, "_trimmed", seen_trimmed), (Retention, "_strip", seen_strip),
            (Retention, "decided", seen_decided), (SoleOwner, "ask", seen_ask),
        ):  # fmt: skip
            stack.enter_context(mock.patch.object(target, name, value))
        yield


def _check(
    known: Configured, retention: Retention, topic: Topic, log: Log, low: int, high: int, now: float,
    *, dropped: bool, limit: bool = False,
) -> None:  # fmt: skip
    """Object to a batch in [low, high) of a log that a change in force keeps, or that `drop` does not yet let go.

    Args:
        limit: True if it goes by the limit for consumed bytes, though another server may hold the topic.
    """
    state, asked = retention._state, (id(retention), topic.name)
    by_default = not dropped and (not limit or known.warned.get(asked, False))
    if known.retaining is not None and by_default and topic.name not in known.history.given_up:
        _check_defaults(known, known.retaining, retention, topic, log, low, high)
    changes = known.in_force(topic, float("-inf") if limit else known.allowed.get(asked, float("inf")))
    if not changes or topic.name in known.history.given_up:  # The settings may have been given up with a holder.
        return
    stamp = state.stamps.reading(now)
    after = _after(topic, state.reader)
    try:
        rows = [row for row in state.reader.stamps(log.number, low, 1000) if row[0] < high]
    except StoreDamaged:
        return
    # Below the places of a purge, keep keeps nothing; below those of one of unread messages, drop drops all.
    kept, unread = (known.history.purges.place(log.id, unread=unread) for unread in (False, True))
    for offset, count, put_at, _ in rows:
        # The last record of a batch has least after it.
        records, size = after.get((log.id, offset + count - 1), (10**9, 10**9))
        for change in changes:
            amounts = ((change.keep, kept), (change.drop, unread))[: 1 + dropped]
            for amount in [amount for amount, purged in amounts if offset + count > purged]:
                if not _lets_go(amount, _age(known, log, offset + count - 1, stamp - put_at), records, size):
                    known.violate(
                        f"{log.id}.{offset} of {topic.name} went, {(stamp - put_at) / 1e6:.3f} s old with {records}"
                        f" records and {size} bytes after it, though {change.version} keeps {amount}"
                    )


def _check_defaults(
    known: Configured, retaining: Retaining, retention: Retention, topic: Topic, log: Log, low: int, high: int
) -> None:
    """Object to a batch in [low, high) of a log that goes by a default, though another server's default keeps it."""
    state = retention._state
    protecting = retaining.protects(retention, topic, log) if topic.settings.by_default else []
    if not protecting:
        return
    after = _after(topic, state.reader)
    try:
        rows = [row for row in state.reader.stamps(log.number, low, 1000) if row[0] < high]
    except StoreDamaged:
        return
    purged = known.history.purges.place(log.id, unread=False)
    for offset, count, *_ in [row for row in rows if row[0] + row[1] > purged]:
        records, size = after.get((log.id, offset + count - 1), (10**9, 10**9))
        age = (retaining.age(log.id, offset + count - 1, known.world.now) + known.slack) * MICROSECONDS
        for default in protecting:
            if not all(_lets_go(one, age, records, size) for one in in_force(topic, default)):
                known.violate(
                    f"{log.id}.{offset} of {topic.name} went by a default, though another server has {default}"
                )


def _age(known: Configured, log: Log, last: int, age: int) -> float:
    """Return the age of a record in microseconds: by the server's clock, or less if that is wrong."""
    if known.retaining is None:
        return age
    return min(age, (known.retaining.age(log.id, last, known.world.now) + known.slack) * MICROSECONDS)


def _lets_go(amount: Amount, age: float, records: int, size: int) -> bool:
    return (
        (amount.age is not None and age >= amount.age)
        or (amount.records is not None and records >= amount.records)
        or (amount.size is not None and size >= amount.size)
    )


def _after(topic: Topic, reader: Any) -> dict[tuple[str, int], tuple[int, int]]:
    """For each record of the history the records and bytes of batches after its own, one by one."""
    out: dict[tuple[str, int], tuple[int, int]] = {}
    records = size = 0
    for span in reversed(topic.history):
        log = topic.logs.get(span.log)
        if log is None:
            continue
        stop = log.end if span.high is None else min(span.high, log.end)
        rows = [row for row in reader.stamps(log.number, 0, 10_000) if row[0] < stop and row[0] + row[1] > span.low]
        ends = {row[0]: following[3] for row, following in pairwise(rows)}
        for offset, count, _, total in reversed(rows):
            last = min(offset + count, stop) - 1
            out[log.id, offset + count - 1] = records, size
            if not span.watermark:
                records += last - max(offset, span.low) + 1
                size += ends.get(offset, log.total) - total
    return out


def judge(known: Configured, servers: list[Server], history: History, damage: bool) -> None:
    """Object to each wrong state at the end.

    Args:
        damage: True if bits were flipped, so that records may be lost.
    """
    for line in known.found:
        history.violate(line)
    for server in servers:
        for name, topic in sorted(server.core.state.topics.items()):
            if name in history.given_up:
                continue
            for change in known.changes.values():
                if change.topic == name and change.answered and not topic.settings.made_from(change.version):
                    history.violate(f"the settings {change.version} of {name} are gone at {server.name}")
            for change in known.answered(name):
                amounts = (change.keep, topic.settings.keep), (change.drop, topic.settings.drop)
                amounts = (*amounts, (change.expire, topic.settings.expire))
                if any(mine not in those for mine, those in amounts):
                    history.violate(
                        f"{change.version} of {name} was not replaced, and is not in force: {topic.settings}"
                    )
            if not damage:
                _judge_kept(known, server, topic, history)


def _judge_kept(known: Configured, server: Server, topic: Topic, history: History) -> None:
    bodies, losses = read_all(topic, server.core.state)
    for loss in losses:
        history.violate(f"a new reader of {topic.name} is told that {loss} are lost")
    changes = [change for change in known.changes.values() if change.topic == topic.name]
    since = min((change.answered_at for change in changes if change.answered), default=float("inf"))
    since = max(since, known.history.purges.last(topic.name, unread=False))
    judge_shown(history, known.world.fate, topic.name, bodies)
    if all(change.keep == change.drop == EVER for change in changes):
        for put in history.states((ACKED,)):
            if put.topic == topic.name and put.invoked > since and put.body not in bodies | known.beyond_limit:
                history.violate(f"{put.body} of {topic.name} is not there, though all is kept since {since:.3f}")
