"""Runs with operators that change settings, for rules whose breakage the full mix shows too seldom."""

from __future__ import annotations

from random import Random

from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.fate import Fate


def settings_split(seed: int) -> Fate:
    """A topic that two servers hold again and again, with operators who change its settings."""
    random = Random(f"settings {seed}")
    return Fate(
        servers=2,
        proxies=2,
        clients=2,
        topics=1,
        seconds=random.choice((6.0, 10.0)),
        think=random.choice((0.02, 0.1)),
        divided=True,
        delay=random.choice((0.002, 0.05)),
        skew=0.1,
        heartbeat=0.2,
        configurers=random.choice((1, 3, 3)),
        drops=random.random() < 0.5,
        tight=random.random() < 0.3,
        faults=drawn_faults(
            random,
            some={"move": 1.0, "kill": 0.5, "churn": 1.0, "pause": 0.5, "kill in commit": 0.5},
            detour=random.choice((0.5, 1.5)),
        ),
    )


def latest_split(seed: int) -> Fate:
    """The same with messages that have keys, of which topics keep the latest."""
    fate = settings_split(seed)
    fate.latest, fate.drops, fate.tight = True, False, False
    return fate


def latest_repeated(seed: int) -> Fate:
    """The same with puts that are doubled and late, so that both servers take some of them."""
    random = Random(f"latest {seed}")
    fate = latest_split(seed)
    fate.clients, fate.think = 3, 0.02
    fate.late, fate.late_seconds = random.choice((0.05, 0.2)), random.choice((0.5, 2.0))
    fate.duplicate, fate.reorder = random.choice((0.1, 0.3)), 0.1
    fate.faults = drawn_faults(random, some={"move": 1.0, "cut": 1.0, "churn": 1.0}, detour=2.0, pause=1.0)
    return fate


def latest_families(seed: int) -> Fate:
    """The same with clients that subscribe to a pattern."""
    fate = latest_split(seed)
    fate.families = 2
    return fate


def latest_limited(seed: int) -> Fate:
    """The same with messages that have a time to live. They are put seldom, so that their keys have no later one."""
    fate = latest_split(seed)
    fate.ttls, fate.think = 0.8, 0.7
    return fate
