"""Rounds: a server with a standby under traffic, one fault or two a round, and the checker at the end.

    scripts/rounds --rounds N [--seed N] [--audit] [--dir DIR] [--keep]

Three proxies, of which one is a witness, two members of a server, each on a small disk and behind relays, a server
without a standby, publishers, subscribers and a named reader: `tests/faults/members.py` says which, `rounds.py` there
what is done to them, `checker.py` what must not happen. The faults are drawn from the seed, which is printed; when they
meet the traffic is the machine's affair. After each round every client must get on within a minute; in the end nothing
may be lost, doubled or out of order, and both members must have the same. Exit code 1 if there is anything to object
to; the directory stays then.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ROUNDS_SHOWN = 10


def run(directory: Path, seed: int, rounds: int, record: Path | None = None, heartbeat: float = 0.2) -> dict[str, Any]:
    """All of it; what is to be told.

    Args:
        record: where clients write down what they do, for the audit.
        heartbeat: seconds between two of a server's.
    """
    from tests.faults.alike import compare
    from tests.faults.checker import read_puts, read_subscriber
    from tests.faults.forkserver import forking
    from tests.faults.members import Members
    from tests.faults.rounds import Rounds

    began = time.monotonic()
    with forking(), Members(directory, seed, record, heartbeat=heartbeat) as members:
        faults = Rounds(members, Random(seed))
        done = 0
        while done < rounds and not any(one.kind == "stuck" for one in members.objections):
            kinds = faults.round()
            done += 1
            if done % ROUNDS_SHOWN == 0 or rounds < ROUNDS_SHOWN * 5:
                print(f"round {done:5}  {kinds:<24} all get on after {faults.waits[-1]:5.2f} s", flush=True)
        print("all is healed; everybody finishes what it has", flush=True)
        try:
            members.finish()
            objections = [*members.objections, *compare(members), *_judge(members)]
        except AssertionError as error:  # Somebody never ends: what there is to read is read all the same.
            members.object_to("stuck", str(error))
            objections = [*members.objections]
        state = members.cluster.state
        figures = {
            "put": sum(len(read_puts(state(process.name))) for process in members.publishers),
            "delivered": sum(len(read_subscriber([state(process.name)]).seen) for process in members.subscribers),
            "read": members.reader.taken,
            "takeovers": members.takeovers(),
        }
    if record is not None:
        from soak import _audit

        figures |= _audit(record, objections)
    waits = sorted(faults.waits)
    return {
        "seed": seed,
        "rounds": done,
        "seconds": round(time.monotonic() - began, 1),
        "faults": dict(faults.done),
        "outcomes": dict(faults.outcomes),
        "waits": {"median": round(median(waits), 2), "worst": round(waits[-1], 2)} if waits else {},
        "figures": figures,
        "objections": [asdict(one) for one in objections],
    }


def _judge(members: Any) -> list[Any]:
    from tests.faults.checker import check
    from tests.faults.members import SKEW_SECONDS

    state = members.cluster.state
    takers = [state(process.name) for process in members.subscribers]
    takers.append(members.cluster.directory / "reader.db")
    return list(check([state(process.name) for process in members.publishers], takers, skew=SKEW_SECONDS))


def show(told: dict[str, Any]) -> None:
    """What is to be said at the end."""
    print(f"\n{told['rounds']} rounds in {told['seconds']:g} s, seed {told['seed']}")
    print("faults      " + ", ".join(f"{kind} {count}" for kind, count in sorted(told["faults"].items())))
    print("outcomes    " + ", ".join(f"{what} {count}" for what, count in sorted(told["outcomes"].items())))
    print("figures     " + ", ".join(f"{what} {count}" for what, count in told["figures"].items()))
    if told["waits"]:
        print(f"all get on  median {told['waits']['median']:g} s, worst {told['waits']['worst']:g} s after a round")
    print(f"objections  {len(told['objections'])}")
    for one in told["objections"][:20]:
        print(f"  {one['kind']}: {one['text']}")


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="how many (default: 100)")
    parser.add_argument("--seed", type=int, help="what the faults are drawn from; else a new one")
    parser.add_argument("--heartbeat", type=float, default=0.2, help="seconds between two of a server's (default: 0.2)")
    parser.add_argument("--audit", action="store_true", help="have clients record, and judge that too; needs Spark")
    where = "where everything lives; else a new one for temporary files"
    parser.add_argument("--dir", dest="directory", metavar="DIR", type=Path, help=where)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="keep the processes' files though all was well")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big")
    home = (given.directory or Path(tempfile.mkdtemp(prefix="rounds-"))).resolve()
    place = home / "run"
    place.mkdir(parents=True)
    print(f"seed {seed}: scripts/rounds --rounds {given.rounds} --seed {seed}; everything is in {home}", flush=True)
    told = run(place, seed, given.rounds, place / "record.jsonl" if given.audit else None, given.heartbeat)
    (home / "rounds.json").write_text(json.dumps(told, separators=(",", ":")))
    show(told)
    if told["objections"]:
        print(f"what there is to look at is in {place}")
        return 1
    if not given.keep:
        shutil.rmtree(place)
    print("nothing to object to")
    return 0


if __name__ == "__main__":
    sys.exit(main())
