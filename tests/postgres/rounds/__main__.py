"""Run rounds of faults: `python -m tests.postgres.rounds --rounds 500 --seed 1`. `faults` lists them."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.faults.forkserver import forking
from tests.postgres.rounds import faults, promoted
from tests.postgres.rounds.running import run

OBJECTIONS_SHOWN = 50


def say(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=faults.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--promoted", action="store_true", help="a replica takes over in each round, often behind")
    parser.add_argument("--dir", type=Path, default=None)
    given = parser.parse_args()
    say(f"seed {given.seed}")
    with forking(), tempfile.TemporaryDirectory(dir=given.dir) as directory:
        if given.promoted:
            numbers = range(1, given.rounds + 1)
            found = [line for n in numbers for line in promoted.run(n, given.seed, Path(directory) / str(n), say)]
        else:
            found = run(given.rounds, given.seed, Path(directory), say)
    for line in found[:OBJECTIONS_SHOWN]:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
