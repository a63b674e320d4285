"""A server with a standby, a plain server, proxies, and members of four consumer groups, for `group_rounds.py`.

Two groups share a topic: one that never gives a claim up (`strict`: on_lost="wait", and no operator), and an `open` one
whose claims are given up, by itself or by an operator. One topic has shared groups, the other keyed ones. A member is a
process that works for both strict groups, or for both open ones. `group_audit.py` describes the records.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final

from pubsub.client.group_facts import GroupFacts
from pubsub.errors import NotKnown, NotNow, PubsubError
from tests.faults.cluster import Process, until
from tests.faults.dying import POINTS
from tests.faults.members import Members

TOPICS: Final = ("shared", "keyed")
PUBLISHERS: Final = ("first", "second")
KEYS: Final = 7
"""Of each publisher; besides, it puts messages without a key."""

PARTS: Final = 8
LIVENESS_SECONDS: Final = 1.5
LOST_SECONDS: Final = 2.0
HEARTBEAT_SECONDS: Final = 0.4
ATTEMPTS: Final = 1000
"""Of a group: no message becomes a dead letter by its failures."""

PACES: Final = (0.0, 0.0, 0.002, 0.03, 0.15)
"""Seconds of a handler; from 0.1 on, messages are claimed late."""

STEPS_MAX: Final = (20, 60, 200)
"""One of these is the highest number of the step at which a process dies."""

SIDES: Final = {"strict": ("w1", "w2", "w3"), "open": ("o1", "o2", "o3")}
"""The last of each begins later."""

CLAIMS: Final = ("auto", "before", "mixed")
POLICIES: Final = ("redeliver", "operator")


@dataclass(slots=True)
class Group:
    """A group, and the facts for the auditor."""

    topic: str
    name: str
    strict: bool
    policy: str
    claim: str
    redriven: bool = False

    def options(self) -> dict[str, Any]:
        """The arguments of `subscribe`."""
        found: dict[str, Any] = {"mode": self.topic, "attempts": ATTEMPTS}
        if self.topic == "keyed":
            found["parts"] = PARTS
        if self.policy == "redeliver":
            found |= {"on_lost": "redeliver", "lost_seconds": LOST_SECONDS}
        return found

    def row(self) -> dict[str, Any]:
        """For the auditor."""
        before = self.claim == "before"
        return {
            "topic": self.topic, "group": self.name, "keyed": self.topic == "keyed", "strict": self.strict,
            "before": before, "redriven": self.redriven,
        }  # fmt: skip


@dataclass(slots=True)
class Hand:
    """A member: its process and its arguments."""

    name: str
    side: str
    process: Process
    on: bool = False
    dies: bool = False
    disks: int = 0
    deaths: Counter[str] = field(default_factory=Counter)


class Cast:
    """Starts them all; a context manager.

    Args:
        directory: where everything lives.
        rng: draws the values of groups and members.
    """

    def __init__(self, directory: Path, rng: Random) -> None:
        self._rng, self.directory = rng, directory
        (directory / "begun").mkdir()
        (directory / "lost").mkdir()
        self.groups = [
            Group(topic, f"{side}-{topic}", side == "strict", "wait" if side == "strict" else rng.choice(POLICIES),
                  rng.choice(CLAIMS))
            for topic in TOPICS for side in SIDES
        ]  # fmt: skip
        self.members = Members(
            directory, 0, clients=False, heartbeat=HEARTBEAT_SECONDS, member_liveness_seconds=LIVENESS_SECONDS
        )
        self.objections: list[str] = []
        self.deaths: Counter[str] = Counter()
        self.number = 0
        cluster = self.members.cluster
        try:
            options = {"proxies": self.members.routing}
            self.publishers = [cluster.client(name, **options) for name in PUBLISHERS]
            self.operator = cluster.client("operator", timeout_seconds=5.0, **options)
            self.hands = [self._hand(name, side, at) for side, names in SIDES.items() for at, name in enumerate(names)]
            self.write_groups()
            for hand in self.hands:
                if hand.name != SIDES[hand.side][-1]:
                    self.start(hand)
            for hand in self.hands:
                if hand.on:
                    self._joined(hand)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Cast:
        return self

    def __exit__(self, *_: object) -> None:
        self.members.__exit__()

    def _joined(self, hand: Hand) -> None:
        """Wait until a member has joined its groups; a failure tells of the member and of the servers."""

        def joined() -> bool:
            code = hand.process.running.poll()
            assert code is None, f"{hand.name} ended with {code}: {hand.process.errors.read_text()[-2000:]}"
            return len(hand.process.lines("joined")) == len(TOPICS)

        try:
            until(joined, f"{hand.name} joins")
        except AssertionError as error:
            said = f"{hand.process.output.read_text()!r} {hand.process.errors.read_text()[-2000:]}"
            raise AssertionError(f"{error}; it said {said}; the servers know {self.facts()}") from None

    # Groups

    def groups_of(self, side: str) -> list[Group]:
        """The groups of a side."""
        return [group for group in self.groups if group.strict == (side == "strict")]

    def write_groups(self) -> None:
        """For the auditor."""
        (self.directory / "groups.json").write_text(json.dumps([group.row() for group in self.groups]))

    # Messages

    def put(self, count: int, poison: float) -> None:
        """Put so many messages to each topic, without a wait.

        Args:
            poison: how likely a message fails, or kills its process.
        """
        rng = self._rng
        with (self.directory / "puts.jsonl").open("a") as record:
            for topic in TOPICS:
                for _ in range(count):
                    self.number += 1
                    at = rng.randrange(len(PUBLISHERS))
                    key = rng.choice(["", *(f"{PUBLISHERS[at]}-{number}" for number in range(KEYS))])
                    kind = rng.choice(("fails", "later")) if rng.random() < poison else "-"
                    failures = {"fails": 1, "later": rng.randint(1, 3)}.get(kind, 0)
                    if not failures and rng.random() < poison / 10:
                        kind = "kills"
                    row = {"topic": topic, "number": self.number, "key": key or f"{PUBLISHERS[at]} without a key"}
                    record.write(json.dumps(row) + "\n")
                    record.flush()
                    body = f"{self.number} {failures} {kind}".encode()
                    self.publishers[at].put(topic, body, key=key.encode(), wait=False)

    # Members

    def _hand(self, name: str, side: str, at: int) -> Hand:
        facts = {
            "name": name,
            "directory": str(self.directory / "clients"),
            "proxies": self.members.routing,
            "begun": str(self.directory / "begun" / f"{name}.log"),
            "concurrency": self._rng.choice((1, 4)),
            "asynchronous": self._rng.random() < 0.4,
            "groups": [
                {
                    "topic": group.topic,
                    "group": group.name,
                    "claim": ("auto", "before")[at % 2] if group.claim == "mixed" else group.claim,
                    "options": group.options(),
                }
                for group in self.groups_of(side)
            ],
        }
        process = self.members.cluster.process(name, "-m", "tests.faults.group_member", json.dumps(facts))
        return Hand(name, side, process)

    def start(self, hand: Hand, *, boot: str | None = None, die: bool = False) -> None:
        """Start a member that has ended.

        Args:
            boot: of its host; None: as before.
            die: whether it dies at a step of its own.
        """
        rng = self._rng
        point = {"point": rng.choice(POINTS), "count": rng.randint(1, rng.choice(STEPS_MAX))} if die else None
        changed: dict[str, Any] = {"die": point, "seconds": rng.choice(PACES)}
        if boot is not None:
            changed["boot"] = boot
        hand.on, hand.dies = True, die
        hand.process.end()
        hand.process.again(**changed)

    def finish(self, hand: Hand) -> Iterator[float]:
        """A step of a fault: close a member; one that dies meanwhile is started again, and closed."""
        while hand.on:
            if hand.process.popen is not None and hand.process.popen.poll() is None:
                with suppress(AssertionError):  # It dies at this very moment.
                    hand.process.say("finish")
            while hand.process.running.poll() is None:
                yield 0.05
            if hand.process.running.returncode == 0:
                hand.on = False
            else:
                self._ended(hand)
                self.start(hand)

    def look_after(self) -> None:
        """Start members that ended by themselves again; an unexpected end is an objection."""
        for hand in self.hands:
            if hand.on and hand.name not in self.members.busy and hand.process.running.poll() is not None:
                self._ended(hand)
                self.start(hand)
        self.members.look_after()
        self.objections += [f"{one.kind}: {one.text}" for one in self.members.objections]
        self.members.objections.clear()

    def _ended(self, hand: Hand) -> None:
        code = hand.process.running.returncode
        if code != -9:
            self.objections.append(f"{hand.name} ended with {code}: {hand.process.errors.read_text()[-2000:]}")
            return
        self.deaths["at a step" if hand.dies else "by its message"] += 1

    def lose(self, hand: Hand) -> dict[str, str]:
        """Move the directory of a member that has ended away; its store of each group, as far as it had joined."""
        hand.disks += 1
        place = self.directory / "lost" / f"{hand.name}-{hand.disks}"
        place.mkdir()
        for path in (self.directory / "clients").glob(f"{hand.name}.*"):
            shutil.move(path, place / path.name)
        copy = place / "looked at"
        copy.mkdir()
        for path in place.glob(f"{hand.name}.db*"):
            shutil.copy(path, copy)
        try:
            with closing(sqlite3.connect(copy / f"{hand.name}.db")) as db:
                return dict(db.execute("select name, store from pubsub_groups").fetchall())
        except sqlite3.Error:
            return {}
        finally:
            shutil.rmtree(copy)

    def release(self, group: Group, member: str, store: str, *, lost_disk: bool) -> bool:
        """Give up the claims of a member; whether that is done, or there is no such member."""
        try:
            self.operator.release_member(group.topic, group.name, member, store=store, lost_disk=lost_disk)
        except NotKnown:
            return True
        except NotNow:
            return False
        except PubsubError:
            return False
        return True

    # The end of a round

    def facts(self) -> dict[str, GroupFacts]:
        """Return the server's facts about each group; a group without facts is not there."""
        found: dict[str, GroupFacts] = {}
        for topic in TOPICS:
            with suppress(PubsubError):
                found |= {facts.name: facts for facts in self.operator.groups(topic)}
        return found

    def settled(self) -> bool:
        """Whether every message is stored, each topic is in one place, and nothing of any group is left."""
        self.look_after()
        try:
            for publisher in self.publishers:
                publisher.flush(1.0)
        except PubsubError:
            return False
        facts = self.facts()
        for group in self.groups:
            known = facts.get(group.name)
            if known is None:
                return False
            if known.dead_letters:
                self._redrive(group)
                return False
            if known.waiting or known.offered or known.claimed or known.delayed:
                return False
        return all(self._holders(topic) == 1 for topic in TOPICS)

    def _holders(self, topic: str) -> int:
        """The number of servers with a part of a topic, as both proxies know; 0: they differ."""
        counts = set()
        with suppress(AssertionError):
            for proxy in range(len(self.members.routing)):
                counts.add(len(self.members.cluster.holders(topic, proxy)))
        return counts.pop() if len(counts) == 1 else 0

    def _redrive(self, group: Group) -> None:
        group.redriven = True
        self.write_groups()
        with suppress(PubsubError):
            self.operator.redrive_group(group.topic, group.name)
