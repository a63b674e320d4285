"""A random model of subscriptions to patterns (T20 to T26), with splits, late and doubled requests, and lost files.

A pattern is a row of each proxy: subscriber, pattern, number, on, stamp. Servers keep the rows that proxies tell them,
and tell them to other proxies. Before a server lets go of a record it makes an entry for each pattern that matches.
A client joins a topic under a number of its own, and ends its patterns one by one; its two patterns may overlap.

Checked: a message that was put after a pattern was answered comes once, in the order of its publisher. No message
comes that was put long before. No ended pattern holds records. Nothing is stuck. Not modelled: rights, limits, the
standby, restored copies. T25 is always kept here: leaving it out showed nothing, since no run loses all files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from pubsub.protocol.patterns import matches
from tests.topics.model.family_clients import TOPICS, Publisher, Subscriber
from tests.topics.model.rules import LOOKING_BACK, all_but
from tests.topics.model.topic import ALWAYS, SKEW, Position, Span, Subscription, Topic

HOLD: Final = 2 * SKEW + 10
EVERYTHING: Final = all_but(LOOKING_BACK)

RULES: Final = {
    "all": "T21: a pattern, or its end, counts when every configured proxy has it on its disk",
    "every": "T21: a majority of the proxies is not enough, because one of them may lose its file",
    "ask": "T20: a server lets go of records only after enough proxies have shown that it knows their patterns",
    "enter": "T20: it first makes an entry for each pattern that matches, with all spans of the history",
    "since": "T20, T22: an entry, and a join, begin at the pattern's stamp less the skew",
    "apart": "T22: the server's entry has a key of its own, so a merge never takes it for the client's",
    "off": "T24: an ended pattern stays as a number, and servers end their entries for it",
    "list": "T23: the client asks for the list of topics again and again",
    "keep": "T26: entries made for a pattern travel in merges",
}

Key = tuple[str, str]
"""Subscriber and pattern."""


class Row(NamedTuple):
    """A pattern at a proxy or a server."""

    number: int
    on: bool
    stamp: int


@dataclass
class Proxy:
    """Its rows are on its disk; the announcements that it has heard are in its memory.

    Attributes:
        untold: servers that have told nothing since the file was lost.
    """

    up: bool = True
    untold: set[int] = field(default_factory=set)
    rows: dict[Key, Row] = field(default_factory=dict)
    holders: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


class World:
    """One run."""

    def __init__(self, seed: int, rules: Mapping[str, bool]) -> None:
        self.random, self.rules, self.clock, self._logs = Random(seed), rules, 0, 0
        self.servers: list[dict[str, Topic]] = [{} for _ in range(self.random.choice((2, 3)))]
        self.told: list[dict[Key, Row]] = [{} for _ in self.servers]
        self.skew = [self.random.randrange(SKEW // 2) for _ in self.servers]
        self.proxies = [Proxy() for _ in range(self.random.choice((2, 3)))]
        self.frozen: dict[tuple[int, str], int] = {}
        self.trimmed: dict[str, set[Position]] = defaultdict(set)
        self.settling, self.telling = False, self.random.choice((0.0, 0.05, 0.3))
        self.late: list[tuple[int, str, tuple[Any, ...]]] = []
        self.puts: dict[tuple[str, int], list[int]] = {}
        self.violations: list[tuple[str, ...]] = []
        self.figures: Counter[str] = Counter()
        self.publishers = [Publisher(self, "p"), Publisher(self, "q")]
        self.subscribers = [Subscriber(self, "x"), Subscriber(self, "y")]

    def now(self) -> int:
        self.clock += 1
        return self.clock

    # Requests

    def request(self, kind: str, *rest: Any, at: int | None = None) -> Any:
        """Send by way of a proxy; None if the request or its answer is lost or late."""
        proxy = self.random.randrange(len(self.proxies)) if at is None else at
        fate = self.random.random()
        if fate < 0.08:
            self.late.append((proxy, kind, rest))
        if fate < 0.14:
            return None
        answer = self.serve(proxy, kind, *rest)
        return None if fate < 0.25 else answer

    def serve(self, proxy: int, kind: str, *rest: Any) -> Any:
        return getattr(self, f"_{kind}")(self.proxies[proxy], *rest) if self.proxies[proxy].up else None

    def _route(self, proxy: Proxy, name: str, *, make: bool) -> tuple[int, Topic] | None:
        known = sorted(server for server in proxy.holders[name] if name in self.servers[server])
        if not known and not make:
            return None
        server = self.random.choice(known) if known else self.random.randrange(len(self.servers))
        if (server, name) in self.frozen:
            return None
        proxy.holders[name].add(server)
        return server, self._topic(server, name)

    def _topic(self, server: int, name: str) -> Topic:
        if name not in self.servers[server]:
            self._logs += 1
            self.servers[server][name] = Topic(f"L{self._logs}")
            self.figures["topics begun"] += 1
        return self.servers[server][name]

    def _put(self, proxy: Proxy, name: str, publisher: str, counter: int, previous: int) -> bool | None:
        found = self._route(proxy, name, make=True)
        if found is None:
            return None
        server, topic = found
        last = topic.last.get(publisher, 0)
        if counter > last:
            if previous > last:
                return None
            topic.append(publisher, counter, (publisher, counter), self.now() + self.skew[server], self.clock)
            self.puts[publisher, counter][2] = self.clock
        return True

    def _pattern(self, proxy: Proxy, key: Key, number: int, on: bool, stamp: int) -> int | None:
        """Make or end a pattern at one proxy; return the stamp, or None if a later number is known."""
        self._admit(proxy.rows, key, Row(number, on, stamp or self.now()))
        row = proxy.rows.get(key)
        return row.stamp if row and row[:2] == (number, on) else None

    def _admit(self, rows: dict[Key, Row], key: Key, row: Row) -> None:
        mine = rows.get(key)
        if mine is None or row.number > mine.number:
            rows[key] = row
        elif row.number == mine.number:
            rows[key] = Row(row.number, row.on and mine.on, min(row.stamp, mine.stamp))
        if not self.rules["off"] and not rows[key].on:
            del rows[key]

    def _topics(self, proxy: Proxy) -> list[str]:
        return sorted(topic for topic, servers in proxy.holders.items() if servers)

    def _join(self, proxy: Proxy, name: str, who: str, number: int, stamp: int) -> Position | None:
        found = self._route(proxy, name, make=False)
        if found is None:
            return None
        topic = found[1]
        mine = topic.subscriptions.get(who)
        if mine is None or mine.number < number:
            topic.subscriptions[who] = mine = self._entry(topic, number, stamp)
        return mine.acknowledged if mine.number == number else None

    def _entry(self, topic: Topic, number: int, stamp: int) -> Subscription:
        since = stamp - SKEW if self.rules["since"] else ALWAYS
        spans = [span.later(since) for span in topic.history] if self.rules["since"] else [Span(topic.open, topic.end)]
        return Subscription(number, True, since, spans, (spans[0].log, spans[0].low - 1))

    def _leave(self, proxy: Proxy, name: str, who: str, number: int) -> bool | None:
        found = self._route(proxy, name, make=False)
        if found is None:
            return None
        topic = found[1]
        mine = topic.subscriptions.get(who)
        if mine is None or mine.number < number:
            topic.subscriptions[who] = Subscription(number, False, ALWAYS, [], (topic.open, topic.end - 1))
        return True

    def _get(self, proxy: Proxy, name: str, who: str, number: int, last: Position) -> Any:
        found = self._route(proxy, name, make=False)
        mine = found[1].subscriptions.get(who) if found else None
        if found is None or mine is None or not mine.on or mine.number != number:
            return None
        if last != mine.acknowledged:
            index = next((i for i, span in enumerate(mine.backlog) if span.holds(last)), None)
            if index is None:
                return "behind"
            span = mine.backlog[index]
            rest = Span(span.log, last[1] + 1, span.high, span.watermark, span.since)
            mine.backlog, mine.acknowledged = [rest, *mine.backlog[index + 1 :]], last
        gone, out = self.trimmed[name], []
        for position, record in found[1].walk(mine.backlog):
            if record is not None and position not in gone:
                out.append((position, record))
        return out[:3]

    # Proxies and servers

    def operate(self) -> None:
        random, chance = self.random, self.random.random()
        held = [(s, t) for s, topics in enumerate(self.servers) for t in topics if (s, t) not in self.frozen]
        if chance < 0.3:
            self._announce(random.randrange(len(self.servers)), random.choice(self.proxies))
        elif chance < 0.4:
            self._stop_or_start(random.choice(self.proxies))
        elif chance < 0.5 and held:
            server, name = random.choice(held)
            others = [s for s in range(len(self.servers)) if s != server and (s, name) not in self.frozen]
            if others and not any(topic == name for _, topic in self.frozen):
                self.frozen[server, name] = random.choice(others)
        elif chance < 0.6 and self.frozen:
            self._merge(*random.choice(list(self.frozen)))
        elif held:
            self._trim(*random.choice(held))

    def _stop_or_start(self, proxy: Proxy) -> None:
        if not proxy.up:
            proxy.up = True
            return
        proxy.up, proxy.holders = False, defaultdict(set)
        if self.random.random() < 0.5 and not any(one.untold for one in self.proxies):
            proxy.rows, proxy.untold = {}, set(range(len(self.servers)))
            self.figures["files lost"] += 1

    def _announce(self, server: int, proxy: Proxy) -> None:
        """Tell a proxy the topics of a server; both tell their patterns."""
        if not proxy.up:
            return
        for topic in TOPICS:
            (proxy.holders[topic].add if topic in self.servers[server] else proxy.holders[topic].discard)(server)
        if self.random.random() < self.telling or self.settling:
            self._tell(server, proxy)

    def _tell(self, server: int, proxy: Proxy) -> None:
        told = self.told[server]
        proxy.untold.discard(server)
        for key, row in list(proxy.rows.items()):
            self._admit(told, key, row)
        for key, row in list(told.items()):
            self._admit(proxy.rows, key, row)
        for topic in self.servers[server].values():
            self._end(topic, told)

    def _merge(self, giver: int, name: str) -> None:
        receiver = self.frozen[giver, name]
        if (receiver, name) in self.frozen:
            return
        del self.frozen[giver, name]
        given, held = self.servers[giver].pop(name), self._topic(receiver, name)
        if not self.rules["keep"]:
            given.subscriptions = {who: one for who, one in given.subscriptions.items() if who in held.subscriptions}
        held.merge(given, EVERYTHING)
        self.figures["merges"] += 1

    def _trim(self, server: int, name: str) -> None:
        topic, told = self.servers[server][name], self.told[server]
        if any(name in topics for other, topics in enumerate(self.servers) if other != server):
            return
        up = [proxy for proxy in self.proxies if proxy.up]
        equal = [proxy for proxy in up if proxy.rows == told or not self.rules["ask"]]
        if 2 * len(equal) <= len(self.proxies):
            if up:
                self._tell(server, self.random.choice(up))
            return
        self._end(topic, told)
        self._enter(name, topic, told)
        spans = [span for one in topic.subscriptions.values() for span in one.backlog]
        time = self.clock + self.skew[server]
        for log, records in topic.logs.items():
            for offset, record in enumerate(records, 1):
                needed = any(span.holds((log, offset)) and record.stamp > span.since for span in spans)
                if not needed and record.stamp <= time - HOLD and (log, offset) not in self.trimmed[name]:
                    self.trimmed[name].add((log, offset))
                    self.figures["let go"] += 1

    def _key(self, who: str, pattern: str) -> str:
        return f"*{who}:{pattern}" if self.rules["apart"] else who

    def _end(self, topic: Topic, told: Mapping[Key, Row]) -> None:
        """End the entries of ended patterns, and those that the client's own subscription covers."""
        for (who, pattern), row in told.items():
            mine, own = topic.subscriptions.get(self._key(who, pattern)), topic.subscriptions.get(who)
            if mine is None or not mine.on:
                continue
            ended = not row.on and mine.number < row.number
            if ended or (row.on and _covers(own, row) and self.rules["apart"]):
                mine.on, mine.backlog = False, []
                mine.number -= row.on  # Once the client's own subscription has ended, it can be made again.

    def _enter(self, name: str, topic: Topic, told: Mapping[Key, Row]) -> None:
        for (who, pattern), row in told.items() if self.rules["enter"] else ():
            key, own = self._key(who, pattern), topic.subscriptions.get(who)
            mine = topic.subscriptions.get(key)
            late = mine is not None and mine.number >= row.number
            if row.on and matches(pattern, name) and not late and not _covers(own, row):
                topic.subscriptions[key] = self._entry(topic, row.number, row.stamp)
                self.figures["entered"] += 1

    # The end

    def run(self, steps: int) -> World:
        """In the end late requests arrive, all is merged, and the subscribers receive the rest."""
        rate = self.random.choice((0.1, 0.3, 0.5))
        actors = [*self.publishers, *self.subscribers]
        for _ in range(steps):
            chance = self.random.random()
            if chance < rate:
                self.operate()
            elif chance < rate + 0.05 and self.late:
                self._deliver_late()
            else:
                self.random.choice(actors).step()
        self.settling = True
        for proxy in self.proxies:
            proxy.up = True
        while self.late:
            self._deliver_late()
        self._settle()
        for publisher in self.publishers:
            publisher.finish()
        for subscriber in self.subscribers:
            subscriber.finish()
        self._settle()
        for subscriber in self.subscribers:
            subscriber.judge()
        return self

    def _deliver_late(self) -> None:
        proxy, kind, rest = self.late.pop(self.random.randrange(len(self.late)))
        self.serve(proxy, kind, *rest)

    def _settle(self) -> None:
        for _ in range(3):
            for proxy in self.proxies:
                for server in range(len(self.servers)):
                    self._announce(server, proxy)
            for giver, name in list(self.frozen):
                self._merge(giver, name)
            for name in TOPICS:
                for server in [s for s, topics in enumerate(self.servers) if name in topics][1:]:
                    self.frozen[server, name] = next(s for s, topics in enumerate(self.servers) if name in topics)
        for server, topics in enumerate(self.servers):
            for name in list(topics):
                self._trim(server, name)


def _covers(own: Subscription | None, row: Row) -> bool:
    """Return whether the client's own subscription has all that the pattern's entry would hold."""
    return own is not None and own.on and own.since <= row.stamp - SKEW
