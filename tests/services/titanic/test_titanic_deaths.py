"""Titanic, a broker, workers and clients that die at any step: each request that was accepted has one stored reply."""

from __future__ import annotations

from typing import Any

import pytest

from pubsub.services.core.interface import Answered, Event, Frames, Patience, Requested, Send
from pubsub.services.core.majordomo.broker import BrokerLimits
from pubsub.services.core.majordomo.worker import MajordomoWorker
from pubsub.services.core.titanic.client import TitanicCaller
from pubsub.services.core.titanic.requests import Accepted, Closed, Entry, Expired, Replied, State
from pubsub.services.core.titanic.titanic import Titanic, TitanicLimits
from tests.services.wired import Node, Wired

ADDRESS = "tcp://broker"
CALLS = 12


class Store:
    """What is durable; of each transaction the process may die before or after it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[Entry, State, Frames]] = {}
        self.asked: dict[bytes, Frames] = {}
        self.replies: dict[Frames, list[Frames]] = {}
        self.age = 0.0

    def entries(self) -> list[Entry]:
        return [Entry(e.id, e.service, e.key, e.digest, state, e.age) for e, state, _ in self.rows.values()]

    def body(self, entry: Entry) -> Frames | None:
        return self.asked.get(entry.id) if entry.state is State.PENDING else self.rows[entry.id][2] or None

    def write(self, changes: list[Any]) -> None:
        for change in changes:
            if isinstance(change, Accepted):
                self.rows[change.entry.id] = change.entry, State.PENDING, change.body
                self.asked[change.entry.id] = change.body
            elif isinstance(change, Replied) and self.rows[change.entry.id][1] is State.PENDING:
                request = self.rows[change.entry.id][2]
                self.replies.setdefault(request, []).append(change.body)
                self.rows[change.entry.id] = self.rows[change.entry.id][0], State.REPLIED, change.body
            elif isinstance(change, Closed):
                self.rows[change.entry.id] = self.rows[change.entry.id][0], State.CLOSED, ()
            elif isinstance(change, Expired):
                for entry in change.entries:
                    del self.rows[entry.id]


class Scene:
    """Two workers, a client, Titanic, a broker."""

    def __init__(self, seed: int) -> None:
        self.wired = Wired(seed, BrokerLimits(heartbeat_seconds=1.0, request_seconds=20.0))
        self.random, self.store = self.wired.random, Store()
        self.runs: dict[Frames, int] = {}
        self.answers: dict[int, Frames | None] = {}
        self.ids = iter(range(1, 10_000))
        self.titanic = self.wired.add(Node("titanic", self._titanic, lambda core, event, now: None))
        self.titanic.commit, self.titanic.sent = self._commit, self._sent
        self.workers = [
            self.wired.add(Node(f"worker {n}", lambda: MajordomoWorker("job", ADDRESS), self._work)) for n in range(2)
        ]
        keys = iter(range(10_000))
        self.client = self.wired.add(
            Node("client", lambda: TitanicCaller([ADDRESS], lambda: b"key %d" % next(keys)), self._answered)
        )
        for node in self.wired.nodes.values():
            self.wired.start(node)

    def _titanic(self) -> Titanic:
        limits = TitanicLimits(reply_seconds=5.0)
        return Titanic(ADDRESS, lambda: b"%032x" % next(self.ids), self.store.entries(), self.store.age, limits)

    def _commit(self, core: Titanic, now: float) -> None:
        while changes := core.take_changes():
            if self.random.random() < 0.05:
                if self.random.random() < 0.5:
                    self.store.write(changes)
                self.wired.kill(self.titanic)
                return
            if self.random.random() < 0.05:  # The disk is full.
                for change in changes:
                    core.not_written(change, now)
                continue
            self.store.write(changes)
            self.store.age = core.age(now)
            for change in changes:
                core.written(change, now)
        for load in core.take_loads():
            core.loaded(load, self.store.body(load.entry), now)

    def _sent(self, send: Send) -> None:
        if send.frames[1] == b"MDPC01" and send.frames[2] == b"job":
            assert send.frames[3:] not in self.store.replies, "a request is run whose reply is there"

    def _work(self, core: MajordomoWorker, event: Event, now: float) -> None:
        if isinstance(event, Requested):
            self.runs[event.body] = self.runs.get(event.body, 0) + 1
            core.reply(event.token, (b"did", *event.body, b"%d" % self.runs[event.body]), now)

    def _answered(self, core: TitanicCaller, event: Event, now: float) -> None:
        assert isinstance(event, Answered), event
        assert self.answers[event.token] is None, "a call was answered twice"
        assert event.body[1] == b"%d" % event.token, "a reply went to another call"
        self.answers[event.token] = event.body

    def call(self, token: int) -> None:
        self.answers[token] = None
        client = self.client.core
        if isinstance(client, TitanicCaller):
            client.call(token, "job", (b"%d" % token,), Patience(2.0, 1_000), self.wired.now)
            self.wired.settle(self.client)

    def pending(self) -> list[bytes]:
        return [name for name, (_, state, _) in self.store.rows.items() if state is State.PENDING]

    def disturb(self) -> None:
        chance = self.random.random()
        if chance < 0.005:
            self.wired.kill(self.random.choice([self.titanic, *self.workers]))
        elif chance < 0.007 and self.wired.broker is not None:
            self.wired.kill_broker()
        elif chance < 0.03:
            self.revive()

    def revive(self) -> None:
        if self.wired.broker is None:
            self.wired.start_broker()
        for node in (self.titanic, *self.workers):
            if node.core is None:
                self.wired.start(node)


class ForgetsKeys(Store):
    """Knows no keys after a start."""

    def entries(self) -> list[Entry]:
        return [Entry(e.id, e.service, b"", b"", e.state, e.age) for e in super().entries()]


class ForgetsReplies(Store):
    """Has every request run again after a start."""

    def entries(self) -> list[Entry]:
        return [Entry(e.id, e.service, e.key, e.digest, State.PENDING, e.age) for e in super().entries()]


class LosesWrites(Store):
    """Says that something is on the disk, and at times it is not."""

    count = 0

    def write(self, changes: list[Any]) -> None:
        self.count += 1
        if self.count % 7:
            super().write(changes)


@pytest.mark.parametrize("broken", [ForgetsKeys, ForgetsReplies, LosesWrites])
def test_a_broken_store_is_detected(broken: type[Store]) -> None:
    found = 0
    for seed in range(12):
        scene = Scene(seed)
        scene.store = broken()
        try:
            run(scene)
        except (AssertionError, LookupError):
            found += 1
    assert found > 0


@pytest.mark.parametrize("seed", range(40))
def test_each_accepted_request_has_one_stored_reply_after_any_deaths(seed: int) -> None:
    run(Scene(seed))


def run(scene: Scene) -> None:
    """Calls while all die and come back, then peace; what must hold."""
    for step in range(3_000):
        if step % 100 == 0 and step // 100 < CALLS:
            scene.call(step // 100)
        scene.disturb()
        scene.wired.step()
    for _ in range(60_000):
        if all(scene.answers.values()) and not scene.pending():
            break
        scene.revive()
        scene.wired.step()
    assert scene.pending() == [], "an accepted request has no reply"
    assert all(scene.answers.values()), "a call was not answered"
    assert all(len(replies) == 1 for replies in scene.store.replies.values()), "two replies were stored"
    assert len(scene.store.rows) == CALLS, "a call was stored twice"
