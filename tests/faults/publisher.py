"""A publisher that may be killed at any moment: `python -m tests.faults.publisher JSON`.

It puts until it is told to finish (any line on its standard input), or has put `count` messages: transactions over
several topics, plain puts, batches, and puts that it does not wait for. It prints `put N` as it goes, and `done N`.

Facts: name, directory, proxies, topics, seed; count: of messages; pause: seconds between steps; die: see `dying`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from random import Random
from typing import Any

from pubsub import Client
from pubsub.config.settings import ClientSettings
from pubsub.errors import Unavailable
from tests.faults.dying import die_at
from tests.faults.history import Putting


def main(facts: dict[str, Any]) -> None:
    """Publishes."""
    finishing = threading.Event()
    threading.Thread(target=lambda: sys.stdin.readline() and finishing.set(), daemon=True).start()
    if "die" in facts:
        die_at(**facts["die"])
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]), directory=Path(facts["directory"]), timeout_seconds=facts.get("timeout", 40.0)
    )
    with Client(facts["name"], settings=settings) as client:
        putting = Putting(client, facts["name"])
        flush(putting)
        rng = Random(f"{facts.get('seed', 0)} {putting.number}")
        while not finishing.is_set() and putting.number <= facts.get("count", 1 << 60):
            step(putting, facts["topics"], rng)
            print("put", putting.number - 1, flush=True)
            time.sleep(rng.random() * facts.get("pause", 0.0))
        flush(putting)
    print("done", putting.number - 1, flush=True)


def step(putting: Putting, topics: list[str], rng: Random) -> None:
    """One thing that publishers do."""
    kind = rng.random()
    try:
        if kind < 0.5:
            putting.lot([rng.choice(topics) for _ in range(rng.randint(1, 5))])
        elif kind < 0.65:
            putting.put(rng.choice(topics))
        elif kind < 0.75:
            putting.put_many(rng.choice(topics), rng.randint(2, 20))
        else:
            for _ in range(rng.randint(1, 8)):
                putting.put(rng.choice(topics), wait=False)
        if kind > 0.9:
            putting.flush()
    except Unavailable:  # In doubt, and kept: the next flush finishes it.
        return


def flush(putting: Putting) -> None:
    """Until it is done."""
    while True:
        try:
            putting.flush()
        except Unavailable:
            continue
        return


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
