"""The ways in which an application takes messages: calls that return them, iterations, and handlers, which may put."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pubsub.client.core.chunk import Chunk
from pubsub.client.core.core import SYNC_SECONDS
from pubsub.client.core.message import Batch, Message
from pubsub.client.flows.batches import BatchProcessing
from pubsub.errors import StorageError, Unavailable
from tests.simulation.applications.program import Program
from tests.simulation.clients import Call, ClientNode, HandlerError
from tests.simulation.history import Put, Reading, Seen
from tests.simulation.world import EPOCH, World

KILLING = {"kill", "kill in commit"}

CHUNK_MAX = 8
"""Messages that an iteration takes at a time in these runs."""

Received = Callable[[int, Exception | None], None]
"""Called with the number of taken messages, and with the error if there was one."""


class Opening:
    """Since when the present opening of a client counts: a call that is under way may go above a later one."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._since = 0.0
        self._asking: set[object] = set()
        """Calls under way that may go above a later opening."""

    @property
    def since(self) -> float:
        """The virtual time of its start, or of its last confirmed subscription."""
        return self._world.now if self._asking else self._since

    def begin(self) -> None:
        """The process has started."""
        self._asking.clear()
        self._since = self._world.now

    def asks(self) -> object:
        """Begin a request for a subscription; returns the mark of that call."""
        call = object()
        self._asking.add(call)
        return call

    def told(self, call: object) -> None:
        """Such a call is over."""
        self._asking.discard(call)
        self._since = self._world.now


