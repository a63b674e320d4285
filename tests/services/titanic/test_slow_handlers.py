"""Titanic with a broker, a worker and a client in this process, where a handler takes longer than a reply may."""

from __future__ import annotations

import secrets
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from pubsub.base.clock import SystemClock
from pubsub.services.client import ServiceClient
from pubsub.services.core.majordomo.broker import PORT, Broker, BrokerLimits
from pubsub.services.core.majordomo.records import Service
from pubsub.services.core.titanic.protocol import REPLY, REQUEST
from pubsub.services.core.titanic.titanic import Titanic, TitanicLimits
from pubsub.services.engine import Engine
from pubsub.services.majordomo.commands import broker_ports
from pubsub.services.titanic.disk import Disk
from pubsub.services.titanic.store import Store
from pubsub.services.worker import Request, Worker
from tests.faults.cluster import until
from tests.faults.relay import Relay
from tests.services.guide import MdBroker
from tests.services.running import Running, Town

REPLY_SECONDS = 0.3


class Slow:
    """A handler that goes on when it is told to."""

    def __init__(self) -> None:
        self.begun, self.go = 0, threading.Event()

    def __call__(self, request: Request) -> bytes:
        self.begun += 1
        assert self.go.wait(60.0)
        return request.body.upper()


def titanic(running: Running, broker: str, directory: Path, reply_seconds: float = REPLY_SECONDS) -> Titanic:
    store = Store(directory)
    limits = TitanicLimits(reply_seconds=reply_seconds)
    core = Titanic(broker, lambda: secrets.token_hex(16).encode(), store.entries(), store.age(), limits)
    running._ends.append(store.close)
    running.engine(Engine(core, commit=Disk(core, store, SystemClock()).commit))
    return core


@contextmanager
def brokers(running: Running, kind: str) -> Iterator[str]:
    with ExitStack() as stack:
        if kind == "guide":
            yield stack.enter_context(MdBroker()).address
        else:
            limits = BrokerLimits(heartbeat_seconds=0.1, liveness=50)
            yield running.engine(Engine(Broker(limits), broker_ports("tcp://127.0.0.1:0"))).addresses[PORT]


def fetched(client: ServiceClient, name: bytes) -> tuple[bytes, ...]:
    found: list[tuple[bytes, ...]] = []

    def there() -> bool:
        found.append(client.call(REPLY, name).frames)
        return found[-1][0] != b"300"

    until(there, "the reply is kept")
    return found[-1]


@pytest.mark.parametrize("kind", ["ours", "guide"])
def test_the_late_reply_of_a_slow_handler_is_kept(kind: str, tmp_path: Path) -> None:
    slow = Slow()
    with Running() as running, brokers(running, kind) as broker:
        core = titanic(running, broker, tmp_path)
        worker = Worker("slow", broker=broker, handler=slow, heartbeat=0.1)
        running.worker(worker)
        with ServiceClient(broker, timeout=30.0, tries=1) as client:
            status, name = client.call(REQUEST, [b"slow", b"hello"]).frames
            assert status == b"200"
            until(lambda: slow.begun, "the handler runs")
            if kind == "ours":
                until(lambda: core._carrier.counters["asked"] > 2, "the broker is asked again")
            else:
                until(lambda: core.counters["runs_without_reply"], "the reply is late")
            slow.go.set()
            assert fetched(client, name) == (b"200", b"HELLO")
        assert not {"replies_late", "broker_silent", "stood_still"} & set(worker._core.counters)
        if kind == "ours":
            assert (slow.begun, core.counters["runs"], core.counters["runs_without_reply"]) == (1, 1, 0)
        else:
            assert core.counters["replies_late"] == 1


def test_a_request_whose_worker_died_is_run_by_another_worker(tmp_path: Path) -> None:
    slow = Slow()
    with Running() as running, brokers(running, "ours") as broker:
        core = titanic(running, broker, tmp_path)
        first = Worker("slow", broker=broker, handler=slow, heartbeat=0.1)
        running.worker(first)
        with ServiceClient(broker, timeout=30.0, tries=1) as client:
            _, name = client.call(REQUEST, [b"slow", b"hello"]).frames
            until(lambda: slow.begun, "the handler runs")
            first._engine.submit(first._core.leave)  # It says good-bye with the request in hand.
            running.worker(Worker("slow", broker=broker, handler=lambda got: b"by another one"))
            assert fetched(client, name) == (b"200", b"by another one")
            slow.go.set()
        assert core.counters["runs"] == 2


@pytest.mark.slow
def test_a_worker_stopped_with_a_request_in_its_socket_does_not_begin_it(tmp_path: Path) -> None:
    effects = tmp_path / "effects"
    effects.touch()
    limits = BrokerLimits(heartbeat_seconds=0.2, liveness=15)
    with Town(tmp_path) as town, Running() as running:
        core = Broker(limits)
        broker = running.engine(Engine(core, broker_ports("tcp://127.0.0.1:0"))).addresses[PORT]
        titanic(running, broker, tmp_path / "titanic")
        script = f"cat >> '{effects}'; echo done"
        words = ("work", "slow", "--broker", broker, "--heartbeat", "0.2", "--", "sh", "-c", script)
        worker = town.service("worker", *words)
        worker.wait_line("worker slow ready")
        until(lambda: core.services.get(b"slow", Service(b"")).idle, "it is registered")
        with ServiceClient(broker, timeout=30.0, tries=1) as client:
            worker.pause()
            before = worker.errors.read_text().count("was paused")  # It may have on a busy machine.
            _, name = client.call(REQUEST, [b"slow", b"hello"]).frames
            until(lambda: core.counters["requests_given_up"] or core.counters["workers_silent"], "it is given up")
            running.worker(Worker("slow", broker=broker, handler=lambda got: b"by another one"))
            assert fetched(client, name) == (b"200", b"by another one")
            worker.resume()
            until(lambda: worker.errors.read_text().count("was paused") > before, "it registers anew")
            worker.running.send_signal(signal.SIGTERM)
            assert worker.wait() == 0
        assert effects.read_text() == ""


def test_a_reply_reaches_titanic_over_a_new_connection_without_a_second_run(tmp_path: Path) -> None:
    slow = Slow()
    with Running() as running, brokers(running, "ours") as broker, Relay(broker) as relay:
        core = titanic(running, relay.endpoint, tmp_path, reply_seconds=60.0)
        running.worker(Worker("slow", broker=broker, handler=slow, heartbeat=0.1))
        with ServiceClient(broker, timeout=30.0, tries=2) as client:
            _, name = client.call(REQUEST, [b"slow", b"hello"]).frames
            until(lambda: slow.begun, "the handler runs")
            relay.cut()
            relay.heal()
            runs = core._carrier._runs
            until(lambda: [run for run in runs.values() if run.asked and not run.unanswered], "the broker has it")
            slow.go.set()
            assert fetched(client, name) == (b"200", b"HELLO")
        assert (slow.begun, core.counters["runs"]) == (1, 1)
