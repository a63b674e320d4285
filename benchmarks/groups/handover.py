"""Time until the work of a killed member goes on: what was not claimed at another member, what was after a restart.

Also the load of many members that wait for work. They are messages of one socket, as a thousand processes would send.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from benchmarks.groups.shares import Figures, nanoseconds
from benchmarks.groups.takers import Taker
from benchmarks.stage import Stage
from benchmarks.wire import Wire
from benchmarks.worker import open_client
from pubsub.protocol import Status, Subscribe
from pubsub.protocol.groups import Work

JOB_SECONDS: Final = 3_600.0
"""Time that the handler takes that is killed."""

IDLE: Final = 1_000
"""Members that wait."""

WAIT_SECONDS: Final = 10.0
"""Time for which the server may hold a member's message; that of our clients."""

_ROLE: Final = "benchmarks.groups.handover:worker"


def worker(say: Callable[[Any], None], where: dict[str, Any], directory: str, topic: str, claim: Any) -> None:
    """Say when each message begins; the job `long` takes JOB_SECONDS, and any other one no time."""
    say({"opens": time.monotonic()})
    with open_client(where, Path(directory)) as client:
        client.subscribe(topic, group="g")

        def handle(message: Any, transaction: Any) -> None:
            del transaction
            word = message.body.decode()
            facts = {"attempts": message.attempts, "doubtful": message.doubtful}
            say({"begins": time.monotonic(), "body": word, **facts})
            if word == "long" and message.attempts == 1:
                time.sleep(JOB_SECONDS)

        while True:
            client.process(topic, handle, 60.0, group="g", claim=claim)


def unclaimed(stage: Stage) -> Figures:
    """From SIGKILL of a member in a handler that has written nothing to the same message at another member."""
    topic, places = stage.name("unclaimed"), [str(stage.directory / stage.name("m")) for _ in range(2)]
    with Taker(_ROLE, stage.where, places[0], topic, "auto") as first, stage.client("putter") as client:
        first.said()
        _begin(client, topic, first)
        with Taker(_ROLE, stage.where, places[1], topic, "auto") as second:
            second.said()
            client.put(topic, b"ready")
            assert second.said()["body"] == "ready"  # The other member waits for work from here on.
            killed = first.kill()
            told = second.said()
            assert told["body"] == "long"
            return {"seconds": told["begins"] - killed, "attempts": told["attempts"], "doubtful": told["doubtful"]}


def in_doubt(stage: Stage) -> Figures:
    """From the restart of a killed member, which had claimed a message, to the begin of that message."""
    topic, place = stage.name("doubt"), str(stage.directory / stage.name("m"))
    with stage.client("putter") as client:
        with Taker(_ROLE, stage.where, place, topic, "before") as first:
            first.said()
            _begin(client, topic, first)
            first.kill()
        started = time.monotonic()
        with Taker(_ROLE, stage.where, place, topic, "before") as again:
            opens = again.said()["opens"]
            told = again.said()
            facts = {"attempts": told["attempts"], "doubtful": told["doubtful"]}
            return {"seconds": told["begins"] - opens, "with the start": told["begins"] - started, **facts}


def _begin(client: Any, topic: str, taker: Taker) -> None:
    """Put the job until the member has it: the group begins with the message that follows its making."""
    client.subscribe(topic, group="g")
    client.leave(topic, group="g")
    client.put(topic, b"long")
    assert taker.said()["body"] == "long"


def idle(stage: Stage, seconds: float, members: int = IDLE) -> Figures:
    """Processor time, in percent of a core, of the server and the proxy while members wait for work."""
    topic, wire = stage.name("idle"), Wire(stage.where)
    names = [f"idle-{number}" for number in range(members)]
    try:
        number = wire.ask(Subscribe(names[0], topic, 501, 500, "", "", "g", group="any")).number
        turn = dict.fromkeys(names, 1000)

        def work(name: str) -> Work:
            turn[name] += 1
            return Work(
                name, topic, "g", number, turn[name], "0" * 16, 1_000,
                records_max=32, bytes_max=1 << 20, wait_ms=int(WAIT_SECONDS * 1000), claim=1,
            )  # fmt: skip

        flying: dict[int, str] = {}
        for name in names:
            flying[wire.send(work(name))] = name
            _renew(wire, flying, work, time.monotonic() + WAIT_SECONDS / members)
        before = {role: nanoseconds(process) for role, process in stage.processes.items()}
        begun = time.monotonic()
        answers = _renew(wire, flying, work, begun + seconds)
        taken = time.monotonic() - begun
        spent = {role: nanoseconds(process) - before[role] for role, process in stage.processes.items()}
        return {"answers": float(answers), **{role: used / 1e7 / taken for role, used in spent.items()}}
    finally:
        wire.close()


def _renew(wire: Wire, flying: dict[int, str], work: Callable[[str], Work], end: float) -> int:
    """Send the next message of each member that has an answer; the number of answers."""
    answers = 0
    while (left := end - time.monotonic()) > 0:
        found: tuple[int, Status] | None = wire.receive(left)
        if found is not None and (name := flying.pop(found[0], None)) is not None:
            answers += 1
            flying[wire.send(work(name))] = name
    return answers
