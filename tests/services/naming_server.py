"""A server that replies with its name: `python -m tests.services.naming_server JSON`, for tests that kill it.

Its reply is `NAME PROCESS TERM SECONDS ` and the request: its name, its process ID, in which term of its pair it was
asked (0: it is alone), and when, on the clock that all processes of this machine have in common.

Facts: name, bind, kind; pair: role, state, peer and heartbeat, where it is one of two.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any, NamedTuple

from pubsub.services.core.binary_star.states import Role
from pubsub.services.pairing import Pairing
from pubsub.services.process import run_worker
from pubsub.services.worker import Request, Worker


class Answer(NamedTuple):
    """Who answered, and when."""

    name: str
    process: int
    term: int
    seconds: float
    body: bytes


def parse(reply: bytes) -> Answer:
    """What a server said."""
    name, process, term, seconds, body = reply.split(b" ", 4)
    return Answer(name.decode(), int(process), int(term), float(seconds), body)


def main(facts: dict[str, Any]) -> None:
    """Serves."""
    pair = facts.get("pair")
    pairing = Pairing(Role(pair["role"]), pair["state"], pair["peer"], pair["heartbeat"]) if pair else None

    def handle(request: Request) -> bytes:
        term = worker._core.counters["terms"]
        return b"%s %d %d %.6f " % (facts["name"].encode(), os.getpid(), term, time.monotonic()) + request.body

    worker = Worker(facts["name"], bind=facts["bind"], kind=facts["kind"], handler=handle, pair=pairing)
    run_worker(worker, lambda: f"server {facts['name']} ready")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
