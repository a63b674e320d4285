"""The error of a call without a reply, if a broker knows the reason."""

from __future__ import annotations

import threading

import pytest

from pubsub.services.client import ServiceClient
from pubsub.services.core.majordomo.broker import PORT, Broker
from pubsub.services.engine import Engine
from pubsub.services.errors import CallTimeout, NoWorker
from pubsub.services.majordomo.commands import broker_ports
from pubsub.services.worker import Request, Worker
from tests.faults.cluster import until
from tests.services.running import Running, address


@pytest.fixture
def running():
    with Running() as made:
        yield made


@pytest.fixture
def broker(running):
    return running.engine(Engine(Broker(), broker_ports("tcp://127.0.0.1:0"))).addresses[PORT]


@pytest.mark.parametrize("kind", ["mdp", "mdp2"])
def test_a_service_without_a_worker_and_a_hanging_worker_raise_different_errors(running, broker, kind):
    go = threading.Event()

    def hangs(request: Request) -> bytes:
        assert go.wait(60.0)
        return request.body

    with ServiceClient(broker, kind=kind, timeout=0.5, tries=1) as client:
        with pytest.raises(NoWorker, match="call of typo: it has no worker") as caught:
            client.call("typo", b"x")
        assert caught.value.exit_code == 24
        worker = Worker("hangs", broker=broker, handler=hangs)
        running.worker(worker)
        until(lambda: client.call("mmi.service", b"hangs", timeout=20.0).body == b"200", "the worker is registered")
        with pytest.raises(CallTimeout):
            client.call("hangs", b"x")
        go.set()


def test_a_call_without_a_broker_is_a_timeout():
    with ServiceClient(address(), kind="mdp", timeout=0.1, tries=1) as client, pytest.raises(CallTimeout):
        client.call("echo", b"x")


def test_a_call_of_the_broker_itself_needs_no_worker(broker):
    with ServiceClient(broker, kind="mdp", timeout=5.0) as client:
        assert client.call("mmi.service", b"typo").body == b"404"
