"""Members of a group as a client drives them, and what a server answers."""

from __future__ import annotations

import json
from typing import Any
from zlib import crc32

from pubsub.protocol import Outcome, Records, Status, Subscribe
from pubsub.protocol.group_bodies import HELD, LOST, NOTHING, OFFERED, Holding, Range, Say, split_holdings
from pubsub.protocol.groups import Describe, Group, Work
from tests.server.stage import Stage, put

GROUP, TOPIC = "billing", "t"


class Given:
    """An answer to WORK, taken apart."""

    def __init__(self, status: Status) -> None:
        assert status.outcome is Outcome.SUCCESS, status
        self.status = status
        self.lines, records = split_holdings(status.body)
        assert status.checksum == (crc32(records) if records else 0)
        self.records: dict[tuple[str, int], bytes] = {}
        self.publishers: dict[tuple[str, int], str] = {}
        self.keys: dict[tuple[str, int], bytes] = {}
        if records:
            found = Records(records)
            assert found.count == status.records
            bodies = iter(list(found.bodies()))
            for run in found.runs:
                for index in range(len(run.ends)):
                    place = run.log, run.offset + index
                    assert place not in self.records, "a record comes twice in one answer"
                    self.records[place] = next(bodies)
                    self.publishers[place] = run.publisher
                    self.keys[place] = run.keys[index] if run.keys else b""

    def ranges(self, kind: str) -> tuple[Range, ...]:
        return tuple(line.range for line in self.lines if line.kind == kind)

    @property
    def held(self) -> tuple[Range, ...]:
        return self.ranges(HELD)

    @property
    def offered(self) -> tuple[Range, ...]:
        return self.ranges(OFFERED)

    @property
    def lost(self) -> tuple[Range, ...]:
        return self.ranges(LOST)

    @property
    def bodies(self) -> list[bytes]:
        return list(self.records.values())

    def line(self, offset: int) -> Holding:
        return next(line for line in self.lines if line.range.low <= offset < line.range.high)


class Worker:
    """One process of a member."""

    def __init__(self, stage: Stage, client: str, store: str = "", opening: int = 0, group: str = GROUP) -> None:
        self.stage, self.client, self.group = stage, client, group
        self.store = store or f"{crc32(client.encode()):016x}"
        self.number = self.opening = opening or int(stage.now * 1000)
        self.subscription = 0

    def subscribe(self, mode: str = "any", **values: Any) -> Status:
        self.number += 1
        values.setdefault("start", "earliest")
        answer = self.stage.ask(
            Subscribe(self.client, TOPIC, self.number, self.opening, name=self.group, group=mode, **values)
        )
        self.subscription = answer.number
        return answer

    def message(self, say: Say = NOTHING, **fields: Any) -> Work:
        self.number = max(self.number + 1, int(self.stage.now * 1000))
        subscription = fields.pop("subscription", self.subscription)
        number = fields.pop("number", self.number)
        return Work(self.client, TOPIC, self.group, subscription, number, self.store, self.opening, say=say, **fields)

    def send(self, say: Say = NOTHING, **fields: Any) -> int:
        """Send a WORK without waiting; returns its callback."""
        return self.stage.say(self.message(say, **fields), origin=self.client.encode())

    def status(self, say: Say = NOTHING, **fields: Any) -> Status:
        return self.stage.ask(self.message(say, **fields), origin=self.client.encode())

    def work(self, want: int = 0, *, claim: bool = True, **fields: Any) -> Given:
        """Send a WORK and return its answer; keyword arguments are lines or fields."""
        lines = {name: tuple(fields.pop(name)) for name in Say._fields if name in fields}
        return Given(self.status(Say(**lines), records_max=want, claim=int(claim), **fields))


def filled(stage: Stage, count: int = 10, mode: str = "shared", *, keys: int = 0, **values: Any) -> Worker:
    """A topic with records 1 to `count`, and a group from its first one."""
    fill(stage, 1, count, keys=keys)
    worker = Worker(stage, "w1")
    assert worker.subscribe(mode, **values).outcome is Outcome.SUCCESS
    return worker


def another(worker: Worker, client: str) -> Worker:
    other = Worker(worker.stage, client)
    other.subscription = worker.subscription
    return other


def log_of(stage: Stage) -> str:
    return stage.core.state.topics[TOPIC].open.id


def facts(stage: Stage, what: str = "groups", name: str = GROUP, **fields: Any) -> Any:
    answer = stage.ask(Describe("ops", TOPIC, what, name, **fields))
    assert answer.outcome is Outcome.SUCCESS, answer
    found = json.loads(answer.body)
    return found["groups"][0] if what == "groups" else found


def act(stage: Stage, action: str, subscription: int, **fields: Any) -> Status:
    return stage.ask(Group("ops", TOPIC, action, GROUP, subscription, **fields))


def fill(stage: Stage, first: int, last: int, *, keys: int = 0, sender: str = "alice") -> None:
    """Put records, one batch each, with the bodies of their numbers, and one of so many keys."""
    for number in range(first, last + 1):
        names = (f"k{number % keys}".encode(),) if keys else ()
        answer = stage.ask(put(TOPIC, number, (str(number).encode(),), keys=names, sender=sender))
        assert answer.outcome is Outcome.SUCCESS
