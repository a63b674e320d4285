"""What the demo publishes: the events of a shop's day, made from a seed, or each line of a file.

Every record becomes one message whose body is `NUMBER TAB RECORD`. The number makes equal lines of a file tell apart,
so a lost and a doubled one cannot make up for each other.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from pubsub.errors import InvalidName
from pubsub.protocol.names import check_new_topic

RECORDS: Final = 30_000
SEED: Final = 1

_OPENING: Final = 1_767_222_000_000
"""When the shop's day begins: milliseconds since 1970."""

_GOODS: Final = {"coffee": 1290, "tea": 690, "filter": 350, "grinder": 8900, "kettle": 4490, "cup": 1150, "scale": 2990}
_CITIES: Final = ("Bergen", "Galway", "Gdynia", "Genoa", "Porto", "Rostock", "Turku", "Varna")


class Item(NamedTuple):
    """One message to be."""

    topic: str
    body: bytes

    @property
    def number(self) -> int:
        """Its place in the input, from 0."""
        return number_of(self.body)


def number_of(body: bytes) -> int:
    """The place in the input of the record that is in this body."""
    return int(body.partition(b"\t")[0])


def from_shop(count: int = RECORDS, seed: int = SEED) -> list[Item]:
    """The events of a shop's day: orders, their payments and shipments, and the stock that is left, a topic for each.

    Args:
        count: how many events.
        seed: the same seed is the same day.
    """
    return _numbered((topic, json.dumps(facts).encode()) for topic, facts in _day(count, Random(seed)))


def _day(count: int, random: Random) -> Iterator[tuple[str, dict[str, Any]]]:
    """What happens, in order of time: an order is paid a little later, and then shipped."""
    at, made = _OPENING, 0
    stock = dict.fromkeys(_GOODS, 5_000)
    paid: list[dict[str, Any]] = []
    placed: list[dict[str, Any]] = []
    for _ in range(count):
        at += random.randrange(1, 2_000)
        what = random.random()
        if paid and what < 0.25:
            order = paid.pop(0)
            parcel = {"order": order["order"], "city": random.choice(_CITIES), "grams": random.randrange(200, 9_000)}
            yield "shipments", {"at": at, **parcel}
        elif placed and what < 0.55:
            order = placed.pop(random.randrange(min(5, len(placed))))
            paid.append(order)
            yield "payments", {"at": at, "order": order["order"], "cents": order["cents"], "by": random.choice("ABC")}
        elif what < 0.7:
            good = random.choice(list(_GOODS))
            yield "stock", {"at": at, "good": good, "left": stock[good]}
        else:
            made += 1
            lines = {good: random.randrange(1, 5) for good in random.sample(list(_GOODS), random.randrange(1, 4))}
            for good, pieces in lines.items():
                stock[good] += 5_000 if stock[good] < pieces else -pieces
            cents = sum(_GOODS[good] * pieces for good, pieces in lines.items())
            order = {"order": made, "customer": f"c{random.randrange(2_000):04}", "lines": lines, "cents": cents}
            placed.append(order)
            yield "orders", {"at": at, **order}


def from_file(path: Path, topic: str) -> list[Item]:
    """Every line of a file, of a .gz file too. Lines of JSON with a `repository` go to the topic of that name.

    Args:
        path: the file.
        topic: for every other line.
    """
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        return _numbered((_repository(line) or topic, line.rstrip(b"\r\n")) for line in stream)


def save(items: Iterable[Item], path: Path) -> None:
    """Writes the input where the publisher reads it again: after each of its deaths too."""
    with path.open("wb") as stream:
        for topic, body in items:
            stream.write(topic.encode() + b"\t" + body + b"\n")


def saved(path: Path) -> Iterator[Item]:
    """Reads what `save` wrote."""
    with path.open("rb") as stream:
        for line in stream:
            topic, _, body = line[:-1].partition(b"\t")
            yield Item(topic.decode(), body)


def _numbered(records: Iterable[tuple[str, bytes]]) -> list[Item]:
    return [Item(topic, b"%d\t%b" % (number, record)) for number, (topic, record) in enumerate(records)]


def _repository(line: bytes) -> str | None:
    try:
        return check_new_topic(json.loads(line)["repository"])
    except (ValueError, TypeError, KeyError, InvalidName):
        return None
