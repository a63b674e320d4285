"""Measure a client that has joined many topics by a pattern: memory, processor time, and the next start.

    python -m benchmarks.families [TOPICS]

The client subscribes to the pattern first, and each topic begins with a message then. The client's process is this
one. Processor time is of the client, the proxy and the server together.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from benchmarks.stage import Stage, cpu_seconds, resident_bytes
from benchmarks.wire import Wire
from pubsub.client import Client
from pubsub.protocol import Put, encode_batch

ROUNDS = 20
T = TypeVar("T")
BODY = encode_batch([b"x" * 100])


def main(topics: int) -> None:
    """Join the topics, and print the figures."""
    with tempfile.TemporaryDirectory() as folder, Stage(Path(folder) / "families") as stage:
        wire, client = Wire(stage.where), stage.client("taker")
        processes = {"client": os.getpid(), **stage.processes}
        try:
            client.subscribe("many.>")
            before = {role: resident_bytes(process) for role, process in processes.items()}
            _measure(stage, "all topics begin", lambda: wire.ask_all(_puts(topics, 1)))
            begun = {role: resident_bytes(process) for role, process in processes.items()}
            _measure(stage, "the client joins them and takes a message of each", lambda: _take(client, topics))
            for role, process in processes.items():
                grown = (resident_bytes(process) - begun[role]) / 1e6
                first = (begun[role] - before[role]) / 1e6
                _say(f"memory of the {role}: {first:.1f} MB for the topics, {grown:.1f} MB when they are joined")
            client.close()
            client = _measure(stage, "start of the client", lambda: Client(client.name, settings=client.settings))
            _measure(stage, "the first message after it", lambda: _round(wire, client, 2, 1))
            _measure(stage, "a message to a waiting call", lambda: _round(wire, client, 3, ROUNDS), ROUNDS)
            wire.ask_all(_puts(topics, ROUNDS + 3))
            _measure(stage, "a message that is here", lambda: _take(client, topics), topics)
        finally:
            client.close()
            wire.close()


def _puts(topics: int, counter: int) -> list[Put]:
    return [_put(number, counter) for number in range(topics)]


def _put(topic: int, counter: int) -> Put:
    return Put("bench", f"many.{topic}", counter, "0" * 16, 1, 0 if counter == 1 else _before(topic, counter),
               crc32(BODY), body=BODY)  # fmt: skip


def _before(topic: int, counter: int) -> int:
    """Return the last counter on the topic: the rounds put to the first one only."""
    return counter - 1 if topic == 0 else 1


def _round(wire: Wire, client: Client, first: int, rounds: int) -> None:
    for counter in range(first, first + rounds):
        wire.ask(_put(0, counter))
        assert client.get("many.>", 60.0) is not None


def _take(client: Client, messages: int) -> None:
    for _ in range(messages):
        assert client.get("many.>", 60.0) is not None


def _measure(stage: Stage, what: str, work: Callable[[], T], number: int = 1) -> T:
    used, begun = _spent(stage), time.perf_counter()
    result = work()
    spent, taken = (
        1000 * (end - begin) / number for begin, end in ((used, _spent(stage)), (begun, time.perf_counter()))
    )
    _say(f"{what}: {taken:,.1f} ms, processor {spent:,.1f} ms")
    return result


def _spent(stage: Stage) -> float:
    return time.process_time() + sum(map(cpu_seconds, stage.processes.values()))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
