"""Interrupt clients again and again while they write and read, and check the result at the end."""

from __future__ import annotations

from collections import Counter
from contextlib import closing

from pubsub.client import Client, Message, Transaction
from pubsub.embedded import Embedded
from tests.client.opened import PATIENCE

END = "end"
"""Body of the last message: a message that is not here before it never comes."""


def until_end(client: Client, topic: str, end: str) -> list[str]:
    """Return the bodies of all messages before the last one, and of those that are here after it."""
    bodies: list[str] = []
    for message in client.messages(topic, timeout=PATIENCE):
        if message.body.decode() == end:
            return bodies + [message.body.decode() for message in client.get_many(topic, timeout=0.0)]
        bodies.append(message.body.decode())
    raise AssertionError("lost")


class Writing:
    """A client that puts and is interrupted again and again, and a reader without interruptions."""

    def __init__(self, cluster: Embedded, name: str) -> None:
        self.cluster, self.name, self.topic = cluster, name, f"t-{name}"
        self.client = cluster.client(name)
        self.reader = cluster.client(f"{name}-reader")
        self.reader.subscribe(self.topic)
        with self.client.transaction() as transaction:
            transaction.execute("create table rows (body text)")
        self.number = 0
        self.tried: set[str] = set()
        self.sure: set[str] = set()
        self.together: list[tuple[str, ...]] = []

    def bodies(self, count: int) -> list[bytes]:
        """Return fresh bodies, which may arrive from now on."""
        made = [f"{self.number + index}" for index in range(count)]
        self.number += count
        self.tried.update(made)
        return [body.encode() for body in made]

    def put(self) -> None:
        (body,) = self.bodies(1)
        self.client.put(self.topic, body, timeout=PATIENCE)
        self.sure.add(body.decode())

    def put_many(self) -> None:
        bodies = self.bodies(5)
        self.client.put_many(self.topic, bodies, timeout=PATIENCE)
        self.sure.update(body.decode() for body in bodies)

    def transaction(self) -> None:
        first, second = self.bodies(2)
        self.together.append((first.decode(), second.decode()))
        with self.client.transaction() as transaction:
            transaction.execute("insert into rows values (?), (?)", (first.decode(), second.decode()))
            self.client.put(self.topic, first, transaction=transaction)
            self.client.put(self.topic, second, transaction=transaction)
        self.sure.update((first.decode(), second.decode()))

    def publisher(self) -> None:
        with self.client.publisher(self.topic, records=3, linger=60.0) as publisher:
            for body in self.bodies(7):
                publisher.put(body)
                self.sure.add(body.decode())  # Its ticket is here; only a process that is killed loses it.

    def again(self) -> None:
        """Continue with the same client."""
        self.put()

    def check(self) -> None:
        self.client.close()  # This writes the open batches of publishers that an interruption left open.
        self.client = self.cluster.client(self.name)
        self.client.flush(timeout=PATIENCE)
        self.client.put(self.topic, END.encode(), timeout=PATIENCE)
        got = Counter(until_end(self.reader, self.topic, END))
        assert not {body for body, times in got.items() if times > 1}, "twice"
        assert not self.sure - got.keys(), "lost"
        assert not got.keys() - self.tried
        with self.client.transaction() as transaction:
            rows = Counter(body for (body,) in transaction.execute("select body from rows"))
        for pair in self.together:
            assert len({*(rows[body] for body in pair), *(got[body] for body in pair)}) == 1, "half a transaction"
        self.client.close()
        self.reader.close()


class Reading:
    """A client that receives and is interrupted again and again, and an uninterrupted writer."""

    EACH = 4

    def __init__(self, cluster: Embedded, name: str) -> None:
        self.cluster, self.name, self.topic = cluster, name, f"t-{name}"
        self.client = cluster.client(name)
        self.client.subscribe(self.topic)
        self.writer = cluster.client(f"{name}-writer")
        self.listener = cluster.client(f"{name}-listener")
        self.listener.subscribe(f"{self.topic}-out")
        with self.client.transaction() as transaction:
            transaction.execute("create table effects (body text)")
        self.put: list[str] = []
        self.seen: list[str] = []
        self.strikes = 0
        self.lost_max = 0

    def _supply(self) -> None:
        bodies = [f"{len(self.put) + index}" for index in range(self.EACH)]
        self.writer.put_many(self.topic, [body.encode() for body in bodies])
        self.put.extend(bodies)

    def _handle(self, message: Message, transaction: Transaction) -> None:
        transaction.execute("insert into effects values (?)", (message.body.decode(),))
        self.client.put(f"{self.topic}-out", message.body, transaction=transaction)

    def process(self) -> None:
        self.client.process(self.topic, self._handle, timeout=PATIENCE)

    def get(self) -> None:
        message = self.client.get(self.topic, timeout=PATIENCE)
        if message is not None:
            self.seen.append(message.body.decode())

    def get_many(self) -> None:
        self.seen.extend(message.body.decode() for message in self.client.get_many(self.topic, timeout=PATIENCE))

    def messages(self) -> None:
        with closing(self.client.messages(self.topic, timeout=PATIENCE)) as messages:  # type: ignore[type-var]
            for count, message in enumerate(messages, 1):
                self.seen.append(message.body.decode())
                if count == 3:
                    break

    def again(self) -> None:
        """Continue with the same client."""
        self.client.put(f"{self.topic}-other", b"still here", timeout=PATIENCE)
        self._supply()

    def check(self, kind: str) -> None:
        if kind == "process":
            effects: Counter[str] = Counter()
            while self.put[-1] not in effects:
                assert self.client.process(self.topic, self._handle, timeout=PATIENCE)
                with self.client.transaction() as transaction:
                    effects = Counter(body for (body,) in transaction.execute("select body from effects"))
            self.client.flush(timeout=PATIENCE)
            self.client.put(f"{self.topic}-out", END.encode(), timeout=PATIENCE)
            out = Counter(until_end(self.listener, f"{self.topic}-out", END))
            assert effects == Counter(self.put), "effects"
            assert out == effects, "puts of handlers"
            assert not self.client.dead_letters()
        else:
            self.writer.put(self.topic, END.encode(), timeout=PATIENCE)
            self.seen.extend(until_end(self.client, self.topic, END))
            assert len(set(self.seen)) == len(self.seen), "twice"
            # Each interrupted call may have taken messages without returning them. Nothing else may be missing.
            each = {"get": 1, "get_many": self.EACH * 2, "messages": 1}[kind]
            missing = set(self.put) - set(self.seen)
            assert len(missing) <= each * self.strikes, "lost"
            self.missing = len(missing)
        self.client.close()
        self.writer.close()
        self.listener.close()
