"""Rates of groups of 1, 4 and 16 members beside a single subscriber, and beside peers; and of slow handlers.

The single subscriber and the groups take the same records of one topic, one after the other, in another order in each
repetition. Their processes run all the time. Processor time is of all members, of the server and of the proxy.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from benchmarks.groups import peers
from benchmarks.groups.takers import CONCURRENCY, HANDLER_SECONDS, Taker, Took
from benchmarks.redis import connect
from benchmarks.stage import Stage
from pubsub.errors import PubsubError

MEMBERS: Final = (1, 4, 16)
SLOW_MEMBERS: Final = (1, 4)
BODY: Final = bytes(100)
SLOW_RATE: Final = CONCURRENCY / HANDLER_SECONDS
"""Records a second of one member whose handlers do nothing but wait."""

_US: Final = 1e6

Figures = dict[str, float]


def fast(stage: Stage, sizes: dict[str, int], reps: int, seed: int = 1) -> dict[str, list[Figures]]:
    """Take records by a single subscriber and by each group, in turns; by way, a row for each repetition and taker.

    Args:
        sizes: records by way.
    """
    rng, out = random.Random(seed), {way: list[Figures]() for way in sizes}
    with ExitStack() as stack:
        crew = _crew(stack, f"{_OURS}:member", 1 + max(MEMBERS), stage, "member")
        single, crew = crew[0], crew[1:]
        for rep in range(reps):
            for way, records in sizes.items():
                topic = f"{way}{rep}"
                _join(single, topic, None)
                for size in MEMBERS:
                    for taker in crew[:size]:
                        _join(taker, topic, f"g{size}")
                _fill(stage, topic, records)
                turns: list[tuple[int, str | None, list[Taker]]] = [(0, None, [single])]
                turns += [(size, f"g{size}", crew[:size]) for size in MEMBERS]
                rng.shuffle(turns)
                for size, group, takers in turns:
                    spent = _spent(stage)
                    row = {"rep": float(rep), "members": float(size), **_run(takers, way, topic, group, records)}
                    out[way].append(row | _between(spent, _spent(stage), records))
    return out


def slow(stage: Stage, secs: float) -> list[Figures]:
    """Take records with handlers that wait; a row for each number of members."""
    out = []
    with ExitStack() as stack:
        crew = _crew(stack, f"{_OURS}:slow_member", max(SLOW_MEMBERS), stage, "slow")
        for size in SLOW_MEMBERS:
            topic, records = f"slow{size}", max(100, int(SLOW_RATE * size * secs) // 100 * 100)
            for taker in crew[:size]:
                _join(taker, topic, "g")
            _fill(stage, topic, records)
            spent = _spent(stage)
            figures = _run(crew[:size], "process", topic, "g", records)
            bound = SLOW_RATE * size
            figures |= {"members": size, "bound": bound, "share": figures["rate"] / bound}
            out.append(figures | _between(spent, _spent(stage), records))
    return out


def peer(name: str, directory: Path, sizes: dict[str, int]) -> dict[str, list[Figures]]:
    """The same through a peer; by way, a row for each number of consumers."""
    out: dict[str, list[Figures]] = {}
    with ExitStack() as stack:
        server: Any = stack.enter_context(peers.running(name, directory / name))
        where = server.address if name == "redis" else server.url
        places = [str(directory / f"{name}-{number}") for number in range(max(MEMBERS))]
        crew = [stack.enter_context(Taker(f"{_PEERS}:{name}_member", where, place)) for place in places]
        for taker in crew:
            taker.said()
        groups = [f"g{size}" for size in MEMBERS]
        for way, records in sizes.items():
            if name == "redis":
                for group in groups:
                    connect(where).xgroup_create(way, group, mkstream=True)
                peers.fill_redis(server, way, records, BODY)
            else:
                peers.fill_nats(server, way, groups, records, BODY)
            out[way] = [
                {"members": float(size), **_run(crew[:size], way, way, f"g{size}", records)} for size in MEMBERS
            ]
    return out


_OURS: Final = "benchmarks.groups.takers"
_PEERS: Final = "benchmarks.groups.peers"


def _crew(stack: ExitStack, role: str, size: int, stage: Stage, word: str) -> list[Taker]:
    places = [str(stage.directory / f"{word}{number}") for number in range(size)]
    crew = [stack.enter_context(Taker(role, stage.where, place)) for place in places]
    for taker in crew:
        taker.said()
    return crew


def _join(taker: Taker, topic: str, group: str | None) -> None:
    taker.tell(way="join", topic=topic, group=group)
    taker.said()


def _fill(stage: Stage, topic: str, records: int) -> None:
    with stage.client("filler") as client:
        for begin in range(0, records, 1_000):
            client.put_many(topic, [BODY] * min(1_000, records - begin), wait=False)
        client.flush()


def _run(takers: Sequence[Taker], way: str, topic: str, group: str | None, records: int) -> Figures:
    """Let takers take all records; the rate, and the processor time of a record at all of them."""
    for taker in takers:
        taker.tell(way=way, topic=topic, group=group)
    found: list[Took] = [taker.took() for taker in takers]
    taken = sum(one.records for one in found)
    if taken != records:
        raise PubsubError(f"{len(takers)} members took {taken:,} records, not {records:,}")
    seconds = max(one.ended for one in found) - min(one.begun for one in found)
    return {"rate": records / seconds, "client": _US * sum(one.spent for one in found) / records}


def _spent(stage: Stage) -> dict[str, int]:
    return {role: nanoseconds(process) for role, process in stage.processes.items()}


def _between(before: dict[str, int], after: dict[str, int], records: int) -> Figures:
    return {role: (after[role] - before[role]) / 1_000 / records for role in before}


def nanoseconds(process: int) -> int:
    """Processor time of all threads of a process (Linux)."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks)
