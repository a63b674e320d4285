"""Reliable HTTP under faults: N requests, kills at random, a network that fails, and a count at the end.

    scripts/http-soak --requests N [--seed N] [--dir DIR] [--keep]

A receiver on uvicorn and a sender, each in a process of its own, with relays between that cut connections, delay, lose
either direction, and have what went up them come again; puts, messages and jobs in turn. What is done when is drawn
from the seed; when it meets what is the machine's affair. In the end each handler's effect must be there once, by the
receiver's own table, and what the sender was told must be what was committed. Exit code 1 if not; the directory stays.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SECONDS_EACH = 2.0
"""Patience for each request, on a machine that does much else."""


def run(directory: Path, seed: int, requests: int) -> dict[str, Any]:
    """All of it; what is to be told."""
    from tests.faults.forkserver import forking
    from tests.faults.http_rig import Rig

    began = time.monotonic()
    stop = threading.Event()
    done: list[Counter[str]] = []
    with forking(), Rig(directory, requests, at_once=16) as rig:
        rig.receiver.start()
        rig.sender.start()
        meddling = threading.Thread(target=lambda: done.append(rig.meddle(Random(seed), stop)), daemon=True)
        meddling.start()
        try:
            rig.finish(120.0 + requests * SECONDS_EACH)
        finally:
            stop.set()
            meddling.join()
        rig.settle()
        objections = rig.objections()
        deaths = {"sender": rig.sender.deaths, "receiver": rig.receiver.deaths}
    return {
        "seed": seed,
        "requests": requests,
        "seconds": round(time.monotonic() - began, 1),
        "killed": deaths,
        "faults": dict(done[0]),
        "objections": objections,
    }


def main() -> int:
    """Parse the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=10_000, help="how many (default: 10000)")
    parser.add_argument("--seed", type=int, help="what the faults are drawn from; else a new one")
    where = "where everything lives; else a new one for temporary files"
    parser.add_argument("--dir", dest="directory", metavar="DIR", type=Path, help=where)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--keep", action="store_true", help="keep the processes' files though all was well")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    seed = given.seed if given.seed is not None else int.from_bytes(os.urandom(4), "big")
    home = (given.directory or Path(tempfile.mkdtemp(prefix="http-soak-"))).resolve()
    place = home / "run"
    place.mkdir(parents=True)
    print(f"seed {seed}: {given.requests:,} requests; everything is in {home}", flush=True)
    told = run(place, seed, given.requests)
    (home / "http_soak.json").write_text(json.dumps(told))
    killed = told["killed"]
    print(f"{told['requests']:,} requests in {told['seconds']:g} s")
    print(f"killed      sender {killed['sender']} times, receiver {killed['receiver']} times")
    print("faults      " + ", ".join(f"{what} {count:,}" for what, count in sorted(told["faults"].items())))
    print(f"objections  {len(told['objections'])}")
    for text in told["objections"][:20]:
        print(f"  {text}")
    if told["objections"]:
        print(f"what there is to look at is in {place}")
        return 1
    if not given.keep:
        shutil.rmtree(place)
    print("each happened once, and was answered as it happened")
    return 0


if __name__ == "__main__":
    sys.exit(main())
