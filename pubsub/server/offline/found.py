"""The result of a check of a stopped server's store, as fields for JSON and as sentences for a person."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

PROBLEMS_MAX: Final = 20
"""Maximum number of problems named for one topic, and for the file. The others are counted."""


class Verdict(StrEnum):
    """The condition of a store; `pubsub.server.offline.check` describes each one."""

    INTACT = "intact"
    DAMAGED = "damaged"
    BROKEN = "broken"
    STALE = "stale"
    NEWER = "newer"


@dataclass(slots=True)
class Problems:
    """The problems of a topic or of the file, in sentences."""

    said: list[str] = field(default_factory=list)
    left_out: int = 0

    def add(self, text: str) -> None:
        """Add a problem, or count it if there are too many."""
        if len(self.said) < PROBLEMS_MAX:
            self.said.append(text)
        else:
            self.left_out += 1

    def __bool__(self) -> bool:
        return bool(self.said)


@dataclass(slots=True)
class TopicFound:
    """The result for one topic.

    Attributes:
        records: number of readable records.
        dropped: number of these with bodies that were dropped on purpose.
        lost: number of records that cannot be read, as far as known.
        stops: the first position that a server cannot read, "" for none. A server serves nothing from there on.
        held_back: True if a server serves nothing of the topic.
        quarantined: True if the topic is quarantined and no longer served.
    """

    topic: str
    log: str = ""
    records: int = 0
    dropped: int = 0
    lost: int = 0
    stops: str = ""
    held_back: bool = False
    quarantined: bool = False
    problems: Problems = field(default_factory=Problems)


@dataclass(slots=True)
class Found:
    """The result for a directory.

    Attributes:
        problems: of the file as a whole. Those that make it broken come first.
        stale: reason why the store counts as an older copy, "" if it does not.
        notes: facts that are useful and no problem.
        member: ID of the member, if it is one of two; otherwise "".
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
        """Return the result in JSON's types."""
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
                    "without_bytes": one.dropped,
                    "lost": one.lost,
                    "quarantined": one.quarantined,
                    "set_aside": one.quarantined,  # The old name, for one release.
                    "served_until": one.stops,
                    "held_back": one.held_back,
                    "problems": one.problems.said,
                    "problems_left_out": one.problems.left_out,
                }
                for one in self.topics
            ],
        }

    def sentences(self) -> Iterator[str]:
        """Yield the result as lines for a person."""
        who = f"server {self.server or 'unknown'}, store {self.store}" if self.store else "unreadable"
        yield f"{self.directory}: {who}"
        for one in self.topics:
            where = f"topic {one.topic}" + (" (quarantined)" if one.quarantined else "")
            dropped = ""
            if one.dropped:
                dropped = f", {one.dropped:,} of them without bytes, which the server dropped on purpose"
            if not one.problems:
                yield f"  {where} is intact: {one.records:,} records{dropped}"
                continue
            lost = f", {one.lost:,} are lost" if one.lost else ""
            yield f"  {where} is damaged: {one.records:,} records can be read{dropped}{lost}"
            yield from _listed(one.problems, "    ")
            if one.held_back:
                yield "    a server holds this topic back: it serves none of its messages"
            elif one.stops:
                yield f"    a server serves no messages from {one.stops} on"
        yield from _listed(self.problems, "  ")
        for note in self.notes:
            yield f"  {note}"
        yield _SUMMARY[self.verdict].format(stale=self.stale)


_SUMMARY: Final = {
    Verdict.INTACT: "the store is intact",
    Verdict.DAMAGED: (
        "the store is damaged: a server starts on it, serves the intact part, and reports each lost record once to"
        " subscribers; it answers `unavailable` for the parts that it cannot read and for topics that it holds back"
    ),
    Verdict.BROKEN: "the store is broken: a server refuses to start on it; restore a backup, or give its topics up",
    Verdict.STALE: (
        "the store is an older copy: {stale}. Find the newer one; if it is gone, run pubsub server restored"
    ),
    Verdict.NEWER: "the store was written by a newer release: upgrade",
}


def _listed(problems: Problems, indent: str) -> Iterator[str]:
    for text in problems.said:
        yield f"{indent}{text}"
    if problems.left_out:
        yield f"{indent}and {problems.left_out:,} more"
