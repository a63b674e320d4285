"""The parameters of one run: the number of processes, the faults and their rates.

All of them are drawn from the seed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

FAULTS = (
    "kill", "kill in commit", "power", "pause", "cut", "one way", "clog", "move", "full", "fail", "clock", "empty",
    "copy", "churn", "detour", "twin", "outage", "drain", "abandon", "put back", "flip",
    "close",
)  # fmt: skip

PAIR_FAULTS = (
    "kill primary", "part members", "one way members", "pause primary", "both", "voters", "switch", "replace",
    "old copy",
)  # fmt: skip
"""The faults of pairs only, beside the faults of any server."""

PAIR_MOMENTS = ("part joiner", "hold accepts", "lose voter")
"""The faults of pairs that wait for their moment."""

MOMENTS = ("full start", "turn receiver", "kill maker", "close midway", "cancel", "unheard", "reopen")
"""The faults that wait for their moment (`tests.simulation.faults.moments`)."""

PAIRED = 0.6
"""How many runs have pairs."""

DUELS = 0.25
"""The share of small runs with one pair under constant faults."""


@dataclass
class Fate:
    """One run.

    Attributes:
        seconds: of the phase with faults.
        delay, late_seconds: of messages, at most; loss, late, reorder, duplicate: share of them.
        turn: seconds of a process's turn, at most.
        sinks, ranges: processes that write batches, and that read ranges; talkers: Messengers that talk to others.
        faults: number of each kind a second.
        tight: limits in bytes are reached.
        skew: bound on the difference of two servers' clocks.
        pairs: number of servers with two members, the first ones; witness: whether there is a proxy that only votes.
        scarce: tables and looks are so small that a run reaches their limits.
        attempts: of a client's handler at a message.
        callers: clients that call a service, which has a worker then.
        bursts: share of a client's puts with others at once after them, so that they wait together.
        configurers: operators that change settings of topics; drops: unacknowledged messages may be dropped; expires:
            messages may be too old for delivery.
        latest: messages have keys, and topics keep the latest of each.
        seekers: clients that seek, each with a reader of the history of its topic.
        delays: share of a client's puts with a due time; ttls: with a time to live.
        quotas: the settings that are changed have quotas; paced: clients have quotas at the proxies.
        tables: readers of topics as tables; letters: dead letters are put to topics, too.
        retries: seed of what handlers put off, reject and have redriven; 0: nothing.
        purgers: operators that purge topics; purges_unread: unacknowledged messages, too.
        deleters: operators that delete topics; auto: topics begin by themselves, without an operator.
        families: clients that subscribe to a pattern of topics.
        iterates: clients take by iterations, during which another thread subscribes again.
        databases: seed of the databases with the state of clients; 0: there are none.
        groups: seed of the consumer groups and their members; 0: there are none. member_liveness: silence after which
            servers do not wait for a member any more. exacting: a member of groups may stay away at the end, dead
            letters stay until no log has them, and no request of a member is answered for nothing.
        older: servers of a release without trains and without the second form of chunks and entries; older_members: as
            many of the members of each pair; upgrades: whether one is upgraded at its next start.
    """

    servers: int = 2
    proxies: int = 2
    clients: int = 3
    topics: int = 3
    seconds: float = 10.0
    delay: float = 0.002
    turn: float = 0.001
    loss: float = 0.0
    late: float = 0.0
    late_seconds: float = 3.0
    reorder: float = 0.0
    duplicate: float = 0.0
    skew: float = 0.5
    heartbeat: float = 0.3
    announce: float = 1.0
    divided: bool = False
    think: float = 0.05
    handler_fails: float = 0.0
    power_safe: float = 0.0
    sinks: int = 0
    ranges: int = 0
    talkers: int = 0
    tight: bool = False
    faults: dict[str, float] = field(default_factory=dict)
    pairs: int = 0
    witness: bool = False
    scarce: bool = False
    attempts: int = 4
    callers: int = 0
    bursts: float = 0.0
    older: int = 0
    older_members: int = 0
    upgrades: bool = False
    configurers: int = 0
    latest: bool = False
    drops: bool = False
    expires: bool = False
    retries: int = 0
    purgers: int = 0
    purges_unread: bool = False
    iterates: bool = False
    families: int = 0
    delays: float = 0.0
    ttls: float = 0.0
    quotas: bool = False
    paced: bool = False
    tables: int = 0
    letters: bool = False
    seekers: int = 0
    deleters: int = 0
    auto: bool = True
    databases: int = 0
    groups: int = 0
    exacting: bool = False
    member_liveness: float = 3.0


def draw(random: Random) -> Fate:
    """A run."""
    fate = _cast(random)
    busy = random.choice((0.1, 0.3, 1.0))
    for fault in FAULTS:
        if random.random() < 0.45:
            fate.faults[fault] = busy * random.choice((0.3, 1.0, 2.0))
    _focus(fate, random)
    _thin_out(fate, random)
    if fate.talkers:
        fate.faults["kill endpoint"] = 0.5
    state = random.getstate()  # Drawn separately, so that runs without this fault stay the same.
    if random.random() < 0.2:
        fate.faults["lose routes"] = random.choice((0.1, 0.3, 1.0))
    if random.random() < 0.15:
        fate.faults["refuse"] = random.choice((1.0, 5.0, 20.0))
    random.setstate(state)
    return fate


def _cast(random: Random) -> Fate:
    """How many of everybody there are, and how well messages get from one to another."""
    fate = Fate(
        servers=random.choice((1, 2, 2, 3, 3, 4)),
        proxies=random.choice((1, 2, 2, 3)),
        clients=random.choice((2, 3, 4)),
        topics=random.choice((1, 2, 4, 12)),
        seconds=random.choice((3.0, 6.0, 6.0, 12.0, 20.0)),
        delay=random.choice((0.0005, 0.002, 0.02)),
        turn=random.choice((0.0, 0.002, 0.01)),
        loss=random.choice((0.0, 0.0, 0.001, 0.01, 0.05)),
        late=random.choice((0.0, 0.001, 0.01)),
        reorder=random.choice((0.0, 0.05, 0.5)),
        duplicate=random.choice((0.0, 0.0, 0.01, 0.1)),
        divided=random.random() < 0.5,
        think=random.choice((0.005, 0.02, 0.1)),
        handler_fails=random.choice((0.0, 0.0, 0.05)),
        skew=random.choice((0.1, 0.5)),
        power_safe=random.choice((0.0, 0.3)),
    )
    fate.sinks, fate.ranges = random.choice((0, 0, 0, 1, 2)), random.choice((0, 0, 0, 1, 2))
    fate.talkers = random.choice((0, 0, 0, 0, 0, 2))
    return fate


def _focus(fate: Fate, random: Random) -> None:
    """Have seven runs of ten be of one thing, most of them small."""
    focus = random.random()
    if focus < 0.45:
        _split(fate, random)
    elif focus < 0.52:
        _twins(fate, random)
    elif focus < 0.6:
        _ranges(fate, random)
    elif focus < 0.65:
        _quarters(fate, random)
    elif focus < 0.7:
        _staged(fate, random)


def _thin_out(fate: Fate, random: Random) -> None:
    """Reduce the faults that would leave little to observe or to demand."""
    if "move" in fate.faults:
        fate.faults["move"] *= random.choice((0.5, 1.0, 4.0))
    for fault in ("empty", "copy", "clock", "full", "fail", "twin", "outage", "drain", "abandon", "put back"):
        if fault in fate.faults:
            fate.faults[fault] *= 0.3
    for fault in ("abandon", "put back"):  # They give things up, so that less can be demanded.
        if random.random() < 0.5:
            fate.faults.pop(fault, None)
    if {"abandon", "put back"} & fate.faults.keys():
        fate.sinks = fate.ranges = 0
        fate.faults.pop("twin", None)
    fate.tight = random.random() < 0.12
    if random.random() < 0.6:
        fate.faults.pop("flip", None)
    if fate.tight or "flip" in fate.faults:  # A reader of ranges refuses to continue without its missing records.
        fate.ranges = 0


def pair(fate: Fate, seed: int) -> Fate:
    """Make some servers pairs, in more than half of all runs; drawn separately, so that the other runs stay the same.

    Args:
        fate: of a run without pairs.
        seed: the run's.
    """
    random = Random(f"pairs of {seed}")
    if random.random() >= PAIRED:
        return fate
    fate.pairs = random.choice((1, fate.servers))
    fate.witness = random.random() < 0.3
    busy = random.choice((0.1, 0.3, 1.0))
    for fault in PAIR_FAULTS:
        if random.random() < 0.5:
            fate.faults[fault] = busy * random.choice((0.3, 1.0, 2.0))
    for fault in ("replace", "old copy"):
        if fault in fate.faults:
            fate.faults[fault] *= 0.3
    if random.random() < 0.3:
        fate.faults.setdefault("lose routes", random.choice((0.1, 0.3, 1.0)))
    return fate


def duels(fate: Fate, seed: int) -> Fate:
    """Make some of the runs with pairs small ones, of one pair under constant faults.

    Args:
        fate: of a run with pairs, or without.
        seed: the run's.
    """
    random = Random(f"duels of {seed}")
    if not fate.pairs or random.random() >= DUELS:
        return fate
    fate.servers = fate.pairs = 1
    fate.proxies, fate.topics, fate.seconds = random.choice((2, 3, 3)), 2, 5.0
    fate.sinks = fate.ranges = fate.talkers = 0
    fate.divided, fate.tight, fate.think, fate.heartbeat = False, False, 0.02, 0.2
    others = ("kill in commit", "power", "full", "lose routes", "cut", "churn")
    faults = (*PAIR_FAULTS, *PAIR_MOMENTS, *others)
    some = random.sample(faults, random.choice((1, 2, 3, 6)))
    fate.faults = {fault: random.choice((0.5, 1.5, 4.0)) for fault in some}
    return fate


def moments(fate: Fate, seed: int) -> Fate:
    """Have some runs meet moments and limits that chance hardly ever does; drawn apart, as pairs are.

    Args:
        fate: of a run without.
        seed: the run's.
    """
    random = Random(f"moments of {seed}")
    if random.random() < 0.5:
        return fate
    busy = random.choice((0.1, 0.3, 1.0))
    for fault in MOMENTS[:-2]:
        if random.random() < 0.3 and (fault != "turn receiver" or (fate.pairs and fate.servers > 1)):
            fate.faults[fault] = busy * random.choice((0.3, 1.0, 2.0))
    fate.scarce = random.random() < 0.3
    if "close midway" in fate.faults:
        fate.attempts = random.choice((4, 1))
    if random.random() < 0.2:  # Drawn last, so that runs without it stay the same.
        fate.faults["unheard"] = busy * random.choice((0.3, 1.0, 2.0))
    if random.random() < 0.2:
        fate.faults["reopen"] = busy * random.choice((0.3, 1.0, 2.0))
    return fate


def trains(fate: Fate, seed: int) -> Fate:
    """Have rows go together more often in some runs, and some servers know no trains; drawn apart, as pairs are.

    Args:
        fate: of a run without.
        seed: the run's.
    """
    random = Random(f"trains of {seed}")
    fate.bursts = random.choice((0.0, 0.0, 0.3))
    if random.random() < 0.25:
        fate.older = random.choice((1, fate.servers))
        fate.upgrades = random.random() < 0.5
    return fate


def continuing(fate: Fate, seed: int) -> Fate:
    """Have clients' directories vanish more often in some runs, or two be open at once; drawn apart, as pairs are.

    Args:
        fate: of a run without.
        seed: the run's.
    """
    random = Random(f"continuing of {seed}")
    if random.random() < 0.25:
        fate.faults["empty"] = random.choice((0.3, 1.0))
    if random.random() < 0.2 and not {"abandon", "put back", "clock", "twin", "copy"} & fate.faults.keys():
        fate.faults["replica"] = random.choice((0.3, 1.0))
    return fate


def forms(fate: Fate, seed: int) -> Fate:
    """Have members of pairs be of an older release in some runs, and mostly upgraded; drawn apart, as pairs are.

    Args:
        fate: of a run without.
        seed: the run's.
    """
    random = Random(f"forms of {seed}")
    if fate.pairs and random.random() < 0.25:
        fate.older_members = random.choice((1, 2, 2))
        fate.upgrades = random.random() < 0.7 if not fate.older else fate.upgrades
    return fate


def complete(fate: Fate, seed: int) -> Fate:
    """Add all parts of a run that are drawn separately to the result of `draw`."""
    return forms(continuing(trains(moments(duels(pair(fate, seed), seed), seed), seed), seed), seed)


def _twins(fate: Fate, random: Random) -> None:
    """A small run on one server, in which clients' directories are copied and opened elsewhere."""
    fate.servers, fate.clients, fate.topics, fate.seconds = 1, 3, 2, 6.0
    fate.loss = min(fate.loss, 0.001)
    fate.faults = {fault: rate for fault, rate in fate.faults.items() if random.random() < 0.3}
    fate.faults["twin"] = 5.0


