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
    fate.latest, fate.drops = True, False
    return fate
