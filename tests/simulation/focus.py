"""Small runs for rules with a breakage that the full mix shows too seldom: each produces the needed situation.

Most of all runs have servers of two members, or faults unrelated to the ownership of topics.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.breakages import (
    compaction,
    continuing,
    databases,
    delays,
    deletions,
    expiry,
    family,
    group_members,
    group_servers,
    limits,
    purges,
    replay,
    retaining,
    retries,
    settings,
)
from tests.simulation.database.plan import based, grouped_bases, restored, usurped
from tests.simulation.delaying import delayed_and_repeated, delayed_due_in_split
from tests.simulation.deleting import deleted_split
from tests.simulation.drawn_faults import drawn_faults
from tests.simulation.families import families_split
from tests.simulation.fate import Fate
from tests.simulation.grouping.plan import grouped, grouped_ends, grouped_late, grouped_restores, grouped_split
from tests.simulation.limiting import limited
from tests.simulation.mixtures import mixed
from tests.simulation.purging import purged_split
from tests.simulation.retaining import expired
from tests.simulation.settings_runs import (
    latest_families,
    latest_limited,
    latest_repeated,
    latest_split,
    settings_split,
)


def announced(seed: int) -> Fate:
    """Topics that move, and announcements that come late to the one proxy that there is."""
    random = Random(f"announced {seed}")
    return Fate(
        servers=3,
        proxies=1,
        clients=2,
        topics=12,
        seconds=3.0,
        think=random.choice((0.005, 0.02, 0.1)),
        delay=random.choice((0.002, 0.02)),
        turn=random.choice((0.001, 0.01)),
        late=random.choice((0.05, 0.2)),
        late_seconds=random.choice((0.3, 3.0)),
        reorder=random.choice((0.0, 0.5)),
        heartbeat=random.choice((0.1, 0.3, 0.6)),
        announce=random.choice((0.3, 1.0)),
        faults=drawn_faults(
            random,
            some={"drain": 0.3, "empty": 0.3, "lose routes": 1.0, "kill": 0.5, "pause": 1.0, "detour": 1.0},
            churn=2.0,
            move=random.choice((1.0, 3.0)),
        ),
    )


def split(seed: int) -> Fate:
    """One topic that two servers begin, and readers of ranges that subscribe while both have it."""
    random = Random(f"split {seed}")
    return Fate(
        servers=2,
        proxies=random.choice((2, 3)),
        clients=3,
        topics=1,
        seconds=random.choice((2.0, 4.0)),
        think=random.choice((0.02, 0.1)),
        delay=0.05,
        turn=0.001,
        reorder=0.05,
        heartbeat=random.choice((0.1, 0.3)),
        announce=1.0,
        divided=True,
        ranges=3,
        sinks=random.choice((0, 1)),
        faults=drawn_faults(
            random,
            some={"churn": 2.0, "cut": 2.0, "lose routes": 2.0, "kill": 0.5, "client power": 3.0},
            detour=2.0,
            pause=1.0,
        ),
    )


def given(seed: int) -> Fate:
    """Topics given to other servers through the one proxy, which may miss that."""
    random = Random(f"given {seed}")
    return Fate(
        servers=random.choice((2, 3)),
        proxies=1,
        clients=3,
        topics=random.choice((1, 3)),
        seconds=5.0,
        think=0.02,
        heartbeat=0.2,
        late=random.choice((0.0, 0.01)),
        loss=random.choice((0.0, 0.02)),
        reorder=random.choice((0.0, 0.5)),
        faults=drawn_faults(
            random,
            some={"kill": 0.5, "drain": 0.3, "outage": 0.3, "power": 0.5},
            move=1.0,
            cut=1.0,
        ),
    )


def unheard(seed: int) -> Fate:
    """New topics with announcements that are lost."""
    random = Random(f"unheard {seed}")
    return Fate(
        servers=2,
        proxies=random.choice((1, 2)),
        clients=3,
        topics=random.choice((1, 3)),
        seconds=4.0,
        think=0.02,
        heartbeat=0.2,
        announce=3.0,
        faults={"unheard": 3.0},
    )


def thirds(seed: int) -> Fate:
    """Three proxies of which two suffice, and few servers that do not always reach all of them."""
    random = Random(f"thirds {seed}")
    return Fate(
        servers=random.choice((2, 3)),
        proxies=3,
        clients=3,
        topics=random.choice((1, 3, 12)),
        seconds=random.choice((3.0, 5.0)),
        think=0.02,
        delay=random.choice((0.002, 0.02)),
        heartbeat=0.2,
        announce=random.choice((1.0, 3.0)),
        divided=random.random() < 0.3,
        ranges=random.choice((0, 2)),
        sinks=random.choice((0, 1)),
        late=random.choice((0.0, 0.01)),
        loss=random.choice((0.0, 0.02)),
        faults=drawn_faults(
            random,
            some={
                "kill": 1.0, "power": 0.5, "cut": 2.0, "one way": 1.0, "detour": 1.0, "pause": 1.0, "outage": 0.3,
                "move": 1.0, "drain": 0.3, "lose routes": 0.3, "client power": 2.0, "churn": 2.0, "empty": 0.5,
            },
            **{"unheard": random.choice((0.3, 1.0)), "one witness": random.choice((3.0, 10.0))},
        ),
    )  # fmt: skip


def redeployed(seed: int) -> Fate:
    """Clients with directories that vanish or exist twice, of servers that are killed and give topics to each other."""
    random = Random(f"redeployed {seed}")
    pairs = random.choice((0, 1))
    switches = {"switch": 0.7} if pairs else {}
    return Fate(
        servers=random.choice((1, 2, 2)),
        proxies=random.choice((1, 2)),
        clients=3,
        topics=random.choice((1, 2)),
        seconds=5.0,
        think=random.choice((0.005, 0.02)),
        delay=random.choice((0.002, 0.02)),
        loss=random.choice((0.0, 0.01)),
        heartbeat=0.2,
        pairs=pairs,
        faults=drawn_faults(
            random,
            some={"kill": 0.7, "move": 2.0, "replica": 1.0, "pause": 0.5} | switches,
            empty=random.choice((1.0, 3.0)),
        ),
    )


def redeployed_split(seed: int) -> Fate:
    """The same with servers that do not hear each other for a while, so that both have a topic."""
    random = Random(f"redeployed split {seed}")
    return Fate(
        servers=2,
        proxies=random.choice((2, 3)),
        clients=3,
        topics=1,
        seconds=random.choice((3.0, 5.0)),
        think=random.choice((0.02, 0.1)),
        delay=random.choice((0.002, 0.05)),
        heartbeat=random.choice((0.1, 0.3)),
        announce=1.0,
        divided=True,
        faults=drawn_faults(
            random,
            some={"churn": 2.0, "cut": 2.0, "lose routes": 2.0, "kill": 0.5, "pause": 1.0},
            detour=2.0,
            empty=random.choice((1.0, 3.0)),
        ),
    )


def redeployed_moves(seed: int) -> Fate:
    """The same where one topic goes from server to server all the time."""
    random = Random(f"redeployed moves {seed}")
    return Fate(
        servers=2,
        proxies=1,
        clients=3,
        topics=1,
        seconds=5.0,
        think=random.choice((0.005, 0.02)),
        heartbeat=0.2,
        faults=drawn_faults(random, some={"empty": 4.0, "kill": 1.0}, replica=2.0, move=random.choice((2.0, 5.0))),
    )


def redeployed_left(seed: int) -> Fate:
    """Clients that leave and come back while their server is not heard for long."""
    random = Random(f"redeployed left {seed}")
    return Fate(
        servers=1,
        proxies=1,
        clients=3,
        topics=4,
        seconds=8.0,
        think=0.02,
        skew=0.1,
        heartbeat=0.2,
        loss=0.02,
        faults=drawn_faults(random, some={"cut": 1.0, "outage": 0.3}, pause=1.0, kill=0.5),
    )


def iterated(seed: int) -> Fate:
    """Clients that iterate and subscribe again meanwhile, of which another directory takes over now and then."""
    random = Random(f"rest {seed}")
    return Fate(
        servers=1,
        proxies=1,
        clients=2,
        topics=1,
        seconds=5.0,
        think=random.choice((0.05, 0.1, 0.2)),
        heartbeat=0.2,
        bursts=random.choice((0.3, 0.7)),
        iterates=True,
        faults={"replica": random.choice((1.0, 3.0))},
    )


def iterated_moves(seed: int) -> Fate:
    """The same where the topic goes from server to server, between a subscribe and the next GET too."""
    random = Random(f"mark {seed}")
    return Fate(
        servers=2,
        proxies=1,
        clients=2,
        topics=1,
        seconds=5.0,
        think=random.choice((0.05, 0.1, 0.2)),
        delay=random.choice((0.002, 0.02)),
        heartbeat=0.2,
        bursts=random.choice((0.3, 0.7)),
        iterates=True,
        faults={"replica": random.choice((2.0, 5.0)), "move": random.choice((3.0, 8.0))},
    )


def spoiled(seed: int) -> Fate:
    """Topics of which some cannot be read at a server that others are put to."""
    random = Random(f"spoiled {seed}")
    return Fate(
        servers=random.choice((1, 2)),
        proxies=2,
        clients=3,
        topics=random.choice((3, 6)),
        seconds=3.0,
        think=0.02,
        faults=drawn_faults(random, some={"kill": 0.5, "move": 0.5, "full": 0.5, "churn": 1.0}, spoil=1.5),
    )


def seeking_split(seed: int) -> Fate:
    """A topic that two servers hold again and again, with clients that seek."""
    random = Random(f"seeking {seed}")
    return Fate(
        servers=2,
        proxies=2,
        clients=2,
        topics=1,
        seconds=random.choice((4.0, 8.0)),
        think=random.choice((0.02, 0.1)),
        divided=True,
        delay=random.choice((0.002, 0.05)),
        late=random.choice((0.0, 0.02)),
        duplicate=random.choice((0.0, 0.1)),
        skew=0.1,
        heartbeat=0.2,
        seekers=random.choice((1, 2)),
        faults=drawn_faults(
            random,
            some={"move": 1.0, "kill": 0.5, "churn": 1.0, "pause": 0.5, "kill in commit": 0.5},
            detour=random.choice((0.5, 1.5)),
        ),
    )


def retried(seed: int) -> Fate:
    """A small run of handlers that fail, put off and reject, with clients that are killed and lose power."""
    random = Random(f"retried {seed}")
    return Fate(
        servers=random.choice((1, 2)),
        proxies=1,
        clients=3,
        topics=2,
        seconds=6.0,
        think=0.02,
        retries=seed + 1,
        handler_fails=0.15,
        attempts=random.choice((2, 4)),
        faults=drawn_faults(
            random, some={"kill": 2.0, "kill in commit": 3.0, "power": 0.5, "reopen": 1.0, "move": 0.5}
        ),
    )


def defaults_moved(seed: int) -> Fate:
    """Topics that move between servers with different defaults."""
    random = Random(f"defaults {seed}")
    return Fate(
        servers=random.choice((2, 3)),
        proxies=random.choice((1, 2, 3)),
        clients=2,
        topics=random.choice((1, 3)),
        seconds=random.choice((10.0, 15.0)),
        think=random.choice((0.05, 0.1)),
        skew=0.1,
        heartbeat=0.1,
        announce=random.choice((0.3, 1.0)),
        late=random.choice((0.0, 0.05)),
        configurers=random.choice((0, 0, 1)),
        faults=drawn_faults(
            random,
            some={"kill": 0.2, "churn": 1.0, "lose routes": 0.3, "outage": 0.3, "detour": 0.3},
            move=random.choice((0.5, 2.0)),
            defaults=random.choice((0.3, 1.0)),
        ),
    )


def wrong_clock(seed: int) -> Fate:
    """A server on a host with a clock that is days ahead at some of its starts, and settings with ages."""
    random = Random(f"wrong clock {seed}")
    return Fate(
        servers=1,
        proxies=random.choice((1, 2, 3)),
        clients=2,
        topics=1,
        seconds=8.0,
        think=random.choice((0.02, 0.1)),
        skew=0.1,
        heartbeat=0.2,
        configurers=2,
        faults=drawn_faults(random, some={"kill": 0.5, "churn": 1.0}, **{"wrong clock": random.choice((0.3, 1.0))}),
    )


GROUPS = (*group_members.breakage.breakages, *group_servers.breakage.breakages)
AT_ENDS = {"fsync", "close_keeps"}
"""Breakages of groups that concern members which end, or lose power when they have told what is done."""

LATE = {"number", "last", "once", "facts"}
"""Breakages of groups that concern late messages, and members that are not heard."""

IN_SPLITS = {"home", "travel", "numbers", "watermark", "nofilter", "store"}
"""Breakages of groups that concern topics which move, or which several servers hold."""

USURPED = (
    "databases: the life is counted for the token",
    "databases: an answer shows a copy to a process whose life is over",
)
RESTORED = ("databases: no number check", "databases: an older database is taken as it is")
LOOKED_UP = (
    "databases: check first, then write",
    "databases: no life check",
    "databases: a look does not end the life",
)
"""Breakages of databases that two processes of a client show, an older database, and a look at a silent member."""

FOCUSED: dict[str, Callable[[int], Fate]] = {
    "stale announcement accepted": announced,
    "whole always true for a named subscription": split,
    "to whom a topic was given is not said": given,
    "answered before a proxy has heard of the topic": unheard,
    "announced after the answer": unheard,
    "answered before a second proxy has heard of the topic": thirds,
    "which topics too few proxies have heard of is forgotten": thirds,
    **dict.fromkeys(continuing.breakage.breakages, redeployed),
    "continued though the topic may be split": redeployed_split,
    "a move forgets what was handed out": redeployed_moves,
    "mark left out of a transfer": iterated_moves,
    "rest of an iteration dropped by who goes on": iterated,
    "who has left continues": redeployed_left,
    "handed out within the transaction": spoiled,
    **dict.fromkeys(settings.breakage.breakages, settings_split),
    **dict.fromkeys(compaction.breakage.breakages, latest_split),
    "compaction: visible: a record that the history does not show supersedes others": latest_repeated,
    "compaction: patterns: a subscriber to a pattern is not entered": latest_families,
    "compaction: ttl: a message goes before its time to live has ended": latest_limited,
    **dict.fromkeys(replay.breakage.breakages, seeking_split),
    **dict.fromkeys(retries.breakage.breakages, retried),
    **dict.fromkeys(purges.breakage.breakages, purged_split),
    **dict.fromkeys(family.breakage.breakages, families_split),
    **dict.fromkeys((title for title in retaining.breakage.breakages if "clock" not in title), defaults_moved),
    **dict.fromkeys((title for title in retaining.breakage.breakages if "clock" in title), wrong_clock),
    **dict.fromkeys(delays.breakage.breakages, delayed_due_in_split),
    **dict.fromkeys(deletions.breakage.breakages, deleted_split),
    "delay: delivered": delayed_and_repeated,
    **dict.fromkeys(expiry.breakage.breakages, expired),
    **dict.fromkeys(limits.breakage.breakages, limited),
    **dict.fromkeys(GROUPS, grouped),
    **dict.fromkeys((title for title in GROUPS if title.split(": ")[1] in IN_SPLITS), grouped_split),
    **dict.fromkeys((title for title in GROUPS if title.split(": ")[1] in AT_ENDS), grouped_ends),
    **dict.fromkeys((title for title in GROUPS if title.split(": ")[1] in LATE), grouped_late),
    "groups: restored_goes_on: a group of a restored copy goes on without an operator": grouped_restores,
    **dict.fromkeys(databases.breakage.breakages, based),
    **dict.fromkeys(USURPED, usurped),
    **dict.fromkeys(RESTORED, restored),
    **dict.fromkeys(LOOKED_UP, grouped_bases),
    "mixtures: a reader is not told of deletions that went": mixed("compaction, tables and times to live"),
    "mixtures: a dead letter is put in a commit of its own": mixed("retries and topics of dead letters"),
    "mixtures: a put of a client costs nothing": mixed("quotas of clients"),
}
"""By the title of a breakage: the runs that show it."""
