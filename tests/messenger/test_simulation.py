"""Two cores over a network that loses, doubles, delays and reorders: called exactly once, answered exactly once.

Everything that happens follows from the seed. First the network is bad; then it heals, and everything must be done and
both sides at rest. The checker is tried too: with repeats not recognised, it must object.
"""

import heapq
import random
from collections import Counter

import pytest

from pubsub.messenger.core import MessengerCore
from pubsub.messenger.limits import MessengerLimits
from pubsub.messenger.seen import Seen, Sighting

LIMITS = MessengerLimits(retry_seconds=0.2, retry_seconds_max=1.0, ack_seconds=0.05, idle_seconds=1e9)
MESSAGES = 60


class Network:
    """A client and a server; `run` lets time pass until nothing is left to happen."""

    def __init__(self, seed: int, *, idempotent: bool = False) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.loss, self.doubling, self.delay = 0.3, 0.2, 2.0
        self.flying: list[tuple[float, int, str, bytes, tuple]] = []
        self.order = 0
        self.calls: Counter[bytes] = Counter()
        self.answers: Counter[bytes] = Counter()
        self.routing = b"\x01client"
        self.start_server(idempotent)
        self.start_client()

    def start_server(self, idempotent: bool = False) -> None:
        self.server = MessengerCore(self.chance.getrandbits(31), self.chance, self.reply, LIMITS)
        self.endpoint = self.server.opened("tcp://127.0.0.1:1", self.loop, idempotent=idempotent)

    def start_client(self) -> None:
        self.client = MessengerCore(self.chance.getrandbits(31), self.chance, self.reply, LIMITS)
        self.connection = self.client.connected("tcp://127.0.0.1:1")
        self.routing = self.chance.randbytes(16)

    def loop(self, request) -> None:
        self.calls[bytes(request.contents)] += 1
        if request.wants_answer:
            request.reply(request.contents)

    def reply(self, request, contents) -> None:
        self.server.answer(request, (contents,), self.now)

    def ask(self, contents: bytes) -> None:
        def answered(peer, answer, frames) -> None:
            assert answer == contents
            self.answers[contents] += 1

        token = self.client.register(self.connection.peer, answered)
        self.client.send(self.connection.peer, (contents,), self.now, token=token)

    def tell(self, contents: bytes) -> None:
        self.client.send(self.connection.peer, (contents,), self.now)

    def fly(self) -> None:
        for name, core in (("server", self.client), ("client", self.server)):
            for _, head, parts in core.take():
                copies = 0 if self.chance.random() < self.loss else 1 + (self.chance.random() < self.doubling)
                for _ in range(copies):
                    self.order += 1
                    arrival = self.now + self.chance.random() * self.delay
                    heapq.heappush(self.flying, (arrival, self.order, name, head, parts))

    def run(self, until: float) -> None:
        self.fly()
        while True:
            due = [t for t in (self.server.deadline(), self.client.deadline()) if t is not None]
            if self.flying:
                due.append(self.flying[0][0])
            if not due or min(due) > until:
                self.now = until
                return
            self.now = max(self.now, min(due))
            while self.flying and self.flying[0][0] <= self.now:
                _, _, name, head, parts = heapq.heappop(self.flying)
                if name == "server":
                    call = self.server.receive(self.endpoint, self.routing, head, parts, self.now)
                else:
                    call = self.client.receive(self.connection, b"", head, parts, self.now)
                if call is not None:
                    call[0](*call[1])
            self.server.tick(self.now)
            self.client.tick(self.now)
            self.fly()

    def heal(self) -> None:
        self.loss = self.doubling = 0.0
        self.run(self.now + 60.0)


def expected(kind: bytes) -> Counter[bytes]:
    return Counter([b"%s %d" % (kind, number) for number in range(MESSAGES)])


@pytest.mark.parametrize("seed", range(30))
def test_an_ordinary_loop_is_called_once_and_answers_once_on_any_network(seed):
    network = Network(seed)
    for number in range(MESSAGES):
        network.ask(b"ask %d" % number)
        network.tell(b"tell %d" % number)
        network.run(network.now + 0.1)
    network.heal()
    assert network.calls == expected(b"ask") + expected(b"tell")
    assert network.answers == expected(b"ask")
    assert network.client.pending.count == network.server.pending.count == 0
    assert network.client.callbacks == 0
    assert network.client.counters.retried > 0


@pytest.mark.parametrize("seed", range(10))
def test_an_idempotent_loop_is_called_at_least_once_and_each_answer_taken_once(seed):
    network = Network(seed, idempotent=True)
    for number in range(MESSAGES):
        network.ask(b"ask %d" % number)
        network.run(network.now + 0.1)
    network.heal()
    assert network.answers == expected(b"ask")
    assert set(network.calls) == set(expected(b"ask"))
    assert network.server.pending.count == 0


@pytest.mark.parametrize("seed", range(10))
def test_a_restarted_client_differs_from_its_predecessor(seed):
    network = Network(seed)
    for number in range(MESSAGES // 2):
        network.ask(b"ask %d" % number)
    network.run(1.0)
    network.heal()
    network.start_client()
    for number in range(MESSAGES // 2, MESSAGES):
        network.ask(b"ask %d" % number)
    network.heal()
    assert network.calls == network.answers == expected(b"ask")


@pytest.mark.parametrize("seed", range(10))
def test_a_restarted_server_at_the_same_address_is_reached(seed):
    network = Network(seed)
    for number in range(MESSAGES // 2):
        network.ask(b"ask %d" % number)
    network.heal()
    network.start_server()
    for number in range(MESSAGES // 2, MESSAGES):
        network.ask(b"ask %d" % number)
    network.heal()
    assert network.calls == network.answers == expected(b"ask")


def test_the_same_seed_gives_the_same_run():
    runs = []
    for _ in range(2):
        network = Network(7)
        for number in range(MESSAGES):
            network.ask(b"ask %d" % number)
        network.run(20.0)
        runs.append((network.order, network.client.counters, network.server.counters))
    assert runs[0] == runs[1]


def test_the_checker_finds_unrecognized_repeats(monkeypatch):
    monkeypatch.setattr(Seen, "see", lambda *_: Sighting.FIRST)
    network = Network(1)
    for number in range(MESSAGES):
        network.ask(b"ask %d" % number)
    network.run(20.0)
    network.heal()
    assert max(network.calls.values()) > 1


def test_the_checker_finds_missing_retries(monkeypatch):
    monkeypatch.setattr("pubsub.messenger.pending.PendingMessages.due", lambda *_: iter(()))
    monkeypatch.setattr("pubsub.messenger.pending.PendingMessages.deadline", lambda *_: None)
    network = Network(1)
    for number in range(MESSAGES):
        network.ask(b"ask %d" % number)
    network.run(20.0)
    network.heal()
    assert network.answers != expected(b"ask")
