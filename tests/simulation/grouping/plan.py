"""The consumer groups of a run: which runs have some, and what these groups and their members are like."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Final
from zlib import crc32

from pubsub.client.core.group_request import Wish
from pubsub.protocol.group_bodies import KEYED, REDELIVER, SHARED, WAIT
from pubsub.protocol.names import EARLIEST, LATEST
from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.fate import Fate

GROUPING: Final = 0.1
"""Share of runs with consumer groups."""

EXCUSES: Final = frozenset({"abandon", "put back", "flip", "old copy", "copy", "twin", "replace"})
"""Faults after which messages may be lost, or the rows of a server or a member are of an earlier time."""

MEMBER_FAULTS: Final = {
    "member killed in handler": 0.7,
    "member killed between claim and commit": 0.7,
    "member killed between commit and done": 0.7,
    "member power cut": 0.4,
    "member directory lost": 0.15,
    "member paused": 0.5,
    "member closed": 0.4,
    "member cut off": 0.5,
    "work late": 0.7,
}
"""The faults of members, with the number of each a second in a run that has it."""


@dataclass
class Plan:
    """One consumer group.

    Attributes:
        wish: of its maker; members join with it, too.
        before: every member claims before its handler begins.
        gets: some members take without a handler.
        members: names of its members, by host.
        poison: share of the messages that kill the process of their handler, always.
        operated: rates of an operator's acts.
    """

    topic: str
    name: str
    wish: Wish
    before: bool
    gets: bool
    members: list[str]
    concurrency: int
    fails: float
    poison: float
    operated: dict[str, float] = field(default_factory=dict)


def is_poison(plan: Plan, body: str) -> bool:
    """Return True if a message kills the process of its handler."""
    return crc32(body.encode()) % 10_000 < plan.poison * 10_000


def grouping(fate: Fate, seed: int) -> Fate:
    """Have some runs work with groups; drawn apart, so that the others stay what they were.

    These runs go without the faults that excuse losses, and without settings by which messages go unread.
    """
    random = Random(f"groups of {seed}")
    if random.random() >= GROUPING or excused(fate):
        return fate
    fate.faults = {fault: rate for fault, rate in fate.faults.items() if fault not in EXCUSES}
    with_members(fate, random)
    return fate


def excused(fate: Fate) -> bool:
    """Return True if messages of a run may go unread, or some of its servers know no groups."""
    goes = fate.drops or fate.expires or fate.purgers or fate.tight or fate.deleters or fate.scarce or fate.latest
    return bool(goes or fate.older or fate.older_members or not fate.auto)


def with_members(fate: Fate, random: Random) -> None:
    """Add groups and the faults of their members."""
    fate.groups = random.randrange(1, 1 << 30)
    fate.member_liveness = random.choice((0.6, 1.5, 3.0))
    fate.faults |= drawn_faults(random, some=MEMBER_FAULTS)


def plans(fate: Fate) -> list[Plan]:
    """Return the groups of a run."""
    random = Random(f"plans of {fate.groups}")
    hosts = [f"g{n}" for n in range(1, random.choice((2, 3, 3, 4)) + 1)]
    return [_plan(fate, random, number, hosts) for number in range(random.choice((1, 1, 1, 2)))]


def _plan(fate: Fate, random: Random, number: int, hosts: list[str]) -> Plan:
    topic = f"t{random.randrange(min(fate.topics, 2)) + 1}"
    keyed = random.random() < 0.5
    redelivers = random.random() < 0.2
    wish = Wish(
        KEYED if keyed else SHARED,
        random.choice((1, 2, 4)) if keyed else 0,
        random.choice((EARLIEST, LATEST)),
        REDELIVER if redelivers else WAIT,
        random.choice((1000, 3000)),
        random.choice((2, 5)),
    )
    poison = random.choice((0.0, 0.0, 0.01))
    if poison:
        wish = wish._replace(attempts=2)  # Each attempt costs a process.
    operated = {"release": 0.3, "force": 0.15, "redrive": 0.3, "end": 0.04}
    return Plan(
        topic,
        f"crew{number}",
        wish,
        before=random.random() < 0.35,
        gets=random.random() < 0.15,
        members=random.sample(hosts, random.randrange(2, len(hosts) + 1)) if number else hosts,
        concurrency=random.choice((1, 1, 3)),
        fails=random.choice((0.0, 0.05, 0.2)),
        poison=poison,
        operated={act: rate for act, rate in operated.items() if random.random() < 0.3},
    )


def grouped(seed: int) -> Fate:
    """A small run of groups, with members that are killed, lose power, and are not heard."""
    random = Random(f"grouped {seed}")
    fate = Fate(
        servers=random.choice((1, 1, 2)),
        proxies=random.choice((1, 2)),
        clients=2,
        topics=1,
        seconds=random.choice((3.0, 6.0)),
        think=random.choice((0.05, 0.1)),
        delay=random.choice((0.002, 0.02)),
        late=random.choice((0.0, 0.02)),
        late_seconds=random.choice((0.5, 3.0)),
        duplicate=random.choice((0.0, 0.1)),
        reorder=random.choice((0.0, 0.3)),
        skew=0.1,
        heartbeat=0.2,
        faults=drawn_faults(random, some={"kill": 0.5, "kill in commit": 0.5, "power": 0.3}),
    )
    with_members(fate, random)
    fate.exacting = True
    return fate


def grouped_split(seed: int) -> Fate:
    """Groups of a topic that moves, and that several servers hold at once."""
    random = Random(f"grouped split {seed}")
    fate = Fate(
        servers=2,
        proxies=2,
        clients=2,
        topics=1,
        seconds=random.choice((4.0, 6.0)),
        think=random.choice((0.05, 0.1)),
        divided=random.random() < 0.5,
        delay=random.choice((0.002, 0.02)),
        late=random.choice((0.0, 0.02)),
        duplicate=random.choice((0.0, 0.1)),
        skew=0.1,
        heartbeat=0.2,
        faults=drawn_faults(
            random,
            some={"kill": 0.3, "churn": 0.5, "pause": 0.5, "kill in commit": 0.5, "detour": 1.0},
            move=random.choice((0.5, 2.0)),
        ),
    )
    with_members(fate, random)
    fate.exacting = True
    return fate


def grouped_pairs(seed: int) -> Fate:
    """Groups at a server of two members, of which one takes over from the other."""
    random = Random(f"grouped pairs {seed}")
    fate = Fate(
        servers=1,
        pairs=1,
        proxies=3,
        clients=2,
        topics=1,
        seconds=4.0,
        think=random.choice((0.05, 0.1)),
        delay=random.choice((0.002, 0.02)),
        skew=0.1,
        heartbeat=0.2,
        faults=drawn_faults(
            random, some={"part members": 0.5, "pause primary": 0.5, "kill in commit": 0.5}, **{"kill primary": 1.0}
        ),
    )
    with_members(fate, random)
    fate.exacting = True
    return fate


def grouped_restores(seed: int) -> Fate:
    """Groups at a server with a store that is put back to an earlier copy."""
    random = Random(f"grouped restores {seed}")
    fate = Fate(
        servers=1,
        proxies=1,
        clients=2,
        topics=1,
        seconds=4.0,
        think=0.05,
        skew=0.1,
        heartbeat=0.2,
        faults={"put back": 1.0},
    )
    with_members(fate, random)
    fate.exacting = True
    return fate


def grouped_late(seed: int) -> Fate:
    """Groups with requests and answers that are late, doubled and overtaken, and members that are not heard."""
    random = Random(f"grouped late {seed}")
    fate = Fate(
        servers=1,
        proxies=random.choice((1, 2)),
        clients=2,
        topics=1,
        seconds=4.0,
        think=random.choice((0.02, 0.05)),
        delay=0.02,
        late=0.1,
        late_seconds=random.choice((0.1, 0.5)),
        duplicate=0.3,
        reorder=0.5,
        skew=0.1,
        heartbeat=0.2,
    )
    with_members(fate, random)
    fate.faults, fate.member_liveness, fate.exacting = {"member paused": 1.0, "member cut off": 0.5}, 0.6, True
    return fate


def grouped_ends(seed: int) -> Fate:
    """Groups with members that end in good order, or lose power when they have just told what is done."""
    random = Random(f"grouped ends {seed}")
    fate = Fate(servers=1, proxies=1, clients=2, topics=1, seconds=4.0, think=0.02, skew=0.1, heartbeat=0.2)
    with_members(fate, random)
    fate.faults, fate.exacting = {"member closed": 1.0, "member power cut when told": 1.0}, True
    return fate
