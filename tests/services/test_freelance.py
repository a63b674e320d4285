"""Freelance over real sockets: callers and servers of the library, with several servers, without some, with keys."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import zmq

from pubsub.errors import KeyRefused
from pubsub.services.aio import AsyncServiceClient
from pubsub.services.client import ServiceClient
from pubsub.services.core.interface import Patience
from pubsub.services.errors import CallTimeout
from pubsub.services.worker import Request, Worker
from tests.services.locked import Ring
from tests.services.running import Running, address

KINDS = pytest.mark.parametrize("kind", ["freelance1", "freelance2", "freelance3"])


@pytest.fixture
def running() -> Iterator[Running]:
    with Running() as made:
        yield made


def shout(request: Request) -> bytes:
    return request.body.upper()


def served(running: Running, kind: str, **named: object) -> str:
    """A server; its address."""
    bind = address()
    running.worker(Worker(bind=bind, kind=kind, handler=shout, **named))
    return bind


@KINDS
def test_one_call_and_many_calls_are_answered(running: Running, kind: str) -> None:
    addresses = [served(running, kind), served(running, kind)]
    with ServiceClient(addresses, kind=kind) as client:
        assert client.call("", b"hello").body == b"HELLO"
        replies = [client.submit("", b"n%d" % number) for number in range(50)]
        assert [reply.result(60.0).body for reply in replies] == [b"N%d" % number for number in range(50)]


@KINDS
def test_coroutines_call_in_the_same_way(running: Running, kind: str) -> None:
    addresses = [served(running, kind)]

    async def calls() -> list[bytes]:
        async with AsyncServiceClient(addresses, kind=kind) as client:
            return [reply.body for reply in await asyncio.gather(*(client.call("", b"n%d" % n) for n in range(20)))]

    assert asyncio.run(calls()) == [b"N%d" % number for number in range(20)]


@KINDS
def test_absent_servers_do_not_keep_a_call_from_the_present_one(running: Running, kind: str) -> None:
    addresses = [address(), address(), served(running, kind)]
    with ServiceClient(addresses, kind=kind, timeout=1.0) as client:
        assert client.call("", b"hello").body == b"HELLO"


@KINDS
def test_a_call_without_any_server_is_given_up_with_a_clear_error(kind: str) -> None:
    addresses = [address(), address()]
    with (
        ServiceClient(addresses, kind=kind, timeout=0.2, tries=2) as client,
        pytest.raises(CallTimeout, match=addresses[0]),
    ):
        client.call("", b"hello")


@pytest.mark.parametrize(
    ("kind", "seconds", "tries"), [("freelance1", 1.0, 3), ("freelance2", 2.5, 1), ("freelance3", 1.0, 3)]
)
def test_the_default_patience_is_that_of_the_guide(kind: str, seconds: float, tries: int) -> None:
    with ServiceClient(address(), kind=kind) as client:
        assert client._calling.patience == Patience(seconds, tries)
    with ServiceClient(address(), kind=kind, timeout=9.0) as client:
        assert client._calling.patience == Patience(9.0, tries)


@KINDS
def test_frames_arrive_unchanged(running: Running, kind: str) -> None:
    bind = address()
    running.worker(Worker(bind=bind, kind=kind))
    with ServiceClient(bind, kind=kind) as client:
        for body in ([b"a", b"", b"b"], [b""], [b"PING"], [b"\xff" * 100_000]):
            assert client.call("", body).frames == tuple(body)


@KINDS
def test_keys_and_rights_are_enforced(running: Running, kind: str) -> None:
    ring = Ring()
    ring.authorize("alice", "call=shout")
    ring.authorize("bob", "call=other")
    bind = served(running, kind, name="shout", locks=ring.listening("server"))
    with ServiceClient(bind, kind=kind, locks=ring.calling("alice", "server")) as client:
        assert client.call("", b"hello").body == b"HELLO"
    with (
        ServiceClient(bind, kind=kind, timeout=0.3, tries=1, locks=ring.calling("bob", "server")) as client,
        pytest.raises(CallTimeout),
    ):
        client.call("", b"hello")
    with (
        ServiceClient(bind, kind=kind, timeout=30.0, locks=ring.calling("mallory", "server")) as client,
        pytest.raises(KeyRefused),
    ):
        client.call("", b"hello")


@pytest.mark.parametrize("advertise", [None, "tcp://names.example:5555"])
def test_a_server_of_model_3_is_addressed_by_its_endpoint_as_in_rfc_10(running: Running, advertise: str | None) -> None:
    bind = served(running, "freelance3", advertise=advertise)
    name = (advertise or bind).encode()
    context = zmq.Context()
    router = context.socket(zmq.ROUTER)
    router.linger = 0
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    router.connect(bind)
    try:
        for _ in range(5_000):
            try:
                router.send_multipart([name, b"PING"])
                break
            except zmq.ZMQError:  # It is not connected yet: nobody is known by that name.
                router.poll(2)
        assert router.poll(30_000)
        assert router.recv_multipart() == [name, b"PONG"]
        for request in ([b"1", b"hello"], [b"1", b"", b"hello"]):
            router.send_multipart([name, *request])
            assert router.poll(30_000)
            assert router.recv_multipart() == [name, b"1", b"HELLO"]
    finally:
        router.close()
        context.term()
