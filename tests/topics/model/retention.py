"""Retention and compaction: the records that a topic lets go of, and the conditions that hold them back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from tests.topics.model.topic import Content, Position, Record, Topic

KEYS: Final = 4
TOMBSTONE_AGE: Final = 6
STRETCH: Final = 12
"""Records that one round of compaction looks at."""


@dataclass(frozen=True)
class Policy:
    """The settings of the topic.

    Attributes:
        keep: `ever`, `age`, `records`, `bytes` or `latest`; `amount` is the age, the number or the size.
        drop: age after which even unacknowledged records go; None: never.
        bodies: bytes of released bodies that a topic without a sole owner keeps; None: all.
    """

    keep: str
    amount: int = 0
    drop: int | None = None
    bodies: int | None = None

    @property
    def compacts(self) -> bool:
        return self.keep == "latest"

    @property
    def counts(self) -> bool:
        return self.keep in {"records", "bytes"}


def draw_policy(random: Random, theme: str) -> Policy:
    keeps = {
        "mixed": ("ever", "age", "age", "records", "bytes", "latest", "latest"),
        "seeks": ("ever", "age", "records", "bytes"),
        "tables": ("latest",),
    }
    keep = random.choice(keeps[theme])
    if keep in {"ever", "latest"}:
        return Policy(keep)
    amount = {"age": 40, "records": 6, "bytes": 15}[keep]
    return Policy(keep, amount, random.choice((None, None, 90)), random.choice((None, 0, 10)))


def key_of(content: Content) -> int:
    return content[1] * 7 // 2 % KEYS


def is_tombstone(content: Content) -> bool:
    return content[1] % 3 == 0


def fold(shown: list[tuple[Position, Record]]) -> dict[int, Content]:
    """Return the latest record of each key, in the order of these records."""
    table: dict[int, Content] = {}
    for _, record in shown:
        if is_tombstone(record.content):
            table.pop(key_of(record.content), None)
        else:
            table[key_of(record.content)] = record.content
    return table


def _held(topic: Topic, rules: Mapping[str, bool]) -> Callable[[Position], bool]:
    spans = [span for one in topic.subscriptions.values() for span in one.backlog] if rules["held"] else []
    return lambda position: any(span.holds(position) for span in spans)


def newer(topic: Topic, size: Callable[[Record], int], rules: Mapping[str, bool]) -> dict[Position, int]:
    """Return for each position how much the history holds after it."""
    after, out = 0, {}
    for span in reversed(topic.history):
        counts = not span.watermark or not rules["counted"]
        for position in reversed(topic.positions(span)):
            out[position] = after
            after += size(topic.record(position)) if counts else 0
    return out


def releases(policy: Policy, topic: Topic, time: int, rules: Mapping[str, bool]) -> Callable[[Position], bool]:
    """Return the predicate: `keep` lets go of the record at a position."""
    if policy.keep == "age":
        return lambda position: topic.record(position).stamp <= time - policy.amount
    if policy.counts:
        after = newer(topic, (lambda record: 1) if policy.keep == "records" else (lambda record: record.size), rules)
        return lambda position: after[position] >= policy.amount
    return lambda position: False


def retain(
    topic: Topic, policy: Policy, time: int, rules: Mapping[str, bool], figures: Counter[str], *, sole_owner: bool
) -> None:
    """Let go of the front of each log."""
    held, old = _held(topic, rules), releases(policy, topic, time, rules)
    due: list[Position] = []
    for log, records in topic.logs.items():
        low = topic.low[log]
        while low <= len(records) and old((log, low)) and not held((log, low)):
            due.append((log, low))
            low += 1
        if sole_owner:
            figures["released"] += low - topic.low[log]
            topic.low[log], topic.floors[log] = low, max(low, topic.floors[log])
            if policy.drop is not None:
                _drop(topic, log, time - policy.drop, old, figures)
    if not sole_owner and policy.bodies is not None:
        _drop_bodies(topic, policy.bodies, due, rules, figures)


def _drop(topic: Topic, log: str, until: int, old: Callable[[Position], bool], figures: Counter[str]) -> None:
    """Drop the bodies of unacknowledged records; a row goes when no span holds it any more."""
    offset = topic.low[log]
    while offset <= len(topic.logs[log]) and old((log, offset)) and topic.record((log, offset)).stamp <= until:
        figures["dropped"] += (log, offset) not in topic.bare
        topic.bare.add((log, offset))
        offset += 1
    topic.floors[log] = max(topic.floors[log], offset)


def _drop_bodies(
    topic: Topic, limit: int, due: list[Position], rules: Mapping[str, bool], figures: Counter[str]
) -> None:
    size = sum(topic.record(position).size for position in due if position not in topic.bare)
    for position in sorted(due, key=lambda position: topic.record(position).stamp):
        if size <= limit:
            return
        if position not in topic.bare:
            size -= topic.record(position).size
            figures["bodies dropped"] += 1
        log, offset = position
        topic.bare.add(position)
        topic.floors[log] = max(topic.floors[log], offset + 1)
        if not rules["rows"]:
            topic.low[log] = max(topic.low[log], offset + 1)


def compact(topic: Topic, time: int, rules: Mapping[str, bool], figures: Counter[str], random: Random) -> None:
    """Look at one stretch of the history, and remove the records that later ones supersede."""
    held, rows = _held(topic, rules), topic.shown()
    if not rules["visible"]:
        every = [((log, i), r) for log, records in topic.logs.items() for i, r in enumerate(records, 1)]
        rows = sorted((row for row in every if row[0] not in topic.compacted), key=lambda row: (row[1].stamp, row[0]))
    low = random.randrange(len(rows) + 1) if random.random() < 0.3 else 0
    latest = {key_of(record.content): position for position, record in rows}
    earlier = {key_of(record.content) for _, record in rows[:low]}
    for position, record in rows[low : low + STRETCH]:
        key = key_of(record.content)
        if held(position):
            pass
        elif latest[key] != position:
            topic.compacted.add(position)
            figures["compacted"] += 1
            continue
        elif (
            is_tombstone(record.content)
            and record.stamp < time - TOMBSTONE_AGE
            and not (rules["earlier"] and key in earlier)
        ):
            topic.compacted.add(position)
            topic.gone.append(position)
            figures["tombstones gone"] += 1
            continue
        earlier.add(key)
