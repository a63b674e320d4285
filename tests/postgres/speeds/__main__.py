"""Measure all stores and peers in turns: `python -m tests.postgres.speeds --dir build/speeds --reps 3`.

PostgreSQL, the server, Redis and NATS have their files under the same directory. Needed: redis-server, nats-server,
`pip install '.[bench,postgres]'`.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections import defaultdict
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.groups.peers import Nats
from benchmarks.redis import Redis
from benchmarks.stage import Stage
from tests.postgres import server as servers
from tests.postgres.speeds.ours import Ours
from tests.postgres.speeds.peers import WithNats, WithRedis

BODY: Final = bytes(100)
MEASURES: Final = ("put", "process", "process_many", "relay")
SQLITE_HAS_NO: Final = "relay"


def sizes(scale: float) -> dict[str, float]:
    """Return the argument of each measure: seconds, or records."""
    thousands = {"process": 4, "process_many": 100, "relay": 200}
    return {"put": 3.0 * scale} | {name: max(1, round(n * scale)) * 1_000 for name, n in thousands.items()}


def measure(directory: Path, reps: int, scale: float) -> dict[str, dict[str, list[float]]]:
    """Return, by measure and name, what each repetition gave: units a second."""
    found: dict[str, dict[str, list[float]]] = {name: defaultdict(list) for name in MEASURES}
    for rep in range(reps):
        place = directory / f"rep{rep}"
        place.mkdir(parents=True)
        os.chmod(place, 0o755)
        with (
            servers.Postgres() as postgres, Stage(place / "cluster") as stage,
            Redis(place / "redis") as redis, Nats(place / "nats") as nats,
        ):  # fmt: skip
            one: list[Any] = [
                Ours(stage, postgres.url(postgres.create_database()), place),
                Ours(stage, None, place),
                WithRedis(redis, postgres.url(postgres.create_database())),
                WithNats(nats, postgres.url(postgres.create_database())),
            ]
            for name in MEASURES:
                # Who goes first has the quieter disk, or the colder one: they take turns.
                for each in one[rep % len(one) :] + one[: rep % len(one)]:
                    if not (name == SQLITE_HAS_NO and each.name == "SQLite"):
                        rate = getattr(each, name)(BODY, sizes(scale)[name])
                        found[name][each.name].append(rate)
                        print(f"repetition {rep + 1}: {name}, {each.name}: {rate:,.0f}/s", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", type=Path, default=Path("build/speeds"), help="on the disk to measure")
    parser.add_argument("--reps", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1.0, help="1.0: 3 s of puts, 4,000 messages, and so on")
    parser.add_argument("--memory", action="store_true", help="have PostgreSQL's data in memory, without a disk")
    given = parser.parse_args()
    directory = given.dir.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    if not given.memory:
        servers.parent_of_places = lambda: directory  # type: ignore[assignment]
    try:
        found = measure(directory, given.reps, given.scale)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    load = Path("/proc/loadavg").read_text(encoding="ascii").split()[0]
    print(
        f"\n{given.reps} repetitions, load {load}; a second, median (least … most), and PostgreSQL ÷ it by repetition"
    )
    for name, rates in found.items():
        for who, values in rates.items():
            ratio = median([ours / rate for ours, rate in zip(rates["PostgreSQL"], values, strict=True)])
            print(f"{name:13}{who:11}{median(values):>10,.0f} ({min(values):,.0f} … {max(values):,.0f}) {ratio:6.2f}")


if __name__ == "__main__":
    main()
