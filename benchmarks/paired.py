"""Compare the processor time of each message with that of another checkout, usually an earlier commit.

    git worktree add ../before COMMIT
    python -m benchmarks.paired ../before [--pairs N] [--only NAME,NAME] [--python PATH]

Both checkouts run a cluster of their own, with one interpreter and the packages that it has. Pieces of equal work take
turns: a piece here, the same piece there, and the other way round in the next pair. The figures are microseconds of
processor time for each message: of the server, of the proxy and of the client's process. Each has the median of both
sides, and the median of the pairs' ratios with its quartiles. A ratio above 1 means that this checkout takes more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

Work = Callable[[Any], tuple[int, Callable[[], None]]]
"""Prepares a piece of work on a stage. Returns the number of its messages, and the work to measure."""

BODY: Final = bytes(100)
ROLES: Final = ("server", "proxy", "client")


# The pieces of work, which a child measures with the code of its checkout


def put(stage: Any) -> tuple[int, Callable[[], None]]:
    client, topic = stage.paired.client, stage.name("topic")
    client.put(topic, BODY)

    def work() -> None:
        for _ in range(400):
            client.put(topic, BODY)

    return 400, work


def put_nowait(stage: Any) -> tuple[int, Callable[[], None]]:
    client, topic = stage.paired.client, stage.name("topic")
    client.put(topic, BODY)

    def work() -> None:
        for _ in range(5_000):
            client.put(topic, BODY, wait=False)
        client.flush()

    return 5_000, work


def batches(stage: Any) -> tuple[int, Callable[[], None]]:
    client, topic, bodies = stage.paired.client, stage.name("topic"), [BODY] * 100
    client.put(topic, BODY)

    def work() -> None:
        for _ in range(1_000):
            client.put_many(topic, bodies, wait=False)
        client.flush()

    return 100_000, work


def get(stage: Any) -> tuple[int, Callable[[], None]]:
    client, topic = stage.paired.client, stage.name("topic")
    client.subscribe(topic)
    for _ in range(1_000):
        client.put(topic, BODY, wait=False)
    client.flush()

    def work() -> None:
        for _ in range(1_000):
            assert client.get(topic, 10.0) is not None

    return 1_000, work


def get_many(stage: Any) -> tuple[int, Callable[[], None]]:
    client, topic, bodies = stage.paired.client, stage.name("topic"), [BODY] * 1_000
    client.subscribe(topic)
    for _ in range(200):
        client.put_many(topic, bodies, wait=False)
    client.flush()

    def work() -> None:
        left = 200_000
        while left:
            left -= len(client.get_many(topic, 10_000, timeout=10.0))

    return 200_000, work


def round_trip(stage: Any) -> tuple[int, Callable[[], None]]:
    """A message that is put, handed to a waiting subscriber, and acknowledged with the next get."""
    client, topic = stage.paired.client, stage.name("topic")
    client.subscribe(topic)

    def work() -> None:
        for _ in range(300):
            client.put(topic, BODY)
            assert client.get(topic, 10.0) is not None

    return 300, work


def subscribe(stage: Any) -> tuple[int, Callable[[], None]]:
    client, topics = stage.paired.client, [stage.name("topic") for _ in range(100)]
    for topic in topics:
        client.put(topic, BODY)

    def work() -> None:
        for topic in topics:
            client.subscribe(topic)
        for topic in topics:
            client.unsubscribe(topic)

    return 200, work


WORKS: Final[dict[str, Work]] = {
    work.__name__.replace("_", "-"): work for work in (put, put_nowait, batches, get, get_many, round_trip, subscribe)
}


class _Paired:
    """The child's own client, and the processor time of all three processes."""

    def __init__(self, stage: Any) -> None:
        self.client = stage.client("paired")
        self._processes = {**stage.processes, "client": os.getpid()}

    def spent(self) -> dict[str, int]:
        return {role: _nanoseconds(process) for role, process in self._processes.items()}


