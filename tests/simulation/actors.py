"""What users do: they put, subscribe, process, leave and come back, and write down what happened.

They know the client's documented calls and errors and nothing else. What a subscriber has processed is what stands in
its own table, which its handler writes; what it got by `get` is what `get` returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import apsw

from pubsub.client.core.chunk import Chunk
from pubsub.client.core.core import SYNC_SECONDS
from pubsub.client.core.message import Batch, Message
from pubsub.client.storage.transaction import Ticket
from pubsub.errors import (
    DataLoss,
    InDoubt,
    NotSubscribed,
    Refused,
    StateCopied,
    StorageError,
    Superseded,
)
from tests.simulation.clients import Call, Cancelled, ClientNode, HandlerError
from tests.simulation.disk import NAME
from tests.simulation.history import ABORTED, ACKED, ASKED, EXCUSED, KEPT, History, Put, Reading, Seen
from tests.simulation.world import EPOCH, World

FAREWELL_SECONDS = 1.5
"""After the last fault: when a last message is put to each topic."""

KILLING = {"kill", "kill in commit"}

GIVING_UP = {"abandon", "put back"}
"""After these a client may see again what it had of a log that is gone: its second net is needed."""


CHUNK_MAX = 8
"""What an iteration takes at a time in these runs."""


class Application:
    """The program of one client: threads that publish, and threads that read some topics.

    Each topic has a thread that joins and leaves it and takes in one way; in some runs others take beside that, in ways
    of their own. All of them are flows of the one session, so they interleave wherever one of them waits.
    """

    def __init__(self, world: World, node: ClientNode, history: History, topics: Callable[[], list[str]]) -> None:
        self.world, self.node, self.history, self.topics = world, node, history, topics
        self.name = node.name
        self.life = 0
        self.count = 0
        random = world.random
        # Somebody publishes and somebody reads in every run.
        self.publishes = random.random() < 0.8 or node.name == "c1"
        self.reads = random.random() < 0.9 or not self.publishes or node.name == "c2"
        self.by_get = random.random() < 0.25
        self.relays = not self.by_get and random.random() < 0.5
        ways = ("get", "iterate", "iterate", "process") if self.by_get else ("process",)
        self.beside = [random.choice(ways) for _ in range(random.choice((0, 0, 1, 3)))]
        self.publishers = ("main", "side") if random.random() < 0.3 else ("main",)
        # It reads without the client's second net, so it must not leave: who comes back may need that.
        self.bare = not self.by_get and random.random() < 0.3 and not GIVING_UP & world.fate.faults.keys()
        self.finishing = False
        self.farewells: list[str] = []
        self.farewell_at = 0.0
        self.flushed = not self.publishes
        self.drained: set[str] = set()
        self.left: set[str] = set()
        """Of these it was told at the end that it has left: their own threads take nothing more."""
        self.forgotten: set[str] = set()
        """Of these its directory, which was emptied, knows no subscription: an operator is to end what servers have."""
        self.copied = 0.0
        self.getting: dict[Call, tuple[str, int]] = {}
        self.iterating: dict[str, list[Chunk]] = {}
        self.iterated: dict[str, float] = {}
        """When an iteration was last under way, by topic."""
        self.relaying = False
        self._tried: set[tuple[str, str]] = set()
        """What a handler was given, by topic and body."""
        self._letters: dict[tuple[str, str], set[str]] = {}
        self._first_asked: dict[str, dict[str, float]] = {}
        self.opened_at = 0.0
        self.opened: dict[tuple[str, str], float] = {}
        """When the process was started, or told that it is subscribed, that took a message, by topic and body."""
        self.asking: set[object] = set()
        """Calls under way that may go above a later opening."""
        self.anew = 0.0
        self.readers: set[str] = set()
        node.on_start, node.on_end, node.on_power_cut = self._started, self._ended, self._lost_power

    # Life

    @property
    def opening(self) -> float:
        """Since when this opening of the client counts: a call that is under way may go above a later one."""
        return self.world.now if self.asking else max(self.opened_at, self.anew)

    def _started(self) -> None:
        self.readers = set()
        self.asking.clear()
        self.opened_at = self.world.now
        self.flushed = False
        if self.bare:
            self.node.without_net()
        self.drained.clear()
        self.left.clear()
        known = self.node.calls.subscribing.subscriptions()
        for reading in self._readings():
            on = bool(known.get(reading.topic, {}).get("on"))
            if reading.confirmed is not None and not on:
                self.history.violate(f"{self.name} is not subscribed to {reading.topic} any more after its start")
            if on and not reading.wanted:  # An older directory, or it was killed before it had left.
                reading.wanted = True
                reading.asked = 0.0 if self.life else reading.asked
        self.iterating = {}
        self.relaying = False
        for thread in self.publishers:
            self.node.later(0.01, partial(self._publish, thread))
        self.node.later(0.01, self._look_for_topics)

    def _ended(self, acting: Call | None) -> None:
        """The process is gone. In a get, or while it iterated, it may have taken what nobody saw."""
        if acting is not None and acting in self.getting:
            topic, most = self.getting[acting]
            self.history.reading(self.name, topic, by_get=True).excused += most
        self.getting.clear()
        for topic, chunks in self.iterating.items():
            left = sum(chunk.total - chunk.handed for chunk in chunks)
            if not self.node.closed:  # Who closes gives it back.
                self.history.reading(self.name, topic, by_get=True).excused += left
            elif left:
                self.history.counters["iterations that a close gave back"] += 1
            if left and not self.node.closed:
                self.history.counters["clients gone while they iterate"] += 1
        self.iterating.clear()
        if self.relaying:
            self.history.counters["clients gone in a handler that put"] += 1

    def _lost_power(self) -> None:
        """Its rows that were not fsynced may be gone; what it got and did not sync comes again."""
        self.getting.clear()
        if self.node.settings.power_safe:
            return
        for put in self.history.states((ASKED, KEPT)):
            if put.source[0] == self.name and not put.group and put.follows is None:
                put.state = EXCUSED
        for reading in self._readings():
            if reading.by_get:
                reading.begin_part()
            if self.iterated.get(reading.topic, -1.0) > self.world.now - SYNC_SECONDS - 0.2:
                reading.excused += CHUNK_MAX  # That what was left of an iteration is given back is not on the disk yet.

    def directory_replaced(self, since: float | None) -> None:
        """The directory is empty (`since` is None) or as it was at some time: what came after is unknown to it."""
        self.life += 1
        for put in self.history.puts.values():
            if (put.source[0] == self.name and (put.state in {ASKED, KEPT} or put.follows or put.group)) or (
                put.source[0] == self.name and since is not None and put.invoked >= since
            ):
                put.state = EXCUSED
        for reading in self._readings():
            reading.confirmed = None
            reading.wanted = False
            reading.begin_part(emptied=True)

    def twinned(self) -> None:
        """A copy of the directory is opened elsewhere: what either gets the other does not."""
        self.life += 1
        self.copied = self.world.now
        for reading in self._readings():
            reading.shared = True

    def _readings(self) -> list[Reading]:
        return [reading for reading in self.history.readings.values() if reading.client == self.name]

    def collect(self) -> None:
        """Read the application's own tables, as they are on the disk now."""
        path = f"/{self.name}/{self.name}.db"
        if path not in self.node.host.disk.files:
            return
        db = apsw.Connection(path, vfs=NAME)
        db.pragma("locking_mode", "exclusive")
        try:
            tables = {name for (name,) in db.execute("select name from sqlite_schema")}
            if "seen" not in tables:
                return
            rows = list(db.execute("select topic, body, id, stamp from seen order by n"))
            letters = list(
                db.execute("select topic, body, first, stamp from pubsub_dead_letters where body is not null")
            )
            self.history.rows[self.name] = {row[1] for row in rows} | {
                token for (token,) in db.execute("select token from sent")
            }
        finally:
            db.close()
        for reading in self._readings():
            first = self._first_asked.get(reading.topic, {})
            reading.handled = [
                Seen(topic, body, position, stamp, first.get(body, 0.0))
                for topic, body, position, stamp in rows
                if topic == reading.topic
            ]
            # Where a dead letter stands between the others is not recorded; that it came, and once, is.
            handled = {seen.body for seen in reading.handled}
            for topic, body, *_ in letters:
                text = bytes(body).decode()
                if topic == reading.topic:
                    if text in handled:
                        self.history.violate(f"{self.name} recorded {text} and has it among the dead letters")
                    self._letters.setdefault((self.name, topic), set()).add(text)

    def settle_letters(self) -> None:
        """Dead letters were delivered: they go to the end of what was seen, as parts of their own."""
        for (_, topic), texts in self._letters.items():
            reading = self.history.readings[self.name, topic]
            for text in sorted(texts):
                put = self.history.puts.get(text)
                if put is None or put.topic != topic:
                    self.history.violate(f"{self.name} buried {text!r}, which nobody put to {topic}")
                else:
                    reading.parts.insert(0, [Seen(topic, text, f"x{text}.1", 1e12)])
                if (topic, text) not in self._tried and not (self.node.cut_off or self.life):
                    self.history.violate(f"{self.name} buried {text} of {topic}, which no handler was given")

    # Publishing

    def _next(self, action: Callable[[], None]) -> None:
        seconds = 0.02 if self.finishing else self.world.random.expovariate(1 / self.world.fate.think)
        self.node.later(seconds, action)

    def _new(self, topic: str, thread: str = "main", **facts: Any) -> Put:
        self.count += 1
        body = f"{self.name}:{self.count}"
        put = Put(body, (self.name, self.life, thread), self.count, topic, self.world.now, **facts)
        return self.history.put(put)

    def _publish(self, thread: str) -> None:
        again = partial(self._publish, thread)
        if self.finishing:
            if thread == "main":
                self.flushed = False
                if self.world.now >= self.farewell_at and self.farewells:
                    self._put(self.farewells.pop(), 1, thread)
                else:
                    self._flush(self._finished_flush, again)
            return
        if not self.publishes or not self.topics():
            self._next(again)
            return
        random = self.world.random
        # Half of it goes to the newest topic, of which not everybody may have heard yet.
        topic = random.choice(self.topics()) if random.random() < 0.5 else self.topics()[-1]
        chance = random.random()
        if self.world.fate.bursts and random.random() < self.world.fate.bursts:
            self._burst(topic, random.randrange(2, 7), thread)
        elif chance < 0.3:
            self._put(topic, 1, thread)
        elif chance < 0.5:
            self._put_at_once(topic, random.randrange(2, 6), thread)
        elif chance < 0.8:
            self._put(topic, random.randrange(2, 9), thread)
        elif chance < 0.86:
            self._put(topic, random.randrange(1, 4), thread, wait=False)
        elif chance < 0.94:
            self._transact(thread)
        elif chance < 0.98:
            self._flush(partial(self._next, again), again)
        else:
            self._discard(topic, again)

    def _put(self, topic: str, count: int, thread: str, *, wait: bool = True) -> None:
        puts = [self._new(topic, thread) for _ in range(count)]
        earlier = self._unresolved(topic)

        def then(result: Any, error: Exception | None) -> None:
            if error is None:
                if isinstance(result, Ticket):
                    puts[0].counter = result.counter
                for put in puts:
                    self._move(put, ACKED if wait else KEPT)
                for put in earlier if wait else ():
                    self._move(put, ACKED)
            elif isinstance(error, InDoubt):
                for put in puts:
                    self._move(put, KEPT)
            elif isinstance(error, Cancelled) and puts[0].body.encode() in error.open_bodies:
                self._move(puts[0], ABORTED)
            self._failed(error)
            self._next(partial(self._publish, thread))

        bodies, calls = [put.body.encode() for put in puts], self.node.calls.puts
        flow: Any = calls.put_many(topic, bodies, None, None, wait)
        if count == 1 and wait:
            flow = calls.put(topic, bodies[0], b"", None, None)
        self.node.call(flow, then)

    def _put_at_once(self, topic: str, count: int, thread: str) -> None:
        """Calls that are begun one after the other before any is over, as by tasks; the last one may be no group's."""
        random = self.world.random
        puts = [self._new(topic, thread) for _ in range(count)]
        earlier = self._unresolved(topic)
        left = set(range(count))

        def then(index: int, result: Any, error: Exception | None) -> None:
            put = puts[index]
            if error is None:
                put.counter = result.counter if isinstance(result, Ticket) else result[0].counter
                for one in (put, *earlier):
                    self._move(one, ACKED)
            elif isinstance(error, InDoubt):
                self._move(put, KEPT)
            elif isinstance(error, Cancelled) and put.body.encode() in error.open_bodies:
                self._move(put, ABORTED)
            self._failed(error)
            left.discard(index)
            if not left:
                self._next(partial(self._publish, thread))

        calls, others, begun = self.node.calls.puts, random.random() < 0.3, list[Call]()
        for index, put in enumerate(puts):
            body, timeout = put.body.encode(), random.choice((None, None, None, 0.001, 0.1))
            if others and index == count - 1:
                flow: Any = calls.put_many(topic, [body], timeout, None, True)
            else:
                flow = calls.put(topic, body, b"", None, timeout)
            self.node.call(flow, partial(then, index), begun.append)
        if random.random() < 0.2:  # At once, so that it may be in a group that is not written yet.
            self.node.give_up(random.choice(begun))

    def _burst(self, topic: str, rows: int, thread: str) -> None:
        """Puts that wait for nothing but room, one right after the other, and one that waits for all of them."""
        if rows == 1:
            self._put(topic, 1, thread)
            return
        put = self._new(topic, thread)

        def then(result: Any, error: Exception | None) -> None:
            if error is None:
                self._move(put, KEPT)
            self._failed(error)
            if error is None:
                self._burst(topic, rows - 1, thread)
            else:
                self._next(partial(self._publish, thread))

        self.node.call(self.node.calls.puts.put_many(topic, [put.body.encode()], None, None, False), then)

    def _unresolved(self, topic: str) -> list[Put]:
        return [p for p in self.history.states((KEPT,)) if p.source[0] == self.name and p.topic == topic]

    def _move(self, put: Put, state: str) -> None:
        if put.state not in {EXCUSED, ABORTED, ACKED}:
            put.state = state
            if state == ACKED:
                put.acked_at = self.world.now

    def _transact(self, thread: str) -> None:
        random, calls = self.world.random, self.node.calls
        self.node.operations += 1
        token = f"{self.name}/{self.life}/{self.count}"
        aborts = random.random() < 0.15
        puts: list[Put] = []
        try:
            with calls.puts.transaction() as transaction:
                for _ in range(random.randrange(1, 4)):
                    put = self._new(random.choice(self.topics()), thread, group=token)
                    puts.append(put)
                    for _ in calls.puts.put_many(put.topic, [put.body.encode()], None, transaction, True):
                        pass
                transaction.execute("insert into sent (token) values (?)", (token,))
                if aborts:
                    raise HandlerError
        except HandlerError:
            for put in puts:
                put.state = ABORTED
        except (StorageError, StateCopied, apsw.Error) as error:
            self._failed(error)
        else:
            for put in puts:
                self._move(put, KEPT)
        self._next(partial(self._publish, thread))

    def _discard(self, topic: str, then: Callable[[], None]) -> None:
        self.node.operations += 1
        for put in self.history.states((ASKED, KEPT)):
            if put.source[0] == self.name and put.topic == topic:
                put.state = EXCUSED
                for other in self.history.groups.get(put.group, ()):
                    self._move(other, EXCUSED)
        for put in self.history.puts.values():
            if put.follows is not None and put.source[0] == self.name and put.topic == topic:
                put.state = EXCUSED
        try:
            self.node.calls.discard(topic)
        except StorageError as error:
            self._failed(error)
        self._next(then)

    def _flush(self, then: Callable[[], None], again: Callable[[], None]) -> None:
        kept = [put for put in self.history.states((KEPT,)) if put.source[0] == self.name]

        def finished(_: Any, error: Exception | None) -> None:
            if error is None:
                for put in kept:
                    self._move(put, ACKED)
                then()
                return
            self._failed(error)
            self._next(again)

        self.node.call(self.node.calls.puts.flush(None), finished)

    def _finished_flush(self) -> None:
        self.flushed = not self.farewells
        self.node.later(0.5, partial(self._publish, "main"))

    def _failed(self, error: Exception | None) -> None:
        """An error that a call raised: those that may be, and those that say that something is broken."""
        if isinstance(error, StateCopied):
            if not self.life:
                self.history.violate(f"{self.name}: {error}")
            self._renew()
        elif isinstance(error, DataLoss) and self._may_lack(error):
            self.node.compare()  # The place behind it is stored over with the next message that is taken.
            self._lack(error)
        elif isinstance(error, DataLoss) and self.history.tell(self.name, error.topic, error.first, self.node.life):
            # Its subscription has been made anew: what is put from now on reaches it.
            reading = self.history.reading(self.name, error.topic, by_get=self.by_get)
            reading.confirmed = self.world.now if reading.confirmed is not None else None
        elif isinstance(error, DataLoss | Refused) or (
            isinstance(error, StorageError | apsw.Error) and not self.node.host.disk.explains(error)
        ):
            self.history.violate(f"{self.name}: {type(error).__name__}: {error}")

    def _may_lack(self, error: DataLoss) -> bool:
        """Whether records of a topic may be lost: bits of it have flipped, or a limit was reached."""
        known = self.world.fate.tight or error.topic in self.history.damaged
        return known and "hand them out" in error.reason

    def _lack(self, error: DataLoss) -> None:
        reading = self.history.reading(self.name, error.topic, by_get=self.by_get)
        if reading.lost.get(error.first) == self.node.life:
            self.history.violate(f"{self.name} is told twice: {error}")
        elif error.first not in reading.lost and self.world.fate.tight:
            first, last = (int(place.partition(".")[2]) for place in (error.first, error.last))
            reading.excused += last - first + 1
        reading.lost[error.first] = self.node.life

    def _renew(self) -> None:
        self.directory_replaced(self.copied)
        try:
            # What is unfinished in an older copy may have been finished since: kept, it would be put once more.
            self.node.calls.renew(keep=False)
            self.node.compare()
        except StorageError as error:
            self._failed(error)

    # Reading

    def _look_for_topics(self) -> None:
        for topic in self.topics():
            if self.reads and topic not in self.readers:
                self.readers.add(topic)
                self.history.reading(self.name, topic, by_get=self.by_get)
                self._read(topic)
                for way in self.beside:
                    self._next(partial(self._read_beside, topic, way))
        if not self.finishing:
            self.node.later(0.3, self._look_for_topics)

    def _again(self, topic: str) -> None:
        self._next(partial(self._read, topic))

    def _read(self, topic: str) -> None:
        reading = self.history.reading(self.name, topic, by_get=self.by_get)
        chance = self.world.random.random()
        if reading.wanted and reading.confirmed is None:
            self._intend(topic, reading, on=True)
        elif not reading.wanted:
            if self.finishing and reading.asked is None:
                self.drained.add(topic)
            elif self.finishing or chance < 0.5:
                # Whoever left comes back at the end in some runs, and stays away in others.
                stays_away = self.finishing and (self.world.seed + len(topic) + self.count) % 2
                self._intend(topic, reading, on=not stays_away)
            else:
                self._again(topic)
        elif chance < 0.03 and not self.finishing and not self.bare:
            self._intend(topic, reading, on=False)
        else:
            self._take("get" if self.by_get else "process", topic, reading, partial(self._again, topic))

    def _read_beside(self, topic: str, way: str) -> None:
        """Another thread, which takes while there is a subscription, and leaves the end to the topic's own."""
        if self.finishing:
            return
        reading = self.history.reading(self.name, topic, by_get=self.by_get)
        again = partial(self._next, partial(self._read_beside, topic, way))
        if reading.wanted and reading.confirmed is not None:
            self._take(way, topic, reading, again)
        else:
            again()

    def _take(self, way: str, topic: str, reading: Reading, again: Callable[[], None]) -> None:
        {"get": self._get, "iterate": self._iterate, "process": self._process}[way](topic, reading, again)

    def _intend(self, topic: str, reading: Reading, *, on: bool) -> None:
        was, asked = reading.wanted, reading.asked
        if not on or reading.asked is None or not was:
            reading.confirmed = None
            if on:
                # What is renewed is subscribed already, from whenever the client has made it anew.
                already = self.node.calls.subscribing.subscriptions().get(topic, {}).get("on")
                reading.asked = 0.0 if already else self.world.now
        reading.wanted = on
        self.left.discard(topic)
        self.world.note(f"{self.name} asks to {'subscribe to' if on else 'leave'} {topic}")
        # From now until it is told it may go above a later opening, for all its topics.
        call = object()
        self.asking.add(call)

        def then(_: Any, error: Exception | None) -> None:
            self.world.note(f"{self.name} is told about {topic}: {type(error).__name__}")
            self.asking.discard(call)
            self.anew = self.world.now
            never = isinstance(error, NotSubscribed) and not on  # Its directory is another one than when it subscribed.
            if never and not self.life:
                self.history.violate(f"{self.name} wants to leave {topic} and is told that it was never subscribed")
            if error is None or never:
                if on:
                    reading.confirmed = self.world.now
                elif self.finishing:
                    self.drained.add(topic)
                    self.left.add(topic)
                    if never:
                        self.forgotten.add(topic)
                    return
            elif isinstance(error, StateCopied):
                self._failed(error)
            if error is not None and self.node.calls.subscribing.subscriptions().get(topic, {}).get("on") and not on:
                reading.wanted, reading.asked = True, asked  # Nothing of it happened.
            self._again(topic)

        self.node.call(self.node.calls.subscribing.intend(topic, on, None), then)

    def _process(self, topic: str, reading: Reading, again: Callable[[], None]) -> None:
        random = self.world.random
        timeout = 0.6 if self.finishing else random.choice((0.0, 0.1, 1.0))
        most = 50 if self.finishing else random.choice((1, 3, 20))
        first = self._first_asked.setdefault(topic, {})

        def handle(message: Any, transaction: Any) -> None:
            body = message.body.decode()
            self._check_not_left(topic, body)
            self.history.check_counter(self.name, body, message.counter)
            self._tried.add((topic, body))
            self.relaying = False
            self.node.operations += 1
            stamp = message.stamp / 1e6 - EPOCH
            transaction.execute(
                "insert into seen (topic, body, id, stamp) values (?, ?, ?, ?)", (topic, body, message.id, stamp)
            )
            first[body] = reading.asked or 0.0
            self.opened[topic, body] = self.opening
            if not self.finishing and random.random() < self.world.fate.handler_fails:
                raise HandlerError
            if self.relays and not body.startswith("r:") and int(body.rpartition(":")[2]) % 4 == 0:
                self._relay(topic, body, transaction)

        def then(taken: Any, error: Exception | None) -> None:
            self.relaying = False
            if taken or error:
                self.world.note(f"{self.name} processed {taken} of {topic}: {type(error).__name__}")
            self._received(topic, reading, taken, error, again)

        self.node.call(self.node.processing.process(topic, handle, timeout, most), then)

    def _relay(self, topic: str, body: str, transaction: Any) -> None:
        relayed = f"r:{self.name}:{self.life}:{topic}:{body}"
        put = self.history.puts.get(relayed)
        if put is None:
            self.count += 1
            target = self.topics()[self.count % len(self.topics())]
            source = (self.name, self.life, f"relay {topic}")
            put = Put(relayed, source, self.count, target, self.world.now, follows=(self.name, body))
            self.history.put(put)
        else:
            self.count += 1
            put.index = self.count
        put.invoked = self.world.now
        self.relaying = True
        if not self.finishing and KILLING & self.world.fate.faults.keys() and self.world.random.random() < 0.05:
            self.node.host.disk.kill_in = self.world.random.randrange(6)
        for _ in self.node.calls.puts.put_many(put.topic, [relayed.encode()], None, transaction, True):
            pass

    def _check_not_left(self, topic: str, body: str) -> None:
        if topic in self.left:
            self.history.violate(f"{self.name} got {body} of {topic}, which it was told that it has left")

    def _get(self, topic: str, reading: Reading, again: Callable[[], None]) -> None:
        random = self.world.random
        most = random.choice((1, 3, 20))
        timeout = 0.6 if self.finishing else random.choice((0.0, 0.1, 1.0))

        def then(batch: Any, error: Exception | None) -> None:
            for message in batch or ():
                self._got(reading, message)
            self._received(topic, reading, len(batch or ()), error, again)

        flow = self.node.calls.gets.get_many(topic, most, timeout)
        self.node.call(flow, then, lambda call: self.getting.update({call: (topic, most)}))

    def _got(self, reading: Reading, message: Message) -> None:
        self.node.operations += 1
        self._check_not_left(reading.topic, message.body.decode())
        self.history.check_counter(self.name, message.body.decode(), message.counter)
        stamp = message.stamp / 1e6 - EPOCH
        seen = Seen(reading.topic, message.body.decode(), message.id, stamp, reading.asked or 0.0)
        reading.parts[-1].append(seen)

    def _iterate(self, topic: str, reading: Reading, again: Callable[[], None]) -> None:
        """One after the other, as `Client.messages` does, with time in between in which others take too."""

        def then(found: tuple[Batch, Chunk] | None, error: Exception | None) -> None:
            if found is None:
                self._received(topic, reading, 0, error, again)
                return
            batch, chunk = found
            self.iterating.setdefault(topic, []).append(chunk)
            messages = (message for _, message in zip(chunk.claims(), batch, strict=False))
            self._hand_out(reading, chunk, messages, again)

        flow = self.node.calls.gets.get_on(topic, self.world.random.choice((0.0, 0.1, 1.0)))
        self.node.call(flow, then, lambda call: self.getting.update({call: (topic, CHUNK_MAX)}))

    def _hand_out(self, reading: Reading, chunk: Chunk, messages: Iterator[Message], again: Callable[[], None]) -> None:
        self.iterated[reading.topic] = self.world.now
        message = next(messages, None)
        if message is not None:
            self._got(reading, message)
            if not self.finishing and self.world.random.random() < 0.9:
                self._next(partial(self._hand_out, reading, chunk, messages, again))
                return
        elif chunk.handed < chunk.total:
            self.history.counters["iterations ended by another call"] += 1
        error = None
        try:
            self.node.calls.gets.end_chunk(reading.topic, chunk)
            self.iterating[reading.topic].remove(chunk)
        except StorageError as failed:  # It is given back by whoever calls next.
            error = failed
        self._received(reading.topic, reading, 1, error, again)

    def _received(
        self, topic: str, reading: Reading, taken: int, error: Exception | None, again: Callable[[], None]
    ) -> None:
        self._failed(error)
        if isinstance(error, NotSubscribed) and reading.wanted and reading.confirmed is not None:
            self.history.violate(f"{self.name} is not subscribed to {topic} any more")
        if isinstance(error, Superseded):
            if not self.life:
                self.history.violate(f"{self.name}: {error}")
            reading.confirmed = None
        if error is None and not taken and self.finishing:
            self.drained.add(topic)
            self.node.later(0.3, partial(self._read, topic))
            return
        # Where it has left, a call of another thread may end after the topic's own thread, which looks no more.
        if (taken or error is not None) and topic not in self.left:
            self.drained.discard(topic)
        again()

    # The end

    def finish(self) -> None:
        """No new messages: finish what was begun, take what is there."""
        self.finishing = True
        # One more message to each topic when all is well: who is subscribed then gets at least that.
        self.farewells = self.topics() if self.name == "c1" else []
        self.farewell_at = self.world.now + FAREWELL_SECONDS
        self.flushed = False
        self.drained.clear()
        self.left.clear()
        self.node.later(0.0, self._look_for_topics)

    def settled(self) -> str:
        """What is still open, "" where nothing is."""
        if not self.flushed:
            return f"{self.name} has not flushed"
        for topic in sorted(self.readers):
            if topic not in self.drained:
                return f"{self.name} has not drained {topic}"
        return ""
