"""Judges the effects of consumer groups, after the end of all members: `python -m tests.faults.group_audit DIRECTORY`.

It knows nothing of the product but the table that the members' handlers wrote, in SQLite files. Under the directory:

    groups.json     a list of groups: topic, group, keyed, and
                    strict: nothing that a member had claimed was ever given up, and no directory was lost
                    before: every member claimed each message before its handler began
                    redriven: an operator redrove a dead letter, which ends the order and the count of attempts
    puts.jsonl      the publishers' record, a line before each put: topic, number, key
    begun/*.log     a line before each handler: its time, group, number, attempt, doubtful
    clients/*.db    the members' databases, with effects(name, number, doubtful, attempt, at)
    lost/*/*.db     those of members who lost their directory: their effects happened

Objections, by kind:

    missing       a message without an effect
    unknown       an effect of something that nobody put
    doubled       strict: a second effect
    marked        strict: an effect with the mark `doubtful`
    untold        two effects of a message without the mark
    order         keyed: an effect before that of an earlier message of its key. If the group may give claims up, the
                  messages of a key are judged up to the first one with the mark
    begun twice   before: a handler with attempt 1 and without the mark, and one without the mark had begun the message
                  earlier. A member that is stopped while its claim is given up does not know that: the one that got
                  the message then has the mark
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

SHOWN_MAX = 40
"""Objections in a report; further ones are counted."""


class Objection(NamedTuple):
    """What must not be."""

    kind: str
    text: str


class Effect(NamedTuple):
    """What a handler committed. `at` is of the clock that all processes share, between the claim and the commit."""

    at: int
    number: int
    doubtful: bool
    attempt: int
    where: str


class Begin(NamedTuple):
    """A handler that began."""

    at: int
    attempt: int
    doubtful: bool


class Audit(NamedTuple):
    """What was found.

    Attributes:
        objections: all of them.
        figures: puts, effects, doubles and marks, by group; begun: handlers that began.
    """

    objections: list[Objection]
    figures: dict[str, dict[str, int]]


def audit(directory: Path) -> Audit:
    """Reads all that is there. No process has one of the databases open."""
    puts: defaultdict[str, dict[int, str]] = defaultdict(dict)
    for line in (directory / "puts.jsonl").read_text().splitlines():
        row = json.loads(line)
        puts[row["topic"]][row["number"]] = row["key"]
    effects: defaultdict[str, list[Effect]] = defaultdict(list)
    for name, effect in read_effects(directory):
        effects[name].append(effect)
    begun: defaultdict[str, dict[int, list[Begin]]] = defaultdict(lambda: defaultdict(list))
    for name, number, begin in read_begun(directory):
        begun[name][number].append(begin)
    objections: list[Objection] = []
    figures: dict[str, dict[str, int]] = {}
    for group in json.loads((directory / "groups.json").read_text()):
        name, put = group["group"], puts[group["topic"]]
        found = sorted(effects.pop(name, []))
        objections += (Objection(kind, f"{name}: {text}") for kind, text in judge(group, put, found))
        if group["before"] and not group["redriven"]:
            objections += (Objection("begun twice", f"{name}: {text}") for text in begun_twice(begun[name]))
        numbers = Counter(effect.number for effect in found)
        figures[name] = {
            "puts": len(put),
            "effects": len(found),
            "doubles": len(found) - len(numbers),
            "marks": sum(effect.doubtful for effect in found),
            "repeats": sum(effect.attempt > 1 for effect in found),
            "begun": sum(map(len, begun[name].values())),
        }
    objections += (Objection("unknown", f"effects of a group {name}") for name in effects)
    return Audit(objections, figures)


def read_effects(directory: Path) -> Iterator[tuple[str, Effect]]:
    """Each effect with its group, of all members, in no order."""
    for path in sorted([*directory.glob("clients/*.db"), *directory.glob("lost/*/*.db")]):
        with tempfile.TemporaryDirectory() as place:  # A killed process leaves a log that only a writer reads.
            for file in path.parent.glob(f"{path.name}*"):
                if not file.name.endswith("-shm"):
                    shutil.copy(file, place)
            with closing(sqlite3.connect(Path(place) / path.name)) as db:
                if not db.execute("select 1 from sqlite_master where name = 'effects'").fetchone():
                    continue
                rows = db.execute("select name, at, number, doubtful, attempt from effects").fetchall()
        where = path.relative_to(directory).as_posix()
        for name, at, number, doubtful, attempt in rows:
            yield name, Effect(at, number, bool(doubtful), attempt, where)


def read_begun(directory: Path) -> Iterator[tuple[str, int, Begin]]:
    """Each handler that began, with its group and the number of its message, in no order."""
    for path in sorted(directory.glob("begun/*.log")):
        for line in path.read_text().splitlines():
            at, name, number, attempt, doubtful = line.split()
            yield name, int(number), Begin(int(at), int(attempt), doubtful == "1")


def judge(group: dict[str, Any], put: dict[int, str], effects: list[Effect]) -> Iterator[Objection]:
    """The objections to a group.

    Args:
        put: the keys of its messages, by number.
        effects: in the order of their times.
    """
    by_number: defaultdict[int, list[Effect]] = defaultdict(list)
    for effect in effects:
        by_number[effect.number].append(effect)
    for number in sorted(put.keys() - by_number.keys()):
        yield Objection("missing", f"message {number}")
    for number in sorted(by_number.keys() - put.keys()):
        yield Objection("unknown", f"message {number}: {by_number[number]}")
    for number, found in sorted(by_number.items()):
        if group["strict"]:
            if len(found) > 1:
                yield Objection("doubled", f"message {number}: {found}")
            if any(effect.doubtful for effect in found):
                yield Objection("marked", f"message {number}: {found}")
        elif sum(not effect.doubtful for effect in found) > 1:
            yield Objection("untold", f"message {number}: {found}")
    if group["keyed"] and not group["redriven"]:
        yield from order(put, by_number)


def order(put: dict[int, str], by_number: dict[int, list[Effect]]) -> Iterator[Objection]:
    """The objections to the order of the keys. A key is of one publisher, and its numbers rise."""
    keys: defaultdict[str, list[int]] = defaultdict(list)
    for number, key in sorted(put.items()):
        keys[key].append(number)
    for key, numbers in sorted(keys.items()):
        last: Effect | None = None
        for number in numbers:
            found = by_number.get(number, [])
            if any(effect.doubtful for effect in found):
                break
            for effect in found:
                if last is not None and effect.at < last.at:
                    yield Objection("order", f"key {key}: {effect} before {last}")
                last = effect if last is None else max(last, effect)


def begun_twice(begun: dict[int, list[Begin]]) -> Iterator[str]:
    """What is wrong with the beginnings of messages."""
    for number, found in sorted(begun.items()):
        plain = sorted(begin for begin in found if not begin.doubtful)
        if any(begin.attempt == 1 for begin in plain[1:]):
            yield f"message {number}: {sorted(found)}"


def main() -> int:
    """Prints all of it; exit code 1 where there is an objection."""
    objections, figures = audit(Path(sys.argv[1]))
    for name, counts in figures.items():
        print(f"{name}: {', '.join(f'{count} {what}' for what, count in counts.items())}")
    print(*(f"{kind}: {text}" for kind, text in objections[:SHOWN_MAX]), sep="\n")
    print(f"{len(objections)} objections")
    return 1 if objections else 0


if __name__ == "__main__":
    sys.exit(main())
