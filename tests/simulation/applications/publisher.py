"""The threads of an application that publish: they put in every way that a client has, discard and flush."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import apsw

from pubsub.client.storage.transaction import Ticket
from pubsub.errors import InDoubt, StateCopied, StorageError
from tests.simulation.applications.program import Program
from tests.simulation.clients import Call, Cancelled, HandlerError
from tests.simulation.delaying import put_later
from tests.simulation.history import ABORTED, ACKED, ASKED, EXCUSED, KEPT, Put
from tests.simulation.limiting import brief
from tests.simulation.retrying import key_of

FAREWELL_SECONDS = 1.5
"""After the last fault: when a last message is put to each topic."""


class Publisher:
    """The puts of one program."""

    def __init__(self, program: Program) -> None:
        self.program, self.world, self.history = program, program.world, program.history
        self.node, self.name = program.node, program.name
        self.flushed = not program.habits.publishes
        self._farewells: list[str] = []
        self._farewell_at = 0.0

    def begin(self) -> None:
        """The process has started: its threads go on."""
        self.flushed = False
        for thread in self.program.habits.publishers:
            self.node.later(0.01, partial(self.publish, thread))

    def lost_power(self) -> None:
        """Rows that were not fsynced may be gone."""
        for put in self.history.states((ASKED, KEPT)):
            if put.source[0] == self.name and not put.group and put.follows is None:
                put.state = EXCUSED

    def finish(self) -> None:
        """Put one more message to each topic when all is well: each subscriber then gets at least that message."""
        self._farewells = self.program.topics() if self.name == "c1" else []
        self._farewell_at = self.world.now + FAREWELL_SECONDS
        self.flushed = False

    def settled(self) -> str:
        """The open work, "" if there is none."""
        return "" if self.flushed else f"{self.name} has not flushed"

    # The next act of a thread

    def publish(self, thread: str) -> None:
        again = partial(self.publish, thread)
        if self.program.finishing:
            self._finish(thread, again)
            return
        topics = self.program.topics()
        if not self.program.habits.publishes or not topics:
            self.program.next(again)
            return
        random, bursts = self.world.random, self.world.fate.bursts
        # Half of the puts go to the newest topic, which some processes may not know yet.
        topic = random.choice(topics) if random.random() < 0.5 else topics[-1]
        chance = random.random()
        if bursts and random.random() < bursts:
            self._burst(topic, random.randrange(2, 7), thread)
        elif self.world.fate.delays and random.random() < self.world.fate.delays:
            put_later(self, topic, thread)
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
            self._flush(partial(self.program.next, again), again)
        else:
            self._discard(topic, again)

    def _finish(self, thread: str, again: Callable[[], None]) -> None:
        if thread == "main":
            self.flushed = False
            if self.world.now >= self._farewell_at and self._farewells:
                self._put(self._farewells.pop(), 1, thread)
            else:
                self._flush(self._finished_flush, again)

    def _finished_flush(self) -> None:
        self.flushed = not self._farewells
        self.node.later(0.5, partial(self.publish, "main"))

    # Puts and their results

    def new(self, topic: str, thread: str, group: str = "") -> Put:
        index = self.program.number()
        source = (self.name, self.program.life, thread)
        return self.history.put(Put(f"{self.name}:{index}", source, index, topic, self.world.now, group=group))

    def _keys(self, puts: list[Put]) -> list[bytes]:
        """The keys of puts; none in most runs."""
        if self.program.retries.on:
            for put in puts:
                put.key = key_of(put.index)
        return [put.key for put in puts]

    def move(self, put: Put, state: str) -> None:
        if put.state not in {EXCUSED, ABORTED, ACKED}:
            put.state = state
            if state == ACKED:
                put.acked_at = self.world.now

    def unresolved(self, topic: str) -> list[Put]:
        return [p for p in self.history.states((KEPT,)) if p.source[0] == self.name and p.topic == topic]

    def _put(self, topic: str, count: int, thread: str, *, wait: bool = True) -> None:
        puts = [self.new(topic, thread) for _ in range(count)]
        earlier = self.unresolved(topic)

        def then(result: Any, error: Exception | None) -> None:
            if error is None:
                if isinstance(result, Ticket):
                    puts[0].counter = result.counter
                for put in puts:
                    self.move(put, ACKED if wait else KEPT)
                for put in earlier if wait else ():
                    self.move(put, ACKED)
            elif isinstance(error, InDoubt):
                for put in puts:
                    self.move(put, KEPT)
            elif isinstance(error, Cancelled) and puts[0].body.encode() in error.open_bodies:
                self.move(puts[0], ABORTED)
            self.program.failed(error)
            self.program.next(partial(self.publish, thread))

        bodies, calls = [put.body.encode() for put in puts], self.node.calls.puts
        keys, headers = self._keys(puts), brief(self.world, puts)
        more = keys if any(keys) else (), [headers] * count if headers else ()
        flow: Any = calls.put_many(topic, bodies, None, None, wait, *more)
        if count == 1 and wait:
            flow = self.node.calls.puts.put(topic, bodies[0], keys[0], headers, None)
        self.node.call(flow, then)

    def _put_at_once(self, topic: str, count: int, thread: str) -> None:
        """Calls that are begun one after the other before any is over, as by tasks; the last one may be no group's."""
        random = self.world.random
        puts = [self.new(topic, thread) for _ in range(count)]
        earlier = self.unresolved(topic)
        left = set(range(count))

        def then(index: int, result: Any, error: Exception | None) -> None:
            put = puts[index]
            if error is None:
                put.counter = result.counter if isinstance(result, Ticket) else result[0].counter
                for one in (put, *earlier):
                    self.move(one, ACKED)
            elif isinstance(error, InDoubt):
                self.move(put, KEPT)
            elif isinstance(error, Cancelled) and put.body.encode() in error.open_bodies:
                self.move(put, ABORTED)
            self.program.failed(error)
            left.discard(index)
            if not left:
                self.program.next(partial(self.publish, thread))

        calls, others, begun = self.node.calls.puts, random.random() < 0.3, list[Call]()
        for index, put in enumerate(puts):
            body, timeout = put.body.encode(), random.choice((None, None, None, 0.001, 0.1))
            if others and index == count - 1:
                flow: Any = calls.put_many(topic, [body], timeout, None, True)
            else:
                flow = self.node.calls.puts.put(topic, body, b"", None, timeout)
            self.node.call(flow, partial(then, index), begun.append)
        if random.random() < 0.2:  # At once, so that it may be in a group that is not written yet.
            self.node.give_up(random.choice(begun))

    def _burst(self, topic: str, rows: int, thread: str) -> None:
        """Puts that wait for nothing but room, one right after the other, and one that waits for all of them."""
        if rows == 1:
            self._put(topic, 1, thread)
            return
        put = self.new(topic, thread)

        def then(result: Any, error: Exception | None) -> None:
            if error is None:
                self.move(put, KEPT)
            self.program.failed(error)
            if error is None:
                self._burst(topic, rows - 1, thread)
            else:
                self.program.next(partial(self.publish, thread))

        self.node.call(self.node.calls.puts.put_many(topic, [put.body.encode()], None, None, False), then)

    def _transact(self, thread: str) -> None:
        random, calls = self.world.random, self.node.calls
        self.node.operations += 1
        token = f"{self.name}/{self.program.life}/{self.program.count}"
        aborts = random.random() < 0.15
        puts: list[Put] = []
        try:
            with calls.puts.transaction() as transaction:
                for _ in range(random.randrange(1, 4)):
                    put = self.new(random.choice(self.program.topics()), thread, token)
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
            self.program.failed(error)
        else:
            for put in puts:
                self.move(put, KEPT)
        self.program.next(partial(self.publish, thread))

    def _discard(self, topic: str, then: Callable[[], None]) -> None:
        self.node.operations += 1
        for put in self.history.states((ASKED, KEPT)):
            if put.source[0] == self.name and put.topic == topic:
                put.state = EXCUSED
                for other in self.history.groups.get(put.group, ()):
                    self.move(other, EXCUSED)
        for put in self.history.puts.values():
            if put.follows is not None and put.source[0] == self.name and put.topic == topic:
                put.state = EXCUSED
        try:
            self.node.calls.discard(topic)
        except StorageError as error:
            self.program.failed(error)
        self.program.next(then)

    def _flush(self, then: Callable[[], None], again: Callable[[], None]) -> None:
        kept = [put for put in self.history.states((KEPT,)) if put.source[0] == self.name]

        def finished(_: Any, error: Exception | None) -> None:
            if error is None:
                for put in kept:
                    self.move(put, ACKED)
                then()
                return
            self.program.failed(error)
            self.program.next(again)

        self.node.call(self.node.calls.puts.flush(None), finished)
