"""A worker with a queue or broker of another heartbeat interval."""

from __future__ import annotations

import pytest

from pubsub.errors import CallerError
from pubsub.services.client import ServiceClient
from pubsub.services.core.heartbeats import PATIENCE_SECONDS_MAX, Heartbeats
from pubsub.services.core.interface import Dial, Requested, Send
from pubsub.services.core.majordomo.broker import PORT, Broker, BrokerLimits
from pubsub.services.core.majordomo.worker import MajordomoWorker, WorkerTimes
from pubsub.services.core.paranoid import ParanoidQueue, ParanoidWorker
from pubsub.services.core.queue import BACKEND, FRONTEND
from pubsub.services.engine import Engine
from pubsub.services.majordomo.commands import broker_ports
from pubsub.services.worker import Worker
from tests.faults.cluster import until
from tests.services.running import Running

STEP = 0.02
HOUR = 3_600.0


class Two:
    """A worker and who gives it work, and what each takes the other for; a message is 1 ms on its way."""

    def __init__(self, boss, worker, port: str) -> None:
        self.boss, self.worker, self.port = boss, worker, port
        self.now, self.messages, self.dials = 100.0, 0, 0
        self.name = b""
        self.requested: list[Requested] = []
        boss.start(self.now)
        worker.start(self.now)
        self.carry()

    def carry(self) -> None:
        for _ in range(1_000):
            moved = False
            for act in self.worker.take_sends():
                if isinstance(act, Dial):
                    self.dials += 1
                    self.name = b"worker %d" % self.dials
                elif isinstance(act, Send):
                    moved, self.messages = True, self.messages + 1
                    self.boss.receive(self.port, self.name, list(act.frames), self.now + 0.001)
            for act in self.boss.take_sends():
                if isinstance(act, Send) and act.port == self.port and act.peer == self.name:
                    moved, self.messages = True, self.messages + 1
                    self.worker.receive("worker", b"", list(act.frames), self.now + 0.002)
            self.requested += [event for event in self.worker.take_events() if isinstance(event, Requested)]
            if not moved:
                return
            self.now += 0.002
        raise AssertionError("they answer one another without end")

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += STEP
            for core in (self.boss, self.worker):
                if (due := core.timer()) is not None and due <= self.now:
                    core.tick(self.now)
            self.carry()

    @property
    def known(self) -> bool:
        workers = self.boss.workers if isinstance(self.boss, Broker) else self.boss._free
        return self.name in workers


def majordomo(boss: float, worker: float) -> Two:
    return Two(Broker(BrokerLimits(heartbeat_seconds=boss)), MajordomoWorker("s", "", 1, WorkerTimes(worker, 3)), PORT)


def paranoid(boss: float, worker: float) -> Two:
    return Two(ParanoidQueue("q", boss, 3), ParanoidWorker("", worker, 3), BACKEND)


@pytest.mark.parametrize("pattern", [majordomo, paranoid])
@pytest.mark.parametrize(
    ("boss", "worker"),
    [(1.0, 1.0), (0.2, 1.0), (0.5, 2.5), (0.1, 2.5), (1.0, 2.5), (10.0, 1.0), (6.0, 2.5), (4.0, 1.0)],
)
def test_a_worker_stays_known_with_any_intervals(pattern, boss: float, worker: float) -> None:
    two = pattern(boss, worker)
    two.wait(20 * max(boss, worker))  # It finds out, where the other one is slow.
    dials, messages = two.dials, two.messages
    for _ in range(100):
        two.wait(max(boss, worker))
        assert two.known
    assert two.dials == dials
    assert two.messages - messages <= 300 * max(boss, worker) / min(boss, worker)


def test_patience_grows_in_silence_and_shrinks_after_two_heartbeats() -> None:
    beats = Heartbeats(1.0, 3)
    now = 100.0
    for expected in (3.0, 6.0, 12.0):
        beats.begin(now)
        beats.said = now + HOUR
        assert not beats.silent(now + expected - 0.1)
        assert beats.silent(now + expected) == expected
        beats.give_up()
        now += expected
    beats.begin(now)
    beats.heard_beat(now + 20.0)
    assert not beats.silent(now + 40.0)
    beats.heard_beat(now + 21.0)
    assert beats.silent(now + 24.0) == pytest.approx(3.0)


def test_patience_is_bounded() -> None:
    beats = Heartbeats(1.0, 3)
    for _ in range(20):
        beats.give_up()
    beats.begin(0.0)
    assert beats.silent(PATIENCE_SECONDS_MAX) == PATIENCE_SECONDS_MAX
    slow = Heartbeats(HOUR, 3)
    slow.give_up()
    slow.begin(0.0)
    assert not slow.silent(3 * HOUR - 1.0)


@pytest.mark.parametrize("kind", ["paranoid", "mdp"])
def test_calls_continue_though_the_queue_beats_more_often_than_its_worker(kind: str) -> None:
    with Running() as running:
        if kind == "mdp":
            broker = running.engine(
                Engine(Broker(BrokerLimits(heartbeat_seconds=0.1)), broker_ports("tcp://127.0.0.1:0"))
            )
            front = back = broker.addresses[PORT]
        else:
            front, back = running.queue("paranoid")
        worker = Worker("shout", broker=back, kind=kind, handler=lambda got: got.body.upper())
        running.worker(worker)
        counters = worker._core.counters
        first = worker._core._heartbeats.said
        until(lambda: worker._core._heartbeats.said > first + 1.0, "it has answered heartbeats for a second")
        with ServiceClient(front, kind="mdp" if kind == "mdp" else "lazy", timeout=30.0, tries=1) as client:
            assert client.call("shout", b"a").body == b"A"
        assert not {"disconnected", "broker_silent", "queues_given_up", "stood_still"} & set(counters)


def test_the_handler_may_take_longer_than_the_heartbeats_of_its_worker() -> None:
    with Running() as running:
        core = ParanoidQueue("queue", 0.05, 3)
        engine = running.engine(Engine(core, core.ports("tcp://127.0.0.1:0", "tcp://127.0.0.1:0")))
        worker = Worker("slow", broker=engine.addresses[BACKEND], kind="paranoid", heartbeat=0.05, liveness=10)

        def slow(request) -> bytes:
            first = worker._core._heartbeats.said
            until(lambda: worker._core._heartbeats.said > first + 0.5, "heartbeats while it works")
            return request.body

        worker._handler = slow
        running.worker(worker)
        with ServiceClient(engine.addresses[FRONTEND], kind="lazy", timeout=30.0, tries=1) as client:
            assert client.call("slow", b"a").body == b"a"


@pytest.mark.parametrize(
    "named",
    [
        {"heartbeat": 0.0},
        {"heartbeat": -1.0},
        {"heartbeat": float("nan")},
        {"heartbeat": float("inf")},
        {"liveness": 0},
        {"kind": "simple", "heartbeat": 1.0},
        {"kind": "simple", "liveness": 3},
    ],
)
def test_impossible_heartbeats_are_refused(named) -> None:
    with pytest.raises(CallerError):
        Worker("echo", broker="tcp://127.0.0.1:1", **named)


def test_a_server_without_a_queue_has_no_heartbeats() -> None:
    with pytest.raises(CallerError, match="no heartbeats"):
        Worker("echo", bind="tcp://127.0.0.1:0", heartbeat=1.0)
