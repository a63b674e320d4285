"""Pairs over real sockets: of servers and of Majordomo brokers, with and without keys."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.errors import CallerError, ConfigurationError
from pubsub.services.access import Locks
from pubsub.services.client import ServiceClient
from pubsub.services.core.binary_star.paired import Paired
from pubsub.services.core.binary_star.states import Role, State
from pubsub.services.core.interface import Port
from pubsub.services.core.lazy import ReplyServer
from pubsub.services.errors import CallTimeout
from pubsub.services.pairing import Pairing, WakefulClock
from pubsub.services.worker import Request, Worker
from tests.faults.cluster import until
from tests.services.locked import Ring
from tests.services.running import Running, Town, address


@pytest.fixture
def running() -> Iterator[Running]:
    with Running() as made:
        yield made


def pairings() -> tuple[Pairing, Pairing]:
    primary, backup = address(), address()
    return Pairing(Role.PRIMARY, primary, backup), Pairing(Role.BACKUP, backup, primary)


def with_keys(ring: Ring, name: str, other: str) -> Locks:
    """The locks of one server of a pair: it listens, and connects to the other."""
    return Locks(
        listening=ring.listening(name).listening,
        audit=ring.listening(name).audit,
        pair=ring.pair(name),
        expected={"": (ring.pair(other).public,)},
    )


@pytest.mark.parametrize("keys", [False, True], ids=["without keys", "with keys"])
def test_the_two_servers_find_each_other_and_the_primary_serves(running: Running, keys: bool) -> None:
    ring = Ring()
    for name in ("primary", "backup", "alice"):
        ring.authorize(name, "call=*")
    addresses, workers = [], []
    for pairing, other in zip(pairings(), ("backup", "primary"), strict=True):
        name = pairing.role.value
        bind = address()
        locks = with_keys(ring, name, other) if keys else None
        handler = lambda request, name=name: name.encode() + b": " + request.body  # noqa: E731
        workers.append(running.worker(Worker(bind=bind, kind="lazy", handler=handler, pair=pairing, locks=locks)))
        addresses.append(bind)
    states = [worker._core for worker in workers]
    until(lambda: [core.state for core in states] == [State.ACTIVE, State.PASSIVE], "they have found each other")
    assert [worker.address for worker in workers] == addresses
    locks = ring.calling("alice", "primary", "backup") if keys else None
    with ServiceClient(addresses, kind="star", locks=locks) as client:
        assert client.call("", b"hello").body == b"primary: hello"
    with (
        ServiceClient(addresses[1], kind="lazy", timeout=0.3, tries=1, locks=locks) as client,
        pytest.raises(CallTimeout),
    ):
        client.call("", b"hello")


def test_a_handler_longer_than_two_heartbeats_does_not_harm_its_server(running: Running) -> None:
    done = threading.Event()

    def work(request: Request) -> bytes:
        assert done.wait(60.0)
        return request.body

    addresses, cores = [], []
    for pairing in pairings():
        worker = Worker(bind=address(), kind="lazy", handler=work, pair=pairing._replace(heartbeat=0.8))
        running.worker(worker)
        addresses.append(worker.address)
        cores.append(worker._core)
    until(lambda: [core.state for core in cores] == [State.ACTIVE, State.PASSIVE], "they have found each other")
    with ServiceClient(addresses, kind="star", timeout=60.0, tries=1) as client:
        reply = client.submit("", b"long")
        first = cores[0].timer()
        until(lambda: cores[0].timer() > first + 2.4, "three heartbeats have passed, and it has said what it is")
        done.set()
        assert reply.result(60.0).body == b"long"
    assert [core.state for core in cores] == [State.ACTIVE, State.PASSIVE]
    assert cores[0].counters["terms"] == 1


def test_a_pair_whose_members_cannot_hear_each_other_does_not_run() -> None:
    core = Paired(Role.PRIMARY, ReplyServer)
    ports = (Port("requests", address()),)
    own = address()
    with pytest.raises(ConfigurationError, match="name the address of the other server"):
        Pairing(Role.PRIMARY, own, own).engine(core, ports)
    with pytest.raises(ConfigurationError, match="--peer-key"):
        Pairing(Role.PRIMARY, own, address()).engine(core, ports, locks=Ring().listening("primary"))


def test_a_worker_of_a_broker_cannot_be_one_of_a_pair() -> None:
    with pytest.raises(CallerError, match="one of a pair needs an address to bind"):
        Worker("echo", broker=address(), pair=pairings()[0])


def test_the_clock_never_runs_backwards_and_counts_the_sleep_of_the_machine() -> None:
    clock = WakefulClock()
    before = time.monotonic()
    first, second = clock.monotonic(), clock.monotonic()
    assert before <= first <= second


@pytest.mark.faults
def test_clients_and_workers_of_a_paired_broker_continue_after_a_kill(tmp_path: Path) -> None:
    fronts, states = [address(), address()], [address(), address()]
    with Town(tmp_path) as town:
        brokers = [
            town.service(
                role,
                *("pair", f"--{role}", "--kind", "mdp", "--bind", fronts[place]),
                *("--state", states[place], "--peer", states[1 - place]),
            )
            for place, role in enumerate(("primary", "backup"))
        ]
        for broker, role in zip(brokers, ("primary", "backup"), strict=True):
            broker.wait_line(f"{role} service ready")
        for place, front in enumerate(fronts):
            town.service(f"worker{place}", "work", "echo", "--broker", front).wait_line("worker")
        with ServiceClient(fronts, kind="mdp", timeout=2.5, tries=12) as client:
            assert client.call("echo", b"before").body == b"before"
            brokers[0].kill()
            assert client.call("echo", b"after").body == b"after"
            brokers[0].start()
            brokers[0].wait_line("primary service ready")
            assert client.call("echo", b"with both").body == b"with both"
            brokers[1].kill()
            assert client.call("echo", b"back").body == b"back"
        said = [broker.errors.read_text() for broker in brokers]
        assert "a client asked, and the other is silent" in said[1]
        assert "a client asked, and the other is silent" in said[0]
