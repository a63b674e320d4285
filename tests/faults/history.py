"""The records of clients while faults happen: tables in each client's own database, written in its transactions.

A publisher writes what it is about to put in the very commit that puts it (a transaction), or in one before (a plain
put: then it is in doubt until it is acknowledged). A subscriber writes what it takes in the transaction that takes it,
and when it began and ended to subscribe and unsubscribe. Times are of the monotonic clock, which all processes of a
host share. The checker reads these tables after everybody has ended.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from pubsub import Client
from pubsub.client.core.message import Message
from pubsub.errors import InDoubt, PubsubError

END = b"end"
"""The body that tells subscribers that nothing follows; it is no part of the history."""

TABLES = (
    "create table if not exists history_puts (number integer primary key, topic text, body text, lot integer,"
    " began real, acknowledged real, certain integer)",
    "create table if not exists history_seen (id integer primary key, topic text, body text, at real)",
    "create table if not exists history_intents (id integer primary key, topic text, wanted integer, began real,"
    " settled real)",
    "create table if not exists history_ends (topic text)",
)


def body_of(label: str, number: int, topic: str) -> bytes:
    """A body that says who put it, as the how-manyth, and where."""
    return f"{label}:{number}:{topic}".encode()


class Putting:
    """Puts through a client and writes it down.

    Args:
        client: whose database it is.
        label: what its bodies begin with; another one for every state directory.
        padding: blanks that each body ends with; the history is without them.
    """

    def __init__(self, client: Client, label: str, padding: int = 0) -> None:
        self.client, self.label, self.padding = client, label, b" " * padding
        self._first: int | None = None
        self._never: list[int] = []
        with client.transaction() as transaction:
            for table in TABLES:
                transaction.execute(table)
            self.number = transaction.execute("select coalesce(max(number), 0) + 1 from history_puts").get

    def lot(self, topics: list[str]) -> None:
        """Put one message for each name, in one transaction."""
        with self.client.transaction() as transaction:
            lot = self.number
            for number, topic in enumerate(topics, lot):
                body = self._write(transaction, number, topic, lot=lot, certain=True)
                self.client.put(topic, body + self.padding, transaction=transaction)
        self.number += len(topics)

    def put(self, topic: str, *, wait: bool = True, timeout: float | None = None) -> None:
        """Put one message; where it is waited for, it is acknowledged when this returns."""
        self.put_many(topic, 1, wait=wait, timeout=timeout)

    def put_many(self, topic: str, count: int, *, wait: bool = True, timeout: float | None = None) -> None:
        """Put messages in one batch."""
        first, self.number = self.number, self.number + count
        with self.client.transaction() as transaction:
            bodies = [self._write(transaction, number, topic) for number in range(first, first + count)]
        try:
            if count == 1:
                self.client.put(topic, bodies[0] + self.padding, wait=wait, timeout=timeout)
            else:
                self.client.put_many(topic, [body + self.padding for body in bodies], timeout=timeout)
        except InDoubt:
            raise
        except PubsubError:  # It was not even written to the outbox.
            self._never += range(first, first + count)
            raise
        if wait:
            self._acknowledged(f"number >= {first} and number < {first + count}")

    def stream(self, topic: str, count: int) -> None:
        """Put messages one by one and wait for none, so fast that rows wait at the client and go together."""
        first, self.number = self.number, self.number + count
        with self.client.transaction() as transaction:
            bodies = [self._write(transaction, number, topic) for number in range(first, first + count)]
        for number, body in enumerate(bodies, first):
            try:
                self.client.put(topic, body + self.padding, wait=False)
            except PubsubError as error:  # Those behind it were not begun.
                self._never += range(number + isinstance(error, InDoubt), first + count)
                raise

    def flush(self, timeout: float | None = None) -> None:
        """Finish everything; what this object put is acknowledged then, and whatever was put in a transaction."""
        self.client.flush(timeout)
        mine = self.number if self._first is None else self._first
        never = ", ".join(map(str, self._never))
        self._acknowledged(f"certain or (number >= {mine} and number not in ({never}))")

    def _write(
        self, transaction: Any, number: int, topic: str, *, lot: int | None = None, certain: bool = False
    ) -> bytes:
        self._first = number if self._first is None else self._first
        body = body_of(self.label, number, topic)
        row = (number, topic, body.decode(), lot, time.monotonic(), None, int(certain))
        transaction.execute("insert into history_puts values (?, ?, ?, ?, ?, ?, ?)", row)
        return body

    def _acknowledged(self, which: str) -> None:
        with self.client.transaction() as transaction:
            transaction.execute(
                f"update history_puts set acknowledged = ? where acknowledged is null and ({which})",
                (time.monotonic(),),
            )


class Taking:
    """Subscribes and takes through a client and writes it down."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._counting = threading.Lock()
        with client.transaction() as transaction:
            for table in TABLES:
                transaction.execute(table)
            self.taken = transaction.execute("select count(*) from history_seen").get
            self.ended = {topic for (topic,) in transaction.execute("select topic from history_ends")}

    def intend(self, topic: str, on: bool, timeout: float | None = None, *, fresh: bool = False) -> None:
        """Subscribe or unsubscribe; one that did not end is ended by the same call, made again."""
        with self.client.transaction() as transaction:
            last = list(
                transaction.execute(
                    "select id, wanted, settled from history_intents where topic = ? order by id desc limit 1", (topic,)
                )
            )
            if not last or bool(last[0][1]) != on:
                transaction.execute(
                    "insert into history_intents (topic, wanted, began) values (?, ?, ?)",
                    (topic, int(on), time.monotonic()),
                )
        if on:
            self.client.subscribe(topic, timeout=timeout, fresh=fresh)
        else:
            self.client.unsubscribe(topic, timeout=timeout)
        with self.client.transaction() as transaction:
            transaction.execute(
                "update history_intents set settled = ? where settled is null and topic = ?", (time.monotonic(), topic)
            )

    def record(self, message: Message, transaction: Any) -> None:
        """A handler for `process`."""
        if message.body == END:
            transaction.execute("insert into history_ends values (?)", (message.topic,))
            self.ended.add(message.topic)
            return
        transaction.execute(
            "insert into history_seen (topic, body, at) values (?, ?, ?)",
            (message.topic, message.body.decode().rstrip(), time.monotonic()),
        )

    def process(self, topic: str, timeout: float) -> int:
        """Take what is there."""
        count = self.client.process(topic, self.record, timeout=timeout)
        self.count(count)
        return count

    def count(self, messages: int) -> None:
        """So many more were taken, on any thread."""
        with self._counting:
            self.taken += messages

    def drain(self, topic: str, timeout: float = 20.0) -> None:
        """Take until the end came."""
        deadline = time.monotonic() + timeout
        while topic not in self.ended:
            left = deadline - time.monotonic()
            assert left > 0, f"{self.client.name}: the end of {topic} did not come"
            self.process(topic, left)
