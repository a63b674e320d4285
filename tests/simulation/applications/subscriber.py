"""The threads of an application that read: they subscribe to topics, take, leave, and come back.

Each topic has a thread that joins and leaves it and takes in one way. In some runs other threads take beside it, each
in its own way.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pubsub.errors import NotSubscribed, StateCopied, Superseded
from tests.simulation.applications.program import Program
from tests.simulation.applications.taking import Opening, Taking
from tests.simulation.history import Reading


class Subscriber:
    """The reading of one program.

    Attributes:
        taking: its way to take.
        readers: topics that have a thread.
        drained: topics without a remaining message.
        forgotten: topics without a known subscription in an emptied directory; an operator must end the subscription at
            the servers.
    """

    def __init__(self, program: Program) -> None:
        self.program, self.world, self.history = program, program.world, program.history
        self.node, self.name = program.node, program.name
        self.epoch = Opening(self.world)
        self.taking = Taking(program, self.epoch)
        self.readers: set[str] = set()
        self.drained: set[str] = set()
        self.forgotten: set[str] = set()

    def begin(self) -> None:
        """The process has started: it knows the subscriptions that it had, and its threads go on."""
        self.readers = set()
        self.drained.clear()
        self.epoch.begin()
        self.taking.begin()
        known = self.node.calls.subscribing.subscriptions()
        for reading in self.program.readings():
            on = bool(known.get(reading.topic, {}).get("on"))
            if reading.confirmed is not None and not on:
                self.history.violate(f"{self.name} is not subscribed to {reading.topic} any more after its start")
            if on and not reading.wanted:  # An older directory, or it was killed before it had left.
                reading.wanted = True
                reading.asked = 0.0 if self.program.life else reading.asked
        self.node.later(0.01, self._look_for_topics)

    def finish(self) -> None:
        """Take the remaining messages."""
        self.drained.clear()
        self.taking.left.clear()
        self.node.later(0.0, self._look_for_topics)

    def settled(self) -> str:
        """The open work, "" if there is none."""
        missing = sorted(self.readers - self.drained)
        return f"{self.name} has not drained {missing[0]}" if missing else ""

    # Threads

    def _look_for_topics(self) -> None:
        for topic in self.program.topics():
            if self.program.habits.reads and topic not in self.readers:
                self.readers.add(topic)
                self.program.reading(topic)
                self._read(topic)
                for way in self.program.habits.beside:
                    self.program.next(partial(self._read_beside, topic, way))
        if not self.program.finishing:
            self.node.later(0.3, self._look_for_topics)

    def _again(self, topic: str) -> None:
        self.program.next(partial(self._read, topic))

    def _read(self, topic: str) -> None:
        program, reading = self.program, self.program.reading(topic)
        chance = self.world.random.random()
        if reading.wanted and reading.confirmed is None:
            self.intend(topic, reading, on=True)
        elif not reading.wanted:
            if program.finishing and reading.asked is None:
                self.drained.add(topic)
            elif program.finishing or chance < 0.5:
                # A reader that left comes back at the end in some runs, and stays away in others.
                stays_away = program.finishing and (self.world.seed + len(topic) + program.count) % 2
                if reading.promised is not None:  # In most cases the deliveries to it can be demanded.
                    stays_away = program.finishing and (self.world.seed + len(topic) + program.count) % 8 == 1
                self.intend(topic, reading, on=not stays_away)
            else:
                self._again(topic)
        elif chance < 0.03 and not (program.finishing or program.habits.bare or self.world.fate.iterates):
            self.intend(topic, reading, on=False)
        else:
            way = "get" if program.habits.by_get else "process"
            self._take(way, topic, reading, partial(self._again, topic))

    def _read_beside(self, topic: str, way: str) -> None:
        """Another thread, which takes while there is a subscription, and leaves the end to the topic's own."""
        if self.program.finishing:
            return
        reading = self.program.reading(topic)
        again = partial(self.program.next, partial(self._read_beside, topic, way))
        if reading.wanted and reading.confirmed is not None and way == "subscribe":
            reading.promise()
            self.intend(topic, reading, on=True, again=again)
        elif reading.wanted and reading.confirmed is not None:
            self._take(way, topic, reading, again)
        else:
            again()

    # Subscribing and leaving

    def intend(self, topic: str, reading: Reading, *, on: bool, again: Callable[[], None] | None = None) -> None:
        """Subscribe to a topic, or leave it; `again`: how the thread goes on, where it is not the topic's own."""
        was, asked = reading.wanted, reading.asked
        fresh = on and self._wants_the_end(topic, reading)
        if not on or reading.asked is None or not was:
            reading.confirmed = None
            if on:
                self._begin(topic, reading, fresh=fresh)
        if not on:
            reading.unsure, reading.promised = True, None
        reading.wanted, reading.settled = on, None
        self.taking.left.discard(topic)
        self.world.note(f"{self.name} asks to {'subscribe to' if on else 'leave'} {topic}")
        # Until the answer, the call may supersede a later opening, for all its topics.
        call = self.epoch.asks()

        def then(_: Any, error: Exception | None) -> None:
            self.world.note(f"{self.name} is told about {topic}: {type(error).__name__}")
            self.epoch.told(call)
            if self._told(topic, reading, error, on=on):
                return
            if error is not None and not on and self._is_on(topic):
                reading.wanted, reading.asked, reading.unsure = True, asked, False  # Nothing of it happened.
            (again or partial(self._again, topic))()

        self.node.call(self.node.calls.subscribing.intend(topic, on, None, fresh=fresh), then)

    def _wants_the_end(self, topic: str, reading: Reading) -> bool:
        """Whether it drops the waiting messages of its client.

        Some do so without waiting messages, to avoid the wait.
        """
        if topic in self.node.calls.subscribing.subscriptions():
            return False
        return self.world.random.random() < (0.15 if reading.carries else 0.5)

    def _begin(self, topic: str, reading: Reading, *, fresh: bool) -> None:
        """It is about to subscribe, and was not before: from this directory."""
        carries, known = reading.carries, topic in self.node.calls.subscribing.subscriptions()
        if fresh or known or not carries:
            reading.begin_line(self.world.now)
            # A directory restored to a time before its subscribe continues a subscription that may still be active.
            since = None if fresh or known else reading.open_since
            # A renewed reading is subscribed already, since an unknown time at which the client made the subscription
            # anew.
            reading.asked = 0.0 if self._is_on(topic) else self.world.now if since is None else since
        elif carries == "either":
            reading.begin_line(self.world.now)
            reading.asked = reading.open_since or 0.0
        reading.carries = ""
        assert reading.asked is not None
        reading.open_since = min(reading.asked, self.world.now if reading.open_since is None else reading.open_since)

    def _is_on(self, topic: str) -> bool:
        """Whether the client knows a subscription."""
        return bool(self.node.calls.subscribing.subscriptions().get(topic, {}).get("on"))

    def _told(self, topic: str, reading: Reading, error: Exception | None, *, on: bool) -> bool:
        """It has subscribed or left, or has not; whether its thread is to look no more."""
        never = isinstance(error, NotSubscribed) and not on  # Its directory is another one than when it subscribed.
        if never and not self.program.life:
            self.history.violate(f"{self.name} wants to leave {topic} and is told that it was never subscribed")
        if error is None or never:
            reading.unsure, reading.open_since = False, reading.asked if on else None
            if on:
                reading.confirm(self.world.now, self.history.deletions)
            elif self.program.finishing:
                self.drained.add(topic)
                self.taking.left.add(topic)
                if never:
                    self.forgotten.add(topic)
                return True
        elif isinstance(error, StateCopied):
            self.program.failed(error)
        return False

    # Taking

    def _take(self, way: str, topic: str, reading: Reading, again: Callable[[], None]) -> None:
        self.taking.take(way, topic, reading, partial(self.received, topic, reading, again))

    def received(
        self, topic: str, reading: Reading, again: Callable[[], None], taken: int, error: Exception | None
    ) -> None:
        """A thread has taken this many messages or got an error; it continues by `again`."""
        self.program.failed(error)
        if isinstance(error, NotSubscribed) and reading.wanted and reading.confirmed is not None:
            self.history.violate(f"{self.name} is not subscribed to {topic} any more")
        if isinstance(error, Superseded):
            if not (self.program.life or self.program.replicas):
                self.history.violate(f"{self.name}: {error}")
            if self.program.replicas:  # The directory that continues has the rows of this one.
                reading.promise()
            reading.confirmed = None
            if self.program.replicas and not self.program.finishing:  # Its user comes back sooner or later.
                self.node.later(self.world.random.choice((0.0, 1.5)) * self.world.random.random(), again)
                return
        if error is None and not taken and self.program.finishing:
            self.drained.add(topic)
            self.node.later(0.3, partial(self._read, topic))
            return
        # Where it has left, a call of another thread may end after the topic's own thread, which looks no more.
        if (taken or error is not None) and topic not in self.taking.left:
            self.drained.discard(topic)
        again()
