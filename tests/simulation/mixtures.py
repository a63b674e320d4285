"""Runs with two or three of the things that the other choices keep apart, such as purges and clients that seek.

Each mixture says what it adds to a run, and takes away what the judgement on its parts cannot allow for.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.families import EXCUSES
from tests.simulation.fate import Fate
from tests.simulation.retrying import GONE
from tests.simulation.seeking import UNSOUND

MIXING: Final = 0.12
"""Share of runs with a mixture."""

Add = Callable[[Fate, Random], None]


def _without(fate: Fate, faults: frozenset[str] | set[str]) -> None:
    fate.faults = {fault: rate for fault, rate in fate.faults.items() if fault not in faults}


def _latest(fate: Fate, random: Random) -> None:
    fate.configurers = fate.configurers or random.choice((1, 2))
    fate.latest, fate.drops, fate.tight = True, False, False
    fate.tables = random.choice((0, 1))


def _delays(fate: Fate, random: Random) -> None:
    fate.delays = random.choice((0.05, 0.2, 0.5))


def _families(fate: Fate, random: Random) -> None:
    _without(fate, EXCUSES)
    fate.families, fate.purgers, fate.drops, fate.tight = random.choice((1, 2)), 0, False, False


def _purges(fate: Fate, random: Random) -> None:
    fate.purgers, fate.purges_unread = random.choice((1, 2)), random.random() < 0.6
    fate.families = 0
    if fate.purges_unread:
        fate.ranges, fate.tight = 0, False
        fate.faults.pop("flip", None)


def _seeks(fate: Fate, random: Random) -> None:
    _without(fate, UNSOUND)
    fate.seekers, fate.tight = random.choice((1, 1, 2)), False


def _drops(fate: Fate, random: Random) -> None:
    fate.configurers = fate.configurers or random.choice((1, 2))
    fate.drops, fate.ranges, fate.families = True, 0, 0


def _expires(fate: Fate, random: Random) -> None:
    fate.configurers = fate.configurers or random.choice((1, 2))
    fate.expires, fate.ranges = True, 0


def _ttls(fate: Fate, random: Random) -> None:
    fate.ttls = random.choice((0.1, 0.4))


def _retries(fate: Fate, random: Random) -> None:
    _without(fate, GONE)
    fate.retries = random.randrange(1, 1 << 30)
    fate.handler_fails = max(fate.handler_fails, 0.1)


def _tables(fate: Fate, random: Random) -> None:
    fate.tables = 2


def _letters(fate: Fate, random: Random) -> None:
    fate.faults.pop("flip", None)
    fate.letters, fate.tight, fate.attempts = True, False, random.choice((1, 2))


def _paced(fate: Fate, random: Random) -> None:
    fate.paced = True


MIXTURES: Final[dict[str, tuple[Add, ...]]] = {
    "compaction and delays": (_latest, _delays),
    "compaction and patterns": (_latest, _families),
    "compaction and purges": (_latest, _purges),
    "compaction, tables and times to live": (_latest, _tables, _ttls),
    "compaction and seeks": (_latest, _seeks),
    "seeks and purges": (_seeks, _purges),
    "seeks and drops": (_seeks, _drops),
    "seeks and expiry": (_seeks, _expires),
    "seeks and times to live": (_seeks, _ttls),
    "retries and times to live": (_retries, _ttls),
    "retries, delays and times to live": (_retries, _delays, _ttls),
    "retries and topics of dead letters": (_retries, _letters),
    "quotas of clients": (_paced,),
    "quotas of clients, delays and retries": (_paced, _delays, _retries),
}
"""By name what a mixture adds to a run."""


def mixing(fate: Fate, seed: int) -> Fate:
    """Have some runs mix things; drawn apart, so that the others stay what they were."""
    random = Random(f"mixtures of {seed}")
    apart = fate.older or fate.older_members or fate.deleters or not fate.auto
    if random.random() < MIXING and not apart:
        _mix(fate, random, random.choice(tuple(MIXTURES)))
    return fate


def _mix(fate: Fate, random: Random, name: str) -> None:
    for add in MIXTURES[name]:
        add(fate, random)


def mixed(name: str) -> Callable[[int], Fate]:
    """Return the small runs of one mixture, by seed."""

    def made(seed: int) -> Fate:
        random = Random(f"{name} {seed}")
        fate = Fate(
            servers=2,
            proxies=2,
            clients=random.choice((2, 3)),
            topics=random.choice((1, 1, 3)),
            seconds=random.choice((4.0, 8.0)),
            think=random.choice((0.02, 0.1)),
            divided=random.random() < 0.5,
            delay=random.choice((0.002, 0.02)),
            late=random.choice((0.0, 0.02)),
            duplicate=random.choice((0.0, 0.1)),
            skew=0.1,
            heartbeat=0.2,
            bursts=random.choice((0.0, 0.3)),
            faults=drawn_faults(
                random,
                some={
                    "move": 1.0, "kill": 0.7, "churn": 1.0, "pause": 0.5, "kill in commit": 1.0, "power": 0.5,
                    "detour": 1.0, "reopen": 0.5,
                },
            ),
        )  # fmt: skip
        _mix(fate, random, name)
        return fate

    made.__name__ = name
    return made
