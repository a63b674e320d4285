"""Which runs have clients with their state in a database, which clients these are, and the faults of databases."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.fate import Fate
from tests.simulation.grouping.plan import grouped, plans

BASED: Final = 0.06
"""Share of runs with databases."""

OF_DIRECTORIES: Final = frozenset({"empty", "copy", "twin", "replica", "close midway", "abandon", "put back"})
"""Faults that these runs go without: those of a client's directory, and ones that would leave little to demand."""

DATABASE_FAULTS: Final = {
    "lose commit": 3.0,
    "lose link": 1.5,
    "database away": 0.5,
    "database crash": 0.5,
    "promote": 0.6,
    "usurp": 0.6,
}
"""The faults of databases, with the number of each a second in a run that has it."""


KILLED_LATE: Final = "member killed with its commit on the way"
MEMBER_FAULTS: Final = {KILLED_LATE: 1.0, "member loses a commit": 1.0}
"""The faults of members of groups with a database."""


def basing(fate: Fate, seed: int) -> Fate:
    """Give some clients of some runs a database; drawn apart, so that the other runs stay what they were."""
    random = Random(f"databases of {seed}")
    if random.random() >= BASED or fate.deleters:
        return fate
    fate.faults = {fault: rate for fault, rate in fate.faults.items() if fault not in OF_DIRECTORIES}
    fate.databases = random.randrange(1, 1 << 30)
    fate.faults |= drawn_faults(random, some=DATABASE_FAULTS | (MEMBER_FAULTS if fate.groups else {}))
    return fate


def database_of(fate: Fate, name: str) -> str:
    """Return the name of a client's database; "": its state is in a directory."""
    if not fate.databases or Random(f"{name} of {fate.databases}").random() < 0.3:
        return ""
    return f"of-{name}"


def shared_database(fate: Fate, name: str) -> str:
    """Return the name of the database of members of groups; "": this member's state is in a directory."""
    return "crews" if fate.databases and Random(f"{name} of {fate.databases}").random() >= 0.15 else ""


def based(seed: int) -> Fate:
    """A small run of clients with databases that lose answers, go away, crash, and have two processes of a client."""
    random = Random(f"based {seed}")
    return Fate(
        servers=random.choice((1, 1, 2)),
        proxies=random.choice((1, 2)),
        clients=2,
        topics=random.choice((1, 2)),
        seconds=random.choice((3.0, 5.0)),
        think=random.choice((0.02, 0.05)),
        delay=random.choice((0.002, 0.02)),
        late=random.choice((0.0, 0.01)),
        heartbeat=0.2,
        skew=0.1,
        databases=seed + 1,
        handler_fails=random.choice((0.0, 0.05)),
        faults=drawn_faults(
            random,
            some=DATABASE_FAULTS | {"kill": 0.5, "kill in commit": 1.0, "move": 0.5, "pause": 0.5, "close": 0.3},
            **{"lose commit": random.choice((1.0, 4.0))},
        ),
    )


def usurped(seed: int) -> Fate:
    """Clients that another process opens again and again while the first one runs, with commits that are late."""
    random = Random(f"usurped {seed}")
    fate = based(seed)
    fate.handler_fails, fate.servers = 0.0, 1
    fate.faults = drawn_faults(
        random, some={"lose link": 1.0, "promote": 1.0}, **{"usurp": 3.0, "lose commit": random.choice((0.0001, 1.0))}
    )
    return fate


def restored(seed: int) -> Fate:
    """Databases that go back, under processes that are connected or have lost their connection."""
    random = Random(f"restored {seed}")
    fate = based(seed)
    fate.handler_fails = 0.0
    fate.faults = drawn_faults(random, some={"usurp": 1.0, "lose link": 0.5, "move": 0.5}, promote=2.0)
    return fate


def grouped_bases(seed: int) -> Fate:
    """Groups of members with one database, of which some are not heard while they work on."""
    random = Random(f"grouped bases {seed}")
    fate = grouped(seed)
    fate.databases, fate.member_liveness, fate.think = seed + 1, random.choice((0.6, 1.5)), 0.02
    while any(plan.gets or plan.poison for plan in plans(fate)):  # Effects in the database show a double best.
        fate.groups += 1
    fate.seconds = 8.0
    fate.faults = drawn_faults(
        random,
        some={
            "member loses a commit": 1.0, "member cut off": 0.7, "member paused": 0.5, "kill": 0.3,
            "member killed between claim and commit": 0.5,
        },
        **{KILLED_LATE: random.choice((0.5, 1.0))},
    )  # fmt: skip
    if fate.servers > 1:  # A move takes the IDs of the members' databases along.
        fate.faults["move"] = 0.7
    return fate
