"""Calls by a thread: replies, errors without a reply, and misuse."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
import threading
import time

import pytest
import zmq

from pubsub.errors import AfterFork, CallerError, ConfigurationError, InvalidName, TooLarge
from pubsub.services.calling import BODY_FRAMES_MAX, CALLS_MAX, REPLY_BYTES_MAX
from pubsub.services.client import ServiceClient
from pubsub.services.errors import CallTimeout
from pubsub.services.worker import Request, Worker
from tests.faults.cluster import until
from tests.services.running import Running, address


def shout(request: Request) -> bytes:
    return request.body.upper()


@pytest.fixture
def server():
    with Running() as running:
        yield running.worker(Worker("shout", bind="tcp://127.0.0.1:0", handler=shout)).address


def test_a_call_gets_its_reply(server):
    with ServiceClient(server, kind="lazy") as client:
        reply = client.call("", b"hello")
        assert (reply.body, bytes(reply), reply.frames, reply.parts) == (b"HELLO", b"HELLO", (b"HELLO",), ())


def test_threads_share_a_client_and_each_gets_its_own_reply(server):
    wrong = []

    def calls(name: int) -> None:
        for number in range(20):
            body = b"%d of %d" % (number, name)
            if client.call("", body).body != body.upper():
                wrong.append(body)

    with ServiceClient(server, kind="lazy") as client:
        threads = [threading.Thread(target=calls, args=(name,)) for name in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_any_rep_server_answers():
    with zmq.Context() as context, context.socket(zmq.REP) as rep:
        port = rep.bind_to_random_port("tcp://127.0.0.1")
        with ServiceClient(f"tcp://127.0.0.1:{port}", kind="lazy") as client:
            future = client.submit("", b"7")
            assert rep.recv() == b"7"
            rep.send(b"7")
            assert future.result(30).body == b"7"


def test_any_req_client_is_answered(server):
    with zmq.Context() as context, context.socket(zmq.REQ) as req:
        req.connect(server)
        req.send(b"seven")
        assert req.recv() == b"SEVEN"


def test_the_error_of_an_unanswered_call_names_address_time_and_tries():
    nobody = address()
    with ServiceClient(nobody, kind="lazy", timeout=0.05, tries=2) as client:
        with pytest.raises(CallTimeout) as caught:
            client.call("", b"x")
        assert (caught.value.tries, caught.value.addresses, caught.value.exit_code) == (2, (nobody,), 23)
        assert str(caught.value).startswith(f"call: no reply from {nobody} within 0.")
        assert client.submit("", b"x", timeout=0.01, tries=1).exception(30).tries == 1


def test_a_server_that_starts_later_is_found_by_the_next_try():
    late = address()
    with Running() as running, ServiceClient(late, kind="lazy", timeout=0.5, tries=100) as client:
        future = client.submit("", b"x")
        running.worker(Worker(bind=late, handler=shout))
        assert future.result(40).body == b"X"


def test_several_addresses_are_tried_in_turn(server):
    with ServiceClient([address(), server], kind="lazy", timeout=0.2) as client:
        assert client.call("", b"x").body == b"X"


@pytest.mark.parametrize("body", ["text", 5, None, [b"a", "b"], {"a": 1}], ids=repr)
def test_an_invalid_body_is_refused_before_sending(server, body):
    with ServiceClient(server, kind="lazy") as client, pytest.raises(CallerError):
        client.call("", body)


def test_limits_are_named(server):
    with ServiceClient(server, kind="lazy") as client:
        with pytest.raises(TooLarge, match="REPLY_BYTES_MAX"):
            client.call("", bytes(REPLY_BYTES_MAX + 1))
        with pytest.raises(TooLarge, match="BODY_FRAMES_MAX"):
            client.call("", [b""] * (BODY_FRAMES_MAX + 1))
        with pytest.raises(InvalidName):
            client.call("x\n", b"")
        with pytest.raises(InvalidName):
            client.call("x" * 256, b"")


def test_calls_under_way_are_bounded():
    with ServiceClient(address(), kind="lazy", timeout=100.0) as client:
        for _ in range(CALLS_MAX):
            client.submit("", b"")
        with pytest.raises(TooLarge, match="CALLS_MAX"):
            client.submit("", b"")


@pytest.mark.parametrize(
    "arguments",
    [
        {"timeout": 0},
        {"timeout": -1.0},
        {"timeout": float("nan")},
        {"timeout": True},
        {"timeout": "1"},
        {"tries": 0},
        {"tries": 1.5},
        {"tries": True},
        {"kind": "telepathy"},
    ],
    ids=repr,
)
def test_bad_arguments_are_refused(arguments):
    with pytest.raises(CallerError):
        ServiceClient(address(), **({"kind": "lazy"} | arguments))


@pytest.mark.parametrize("bad", ["", "nonsense", "tcp://127.0.0.1", "tcp://127.0.0.1:0", "udp://a:1", []], ids=repr)
def test_an_invalid_address_is_refused(bad):
    with pytest.raises(ConfigurationError):
        ServiceClient(bad, kind="lazy")


def test_a_cancelled_call_ends_and_the_next_one_is_answered(server):
    with ServiceClient(server, kind="lazy", timeout=60.0) as client:
        assert client.call("", b"a").body == b"A"
        future = client.submit("", b"b")
        future.cancel()
        assert client.call("", b"c").body == b"C"
        assert client._calling._calls == {}


def test_closing_ends_calls_that_wait_and_later_ones():
    client = ServiceClient(address(), kind="lazy", timeout=60.0)
    future = client.submit("", b"x")
    client.close()
    client.close()
    assert "closed" in str(future.exception(30))
    with pytest.raises(CallerError, match="closed"):
        client.call("", b"x")


def test_an_interrupt_cancels_the_call():
    with ServiceClient(address(), kind="lazy", timeout=60.0, tries=100) as client:

        def interrupt() -> None:
            until(lambda: client._calling._calls, "the call is under way")
            os.kill(os.getpid(), 2)

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            client.call("", b"x")
        thread.join()
        until(lambda: client._calling._core._busy == {}, "the call is taken back")


def test_a_client_can_be_neither_copied_nor_pickled(server):
    with ServiceClient(server, kind="lazy") as client:
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(CallerError, match="cannot be copied"):
                way(client)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_is_refused_and_the_parent_continues(server):
    with ServiceClient(server, kind="lazy") as client:
        assert client.call("", b"a").body == b"A"
        child = os.fork()
        if not child:
            code = 1
            try:
                client.close()
                client.call("", b"x")
            except AfterFork:
                code = 7
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert client.call("", b"b").body == b"B"


@pytest.mark.slow
def test_a_program_that_closes_nothing_ends():
    text = (
        "from pubsub.services.client import ServiceClient\n"
        f"client = ServiceClient('{address()}', kind='lazy', timeout=60.0)\n"
        "future = client.submit('', b'x')\n"
    )
    began = time.monotonic()
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert time.monotonic() - began < 30.0