def _nanoseconds(process: int) -> int:
    """Processor time of all threads of a process (Linux)."""
    tasks = Path(f"/proc/{process}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks)


def _child() -> None:
    """Measure the pieces that the parent names, one a line."""
    from benchmarks.stage import Stage

    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stage: Any = stack.enter_context(Stage(Path(folder) / "cluster"))
        stage.paired = _Paired(stage)
        stack.callback(stage.paired.client.close)
        _say("ready")
        for line in sys.stdin:
            messages, work = WORKS[line.strip()](stage)
            time.sleep(0.05)  # Answers and acknowledgements of the preparation have their end here.
            before = stage.paired.spent()
            work()
            after = stage.paired.spent()
            _say({role: (after[role] - before[role]) / 1_000 / messages for role in ROLES})


def _say(word: Any) -> None:
    sys.stdout.write(json.dumps(word) + "\n")
    sys.stdout.flush()


# The parent


class Side:
    """A child with the code of one checkout; a context manager that ends it."""

    def __init__(self, checkout: Path, python: str) -> None:
        self.process = subprocess.Popen(  # noqa: S603  our own interpreter and our own program
            [python, "-P", str(Path(__file__).resolve()), "--child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            cwd=checkout,
            env={**os.environ, "PYTHONPATH": str(checkout)},
        )
        self._hear()

    def measure(self, name: str) -> dict[str, float]:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        costs: dict[str, float] = self._hear()
        return costs

    def _hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"a side ended with exit code {self.process.wait()}")
        return json.loads(line)

    def __enter__(self) -> Side:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate()


def _pairs(here: Side, there: Side, names: list[str], pairs: int) -> Iterator[tuple[str, dict[str, list[float]]]]:
    """Yield for each piece of work and role the costs of both sides."""
    for name in names:
        here.measure(name)
        there.measure(name)
    found: dict[str, dict[str, list[float]]] = {name: {} for name in names}
    for pair in range(pairs):
        for name in names:
            for side in (here, there) if pair % 2 else (there, here):
                costs = side.measure(name)
                costs["all"] = sum(costs.values())
                for role, cost in costs.items():
                    found[name].setdefault(f"{role} {'here' if side is here else 'there'}", []).append(cost)
    yield from found.items()


def _show(name: str, costs: dict[str, list[float]]) -> None:
    for role in (*ROLES, "all"):
        here, there = costs[f"{role} here"], costs[f"{role} there"]
        low, middle, high = statistics.quantiles([a / b for a, b in zip(here, there, strict=True)], n=4)
        sys.stdout.write(
            f"{name:11} {role:7} {statistics.median(here):9.2f} µs, there {statistics.median(there):9.2f} µs,"
            f" ratio {middle:5.3f} ({low:5.3f} … {high:5.3f})\n"
        )


def main() -> None:
    """Run both sides, and print the costs."""
    parser = argparse.ArgumentParser(description="Compare the processor time of messages with another checkout.")
    parser.add_argument("checkout", type=Path, help="directory of the other checkout")
    parser.add_argument("--pairs", type=int, default=9, help="pairs of each piece of work, at least 2")
    parser.add_argument("--only", default="", metavar="NAMES", help=", ".join(WORKS))
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="interpreter of both sides")
    given = parser.parse_args()
    names = [name for name in given.only.split(",") if name] or list(WORKS)
    unknown = [name for name in names if name not in WORKS]
    if unknown or given.pairs < 2 or not (given.checkout / "benchmarks" / "stage.py").exists():
        parser.error(f"no such work: {unknown[0]}" if unknown else "--pairs is at least 2, and CHECKOUT a checkout")
    own = Path(__file__).resolve().parent.parent
    with Side(own, given.python) as here, Side(given.checkout.resolve(), given.python) as there:
        for name, costs in _pairs(here, there, names, given.pairs):
            _show(name, costs)


if __name__ == "__main__":
    if sys.argv[1:] == ["--child"]:
        _child()
    else:
        main()