class Taking:
    """The taking of one program.

    Args:
        opening: of its client.

    Attributes:
        left: topics with a confirmed leave at the end: no further message of them may come.
        iterating: bodies taken by iterations under way, by topic.
        tried: bodies given to a handler, by topic and body.
        first_asked: start of the subscription under which it handled a message first, by topic and body; lines: the
            line of that subscription.
        opened: start of the opening that took a message, by topic and body.
    """

    def __init__(self, program: Program, epoch: Opening) -> None:
        self.program, self.world, self.history = program, program.world, program.history
        self.node, self.name = program.node, program.name
        self._opening = epoch
        self.left: set[str] = set()
        self.iterating: dict[str, list[Chunk]] = {}
        self.tried: set[tuple[str, str]] = set()
        self.first_asked: dict[str, dict[str, float]] = {}
        self.lines: dict[str, dict[str, int]] = {}
        self.opened: dict[tuple[str, str], float] = {}
        self._getting: dict[Call, tuple[str, int]] = {}
        self._iterated: dict[str, float] = {}
        """When an iteration was last under way, by topic."""
        self._relaying = False

    def take(self, way: str, topic: str, reading: Reading, received: Received) -> None:
        """Take some messages of a topic.

        Args:
            way: "get", "iterate" or "process".
        """
        {"get": self._get, "iterate": self._iterate, "process": self._process}[way](topic, reading, received)

    # The process

    def begin(self) -> None:
        """It has started."""
        self.program.retries.begin()
        self.left.clear()
        self.iterating = {}
        self._relaying = False

    def ended(self, acting: Call | None) -> None:
        """The process is gone.

        A get or an iteration under way may have taken messages that the application did not see.
        """
        if acting is not None and acting in self._getting:
            topic, most = self._getting[acting]
            self.history.reading(self.name, topic, by_get=True).excused += most
        self._getting.clear()
        for topic, chunks in self.iterating.items():
            left = sum(chunk.total - chunk.handed for chunk in chunks)
            if not self.node.closed:  # A close gives the messages back.
                self.history.reading(self.name, topic, by_get=True).excused += left
            elif left:
                self.history.counters["iterations that a close gave back"] += 1
            if left and not self.node.closed:
                self.history.counters["clients gone while they iterate"] += 1
        self.iterating.clear()
        if self._relaying:
            self.history.counters["clients gone in a handler that put"] += 1

    def lost_power(self) -> None:
        """Messages that it got and did not sync come again."""
        self.program.retries.lost_power()
        for reading in self.program.readings():
            if reading.by_get:
                reading.begin_part()
            if self._iterated.get(reading.topic, -1.0) > self.world.now - SYNC_SECONDS - 0.2:
                reading.excused += CHUNK_MAX  # The return of an iteration's remaining messages is not on the disk yet.

    # Calls that return messages

    def _get(self, topic: str, reading: Reading, received: Received) -> None:
        random = self.world.random
        most = random.choice((1, 3, 20))
        timeout = 0.6 if self.program.finishing else random.choice((0.0, 0.1, 1.0))

        def then(batch: Any, error: Exception | None) -> None:
            for message in batch or ():
                self.got(reading, message)
            received(len(batch or ()), error)

        flow = self.node.calls.gets.get_many(topic, most, timeout)
        self.node.call(flow, then, lambda call: self._getting.update({call: (topic, most)}))

    def got(self, reading: Reading, message: Message) -> None:
        """A message was returned: write it down."""
        body = message.body.decode()
        self.node.operations += 1
        self._check(reading, body, message)
        stamp, asked = message.stamp / 1e6 - EPOCH, reading.asked or 0.0
        seen = Seen(
            reading.topic, body, message.id, stamp, asked, message.doubtful, reading.line, reading.directory
        )  # fmt: skip
        reading.parts[-1].append(seen)

    def _check(self, reading: Reading, body: str, message: Message) -> None:
        if reading.topic in self.left:
            self.history.violate(f"{self.name} got {body} of {reading.topic}, which it was told that it has left")
        self.history.check_counter(self.name, body, message.counter)
        if message.doubtful:
            self.history.counters["messages that came marked"] += 1
            self.history.check_mark(reading, body, reading.settled)

    # Iterations

    def _iterate(self, topic: str, reading: Reading, received: Received) -> None:
        """One after the other, as `Client.messages` does, with time in between in which others take too."""

        def then(found: tuple[Batch, Chunk] | None, error: Exception | None) -> None:
            if found is None:
                received(0, error)
                return
            batch, chunk = found
            self.iterating.setdefault(topic, []).append(chunk)
            messages = (message for _, message in zip(chunk.claims(), batch, strict=False))
            self._hand_out(reading, chunk, messages, received)

        flow = self.node.calls.gets.get_on(topic, self.world.random.choice((0.0, 0.1, 1.0)))
        self.node.call(flow, then, lambda call: self._getting.update({call: (topic, CHUNK_MAX)}))

    def _hand_out(self, reading: Reading, chunk: Chunk, messages: Iterator[Message], received: Received) -> None:
        self._iterated[reading.topic] = self.world.now
        message = next(messages, None)
        if message is not None:
            self.got(reading, message)
            if not self.program.finishing and self.world.random.random() < 0.9:
                self.program.next(partial(self._hand_out, reading, chunk, messages, received))
                return
        elif chunk.handed < chunk.total:
            self.history.counters["iterations ended by another call"] += 1
        error = None
        try:
            self.node.calls.gets.end_chunk(reading.topic, chunk)
            self.iterating[reading.topic].remove(chunk)
        except StorageError as failed:  # The next call gives the messages back.
            error = failed
        received(1, error)

    # Handlers

    def _process(self, topic: str, reading: Reading, received: Received) -> None:
        random, finishing = self.world.random, self.program.finishing
        timeout = 0.6 if finishing else random.choice((0.0, 0.1, 1.0))
        most = 50 if finishing else random.choice((1, 3, 20))

        began = self.node.session.now

        def then(taken: Any, error: Exception | None) -> None:
            self._relaying = False
            if taken or error:
                self.world.note(f"{self.name} processed {taken} of {topic}: {type(error).__name__}")
            elif self._is_unheard(topic, began):  # A loop lives through that; here it is no sign that all was taken.
                error = Unavailable("get", topic, timeout, "no answer")
            received(taken, error)

        handle = partial(self.handle, topic, reading)
        if self.program.in_batches:
            batches = BatchProcessing(self.node.session, self.node.calls.gets)
            self.node.call(batches.process(topic, partial(self._handle_many, handle), timeout, most), then)
            return
        hold = self.program.retries.hold
        self.node.call(self.node.processing.process(topic, handle, timeout, most, hold), then)

    def _handle_many(self, handle: Callable[..., None], messages: list[Message], transaction: Any) -> None:
        """Handle all of them; a failure concerns no message while there are several."""
        for message in messages:
            handle(message, transaction, alone=len(messages) == 1)

    def _is_unheard(self, topic: str, began: float) -> bool:
        """Whether a call that began then does not know if a topic has anything."""
        sub = self.node.session.core.subscriptions.get(topic)
        return sub is not None and (not sub.intent.settled or sub.unconfirmed_since(began))

    def handle(
        self,
        topic: str,
        reading: Reading,
        message: Any,
        transaction: Any,
        *,
        alone: bool = True,
        node: ClientNode | None = None,
    ) -> None:
        """Record a message in the application's own table; it may be put on, and the handler may fail.

        Args:
            alone: False: the handler has further messages, and an exception does not concern this one.
            node: another process of the same client; None: the client's own.
        """
        node = node or self.node
        body = message.body.decode()
        self._check(reading, body, message)
        self.tried.add((topic, body))
        self._relaying = False
        node.operations += 1
        stamp = message.stamp / 1e6 - EPOCH
        aside = self.program.retries.given(topic, body, message)
        transaction.execute(
            "insert into seen (topic, body, id, stamp, doubtful, aside) values (?, ?, ?, ?, ?, ?)",
            (topic, body, message.id, stamp, message.doubtful, aside),
        )
        self.lines.setdefault(topic, {})[body] = reading.line
        self.first_asked.setdefault(topic, {})[body] = reading.asked or 0.0
        self.opened[topic, body] = self._opening.since
        if not self.program.finishing and self.world.random.random() < self.world.fate.handler_fails:
            if alone:
                self.program.retries.fails(topic, body)
            raise HandlerError
        if alone:
            self.program.retries.decide(topic, body)
        if self.program.habits.relays and not body.startswith("r:") and int(body.rpartition(":")[2]) % 4 == 0:
            self._relay(topic, body, transaction, node)
        if node.database:
            node.world.databases.misuse(transaction)

    def _relay(self, topic: str, body: str, transaction: Any, node: ClientNode) -> None:
        program, life = self.program, self.program.life
        index, topics = program.number(), program.topics()
        relayed = f"r:{self.name}:{life}:{topic}:{body}"
        put = self.history.puts.get(relayed)
        if put is None:
            target, source = topics[index % len(topics)], (self.name, life, f"relay {topic}")
            put = self.history.put(Put(relayed, source, index, target, self.world.now, follows=(self.name, body)))
        else:
            put.index = index
        put.invoked = self.world.now
        self._relaying = True
        fate = self.world.fate
        killing = KILLING & fate.faults.keys() and not fate.deleters
        if not program.finishing and killing and self.world.random.random() < 0.05:
            node.host.disk.kill_in = self.world.random.randrange(6)
        for _ in node.calls.puts.put_many(put.topic, [relayed.encode()], None, transaction, True):
            pass
