"""What of a report on the cluster is to worry an operator, in words: disks, messages nobody takes, moves that hang.

A warning of the report says what a process itself finds wrong. An alarm is a number beyond a bound, which may be all
right where it is known: a subscriber that is off over the weekend has messages waiting until Monday.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from heapq import nlargest
from typing import Any, Final

DISK_FREE_MIN: Final = 0.05
"""Of a disk, below which what is left of it is an alarm."""

OLDEST_SECONDS_MAX: Final = 3600.0
"""How long a message may wait for a subscriber before it is an alarm."""

TRIES_MAX: Final = 5
"""Tries at a chunk of a topic on its way, without an answer, beyond which it is an alarm."""

TOPICS_MAX: Final = 5
"""Topics of which there is an alarm of one kind; the others are counted in one more sentence."""

Facts = Mapping[str, Any]


def alarms(report: Facts) -> list[str]:
    """A sentence for each.

    Args:
        report: of the cluster, with `proxies`, `servers`, `topics` and `moves`.
    """
    return [*_disks(report), *_oldest(report["topics"]), *_moves(report["moves"])]


def words(seconds: float) -> str:
    """How long something has lasted, in its two largest units."""
    for unit, size, name, part in (("d", 86_400, "h", 3_600), ("h", 3_600, "min", 60), ("min", 60, "s", 1)):
        if seconds >= size:
            return f"{int(seconds // size)} {unit} {int(seconds % size // part)} {name}"
    return f"{int(seconds)} s"


def _disks(report: Facts) -> Iterator[str]:
    for role, key in (("proxies", "address"), ("servers", "id")):
        for one in report[role]:
            facts = (one["report"] or {}).get("process") or {}
            size, free = facts.get("disk_size_bytes", 0), facts.get("disk_free_bytes", 0)
            if size and free < size * DISK_FREE_MIN:
                name = one["report"].get("proxy") or one[key]
                what = "proxy" if role == "proxies" else "server"
                yield f"{what} {name}: {free / size:.1%} of its disk is free, {free // (1024 * 1024):,} MiB"


def _oldest(topics: list[Facts]) -> Iterator[str]:
    late = [one for one in topics if (one["oldest_unacknowledged_seconds"] or 0) > OLDEST_SECONDS_MAX]
    for topic in nlargest(TOPICS_MAX, late, key=lambda one: one["oldest_unacknowledged_seconds"]):
        name, facts = max(topic["subscribers"].items(), key=lambda one: one[1]["oldest_unacknowledged_seconds"] or 0)
        age = words(topic["oldest_unacknowledged_seconds"])
        yield f"topic {topic['topic']}: {name} has not acknowledged a message for {age}; {facts['waiting']:,} wait"
    yield from _more(late, f"have messages that wait for more than {words(OLDEST_SECONDS_MAX)}")


def _moves(moves: list[Facts]) -> Iterator[str]:
    silent = [one for one in moves if one["tries"] > TRIES_MAX]
    for move in silent[:TOPICS_MAX]:
        way = f"on its way from {move['server']} to {move['other']}"
        yield f"topic {move['topic']}: {way}, {move['tries']:,} tries without an answer"
    yield from _more(silent, "are on their way without an answer")


def _more(found: list[Facts], what: str) -> Iterator[str]:
    if len(found) > TOPICS_MAX:
        yield f"{len(found) - TOPICS_MAX:,} more topics {what}"
