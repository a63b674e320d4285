"""Servers that give each other topics: real stores, a wire between them that the test holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from zlib import crc32

from pubsub.protocol import (
    Get,
    Merge,
    Outcome,
    Put,
    Records,
    Status,
    Subscribe,
    Transfer,
    encode_batch,
)
from pubsub.server.state.replies import LISTENER, Origin, Outgoing
from tests.server.stage import STORE, Stage

ADDRESS = {"s1": "tcp://127.0.0.1:11", "s2": "tcp://127.0.0.1:12", "s3": "tcp://127.0.0.1:13"}


class Pair:
    """Servers that reach each other, one loop each in turn; `lose` drops a step on the wire."""

    def __init__(self, directory: Path, *names: str, **changed: Any) -> None:
        self.stages = {
            name: Stage(directory / name, id=name, advertise=ADDRESS[name], skew_seconds=0.0, **changed)
            for name in names
        }
        for stage in self.stages.values():
            stage.confirms = True
        self.lose: set[str] = set()
        self.crash: tuple[str, str] | None = None
        """(server, step): it is killed when it is about to send that step."""
        self.steps: list[str] = []
        self.given: list[Transfer] = []
        """What givers sent, lost or not."""

    def __getitem__(self, name: str) -> Stage:
        return self.stages[name]

    def turn(self) -> None:
        for name, stage in self.stages.items():
            stage.now += 0.3
            for out in stage.loop():
                self.carry(name, stage, out)

    def carry(self, name: str, stage: Stage, out: Outgoing) -> None:
        if not (isinstance(out.link, str) or out.link == LISTENER):
            return
        step = out.message.step if isinstance(out.message, Transfer) else "refusal"
        self.steps.append(step)
        if isinstance(out.link, str) and isinstance(out.message, Transfer):
            self.given.append(out.message)
        if self.crash == (name, step):
            self.crash = None
            stage.restart()
            return
        if step in self.lose:
            return
        if isinstance(out.link, str):
            to = next((server for server, address in ADDRESS.items() if address == out.link), "nobody")
            if to in self.stages:
                origin = Origin(LISTENER, name.encode(), out.source)
                self.stages[to].core.handle(origin, out.message, self.stages[to].now)
        else:
            giver = self.stages[out.origin.decode()]
            giver.core.handle(Origin(ADDRESS[name], b"", out.destination), out.message, giver.now)

    def turns(self, count: int = 30) -> None:
        for _ in range(count):
            self.turn()

    def merge(self, giver: str, receiver: str, topic: str = "t") -> None:
        self[giver].core.handle(Origin(0, b"", 0), Merge("p1", topic, ADDRESS[receiver]), self[giver].now)

    def holders(self, topic: str = "t") -> list[str]:
        return [name for name, stage in self.stages.items() if topic in stage.core.state.topics]

    def close(self) -> None:
        for stage in self.stages.values():
            stage.close()


def hear_who_has_it(giver: Stage) -> None:
    """One of two proxies confirms to have heard all that was announced."""
    giver.say(Status("p1", Outcome.SUCCESS, change=giver.core.state.change), origin=b"", callback=0)


def put(stage: Stage, sender: str, counter: int, previous: int, *bodies: bytes) -> Outcome:
    return stage.ask(message(sender, counter, previous, *bodies)).outcome


def message(sender: str, counter: int, previous: int, *bodies: bytes) -> Put:
    body = encode_batch(bodies)
    return Put(sender, "t", counter, STORE, len(bodies), previous, crc32(body), body=body)


def take(stage: Stage, who: str, number: int = 5, last: tuple[str, int] | None = None) -> list[bytes]:
    """Everything a subscriber is still to receive."""
    out: list[bytes] = []
    while True:
        status = stage.ask(Get(who, "t", last, number, number, records_max=100))
        if status.outcome is not Outcome.SUCCESS:
            assert status.outcome is Outcome.EMPTY
            return out
        out += Records(bytes(status.body)).bodies()
        last = status.message


def split(pair: Pair) -> None:
    """Both hold the topic: bob and alice's puts at s1, eve and carl's at s2."""
    for name, subscriber, publisher in (("s1", "bob", "alice"), ("s2", "eve", "carl")):
        pair[name].ask(Subscribe(subscriber, "t", 5, 5))
        pair[name].now += 1.0
        assert put(pair[name], publisher, 10, 0, b"%s1" % publisher.encode(), b"%s2" % publisher.encode()) == "success"
