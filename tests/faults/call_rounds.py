"""Rounds of calls with SIGKILL of everybody: `python -m tests.faults.call_rounds --rounds 1000 --seed 1`.

Each round has a service of its own, its worker and two callers, each of which dies at a step drawn from the seed, again
and again: inside or behind a commit of its store, before or after a message that it sends. In some rounds a server or a
proxy is killed meanwhile. Then all are started without a fault, and what the databases say is judged: every call has
had its effect once, and its caller has the one reply that tells of it.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random

from tests.faults.cluster import Cluster, Process, until
from tests.faults.dying import POINTS

CALLS = 6
"""Of each caller in a round."""

DEATHS_MAX = 3
"""Of each process in a round, by itself."""


def judge(cluster: Cluster, worker: str, callers: list[str], count: int = CALLS) -> list[str]:
    """What of a round is not as it was promised; everybody has ended."""
    found: list[str] = []
    expected = {f"{caller}-{number}" for caller in callers for number in range(1, count + 1)}
    rows = _rows(cluster.state(worker), "select id, body, n from effects order by n")
    effects = {call: b"%s is row %d" % (bytes(body), n) for call, body, n in rows}
    if len(rows) != len(effects):
        twice = sorted(call for call in effects if sum(row[0] == call for row in rows) > 1)
        found.append(f"{worker} did twice: {twice}")
    if effects.keys() != expected:
        found.append(f"{worker} did {sorted(effects.keys() ^ expected)} or did not")
    for caller in callers:
        replies = dict(_rows(cluster.state(caller), "select id, body from replied"))
        own = {call for call in expected if call.startswith(f"{caller}-")}
        found += [
            f"{caller} has another reply to {call}" for call in sorted(own) if replies.get(call) != effects.get(call)
        ]
        kept = dict(_rows(cluster.state(caller), "select id, outcome from pubsub_calls"))
        found += [f"{call} is {kept.get(call)}" for call in sorted(own) if kept.get(call) != "done"]
    return found


def _rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return list(db.execute(statement))


class Round:
    """One round.

    Args:
        cluster: with its proxies and servers.
        number: for the names; random: says who dies where.
    """

    def __init__(self, cluster: Cluster, number: int, random: Random) -> None:
        self.cluster, self.random = cluster, random
        self.service = f"service{number}"
        self.worker = cluster.caller(
            f"w{number}", self.service, serves=True, fails=random.choice((0, 3)), die=self._death()
        )
        self.callers = [
            cluster.caller(f"c{number}{letter}", self.service, count=CALLS, die=self._death()) for letter in "ab"
        ]
        self._deaths = {process.name: 0 for process in (self.worker, *self.callers)}
        self.deaths = 0

    def _death(self) -> dict[str, object]:
        return {"point": self.random.choice(POINTS), "count": self.random.randint(1, 40)}

    def run(self, *, services: bool) -> list[str]:
        """To its end; what was not as it was promised. `services`: a server or a proxy is killed too."""
        victim = self.random.choice([*self.cluster.servers, *self.cluster.proxies]) if services else None
        when = self.random.randint(1, CALLS)
        found: list[str] = []

        def over() -> bool:
            nonlocal victim
            if victim is not None and sum(caller.number("replied") for caller in self.callers) >= when:
                victim.kill()
                victim.start()
                victim = None
            for process in (self.worker, *self.callers):
                found.extend(self._look_after(process))
            return bool(found) or all(caller.running.poll() == 0 for caller in self.callers)

        until(over, "every caller has all its replies", 120.0)
        if victim is not None:
            victim.kill()
            victim.start()
        if not found:
            self.worker.say("finish")
            if self.worker.wait() != 0:
                self.worker.again(die=None).wait_line("serving")
                self.worker.say("finish")
                self.worker.wait()
            found += judge(self.cluster, self.worker.name, [caller.name for caller in self.callers])
        return found

    def _look_after(self, process: Process) -> Iterator[str]:
        """Start it again where it has died; at the end without a death of its own."""
        code = process.running.poll()
        for line in process.lines("different"):
            yield f"{process.name}: {line}"
        if code is None or code == 0:
            return
        if code != -9:
            yield f"{process.name} ended with {code}: {process.errors.read_text()[-500:]}"
            return
        self.deaths += 1
        self._deaths[process.name] += 1
        process.again(die=self._death() if self._deaths[process.name] < DEATHS_MAX else None)


def rounds(cluster: Cluster, count: int, seed: int, *, say: bool = False) -> tuple[list[str], int]:
    """So many rounds; what was not as it was promised, and how often somebody died."""
    found: list[str] = []
    deaths = 0
    for number in range(1, count + 1):
        one = Round(cluster, number, Random(f"{seed} {number}"))
        found += [f"round {number} of seed {seed}: {text}" for text in one.run(services=number % 2 == 0)]
        deaths += one.deaths
        for process in (one.worker, *one.callers):
            process.end()
            cluster.processes.remove(process)
        if say:
            print(f"round {number}: {deaths} deaths, {len(found)} objections", flush=True)
        if found:
            break
    return found, deaths


def main() -> int:
    """Runs them; exit code 1 where something was not as it was promised."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    named = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, Cluster(Path(directory)) as cluster:
        cluster.run(2, 2)
        found, deaths = rounds(cluster, named.rounds, named.seed, say=True)
    print(*found, f"{named.rounds} rounds of seed {named.seed}: {deaths} deaths", sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
