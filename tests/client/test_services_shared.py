"""A worker beside other uses of its client, and the events that end it: disk, fork, cancellation, Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from pubsub.client import Client, Request, Transaction
from pubsub.client.flows import serving
from pubsub.config import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import AfterFork, StoreFull
from tests.client.opened import create, eventually, names, rows
from tests.client.services import effect, served


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PAUSE_SECONDS", 0.001)


@pytest.fixture
def service() -> str:
    return f"service{next(names)}"


@pytest.fixture
def worker(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"worker{next(names)}", settings=ClientSettings(handler_attempts=2)) as opened:
        create(opened, "done")
        yield opened


@pytest.mark.parametrize("whose", ["the handler's effect", "the reply"])
def test_a_call_waits_on_the_workers_full_disk_and_happens_once(
    client: Client, worker: Client, service: str, whose: str
) -> None:
    worker.serve(service, effect, timeout=0)
    call = client.request(service, b"a")
    db = worker._session.store.db

    def large(request: Request, transaction: Transaction) -> bytes:
        transaction.execute(
            "insert into done values (?, zeroblob(?))", (request.id, 1_000_000 * (whose != "the reply"))
        )
        return bytes(1_000_000 * (whose == "the reply"))

    db.pragma("max_page_count", db.pragma("page_count"))
    for _ in range(4):  # More often than a handler may fail before its error is the reply.
        with pytest.raises(StoreFull):
            worker.serve(service, large, timeout=20.0)
        assert db.execute("select count(*) from done").get == 0
    db.pragma("max_page_count", 1 << 30)
    assert worker.serve(service, large, timeout=20.0, max=1) == 1
    assert len(client.reply(call, timeout=20.0).body) == 1_000_000 * (whose == "the reply")
    assert len(rows(worker, "select id from done")) == 1
    assert worker.serve(service, large, timeout=0.1) == 0
    assert worker.dead_letters() == []


def test_a_full_disk_of_the_caller_refuses_new_calls_and_replies_wait(
    client: Client, worker: Client, service: str
) -> None:
    worker.serve(service, effect, timeout=0)
    client.request(service, b"first", id="first")
    db = client._session.store.db
    db.pragma("max_page_count", db.pragma("page_count"))
    with pytest.raises(StoreFull):
        client.call(service, bytes(1_000_000), id="large")
    assert worker.serve(service, lambda request, transaction: bytes(1_000_000), timeout=20.0, max=1) == 1
    for _ in range(2):
        with pytest.raises(StoreFull):
            client.reply("first", timeout=20.0)
    db.pragma("max_page_count", 1 << 30)
    assert len(client.reply("first", timeout=20.0).body) == 1_000_000
    assert [one.id for one in client.calls()] == ["first"]


def test_the_child_of_a_fork_gets_an_error_and_the_parent_continues(
    client: Client, worker: Client, service: str
) -> None:
    with served(worker, service):
        assert client.call(service, b"before", id="before", timeout=20.0).body == b"re:before"
        calls: tuple[Callable[[], object], ...] = (
            lambda: client.call(service, b"x"),
            lambda: client.request(service, b"x"),
            lambda: client.reply("before"),
            client.calls,
            lambda: client.forget("before"),
            lambda: client.serve(service, effect),
            lambda: client.withdraw(service),
        )
        child = os.fork()
        if child == 0:
            told = 0
            for call in calls:
                try:
                    call()
                except AfterFork:
                    told += 1
            os._exit(told)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == len(calls)
        assert client.call(service, b"after", timeout=20.0).body == b"re:after"
    assert [body for (body,) in rows(worker, "select body from done")] == [b"before", b"after"]


def test_one_client_serves_iterates_calls_and_puts_at_the_same_time(
    client: Client, worker: Client, service: str, topic: str
) -> None:
    count = 50
    worker.subscribe(topic)
    seen: list[bytes] = []

    def iterate() -> None:
        for message in worker.messages(topic):
            seen.append(message.body)
            if len(seen) == count:
                return

    own = threading.Thread(target=iterate)
    with served(worker, service):
        own.start()
        for number in range(count):
            worker.put(topic, b"%d" % number, wait=False)
            assert client.call(service, b"%d" % number, timeout=30.0).body == b"re:%d" % number
        assert worker.call(service, b"itself", timeout=30.0).body == b"re:itself"
        own.join(30.0)
    assert seen == [b"%d" % number for number in range(count)]
    assert len(rows(worker, "select id from done")) == count + 1


def test_two_threads_that_serve_share_the_calls(client: Client, worker: Client, service: str) -> None:
    with served(worker, service), served(worker, service):
        for number in range(30):
            assert client.call(service, b"%d" % number, timeout=30.0).body == b"re:%d" % number
    assert [int(body) for (body,) in rows(worker, "select body from done")] == list(range(30))


def test_a_waiting_call_learns_of_a_reply_that_another_thread_stored(
    client: Client, worker: Client, service: str
) -> None:
    """Otherwise it would notice only at its deadline. The waiting call is driven by hand, so that it stores nothing."""
    worker.serve(service, effect, timeout=0)
    for call in ("a", "b"):
        client.request(service, call.encode(), id=call)
    flow = client._calls.calling.reply("a", 600.0)
    waits = next(flow)
    assert worker.serve(service, effect, timeout=20.0, max=2) == 2
    assert client.reply("b", timeout=20.0).body == b"re:b"  # Behind that to a, which came with it or before.
    assert waits.done()
    with pytest.raises(StopIteration) as ended:
        flow.send(True)
    assert ended.value.value.body == b"re:a"


def test_a_handler_may_call_another_service_and_asks_again_under_the_same_id(
    cluster: Embedded, client: Client, worker: Client, service: str
) -> None:
    async def run() -> None:
        async with cluster.async_client(f"middle{next(names)}") as middle:
            failed: list[str] = []

            async def handler(request: Request, transaction: Transaction) -> bytes:
                reply = await middle.call(service, request.body, id=f"for-{request.id}", timeout=30.0)
                if not failed:
                    failed.append(request.id)
                    raise ValueError("once")
                return b"through:" + reply.body

            serves = asyncio.create_task(middle.serve(f"{service}-middle", handler))
            async with cluster.async_client(f"caller{next(names)}") as caller:
                assert (await caller.call(f"{service}-middle", b"a", timeout=30.0)).body == b"through:re:a"
            serves.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serves
            assert len(failed) == 1

    with served(worker, service):
        asyncio.run(run())
    assert len(rows(worker, "select id from done")) == 1


def test_a_worker_cancelled_in_its_handler_does_the_call_once_afterwards(
    cluster: Embedded, client: Client, service: str
) -> None:
    async def run() -> None:
        settings = ClientSettings(handler_attempts=1)
        async with cluster.async_client(f"worker{next(names)}", settings=settings) as worker:
            with worker.transaction() as transaction:
                transaction.execute("create table done (id, body)")
            await worker.serve(service, effect, timeout=0)
            call = client.request(service, b"a")
            begun = asyncio.Event()

            async def slow(request: Request, transaction: Transaction) -> bytes:
                begun.set()
                await asyncio.Event().wait()
                return b"never"

            for _ in range(3):  # No attempt counts: the first that counted would be the last.
                begun.clear()
                serves = asyncio.create_task(worker.serve(service, slow))
                await begun.wait()
                serves.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await serves
            assert await worker.serve(service, effect, timeout=20.0, max=1) == 1
            with worker.transaction() as transaction:
                assert transaction.execute("select count(*) from done").get == 1
            await worker.flush()
            assert client.reply(call, timeout=20.0).body == b"re:a"

    asyncio.run(run())


def test_an_interrupt_in_a_handler_rolls_back_and_counts_no_attempt(
    cluster: Embedded, client: Client, service: str
) -> None:
    with cluster.client(f"worker{next(names)}", settings=ClientSettings(handler_attempts=1)) as worker:
        create(worker, "done")
        worker.serve(service, effect, timeout=0)
        call = client.request(service, b"a")

        def interrupted(request: Request, transaction: Transaction) -> bytes:
            effect(request, transaction)
            raise KeyboardInterrupt

        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                worker.serve(service, interrupted, timeout=20.0)
        assert rows(worker, "select * from done") == []
        assert worker.serve(service, effect, timeout=20.0, max=1) == 1
        assert client.reply(call, timeout=20.0).body == b"re:a"
        assert len(rows(worker, "select * from done")) == 1


def test_forgetting_a_call_ends_the_waiting_for_its_reply(client: Client, service: str) -> None:
    client.request(service, b"a", id="a")
    told: list[str] = []

    def wait() -> None:
        try:
            client.reply("a", timeout=30.0)
        except Exception as error:  # noqa: BLE001
            told.append(type(error).__name__)

    waits = threading.Thread(target=wait)
    waits.start()
    eventually(lambda: bool(client._calls.calling._waiting))
    client.forget("a")
    waits.join(20.0)
    assert told == ["NoSuchCall"]
