"""Subscriptions over a bad network, killed processes and power cuts: each record once, in order, never `behind`."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import LOG, PUBLISHER, Rig, batch, status

from pubsub.client.core.core import ClientCore
from pubsub.client.core.flights import Flights
from pubsub.client.core.message import Batch
from pubsub.client.core.prefetch import Taking
from pubsub.client.core.subscription import Subscription
from pubsub.protocol import Get, Message, Outcome, Position, Status, Subscribe, Unsubscribe


@dataclass
class Server:
    """One topic with one log of numbered records and one subscriber, by the rules of the design."""

    end: int = 0
    number: int = 0
    on: bool = False
    acknowledged: int = 0
    chance: random.Random = field(default_factory=random.Random)

    def serve(self, message: Message) -> Status | None:
        if isinstance(message, Subscribe | Unsubscribe):
            if message.number < self.number:
                return status(Outcome.SUPERSEDED, number=self.number, epoch=1)
            if message.number > self.number:
                self.number, self.on, self.acknowledged = message.number, isinstance(message, Subscribe), self.end
            return status(Outcome.SUCCESS, position=(LOG, self.acknowledged), number=self.number, log=LOG)
        assert isinstance(message, Get)
        if not self.on or message.number > self.number:
            return status(Outcome.UNKNOWN, log=LOG)
        if message.number < self.number:
            return status(Outcome.SUPERSEDED, number=self.number, epoch=1)
        assert message.last is not None
        if message.last[1] < self.acknowledged:
            return status(Outcome.BEHIND, position=(LOG, self.acknowledged))
        self.acknowledged = message.last[1]
        after = message.after[1] if message.after else self.acknowledged
        count = min(self.end - after, message.records_max, self.chance.randrange(1, 6))
        return batch(after + 1, after + 1, count) if count > 0 else status(Outcome.EMPTY, log=LOG)


class World:
    """A client, its disk, and a network that loses, repeats and delays."""

    def __init__(self, seed: int, loss: float) -> None:
        self.chance, self.loss = random.Random(seed), loss
        self.server = Server(chance=self.chance)
        self.flying: list[tuple[Message, int]] = []
        self.answers: list[tuple[int, Status]] = []
        self.taken: list[int] = []
        self.fsynced: tuple[int, Position | None] = (0, None)
        self.floor = 0
        self.rig = Rig(proxies=1)
        self.subscribe()

    def subscribe(self) -> None:
        self.sub, _ = self.rig.intend(seconds=1e6)
        self.collect()

    def collect(self) -> None:
        self.flying += [(out.message, out.token) for out in self.rig.sent]
        self.rig.sent.clear()

    def restart(self, position: Position | None, counters: dict[str, int]) -> None:
        """Load the state as the opening of a store would."""
        number, floor, now = self.sub.intent.number, self.rig.core.numbers.highest, self.rig.now
        self.rig = Rig(proxies=1)
        self.rig.now = now
        self.rig.core.numbers.reopen(floor)
        self.rig.core.flights._token = 1_000_000 * self.chance.randrange(1, 1_000_000)  # Old answers find nobody.
        taken = dict(counters)
        self.rig.core._load_taken = lambda topic: taken
        self.rig.core.load_subscriptions([("t", True, True, False, number, LOG, position, (None, None), 0)])
        self.rig.on_disk = {"t": position}  # Opening the store fsyncs it.
        self.sub = self.rig.core.subscriptions["t"]

    def step(self) -> None:
        chance, rig = self.chance, self.rig
        event = chance.random()
        if event < 0.25:
            self.server.end += chance.randrange(0, 4)
        elif event < 0.45 and self.flying:
            message, token = self.flying.pop(chance.randrange(len(self.flying)))
            if chance.random() > self.loss:
                for _ in range(chance.randrange(1, 3)):
                    answer = self.server.serve(message)
                    if answer is not None and chance.random() > self.loss:
                        self.answers.append((token, answer))
        elif event < 0.65 and self.answers:
            token, answer = self.answers.pop(chance.randrange(len(self.answers)))
            rig.core.receive(token, answer, rig.now)
            rig.turn()
        elif event < 0.85:
            self.take()
        elif event < 0.87 and self.sub.intent.settled:
            self.restart(self.sub.cursor.position, self.sub.cursor.taken)  # A kill: all commits are there.
        elif event < 0.88 and self.sub.intent.settled:
            count, position = self.fsynced
            if position is not None:  # A power cut: all fsynced commits are there, and the rest is taken again.
                del self.taken[count:]
                self.restart(position, {PUBLISHER: position[1]})
        else:
            rig.later(chance.random() * 0.3)
        if self.sub.intent.settled and not self.sub.waiting:
            self.rig.wants(self.sub, 1e6)
        if (safe := self.rig.on_disk.get("t")) is not None:
            self.fsynced = (max(0, safe[1] - self.start), safe)
        self.collect()

    @property
    def start(self) -> int:
        """The position of the subscription's beginning."""
        if not self.taken and self.sub.cursor.position is not None:
            self.floor = self.sub.cursor.position[1]
        return self.floor

    def take(self) -> None:
        if not (self.sub.intent.settled and self.sub.available):
            return
        start = self.start
        taking = self.rig.take(self.sub, self.chance.randrange(1, 5))
        assert isinstance(taking, Taking)
        self.floor = start
        self.taken += [message.counter for message in Batch("t", taking.pieces)]
        self.rig.turn()


def explore(seed: int, loss: float) -> None:
    """Run once; raise if a rule is broken."""
    world = World(seed, loss)
    for _ in range(400):
        world.step()
        assert world.sub.failure is None, world.sub.failure
        assert world.taken == list(range(world.start + 1, world.start + 1 + len(world.taken)))
        assert world.server.acknowledged <= (world.fsynced[1] or (LOG, world.server.end))[1]
    world.loss = 0.0
    end = world.server.end
    for _ in range(5000):
        world.step()
        if world.sub.intent.settled and world.sub.cursor.position is not None and world.sub.cursor.position[1] >= end:
            return
    raise AssertionError("it is never drained")


@pytest.mark.slow
@settings(max_examples=100)
@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.2, 0.5]))
def test_every_record_is_taken_once_and_in_order(seed: int, loss: float) -> None:
    explore(seed, loss)


def acknowledge_what_is_not_fsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    took = Subscription.took

    def took_and_safe(self: Subscription, taking: Taking) -> None:
        took(self, taking)
        self.cursor.safe = self.cursor.position

    monkeypatch.setattr(Subscription, "took", took_and_safe)


def use_every_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flights, "forget", lambda self, tokens: tokens.clear())
    receive = ClientCore.receive

    def receive_all(self: ClientCore, token: int, answer: Status, now: float) -> None:
        if (flight := self.flights.get(token)) is not None:
            self.flights._flights[token] = flight._replace(
                generation=getattr(flight.target, "fence", flight.target).generation
            )
        receive(self, token, answer, now)

    monkeypatch.setattr(ClientCore, "receive", receive_all)


@pytest.mark.parametrize("mutate", [acknowledge_what_is_not_fsynced, use_every_answer])
def test_the_check_finds_each_omitted_rule(
    mutate: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutate(monkeypatch)
    with pytest.raises((AssertionError, ValueError)):
        [explore(seed, 0.3) for seed in range(60)]
