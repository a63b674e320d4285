"""Judges a run by the histories that the clients recorded, and by nothing else.

It imports nothing of the service. It objects to

    lost        an acknowledged put that a subscriber, who had subscribed before it and stayed so, did not get
    repeated    a message that a subscriber got twice
    order       a publisher's message on a topic that came after a later one of its
    silence     a message that came while its subscriber was unsubscribed, or was put wholly within that time (what was
                put within the bound on the skew of servers' clocks before a subscription may come: early, not lost)
    foreign     a message that nobody put
    halves      a put in doubt that some got and others did not, or a part of a transaction's puts
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from math import inf
from pathlib import Path


@dataclass(slots=True)
class Put:
    """One message that was put, or was about to be.

    Attributes:
        publisher: whose order it is in; number: its place there.
        lot: the transaction it was put in.
        began, acknowledged: times; the latter is infinite where the put is in doubt.
    """

    publisher: str
    number: int
    topic: str
    body: str
    lot: int | None
    began: float
    acknowledged: float


@dataclass(slots=True)
class Subscriber:
    """What one subscriber did.

    Attributes:
        seen: (topic, body, time) in the order it came.
        intents: by topic, (wanted, began, settled) in order.
    """

    name: str
    seen: list[tuple[str, str, float]] = field(default_factory=list)
    intents: dict[str, list[tuple[bool, float, float]]] = field(default_factory=dict)

    def since(self, topic: str) -> float:
        """When the subscription that it has in the end was confirmed; infinity where it has none."""
        confirmed = inf
        for wanted, _, settled in reversed(self.intents.get(topic, [])):
            if not wanted:
                break
            confirmed = settled
        return confirmed

    def silences(self, topic: str) -> list[tuple[float, float]]:
        """The times, from and to and in order, at which it was certainly not subscribed."""
        return sorted(self._silences(topic))

    def _silences(self, topic: str) -> Iterator[tuple[float, float]]:
        intents = self.intents.get(topic, [])
        yield -inf, intents[0][1] if intents else inf
        for index, (wanted, _, settled) in enumerate(intents):
            if not wanted:
                yield settled, next((began for on, began, _ in intents[index + 1 :] if on), inf)


@dataclass(frozen=True, slots=True)
class Objection:
    """Something that must not happen."""

    kind: str
    text: str


def check(
    publishers: Iterable[Path], subscribers: Iterable[Path | Sequence[Path]], skew: float = 0.0
) -> list[Objection]:
    """All objections to what these databases hold.

    Args:
        publishers: their databases; each file is a publisher of its own.
        subscribers: their databases; several in a row are one subscriber's, one after the other.
        skew: the bound on the skew of clocks, in seconds, where a topic may have had two owners.
    """
    puts = [put for path in publishers for put in read_puts(path)]
    takers = [read_subscriber([one] if isinstance(one, Path) else one) for one in subscribers]
    out: list[Objection] = []
    for taker in takers:
        out += _judge(taker, puts, skew)
    return [*out, *_halves(takers, puts)]


def _judge(taker: Subscriber, puts: Sequence[Put], skew: float) -> Iterator[Objection]:
    by_body = {(put.topic, put.body): put for put in puts}
    times = Counter((topic, body) for topic, body, _ in taker.seen)
    for key, count in times.items():
        if count > 1:
            yield Objection("repeated", f"{taker.name} got {key[1]} {count} times")
        if key not in by_body:
            yield Objection("foreign", f"{taker.name} got {key[1]} on {key[0]}, which nobody put")
    newest: dict[tuple[str, str], int] = defaultdict(int)
    silences = {topic: taker.silences(topic) for topic in {topic for topic, _, _ in taker.seen}}
    for topic, body, at in taker.seen:
        put = by_body.get((topic, body))
        if put is None:
            continue
        if put.number < newest[put.publisher, topic]:
            yield Objection("order", f"{taker.name} got {body} after number {newest[put.publisher, topic]}")
        newest[put.publisher, topic] = max(put.number, newest[put.publisher, topic])
        if _within(silences[topic], at, at) or _within(silences[topic], put.began, put.acknowledged + skew):
            yield Objection("silence", f"{taker.name} got {body}, and was not subscribed to {topic}")
    since = {topic: taker.since(topic) for topic in {put.topic for put in puts}}
    for put in puts:
        if put.acknowledged < inf and put.began > since[put.topic] and (put.topic, put.body) not in times:
            yield Objection("lost", f"{taker.name} did not get {put.body}")


def _within(silences: Sequence[tuple[float, float]], began: float, ended: float) -> bool:
    """Whether something happened wholly within one of these times."""
    index = bisect_left(silences, began, key=lambda silence: silence[0]) - 1
    return index >= 0 and ended < silences[index][1]


def _halves(takers: Sequence[Subscriber], puts: Sequence[Put]) -> Iterator[Objection]:
    got = {taker.name: {(topic, body) for topic, body, _ in taker.seen} for taker in takers}
    since = {taker.name: {topic: taker.since(topic) for topic in {put.topic for put in puts}} for taker in takers}
    together: dict[tuple[str, int, bool], list[bool]] = defaultdict(list)
    for put in puts:
        key = (put.publisher, put.number if put.lot is None else put.lot, put.lot is None)
        together[key] += [
            (put.topic, put.body) in got[taker.name] for taker in takers if put.began > since[taker.name][put.topic]
        ]
    for (publisher, number, single), delivered in together.items():
        if any(delivered) and not all(delivered):
            what = "put" if single else "transaction"
            yield Objection("halves", f"{what} {number} of {publisher}: {sum(delivered)} of {len(delivered)} came")


def read_puts(path: Path) -> list[Put]:
    """What a publisher put, or was about to."""
    with closing(_open(path)) as database:
        return [
            Put(str(path), number, topic, body, lot, began, inf if acknowledged is None else acknowledged)
            for number, topic, body, lot, began, acknowledged in database.execute(
                "select number, topic, body, lot, began, acknowledged from history_puts order by number"
            )
        ]


def read_subscriber(paths: Sequence[Path]) -> Subscriber:
    """What a subscriber did, over one state directory after the other."""
    taker = Subscriber(str(paths[0]))
    for path in paths:
        with closing(_open(path)) as database:
            taker.seen += database.execute("select topic, body, at from history_seen order by id").fetchall()
            for topic, wanted, began, settled in database.execute(
                "select topic, wanted, began, settled from history_intents order by id"
            ):
                intents = taker.intents.setdefault(topic, [])
                intents.append((bool(wanted), began, inf if settled is None else settled))
    return taker


def _open(path: Path) -> sqlite3.Connection:
    assert path.exists(), f"{path} was never written"
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
