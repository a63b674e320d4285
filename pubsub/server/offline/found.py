"""What was found in a stopped server's store: as facts, and in sentences for a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

PROBLEMS_MAX: Final = 20
"""Problems that are named of one topic, and of the file; the others are counted."""


class Verdict(StrEnum):
    """What a store is."""

    INTACT = "intact"
    DAMAGED = "damaged"
    BROKEN = "broken"
    STALE = "stale"
    NEWER = "newer"


@dataclass(slots=True)
class Problems:
    """What is wrong, in sentences."""

    said: list[str] = field(default_factory=list)
    left_out: int = 0

    def add(self, text: str) -> None:
        """One more, as long as there are not too many."""
        if len(self.said) < PROBLEMS_MAX:
            self.said.append(text)
        else:
            self.left_out += 1

    def __bool__(self) -> bool:
        return bool(self.said)


@dataclass(slots=True)
class TopicFound:
    """One topic.

    Attributes:
        records: that can be read; bare: those of them whose bytes were given up on purpose, for all had them.
        lost: that cannot be read, as far as that is known.
        stops: the first position that a server comes to and cannot read, "" for none; it hands out nothing behind it.
        held_back: whether a server serves nothing of it.
        aside: whether it was set aside, and is served no more.
    """

    topic: str
    log: str = ""
    records: int = 0
    bare: int = 0
    lost: int = 0
    stops: str = ""
    held_back: bool = False
    aside: bool = False
    problems: Problems = field(default_factory=Problems)


@dataclass(slots=True)
class Found:
    """What was found in a directory.

    Attributes:
        problems: of the file as a whole; what makes it broken comes first.
        stale: why it counts as an older copy, "" where it does not.
        notes: what is no problem and worth knowing.
        member: the ID of the member, where it is one of two; else "".
    """

    directory: str
    verdict: Verdict = Verdict.INTACT
    store: str = ""
    server: str = ""
    incarnation: int = 0
    change: int = 0
    problems: Problems = field(default_factory=Problems)
    stale: str = ""
    notes: list[str] = field(default_factory=list)
    topics: list[TopicFound] = field(default_factory=list)
    member: str = ""

    def facts(self) -> dict[str, Any]:
        """As JSON can say it."""
        return {
            "directory": self.directory,
            "verdict": str(self.verdict),
            "store": self.store,
            "member": self.member,
            "server": self.server,
            "incarnation": self.incarnation,
            "change": self.change,
            "stale": self.stale,
            "problems": self.problems.said,
            "problems_left_out": self.problems.left_out,
            "notes": self.notes,
            "topics": [
                {
                    "topic": one.topic,
                    "log": one.log,
                    "intact": not one.problems,
                    "records": one.records,
                    "without_bytes": one.bare,
                    "lost": one.lost,
                    "set_aside": one.aside,
                    "served_until": one.stops,
                    "held_back": one.held_back,
                    "problems": one.problems.said,
                    "problems_left_out": one.problems.left_out,
                }
                for one in self.topics
            ],
        }

    def sentences(self) -> Iterator[str]:
        """The same for a person."""
        who = f"server {self.server or 'unknown'}, store {self.store}" if self.store else "unreadable"
        yield f"{self.directory}: {who}"
        for one in self.topics:
            where = f"topic {one.topic}" + (" (set aside)" if one.aside else "")
            bare = f", {one.bare:,} of them without their bytes, which all had received" if one.bare else ""
            if not one.problems:
                yield f"  {where} is intact: {one.records:,} records{bare}"
                continue
            lost = f", {one.lost:,} are lost" if one.lost else ""
            yield f"  {where} is damaged: {one.records:,} records can be read{bare}{lost}"
            yield from _listed(one.problems, "    ")
            if one.held_back:
                yield "    a server holds it back: it serves nothing of it"
            elif one.stops:
                yield f"    a server hands out nothing from {one.stops} on"
        yield from _listed(self.problems, "  ")
        for note in self.notes:
            yield f"  {note}"
        yield _SUMMARY[self.verdict].format(stale=self.stale)


_SUMMARY: Final = {
    Verdict.INTACT: "the store is intact",
    Verdict.DAMAGED: (
        "the store is damaged: a server starts on it, serves what is intact, and tells subscribers once of each record"
        " that is lost; where it cannot read on, and of what it holds back, it says that it is unavailable"
    ),
    Verdict.BROKEN: "the store is broken: a server refuses to start on it; put back a backup, or let the topics go",
    Verdict.STALE: (
        "the store is an older copy: {stale}. Find the newer one; only where that is gone: pubsub server restored"
    ),
    Verdict.NEWER: "the store was written by a newer release: upgrade",
}


def _listed(problems: Problems, indent: str) -> Iterator[str]:
    for text in problems.said:
        yield f"{indent}{text}"
    if problems.left_out:
        yield f"{indent}and {problems.left_out:,} more"
