"""Workers: the allowed acts of handlers, and the objects that people pass as one."""

from __future__ import annotations

import asyncio
import logging
import pickle
import threading
import time

import pytest

from pubsub.errors import CallerError, ConfigurationError, HandlerMisused, InvalidName
from pubsub.services.client import ServiceClient
from pubsub.services.errors import CallTimeout
from pubsub.services.worker import Request, Worker
from tests.faults.cluster import until
from tests.services.running import Running, address

KINDS = ["simple", "paranoid"]


@pytest.fixture
def running():
    with Running() as made:
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_of_a_queue_answers_requests(running, kind):
    front, back = running.queue(kind)
    running.worker(Worker("shout", broker=back, kind=kind, handler=lambda request: request.body.upper()))
    with ServiceClient(front, kind="lazy") as client:
        assert [client.call("", b"a%d" % number).body for number in range(10)] == [b"A%d" % n for n in range(10)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_handler_that_raises_is_logged_once_a_request_and_the_worker_goes_on(running, kind, caplog):
    def fussy(request: Request) -> bytes:
        if request.body == b"bad":
            raise ValueError("I do not like it")
        return request.body

    front, back = running.queue(kind)
    running.worker(Worker("fussy", broker=back, kind=kind, handler=fussy))
    with ServiceClient(front, kind="lazy") as client:
        with caplog.at_level(logging.ERROR), pytest.raises(CallTimeout):
            client.call("", b"bad", timeout=0.3, tries=1)
        assert client.call("", b"good").body == b"good"
    (record,) = [one for one in caplog.records if one.name == "pubsub.services"]
    place = f"{__file__}:{fussy.__code__.co_firstlineno + 2}"
    assert record.getMessage() == f"the handler of fussy failed: ValueError('I do not like it') at {place}"
    assert record.exc_info is None


@pytest.mark.parametrize("given", [None, "text", 5, [1], object()], ids=repr)
def test_a_handler_that_gives_no_bytes_has_failed(running, given, caplog):
    server = running.worker(Worker(bind="tcp://127.0.0.1:0", handler=lambda request: given))
    with ServiceClient(server.address, kind="lazy") as client, pytest.raises(CallTimeout):
        client.call("", b"x", timeout=0.2, tries=1)
    assert "the handler's result must be bytes or a sequence of bytes" in caplog.text


def test_a_class_has_its_own_handle_and_echoes_without_one(running):
    class Twice(Worker):
        def handle(self, request: Request) -> list[bytes]:
            return [*request.frames, *request.frames]

    twice = running.worker(Twice(bind="tcp://127.0.0.1:0"))
    echo = running.worker(Worker(bind="tcp://127.0.0.1:0"))
    with ServiceClient(twice.address, kind="lazy") as client:
        assert client.call("", [b"a", b"b"]).frames == (b"a", b"b", b"a", b"b")
    with ServiceClient(echo.address, kind="lazy") as client:
        assert client.call("", b"a").frames == (b"a",)


def test_an_address_is_read_from_ready_on_and_an_earlier_read_raises_one_error(running):
    server = Worker("shout", bind="tcp://127.0.0.1:0")
    with pytest.raises(CallerError, match="shout has no address yet: read it in ready"):
        server.address  # noqa: B018
    found = []

    def bound(port):  # The engine has bound the address, but has not started its core.
        open_port(port)
        with pytest.raises(CallerError, match="no address yet"):
            found.append(server.address)

    open_port, server._engine._open_port = server._engine._open_port, bound
    running.worker(server)
    assert not found
    assert server.address.startswith("tcp://127.0.0.1:")
    assert Worker("shout", broker="tcp://127.0.0.1:1").address == ""


def test_a_decorated_function_is_a_worker(running):
    @Worker.of("shout", bind="tcp://127.0.0.1:0")
    def shout(request: Request) -> bytes:
        return request.body.upper()

    running.worker(shout)
    with ServiceClient(shout.address, kind="lazy") as client:
        assert client.call("", b"a").body == b"A"


def test_parts_are_sent_with_the_reply_on_a_wire_without_parts(running):
    def slowly(request: Request) -> bytes:
        request.part(b"one ")
        with pytest.raises(CallerError):
            request.part("text")
        return b"two"

    server = running.worker(Worker(bind="tcp://127.0.0.1:0", handler=slowly))
    with ServiceClient(server.address, kind="lazy") as client:
        assert client.call("", b"").body == b"one two"


def test_the_handler_runs_in_the_thread_that_runs_the_worker(running):
    found = []

    def note(request: Request) -> bytes:
        found.append(threading.get_ident())
        return b""

    server = Worker(bind="tcp://127.0.0.1:0", handler=note)
    running.worker(server)
    with ServiceClient(server.address, kind="lazy") as client:
        client.call("", b"")
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    assert names[found[0]] != "services works"


def test_a_worker_with_long_work_does_not_count_as_dead(running):
    go = threading.Event()

    def slow(request: Request) -> bytes:
        assert go.wait(30)
        return request.body

    front, back = running.queue("paranoid")  # It heartbeats every 0.2 s.
    worker = Worker("slow", broker=back, kind="paranoid", handler=slow, heartbeat=0.2)
    running.worker(worker)
    with ServiceClient(front, kind="lazy", timeout=30.0) as client:
        future = client.submit("", b"x")
        time.sleep(0)  # A second passes below by the heartbeats that are counted, not by sleeping.
        sent = worker._core
        until(lambda: sent.counters["requests"], "the request is there")
        first = sent._heartbeats.said
        until(lambda: sent._heartbeats.said > first + 1.0, "five heartbeats while it works")
        go.set()
        assert future.result(30).body == b"x"
        assert sent.counters["queues_given_up"] == 0


def test_a_coroutine_is_refused_by_run_and_awaited_by_serve():
    async def shout(request: Request) -> bytes:
        await asyncio.sleep(0)
        return request.body.upper()

    with pytest.raises(HandlerMisused, match=r"await worker.serve\(\)"):
        Worker(bind="tcp://127.0.0.1:0", handler=shout).run()

    async def main() -> bytes:
        worker = Worker(bind="tcp://127.0.0.1:0", handler=shout)
        opened = asyncio.Event()
        task = asyncio.create_task(worker.serve(opened.set))
        await opened.wait()
        with ServiceClient(worker.address, kind="lazy") as client:
            reply = await asyncio.wrap_future(client.submit("", b"a"))
        worker.stop()
        await task
        return reply.body

    assert asyncio.run(main()) == b"A"


def test_a_generator_is_refused():
    def parts(request: Request):
        yield b"a"

    with pytest.raises(HandlerMisused, match="generator"):
        Worker(bind="tcp://127.0.0.1:0", handler=parts).run()


def test_an_awaitable_result_in_a_thread_is_a_failure(running, caplog):
    async def later() -> bytes:
        return b""

    server = running.worker(Worker(bind="tcp://127.0.0.1:0", handler=lambda request: later()))
    with ServiceClient(server.address, kind="lazy") as client, pytest.raises(CallTimeout):
        client.call("", b"x", timeout=0.2, tries=1)
    assert "await worker.serve()" in caplog.text


def test_a_cancelled_task_ends_the_worker_and_frees_its_address():
    async def main(bind: str) -> None:
        async def never(request: Request) -> bytes:
            began.set()
            await asyncio.sleep(3600)
            return b""

        began, opened = asyncio.Event(), asyncio.Event()
        task = asyncio.create_task(Worker(bind=bind, handler=never).serve(opened.set))
        await opened.wait()
        with ServiceClient(bind, kind="lazy") as client:
            client.submit("", b"x")
            await began.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    bind = address()
    asyncio.run(main(bind))
    asyncio.run(main(bind))


def test_an_interrupt_in_a_handler_ends_the_worker():
    def interrupted(request: Request) -> bytes:
        raise KeyboardInterrupt

    worker = Worker(bind="tcp://127.0.0.1:0", handler=interrupted)
    clients: list[ServiceClient] = []

    def call() -> None:
        clients.append(ServiceClient(worker.address, kind="lazy"))
        clients[0].submit("", b"x")

    try:
        with pytest.raises(KeyboardInterrupt):
            worker.run(call)
    finally:
        clients[0].close()


def test_a_worker_stopped_before_it_runs_ends_at_once():
    worker = Worker(bind="tcp://127.0.0.1:0")
    worker.stop()
    worker.run()
    with pytest.raises(CallerError, match="runs once"):
        worker.run()


def test_an_error_in_the_core_ends_the_worker_with_that_error(running):
    worker = Worker(bind="tcp://127.0.0.1:0")

    def broken(*arguments: object) -> None:
        raise RuntimeError("the core is broken")

    worker._core.receive = broken
    clients: list[ServiceClient] = []

    def call() -> None:
        clients.append(ServiceClient(worker.address, kind="lazy"))
        clients[0].submit("", b"x")

    with pytest.raises(RuntimeError, match="broken"):
        worker.run(call)
    clients[0].close()


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({}, CallerError),
        ({"broker": "tcp://127.0.0.1:1", "bind": "tcp://127.0.0.1:1"}, CallerError),
        ({"broker": "nonsense"}, ConfigurationError),
        ({"broker": "tcp://127.0.0.1:1", "kind": "lazy"}, CallerError),
        ({"bind": "tcp://127.0.0.1:1", "kind": "paranoid"}, CallerError),
        ({"bind": "tcp://127.0.0.1:1", "handler": "echo"}, CallerError),
        ({"bind": "tcp://127.0.0.1:1", "name": "ü"}, InvalidName),
        ({"bind": "tcp://127.0.0.1:1", "name": 5}, InvalidName),
        ({"bind": "tcp://0.0.0.0:1"}, ConfigurationError),
    ],
    ids=repr,
)
def test_bad_arguments_are_refused(arguments, kind):
    with pytest.raises(kind):
        Worker(**arguments)


def test_a_worker_can_be_neither_copied_nor_pickled():
    with pytest.raises(CallerError, match="cannot be copied"):
        pickle.dumps(Worker(bind="tcp://127.0.0.1:0"))


def test_an_address_in_use_is_reported(running):
    server = running.worker(Worker(bind="tcp://127.0.0.1:0"))
    with pytest.raises(ConfigurationError, match="in use"):
        Worker(bind=server.address).run()
