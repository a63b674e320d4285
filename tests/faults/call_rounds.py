"""Rounds of calls with SIGKILL of everybody: `python -m tests.faults.call_rounds --rounds 1000 --seed 1`.

Each round has a service of its own, its worker and two callers, each of which dies at a step drawn from the seed, again
and again: inside or behind a commit of its store, before or after a message that it sends. Servers and proxies are
killed meanwhile, none to two in a round, at moments drawn too. Then all run without a fault, the callers ask again for
every call, and what the databases say is judged. Four things are counted, each by itself: the rows that the handler
wrote, the replies that callers wrote down, how many messages the topics of requests and replies have had as their
subscribers' positions tell it, and what comes of asking again, by ID and by the same call, and of another call under
the same ID.

In the long form all processes are forked (`forkserver`), so that most of a round is not the start of Python.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from pathlib import Path
from random import Random

from tests.faults.cluster import Cluster, Process
from tests.faults.dying import POINTS
from tests.faults.forkserver import forking

CALLS = 6
"""Of each caller in a round."""

DEATHS_MAX = 3
"""Of each process in a round, by itself."""

STEPS_MAX = (6, 15, 40)
"""One of these is the highest number of the step that a process dies at: a caller has some thirty in all."""

PATIENT = {"heartbeat_seconds": 0.5, "liveness": 8}
"""Of servers and proxies in the long form: on a machine that is busy they are not to take each other for dead."""

ROUND_SECONDS_MAX = 600.0
"""A round that waits for longer has lost something."""

KILL_SECONDS = 1.5
"""A server or a proxy is killed at a moment of so many first seconds of a round."""


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
    found += _beyond(cluster, worker, worker, len(expected))
    for caller in callers:
        found += _beyond(cluster, caller, worker, count)
        replies = dict(_rows(cluster.state(caller), "select id, body from replied"))
        own = {call for call in expected if call.startswith(f"{caller}-")}
        found += [
            f"{caller} has another reply to {call}" for call in sorted(own) if replies.get(call) != effects.get(call)
        ]
        kept = dict(_rows(cluster.state(caller), "select id, outcome from pubsub_calls"))
        found += [f"{call} is {kept.get(call)}" for call in sorted(own) if kept.get(call) != "done"]
    return found


def _beyond(cluster: Cluster, client: str, worker: str, count: int) -> Iterator[str]:
    """That the calls, or replies, that a client was sent are more than there can be; the first is 1."""
    for topic, last in _rows(cluster.state(client), "select topic, last_offset from pubsub_subscriptions"):
        if isinstance(last, int) and last > count:
            yield f"{topic} of {worker} has had {last} messages, not {count}"


def _rows(path: Path, statement: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as db:
        return list(db.execute(statement))


class Round:
    """One round.

    Args:
        cluster: with its proxies and servers.
        number: for the names; random: says who dies where.

    Attributes:
        deaths: how often who died where.
        found: what was not as it was promised.
    """

    def __init__(self, cluster: Cluster, number: int, random: Random) -> None:
        self.cluster, self.random = cluster, random
        self.service = f"service{number}"
        self._points: dict[str, object] = {}
        self._deaths: Counter[str] = Counter()
        self.deaths: Counter[str] = Counter()
        self.found: list[str] = []
        services = [*cluster.servers, *cluster.proxies]
        self._victims = sorted(
            ((random.uniform(0.0, KILL_SECONDS), random.choice(services)) for _ in range(random.choice((0, 1, 1, 2)))),
            key=lambda victim: victim[0],
        )
        worker, (first, second) = f"w{number}", [f"c{number}{letter}" for letter in "ab"]
        self.worker = cluster.caller(
            worker, self.service, serves=True, fails=random.choice((0, 3)), die=self._death(worker)
        )
        self.callers = [
            cluster.caller(name, self.service, count=CALLS, die=self._death(name)) for name in (first, second)
        ]

    def _death(self, name: str) -> dict[str, object]:
        self._points[name] = self.random.choice(POINTS)
        return {"point": self._points[name], "count": self.random.randint(1, self.random.choice(STEPS_MAX))}

    def run(self) -> Iterator[None]:
        """To its end, with a stop wherever it waits; `found` is what was not as it was promised."""
        began = time.monotonic()

        def over() -> bool:
            while self._victims and time.monotonic() - began >= self._victims[0][0]:
                self._kill()
            for process in (self.worker, *self.callers):
                self.found.extend(self._look_after(process))
            return bool(self.found) or all(caller.running.poll() == 0 for caller in self.callers)

        yield from _wait(over, f"every caller of {self.service} has all its replies")
        while self._victims:
            self._kill()
        if not self.found:
            yield from self._end()

    def _kill(self) -> None:
        _, victim = self._victims.pop(0)
        self.deaths["proxy" if victim in self.cluster.proxies else "server"] += 1
        victim.kill()
        victim.start()

    def _end(self) -> Iterator[None]:
        """The callers ask again, the worker finishes, and what is there is judged."""
        found = self.found
        for caller in self.callers:
            found += [f"{caller.name}: {line}" for line in caller.lines("different")]
            caller.again(die=None, asks=True)
        if self.worker.running.poll() is not None:
            self.worker.again(die=None)
        for caller in self.callers:
            yield from _wait(lambda caller=caller: caller.running.poll() is not None, f"{caller.name} has asked")
            if caller.running.returncode != 0 or caller.number("asked") != CALLS:
                found.append(f"{caller.name} asked in vain: {caller.errors.read_text()[-500:]}")
            found += [f"{caller.name}: {line}" for line in caller.lines("different")]
        with suppress(BrokenPipeError):  # It dies at this very moment.
            self.worker.say("finish")
        yield from _wait(lambda: self.worker.running.poll() is not None, f"{self.worker.name} finishes")
        if self.worker.running.returncode != 0:
            found += self._look_after(self.worker)
            self.worker.end()
            self.worker.again(die=None).say("finish")
            yield from _wait(lambda: self.worker.running.poll() is not None, f"{self.worker.name} finishes")
        found += [line for caller in self.callers for line in self._said(caller) if "is dropped" in line]
        found += judge(self.cluster, self.worker.name, [caller.name for caller in self.callers])

    def _said(self, process: Process) -> list[str]:
        """What it has said to its standard error, in all its lives."""
        paths = sorted(self.cluster.directory.glob(f"{process.name}.*.err"))
        return [line for path in paths for line in path.read_text().splitlines()]

    def _look_after(self, process: Process) -> Iterator[str]:
        """Start it again where it has died; at the end without a death of its own."""
        code = process.running.poll()
        if code is None:
            return
        for line in process.lines("different"):
            yield f"{process.name}: {line}"
        if code == 0:
            return
        if code != -9:
            yield f"{process.name} ended with {code}: {process.errors.read_text()[-500:]}"
            return
        self.deaths[f"{'worker' if process is self.worker else 'caller'} {self._points[process.name]}"] += 1
        self._deaths[process.name] += 1
        process.again(die=self._death(process.name) if self._deaths[process.name] < DEATHS_MAX else None)


def _wait(condition: Callable[[], object], what: str) -> Iterator[None]:
    deadline = time.monotonic() + ROUND_SECONDS_MAX
    while not condition():
        assert time.monotonic() < deadline, f"not within {ROUND_SECONDS_MAX:g} s: {what}"
        yield


class Rounds:
    """So many rounds, some of them side by side on one cluster.

    Attributes:
        found: what was not as it was promised; there the rounds end.
        deaths: how often who died where, in the rounds that are over; over: how many are.
    """

    def __init__(self, cluster: Cluster, count: int, seed: int, width: int = 1, *, say: bool = False) -> None:
        self.found: list[str] = []
        self.deaths: Counter[str] = Counter()
        self.over = 0
        self._cluster, self._seed, self._say = cluster, seed, say
        numbers = iter(range(1, count + 1))
        under_way: list[tuple[int, Round, Iterator[None]]] = []
        while not self.found:
            for number in islice(numbers, width - len(under_way)):
                one = Round(cluster, number, Random(f"{seed} {number}"))
                under_way.append((number, one, one.run()))
            if not under_way:
                break
            ended = [row for row in under_way if next(row[2], self) is self]
            under_way = [row for row in under_way if row not in ended]
            for number, one, _ in ended:
                self._ended(number, one)
            time.sleep(0.02)

    def _ended(self, number: int, one: Round) -> None:
        self.over += 1
        self.deaths += one.deaths
        self.found += [f"round {number} of seed {self._seed}: {text}" for text in one.found]
        for process in (one.worker, *one.callers):
            process.end()
            self._cluster.processes.remove(process)
        if self._say:
            facts = f"{self.deaths.total()} deaths, {len(self.found)} objections"
            print(f"{time.strftime('%X')} {self.over} over, round {number} of seed {self._seed}: {facts}", flush=True)


def main() -> int:
    """Runs them; exit code 1 where something was not as it was promised."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--width", type=int, default=1, help="rounds side by side, on the same servers and proxies")
    named = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="call-rounds-"))
    print(f"files: {directory}; kept where something is not as it was promised", flush=True)
    with forking(), Cluster(directory) as cluster:
        for start in (cluster.proxy, cluster.proxy, cluster.server, cluster.server):
            start(**PATIENT)
        cluster.wait_ready()
        done = Rounds(cluster, named.rounds, named.seed, named.width, say=True)
    where = ", ".join(f"{who} {count}" for who, count in sorted(done.deaths.items()))
    print(*done.found, f"{done.over} rounds of seed {named.seed}: {done.deaths.total()} deaths ({where})", sep="\n")
    if done.found:
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main())
