"""A process for the tests of `forkserver`: `python -m tests.faults.probe WORD…` prints its facts and obeys.

It prints a line of JSON, then obeys standard input: `exit N`, `raise`, `interrupt` (waits for SIGINT), or its end.
"""

from __future__ import annotations

import json
import os
import random
import resource
import sys
import time


def main() -> None:
    facts = {
        "name": __name__,
        "words": sys.argv[1:],
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd")),
        "random": random.random(),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
    }
    print(json.dumps(facts), flush=True)
    for line in sys.stdin:
        match line.split():
            case ["exit", code]:
                sys.exit(int(code))
            case ["raise"]:
                raise ValueError("as it was told")
            case ["interrupt"]:
                print("waiting", flush=True)
                time.sleep(60)


if __name__ == "__main__":
    main()
