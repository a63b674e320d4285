"""Writers of outgoing rows that keep a ledger in the same transactions, and the judge that compares it with messages.

D7, the order of rows: those of one transaction in their order; of two transactions, if one began after the other had
ended, in that order. The writers note both by one count of this process.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

import psycopg

TOPICS: Final = ("orders", "bills", "mails")
LEDGER: Final = "create table ledger (writer int, number int, part int, topic text, primary key (writer, number, part))"
INSERT: Final = "insert into pubsub.outgoing (topic, key, body) values (%s, %s, %s)"
NEVER: Final = 1 << 62

Row = tuple[int, int, int]
"""Writer, number of its transaction, and part of it."""


@dataclass
class Span:
    """When a transaction began and ended, by the count; an end that is not known is NEVER."""

    begin: int
    end: int = NEVER


class Writers:
    """Threads that write rows and ledger until they are stopped; a lost connection is opened again.

    Args:
        url: of the database, with the tables and the ledger.
        count: number of threads.
        seed: of their sizes, roll-backs, and how long a transaction stays open.
        pause: mean seconds between two transactions of a thread.

    Attributes:
        held: while it is set, no transaction begins.
    """

    def __init__(self, url: str, count: int, seed: int, pause: float = 0.0) -> None:
        self._url, self._pause = url, pause
        self._clock = itertools.count(1)
        self.spans: dict[tuple[int, int], Span] = {}
        self.stopped, self.held = threading.Event(), threading.Event()
        self.committed = self.rolled_back = self.lost = 0
        self.failures: list[BaseException] = []
        self._threads = [threading.Thread(target=self._run, args=(n, Random(f"{seed} {n}"))) for n in range(count)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join()
        assert not self.failures, self.failures

    def _run(self, writer: int, random: Random) -> None:
        number = 0
        try:
            while not self.stopped.is_set():
                try:
                    with psycopg.connect(self._url, connect_timeout=10) as connection:
                        while not self.stopped.is_set():
                            if self.held.is_set():
                                self.stopped.wait(0.02)
                                continue
                            number += 1
                            self._transaction(connection, writer, number, random)
                            if self._pause:
                                self.stopped.wait(2 * self._pause * random.random())
                except psycopg.OperationalError:
                    self.lost += 1
                    self.stopped.wait(0.02)
        except BaseException as error:  # noqa: BLE001 - the test that waits raises it.
            self.failures.append(error)

    def _transaction(self, connection: psycopg.Connection[Any], writer: int, number: int, random: Random) -> None:
        span = self.spans[writer, number] = Span(next(self._clock))
        for part in range(random.choice((1, 1, 1, 2, 3, 5, 40))):
            topic = random.choice(TOPICS)
            connection.execute(INSERT, (topic, b"%d" % writer, b"%d %d %d" % (writer, number, part)))
            connection.execute("insert into ledger values (%s, %s, %s, %s)", (writer, number, part, topic))
            if random.random() < 0.05:  # A slow one: others begin and end meanwhile.
                self.stopped.wait(random.choice((0.01, 0.1, 0.3)))
        if random.random() < 0.15:
            connection.rollback()
            self.rolled_back += 1
        else:
            connection.commit()
            span.end = next(self._clock)
            self.committed += 1


def ledger_of(connection: psycopg.Connection[Any]) -> dict[Row, str]:
    """Return the topic of each committed row."""
    return {row[:3]: row[3] for row in connection.execute("select writer, number, part, topic from ledger")}


def row_of(body: bytes) -> Row:
    writer, number, part = map(int, body.split())
    return writer, number, part


def differences(
    ledger: dict[Row, str], received: dict[str, Sequence[Row]], spans: dict[tuple[int, int], Span]
) -> list[str]:
    """Compare messages with the ledger; return the differences: none if each row came once and in the order of D7.

    Args:
        received: by topic, the rows in the order of their messages.
    """
    found = []
    counts = Counter((topic, row) for topic, rows in received.items() for row in rows)
    wanted = {(topic, row) for row, topic in ledger.items()}
    found += [f"missing: {topic} {row}" for topic, row in sorted(wanted - counts.keys())]
    found += [f"never committed: {topic} {row}" for topic, row in sorted(counts.keys() - wanted)]
    found += [f"{count} times: {topic} {row}" for (topic, row), count in sorted(counts.items()) if count > 1]
    for topic, rows in received.items():
        found += _disorder(topic, rows, spans)
    return found


def _disorder(topic: str, rows: Sequence[Row], spans: dict[tuple[int, int], Span]) -> list[str]:
    found: list[str] = []
    parts: dict[tuple[int, int], int] = {}
    latest, latest_row = 0, (0, 0, 0)
    for row in rows:
        *of, part = row
        transaction = of[0], of[1]
        if part <= parts.get(transaction, -1):
            found.append(f"{topic}: {row} is behind part {parts[transaction]} of its transaction")
        parts[transaction] = part
        span = spans.get(transaction, Span(0))
        if span.end < latest:
            found.append(f"{topic}: {row} is behind {latest_row}, which began after its transaction had ended")
        if span.begin > latest:
            latest, latest_row = span.begin, row
    return found