def _ranges(fate: Fate, random: Random) -> None:
    """A small run of splits of one topic that is read by ranges."""
    fate.divided, fate.proxies, fate.servers, fate.topics, fate.ranges = True, 2, 2, 1, 2
    fate.sinks = random.choice((0, 1))
    fate.seconds = random.choice((3.0, 6.0))
    fate.faults = {"churn": 0.5, "detour": 1.0}


def _quarters(fate: Fate, random: Random) -> None:
    """A run in which a topic is begun by every server, and pairs of them are merged before all are."""
    fate.divided, fate.proxies, fate.servers, fate.clients = False, 4, 4, 4
    fate.topics, fate.seconds = random.choice((1, 6)), 7.0
    fate.sinks, fate.ranges, fate.think = random.choice((0, 1)), 0, 0.05
    fate.loss = min(fate.loss, 0.001)
    fate.faults = {"quarters": 0.2, "detour": 1.0, "pause": 0.5}


def _staged(fate: Fate, random: Random) -> None:
    """A small run of moves of topics that sinks write to."""
    fate.servers, fate.proxies, fate.topics = random.choice((2, 3)), random.choice((1, 2)), 1
    fate.sinks, fate.ranges, fate.seconds = 2, 0, 6.0
    fate.faults = {fault: rate for fault, rate in fate.faults.items() if random.random() < 0.2}
    fate.faults["move"] = 3.0


def _split(fate: Fate, random: Random) -> None:
    """A small run of splits: the servers in two camps, clients that change sides and lose power."""
    fate.divided, fate.proxies, fate.servers = True, random.choice((1, 2, 2)), random.choice((2, 2, 3))
    fate.topics = random.choice((1, 2, 6))
    fate.ranges = random.choice((0, 0, 2))
    fate.seconds, fate.think = random.choice((4.0, 7.0)), 0.1
    fate.loss = min(fate.loss, 0.001)
    fate.faults = {fault: rate for fault, rate in fate.faults.items() if random.random() < 0.5}
    fate.faults.update(
        {"churn": 0.4, "detour": random.choice((0.5, 2.0)), "client power": random.choice((0.0, 1.0, 1.0))}
    )
    if not fate.faults["client power"]:
        del fate.faults["client power"]
