"""A publisher that may be killed at any moment: `python -m tests.faults.publisher JSON`.

It puts until it is told to finish (see `orders`), or has put `count` messages: transactions over several topics, plain
puts, batches, and puts that it does not wait for, some or a stream of them. It prints `put N` as it goes, and `done N`.

Facts: name, directory, proxies, topics, seed; count: of messages; pause: seconds between steps; does: of what kinds its
steps are; padding: bytes that each body is longer; timeout: of a call; boot, record: see `Client`; die: see `dying`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from pubsub import Client
from pubsub.config.settings import ClientSettings
from pubsub.errors import Unavailable
from tests.faults.dying import die_at
from tests.faults.history import Putting
from tests.faults.orders import Orders

KINDS = ("lot",) * 10 + ("put",) * 3 + ("batch",) * 2 + ("unwaited",) * 5


def main(facts: dict[str, Any]) -> None:
    """Publishes."""
    orders = Orders(facts)
    if "die" in facts:
        die_at(**facts["die"])
    settings = ClientSettings(
        proxies=tuple(facts["proxies"]),
        directory=Path(facts["directory"]),
        timeout_seconds=facts.get("timeout", 40.0),
        **facts.get("keys", {}),
    )
    with Client(facts["name"], settings=settings, recorder=facts.get("record"), boot=facts.get("boot")) as client:
        putting = Putting(client, facts["name"], padding=facts.get("padding", 0))
        flush(putting)
        rng = Random(f"{facts.get('seed', 0)} {putting.number}")
        while not orders.finishing.is_set() and putting.number <= facts.get("count", 1 << 60):
            step(putting, orders.topics, rng, facts.get("does", KINDS))
            print("put", putting.number - 1, flush=True)
            time.sleep(rng.random() * orders.pause)
        flush(putting)
    print("done", putting.number - 1, flush=True)


def step(putting: Putting, topics: list[str], rng: Random, kinds: Sequence[str]) -> None:
    """One thing that publishers do."""
    kind = rng.choice(kinds)
    try:
        if kind == "lot":
            putting.lot([rng.choice(topics) for _ in range(rng.randint(1, 5))])
        elif kind == "put":
            putting.put(rng.choice(topics))
        elif kind == "batch":
            putting.put_many(rng.choice(topics), rng.randint(2, 20))
        elif kind == "stream":
            putting.stream(rng.choice(topics), rng.randint(50, 200))
        else:
            for _ in range(rng.randint(1, 8)):
                putting.put(rng.choice(topics), wait=False)
        if rng.random() < 0.1:
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
