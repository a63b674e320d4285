"""A named subscription as its users ask for it."""

from __future__ import annotations

import json
from typing import Any

from pubsub.protocol import Get, Outcome, Position, Read, Status, Subscribe, Unsubscribe, parse_position
from pubsub.protocol.names import Start
from tests.server.stage import Stage, bodies


def make(stage: Stage, start: Start = "earliest", number: int = 7, name: str = "archive") -> Status:
    return stage.ask(Subscribe("spark", "t", number, number, name=name, start=start))


def leave(stage: Stage, number: int, name: str = "archive") -> Status:
    return stage.ask(Unsubscribe("spark", "t", number, number, name=name))


def acknowledge(
    stage: Stage, last: Position | None, name: str = "archive", token: int = 0, *, take_over: bool = False
) -> Status:
    return stage.ask(Get("spark", "t", last, int(take_over), token, records_max=0, name=name))


def read(stage: Stage, after: Position | None, until: Position | None = None, **more: Any) -> Status:
    more.setdefault("records_max", 1000)
    more.setdefault("name", "archive")
    return stage.ask(Read("worker", "t", after, until, **more))


def plan(stage: Stage, after: Position | None, until: Position | None = None, **more: Any) -> dict[str, Any]:
    answer = read(stage, after, until, records_max=0, **more)
    assert answer.outcome is Outcome.SUCCESS, answer
    facts = json.loads(bytes(answer.body))
    return {"position": answer.position, **facts}


def everything(stage: Stage, after: Position | None = None, until: Position | None = None, **more: Any) -> list[bytes]:
    """All records of a range, read to its end."""
    out: list[bytes] = []
    end = parse_position(plan(stage, after, until, name=more.get("name", "archive"))["latest"])
    while after != end:
        answer = read(stage, after, end, **more)
        if answer.outcome is Outcome.SUCCESS:
            out += bodies(answer)
        assert answer.message != after
        after = answer.message
    return out
