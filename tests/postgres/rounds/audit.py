"""Compare the results of a run of rounds, to the row: tables, messages, and the journal of a publisher.

It shares no code with the product: it reads tables by psycopg and files by itself.

* Each row of the ledger is a message once, and has one effect.
* Effects of one consumer have the order of the messages, as an independent reader received them.
* Each effect has one receipt. The receipts of one consumer have the order of its effects.
* A message that was put in a transaction is there exactly if the transaction is.
* A message that was put alone is there once if the call returned, and at most once otherwise.

    python -m tests.postgres.rounds.audit DATABASE DIRECTORY
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psycopg

ORDERED: Final = {"orders": "single", "mails": "many"}
"""Topics of one consumer, and the name of the consumer's effects."""

WAYS: Final = {**ORDERED, "bills": "member"}
"""All topics of the ledger, and the name of the effects on their messages."""

EMPTY: Final = ("outgoing", "refused", "outbox", "dead_letters")
"""Tables that are empty at the end."""

Texts = Sequence[str]


@dataclass
class Facts:
    """The compared parts. A row is a text such as `3 17 0`: writer, number of its transaction, part.

    Attributes:
        ledger: by topic, the rows that writers have committed.
        effects: by way, the rows in the order of their effects.
        intents: numbers of the puts in transactions, in the order of their commits.
        received: by topic, the bodies in the order of their messages.
        begun, returned: numbers of the puts alone that were begun, and that returned.
        left: rows that the tables still have.
    """

    ledger: Mapping[str, Texts]
    effects: Mapping[str, Texts]
    intents: Texts
    received: Mapping[str, Texts]
    begun: Texts = ()
    returned: Texts = ()
    left: Mapping[str, int] = field(default_factory=dict)


def objections(facts: Facts) -> list[str]:
    """Return the differences."""
    found: list[str] = []
    for topic, way in WAYS.items():
        rows, effects = facts.ledger.get(topic, ()), facts.effects.get(way, ())
        messages = facts.received.get(topic, ())
        found += _differences(f"messages of {topic}", rows, messages)
        found += _differences(f"effects of {way}", rows, effects)
        if topic in ORDERED:
            found += _disorder(f"effects of {way}", messages, effects)
    receipts = facts.received.get("receipts", ())
    wanted = [f"{way} {row}" for way, rows in facts.effects.items() for row in rows]
    found += _differences("receipts", wanted, receipts)
    for way in ORDERED.values():
        own = [text for text in receipts if text.startswith(f"{way} ")]
        found += _disorder(f"receipts of {way}", [f"{way} {row}" for row in facts.effects.get(way, ())], own)
    direct = facts.received.get("direct", ())
    found += _differences("direct", facts.intents, direct)
    found += _disorder("direct", facts.intents, direct)
    found += _alone(facts)
    return found + [f"pubsub.{table} has {count} rows" for table, count in facts.left.items() if count]


def doubled(facts: Facts) -> list[str]:
    """Return repeated rows: effects, and messages of any topic."""
    kinds = {f"effects of {way}": rows for way, rows in facts.effects.items()}
    kinds |= {f"messages of {topic}": bodies for topic, bodies in facts.received.items()}
    return [
        f"{what}: {one} is there {count} times"
        for what, rows in kinds.items()
        for one, count in Counter(rows).items()
        if count > 1
    ]


def _alone(facts: Facts) -> list[str]:
    """Compare the messages that were put alone with the journal."""
    plain = Counter(facts.received.get("plain", ()))
    begun = set(facts.begun)
    found = [f"plain: {text} was never put" for text in sorted(plain.keys() - begun)]
    found += [f"plain: {text} is there {count} times" for text, count in sorted(plain.items()) if count > 1]
    found += [f"plain: {text} is missing, and its put returned" for text in facts.returned if text not in plain]
    numbers = [int(text) for text in facts.received.get("plain", ())]
    if numbers != sorted(numbers):
        found.append("plain: not in the order of the calls")
    return found


def _differences(what: str, wanted: Iterable[Hashable], found: Iterable[Hashable]) -> list[str]:
    """Compare two multisets in which each element should be once."""
    left, right = Counter(wanted), Counter(found)
    lines = [f"{what}: {one} is missing" for one in sorted(map(str, left.keys() - right.keys()))]
    lines += [f"{what}: {one} was never committed" for one in sorted(map(str, right.keys() - left.keys()))]
    return lines + [f"{what}: {one} is there {count} times" for one, count in right.items() if count > 1]


def _disorder(what: str, wanted: Texts, found: Texts) -> list[str]:
    """Compare the order of the common rows."""
    both = set(wanted) & set(found)
    left, right = [one for one in wanted if one in both], [one for one in found if one in both]
    for one, other in zip(left, right, strict=False):
        if one != other:
            return [f"{what}: {other} stands where {one} should"]
    return []


# Reading


def read(database: str, directory: Path) -> Facts:
    """Read the results of a run: the tables, the messages that the reader wrote down, and the journal."""
    with psycopg.connect(database, autocommit=True) as connection:

        def rows(statement: str) -> list[tuple[Any, ...]]:
            return connection.execute(statement).fetchall()  # type: ignore[arg-type]

        ledger = _by_first(rows("select topic, concat_ws(' ', writer, number, part) from ledger"))
        effects = _by_first(rows("select way, row from effects order by seq"))
        intents = [text for (text,) in rows("select number::text from intents order by intents.number")]
        left = {table: rows(f"select count(*) from pubsub.{table}")[0][0] for table in EMPTY}
    received = _by_first(line.split("\t", 1) for line in _lines(directory / "received"))
    journal = [line.split() for file in sorted(directory.glob("putter.*.out")) for line in _lines(file)]
    begun = [line[1] for line in journal if line[0] == "put"]
    returned = [line[1] for line in journal if line[0] == "returned"]
    return Facts(ledger, effects, intents, received, begun, returned, left)


def _lines(file: Path) -> list[str]:
    text = file.read_text(encoding="ascii")
    return text[: text.rfind("\n") + 1].splitlines()  # A process that was killed may leave a part of a line.


def _by_first(pairs: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for first, second in pairs:
        found.setdefault(first, []).append(second)
    return found


def main() -> int:
    found = objections(read(sys.argv[1], Path(sys.argv[2])))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
