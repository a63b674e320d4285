"""Counts what the subscribers recorded against the input itself: the proof at the end of the demo.

It knows nothing of the service. It reads the tables that the handlers wrote in their own transactions, after every
process has ended, and compares them with the records that were to be put.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

from demo_input import Item

SEEN = "create table if not exists demo_seen (topic text, number integer, digest text)"
"""What a subscriber records; no key, so that a repeat would be recorded too. The order is that of the rowid."""

POSITION = "create table if not exists demo_position (one integer primary key check (one = 1), next integer)"
"""How many records the publisher has put."""


@dataclass(slots=True)
class Count:
    """Of one topic and one subscriber.

    Attributes:
        put: records in the input.
        delivered: messages recorded.
        lost: records that were not delivered.
        duplicated: deliveries beyond the first of a record.
        foreign: deliveries of what is not in the input.
        misordered: deliveries after that of a later record.
    """

    put: int = 0
    delivered: int = 0
    lost: int = 0
    duplicated: int = 0
    foreign: int = 0
    misordered: int = 0

    @property
    def right(self) -> bool:
        """Whether each record was delivered once, in order, and nothing else was."""
        return not (self.lost or self.duplicated or self.foreign or self.misordered) and self.put == self.delivered


@dataclass(slots=True)
class Verdict:
    """What the records say.

    Attributes:
        topics: topic -> subscriber -> count.
        put: how many records the publisher says that it put.
        expected: how many there were.
    """

    put: int
    expected: int
    topics: dict[str, dict[str, Count]] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        """Whether everything was put and everybody got everything once."""
        return self.put == self.expected and all(
            count.right for counts in self.topics.values() for count in counts.values()
        )

    def total(self, what: str) -> int:
        """A count over all topics and subscribers."""
        return sum(getattr(count, what) for counts in self.topics.values() for count in counts.values())


def digest(body: bytes) -> str:
    """By which a body is compared."""
    return sha256(body).hexdigest()


def check(items: Iterable[Item], publisher: Path, subscribers: dict[str, Path]) -> Verdict:
    """Compares the input with what each subscriber recorded.

    Args:
        items: the input.
        publisher: the database of the publisher.
        subscribers: name -> its database.
    """
    expected: dict[str, dict[int, str]] = {}
    for item in items:
        expected.setdefault(item.topic, {})[item.number] = digest(item.body)
    verdict = Verdict(_put(publisher), sum(map(len, expected.values())))
    for name, path in subscribers.items():
        recorded = _recorded(path)
        for topic in sorted({*expected, *recorded}):
            counts = verdict.topics.setdefault(topic, {})
            counts[name] = _compare(expected.get(topic, {}), recorded.get(topic, []))
    return verdict


def _compare(expected: dict[int, str], recorded: list[tuple[int, str]]) -> Count:
    own = [number for number, found in recorded if expected.get(number) == found]
    times = Counter(own)
    return Count(
        put=len(expected),
        delivered=len(recorded),
        lost=len(expected) - len(times),
        duplicated=len(own) - len(times),
        foreign=len(recorded) - len(own),
        misordered=sum(later < earlier for earlier, later in pairwise(own)),
    )


def _recorded(path: Path) -> dict[str, list[tuple[int, str]]]:
    found: dict[str, list[tuple[int, str]]] = {}
    with closing(_open(path)) as database:
        for topic, number, found_digest in database.execute(
            "select topic, number, digest from demo_seen order by rowid"
        ):
            found.setdefault(topic, []).append((number, found_digest))
    return found


def _put(path: Path) -> int:
    with closing(_open(path)) as database:
        row = database.execute("select next from demo_position").fetchone()
    return int(row[0]) if row else 0


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
