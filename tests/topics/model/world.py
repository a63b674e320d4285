"""A random model of looking back into a topic: retention, seeks, compaction and tables (T4 to T19).

Four servers may hold the topic at once. Requests are late, lost and repeated, publishers lose power, a sink publishes
again, clocks differ, and holders merge and move. One policy per run keeps records by age, number, bytes or key, with
or without `drop` and a limit of bytes for a topic without a sole owner.

Checked:

* A reader receives each message that was put after its subscription, once, in its publisher's order, or a report that
  it is lost. A reader without a claim to a message gets no such report.
* A seeker receives in each epoch all that its start and `keep` promise, once, and no message from before the start.
* After each round the topic still has the records that `keep` promises, and compaction has not changed the table.
* All views are equal to the history's table in the end. A merge only makes the order more definite.

Not modelled: batches of several records (a record is a row), a change of settings in a run, restored copies, rows that
compaction splits (T14), the oldest position in the answer `gone`, time-outs, proxies and standbys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.topics.model.messages import Answer, Get, Message, Publish, Put, Read, Subscribe
from tests.topics.model.publishers import ROWS_MAX, Publisher, Sink
from tests.topics.model.readers import Reader, Seeker
from tests.topics.model.retention import compact, draw_policy, fold, retain
from tests.topics.model.starting import begin
from tests.topics.model.tables import View
from tests.topics.model.topic import SKEW, Content, Position, Record, Span, Subscription, Topic

SERVERS: Final = 4


@dataclass
class Sent:
    """The steps at which a message was put, answered and last taken; its stamps at each server that took it."""

    invoked: int
    answered: int = 0
    taken: int = 0
    stamps: list[int] = field(default_factory=list)


class World:
    """One run.

    Args:
        seed: everything that is drawn.
        rules: which hold.
    """

    def __init__(self, seed: int, rules: Mapping[str, bool]) -> None:
        self.random, self.rules, self.clock, self._logs = Random(seed), rules, 0, 0
        self.topics: list[Topic | None] = [None] * SERVERS
        self.skew = [self.random.randrange(SKEW) for _ in range(SERVERS)]
        self.frozen: dict[int, int] = {}
        self.late: list[tuple[int, Message]] = []
        self.violations: list[tuple[str, ...]] = []
        self.figures: Counter[str] = Counter()
        self.puts: dict[Content, Sent] = {}
        self.seen: list[Position] = []
        theme = self.random.choice(("mixed", "seeks", "tables"))
        self.policy = draw_policy(self.random, theme)
        readers, seekers, views = self._cast(theme)
        self.publishers = [Publisher(self, "p0"), Publisher(self, "p1"), Sink(self, "sink")]
        self.readers = [Reader(self, f"x{n}") for n in range(readers)]
        self.readers += [Seeker(self, f"r{n}") for n in range(seekers)]
        self.views = [View(self, f"v{n}") for n in range(views)]
        self.near = self.random.choice((0.2, 0.6, 0.9, 0.99, 1.0))
        self.splits = self.random.choice((0.1, 0.3, 0.5))

    def _cast(self, theme: str) -> tuple[int, int, int]:
        """Return how many readers, seekers and views there are."""
        draw = self.random.choice
        if theme == "seeks":
            return 0, 4, 0
        if theme == "tables":
            return draw((0, 0, 1)), draw((0, 0, 1)), 3
        return draw((0, 1, 3)), draw((0, 1, 2)), 1 if self.policy.keep in {"ever", "latest"} else 0

    def now(self) -> int:
        self.clock += 1
        return self.clock

    def holders(self) -> list[int]:
        return [server for server, topic in enumerate(self.topics) if topic]

    def is_sole_owner(self, server: int) -> bool:
        return self.holders() == [server]

    def send(self, contents: Iterable[Content]) -> None:
        for content in contents:
            self.puts[content] = Sent(self.now())

    def confirm(self, contents: Iterable[Content]) -> None:
        for content in contents:
            self.puts[content].answered = self.now()

    def object_to(self, *violation: str) -> None:
        self.violations.append(violation)

    def _topic(self, server: int) -> Topic:
        topic = self.topics[server]
        if topic is None:
            self._logs += 1
            topic = self.topics[server] = self.make(f"L{self._logs}")
        return topic

    # Hooks of the worlds that build on this one

    def make(self, log: str) -> Topic:
        return Topic(log)

    def draw_due(self) -> int:
        """Return when a new put is due; 0: at once."""
        return 0

    def settle(self, server: int) -> None:
        """Finish the last holder's open work, before the readers finish."""

    # Questions of the checks

    def record_at(self, position: Position) -> Record:
        log, _ = position
        return next(topic.record(position) for topic in self.topics if topic and log in topic.logs)

    def is_bare(self, position: Position) -> bool:
        return any(topic and position in topic.bare for topic in self.topics)

    def is_kept(self, content: Content, sent: Sent, answered: int) -> bool:
        """Return True if `keep` promises the message to a reader with a start that was answered at this step."""
        if self.policy.keep == "age":
            return min(sent.stamps) > answered + SKEW - self.policy.amount
        if not self.policy.counts:
            return self.policy.keep == "ever"
        return content in self._newest(self.holders()[0])

    def _newest(self, server: int) -> set[Content]:
        """Return the messages that `keep` protects, of all that were ever stored at a server.

        Without a sole owner, the limit in bytes may take bodies of records that a merge then counts among the newest.
        """
        kept, size, topic = set(), 0, self._topic(server)
        for position, record in reversed(topic.ever_shown()):
            if size >= self.policy.amount:
                break
            if position not in topic.bare:
                kept.add(record.content)
            size += record.size if self.policy.keep == "bytes" else 1
        return kept

    def _look_at(self, server: int) -> None:
        """Check that the topic still has the records that its settings promise."""
        topic = self._topic(server)
        shown = topic.shown()
        if self.policy.compacts and fold(shown) != fold(topic.ever_shown()):
            self.object_to("the table changed")
        elif self.policy.counts and not self._newest(server) <= {record.content for _, record in shown}:
            self.object_to("less is kept than promised")

    # Requests

    def request(self, message: Message) -> Answer | None:
        """Send to some server; None if the request or its answer is lost or late."""
        holders, random = self.holders(), self.random
        near = holders and random.random() < self.near
        server = random.choice(holders) if near else random.randrange(SERVERS)
        fate = random.random()
        # The Messenger removes exact repeats. A server that gave the topic away would take a repeated SUBSCRIBE as new.
        if fate < 0.1 or (fate > 0.98 and not isinstance(message, Subscribe)):
            self.late.append((server, message))
        if fate < 0.15:
            return None
        answer = self.serve(server, message)
        return None if fate < 0.3 else answer

    def serve(self, server: int, message: Message) -> Answer | None:
        """Have a server take a message now."""
        if server in self.frozen or (self.topics[server] is None and isinstance(message, Get | Read)):
            return None
        topic, time = self._topic(server), self.now() + self.skew[server]
        match message:
            case Put():
                return self._put(server, topic, time, message)
            case Publish():
                return self._publish(server, topic, time, message)
            case Subscribe():
                return self._subscribe(server, topic, time, message)
            case Get():
                return self._get(topic, message)
            case Read():
                return self._read(topic, message)

    def _put(self, server: int, topic: Topic, time: int, put: Put) -> Answer | None:
        last, end = topic.last.get(put.publisher, 0), put.counter + len(put.contents) - 1
        if end <= last:
            return Answer("duplicate", number=last)
        if put.previous > last or (put.marked and not self.is_sole_owner(server)):
            return None
        self._append(topic, time, put.publisher, put.counter, put.contents)
        return Answer("success", number=end)

    def _publish(self, server: int, topic: Topic, time: int, batch: Publish) -> Answer | None:
        last = topic.last.get(batch.publisher, 0) // ROWS_MAX
        if batch.batch <= last:
            return Answer("duplicate")
        if last != batch.batch - 1 and not self.is_sole_owner(server):
            return None
        self._append(topic, time, batch.publisher, batch.batch * ROWS_MAX, batch.rows)
        return Answer("success")

    def _append(self, topic: Topic, time: int, publisher: str, first: int, contents: tuple[Content, ...]) -> None:
        for counter, content in enumerate(contents, first):
            sent = self.puts[content]
            sent.stamps.append(topic.append(publisher, counter, content, time, self.clock))
            sent.taken = self.clock

    def _subscribe(self, server: int, topic: Topic, time: int, asked: Subscribe) -> Answer | None:
        known = topic.subscriptions.get(asked.name)
        if known is not None and asked.number <= known.number:
            return Answer("success", known.acknowledged) if asked.number == known.number else None
        if not asked.on:
            off = Subscription(asked.number, False, time, [], (topic.open, topic.end - 1))
            topic.subscriptions[asked.name] = off
            return Answer("success", off.acknowledged)
        begun = begin(topic, asked.start, time, self.rules, sole_owner=self.is_sole_owner(server))
        if begun.refusal:
            if begun.refusal == "gone" and self._is_held(asked.start.position):
                self.object_to("gone, but held", asked.name)
            return Answer(begun.refusal)
        if self.policy.keep == "age" and self.rules["owed"]:
            begun.since = max(begun.since, time - self.policy.amount - SKEW)
        if any(record is None for _, record in topic.walk(begun.spans)):
            self.object_to("a new reader gets a loss report", asked.name)
        first = begun.spans[0] if begun.spans else Span(topic.open, topic.end)
        made = Subscription(asked.number, True, begun.since, begun.spans, (first.log, first.low - 1))
        topic.subscriptions[asked.name] = made
        return Answer("success", made.acknowledged, begins=begun.begins)

    def _is_held(self, position: Position) -> bool:
        log, offset = position
        held = [topic for topic in self.topics if topic and log in topic.logs]
        return any(max(topic.low[log], topic.floors[log]) <= offset <= len(topic.logs[log]) for topic in held)

    def _get(self, topic: Topic, get: Get) -> Answer | None:
        known = topic.subscriptions.get(get.name)
        if known is None or not known.on or get.number != known.number:
            return None
        for index, span in enumerate(known.backlog):
            if span.holds(get.last):
                known.backlog = [replace(span, low=get.last[1] + 1), *known.backlog[index + 1 :]]
                known.acknowledged = get.last
                break
        else:
            if get.last != known.acknowledged:
                return Answer("behind")
        items = list(topic.walk(known.backlog, reports=self.rules["lost"]))
        if any(record is None and position[1] < topic.low[position[0]] for position, record in items):
            self.object_to("a row is missing", get.name)
        if get.after != get.last:
            places = [place for span in known.backlog for place in topic.positions(span)]
            passed = set(places[: places.index(get.after) + 1]) if get.after in places else set(places)
            items = [one for one in items if one[0] not in passed]
        return Answer("records", items=tuple(items[: get.limit]))

    def _read(self, topic: Topic, read: Read) -> Answer:
        rows = topic.shown()
        if read.position is not None:
            if self.rules["again"] and read.token not in topic.tokens:
                return Answer("again")
            place = topic.place_of(read.position)
            gone = [topic.place_of(position) for position in topic.gone[read.began :]]
            if self.rules["tombstones"] and any(place < one for one in gone):
                return Answer("again")
            rows = [row for row in rows if topic.place_of(row[0]) > place]
        return Answer("records", number=len(topic.gone), items=tuple(rows[: read.limit]), token=topic.token)

    # Servers

    def operate(self) -> None:
        """Freeze, merge, or let go of something."""
        owners = [server for server in self.holders() if server not in self.frozen]
        if self.random.random() < self.splits:
            self._merge_some(owners)
        elif owners:
            server = self.random.choice(owners)
            topic, time = self._topic(server), self.now() + self.skew[server]
            sole_owner = self.is_sole_owner(server) or not self.rules["sole_owner"]
            if not self.policy.compacts:
                retain(topic, self.policy, time, self.rules, self.figures, sole_owner=sole_owner)
            elif sole_owner:
                compact(topic, time, self.rules, self.figures, self.random)
            self._look_at(server)

    def _merge_some(self, owners: list[int]) -> None:
        if self.frozen and self.random.random() < 0.6:
            self._merge(*self.random.choice(sorted(self.frozen.items())))
        elif owners:
            giver = self.random.choice(owners)
            receiver = self.random.choice([server for server in range(SERVERS) if server != giver])
            if receiver not in self.frozen and giver not in self.frozen.values():
                self.frozen[giver] = receiver

    def _merge(self, giver: int, receiver: int) -> None:
        given = self.topics[giver]
        if receiver in self.frozen or given is None:
            return
        topic = self._topic(receiver)
        if topic.has_let_go and given.has_let_go and self.rules["sole_owner"]:
            self.object_to("both sides have let go of something")
        if wrong := topic.merge(given, self.rules):
            self.object_to(wrong)
        self.topics[giver] = None
        del self.frozen[giver]
        self.figures["merges"] += 1
        self._look_at(receiver)

    def _serve_late(self) -> None:
        self.serve(*self.late.pop(self.random.randrange(len(self.late))))

    def run(self, steps: int) -> World:
        """In the end, late messages arrive, all holders merge, and each reader receives its backlog."""
        rate, random = self.random.choice((0.03, 0.1, 0.2)), self.random
        reading = [*self.readers, *self.views]
        actors = [*self.publishers, *reading]
        for _ in range(steps):
            if random.random() < rate:
                self.operate()
            elif self.late and random.random() < 0.1:
                self._serve_late()
            else:
                random.choice(actors).step()
        while self.late:
            self._serve_late()
        while self.frozen or len(self.holders()) > 1:
            if not self.frozen:
                first, *_, last = self.holders()
                self.frozen[last] = first
            for giver in sorted(self.frozen):
                self._merge(giver, next(server for server in range(SERVERS) if server not in self.frozen))
        for server in self.holders():
            for publisher in self.publishers:
                publisher.finish(server)
            self.settle(server)
            for reader in reading:
                reader.finish(server)
        return self
