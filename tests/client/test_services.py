"""Calls at a real proxy and a real server: each happens once, through kills, cancellations and full disks.

The rules are those of docs/explanation/calls.md, X1, X2, X3 and X5.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pubsub.client import Client, Request, Transaction
from pubsub.client.errors import CallExpired, CallFailed, CallKept
from pubsub.client.flows import serving
from pubsub.config import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, NotSubscribed, Unavailable
from tests.client.opened import create, eventually, kill, names, rows
from tests.client.services import effect, served


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "PAUSE_SECONDS", 0.001)


@pytest.fixture
def service() -> str:
    return f"service{next(names)}"


@pytest.fixture
def worker(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"worker{next(names)}", settings=ClientSettings(handler_attempts=3)) as opened:
        create(opened, "done")
        yield opened


def test_a_call_has_one_effect_and_one_reply(client: Client, worker: Client, service: str) -> None:
    with served(worker, service):
        reply = client.call(service, b"a", id="order-17")
        assert (reply.id, reply.service, reply.body) == ("order-17", service, b"re:a")
        assert client.call(service, b"a", id="order-17") == reply
        assert client.reply("order-17", timeout=0) == reply
    assert rows(worker, "select * from done") == [("order-17", b"a")]


def test_a_handler_sees_the_caller_and_the_request(client: Client, worker: Client, service: str) -> None:
    seen: list[Request] = []

    def handler(request: Request, transaction: Transaction) -> bytes:
        seen.append(request)
        return b""

    with served(worker, service, handler):
        assert client.call(service, b"body", key=b"k", headers={"trace": b"1"}, deadline=60.0).body == b""
    (request,) = seen
    assert (request.caller, request.body, request.key, request.headers) == (client.name, b"body", b"k", {"trace": b"1"})
    assert request.deadline is not None


def test_a_call_before_any_worker_serves_waits_and_is_done_afterwards(
    client: Client, worker: Client, service: str
) -> None:
    with pytest.raises(CallKept, match="no worker") as caught:
        client.call(service, b"early", timeout=0.5, id="early")
    assert (caught.value.exit_code, caught.value.call) == (30, "early")
    with pytest.raises(CallKept, match="no reply within 0 s"):
        client.reply("early", timeout=0)
    with served(worker, service):
        assert client.reply("early", timeout=20.0).body == b"re:early"
    assert len(rows(worker, "select * from done")) == 1


def test_a_caller_killed_while_it_waits_gets_the_same_reply_when_it_asks_again(
    cluster: Embedded, worker: Client, service: str
) -> None:
    name = f"caller{next(names)}"
    first = cluster.client(name)
    with pytest.raises(CallKept):
        first.call(service, b"a", timeout=0.3, id="c1")
    kill(first)
    with served(worker, service):
        for _ in range(3):
            again = cluster.client(name)
            assert again.reply("c1", timeout=20.0).body == b"re:a"
            kill(again)
    assert rows(worker, "select body from done") == [(b"a",)]


def test_an_error_is_the_reply_once_the_handler_has_failed_so_often(
    client: Client, worker: Client, service: str, caplog: pytest.LogCaptureFixture
) -> None:
    with served(worker, service):
        for _ in range(2):
            with pytest.raises(CallFailed, match="ValueError: bad call") as caught:
                client.call(service, b"bad", id="bad")
        assert caught.value.exit_code == 31
        assert client.call(service, b"good").body == b"re:good"
    assert worker._session.counters["handler_errors"] == 3
    failures = [one for one in caplog.records if "handler failed on call" in one.getMessage()]
    assert [
        one.levelname
        for one in failures
        if f"ValueError('bad call') at {effect.__code__.co_filename}:" in one.getMessage()
    ]
    assert not any(one.exc_info for one in failures if one.levelname != "DEBUG")
    assert rows(worker, "select body from done") == [(b"good",)]
    assert worker.dead_letters() == []


def test_no_worker_begins_a_call_after_its_deadline(client: Client, worker: Client, service: str) -> None:
    with pytest.raises(CallKept):
        client.call(service, b"late", deadline=0.2, timeout=0.3, id="late")
    with served(worker, service):
        with pytest.raises(CallExpired, match="deadline passed") as caught:
            client.reply("late", timeout=20.0)
        assert caught.value.exit_code == 32
        assert client.call(service, b"in time", deadline=600.0).body == b"re:in time"
    assert rows(worker, "select body from done") == [(b"in time",)]


def test_a_worker_killed_in_its_handler_does_the_call_once_after_its_start(
    cluster: Embedded, client: Client, service: str
) -> None:
    name = f"worker{next(names)}"
    worker = cluster.client(name)
    create(worker, "done")
    worker.serve(service, effect, timeout=0)
    call = client.request(service, b"a")

    def dies(request: Request, transaction: Transaction) -> bytes:
        effect(request, transaction)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        worker.serve(service, dies, timeout=20.0)
    kill(worker)
    with cluster.client(name) as again:
        assert again.serve(service, effect, timeout=20.0, max=1) == 1
        assert client.reply(call, timeout=20.0).body == b"re:a"
        assert rows(again, "select body from done") == [(b"a",)]


@pytest.mark.parametrize("deadline", [None, 0.0])
def test_a_worker_that_is_killed_behind_an_error_reply_never_takes_that_call_again(
    cluster: Embedded, client: Client, service: str, deadline: float | None
) -> None:
    name, settings = f"worker{next(names)}", ClientSettings(handler_attempts=1)
    worker = cluster.client(name, settings=settings)
    create(worker, "done")
    worker.serve(service, effect, timeout=0)
    client.request(service, b"bad", id="bad", deadline=deadline)
    assert worker.serve(service, effect, timeout=20.0, max=1) == 1
    kill(worker)
    client.request(service, b"good", id="good")
    with cluster.client(name, settings=settings) as again:
        assert again.serve(service, effect, timeout=20.0, max=1) == 1
        assert rows(again, "select id from done") == [("good",)]
        assert client.reply("good", timeout=20.0).body == b"re:good"
        with pytest.raises(CallFailed if deadline is None else CallExpired):
            client.reply("bad", timeout=20.0)


def test_a_reply_that_was_not_sent_in_time_goes_out_while_the_worker_waits(
    cluster: Embedded, client: Client, service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "LOOK_SECONDS", 0.05)
    name = f"worker{next(names)}"
    with cluster.client(name) as worker:
        create(worker, "done")
        worker.serve(service, effect, timeout=0)
        call = client.request(service, b"a")
        worker.serve(service, effect, timeout=20.0, max=1)
        session = worker._session
        with session.lock:  # As if no answer had come for longer than the worker's time-out.
            for chain in session.core.outbox.chains.values():
                chain.until = float("-inf")
        worker.serve(service, effect, timeout=0.5)
    assert client.reply(call, timeout=20.0).body == b"re:a"


def test_many_callers_and_calls_each_get_their_own_reply(cluster: Embedded, worker: Client, service: str) -> None:
    callers = [cluster.client(f"caller{next(names)}") for _ in range(5)]
    found: dict[str, list[bytes]] = {}

    def run(caller: Client) -> None:
        calls = [caller.request(service, f"{caller.name}:{n}".encode()) for n in range(8)]
        found[caller.name] = [caller.reply(call, timeout=30.0).body for call in calls]

    with served(worker, service):
        threads = [threading.Thread(target=run, args=(caller,)) for caller in callers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for caller in callers:
        assert found[caller.name] == [f"re:{caller.name}:{n}".encode() for n in range(8)]
        caller.close()
    assert len(rows(worker, "select * from done")) == 40


def test_threads_of_one_caller_wait_beside_each_other(client: Client, worker: Client, service: str) -> None:
    found: dict[int, bytes] = {}

    def run(n: int) -> None:
        found[n] = client.call(service, b"%d" % n, timeout=30.0).body

    with served(worker, service):
        threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {n: b"re:%d" % n for n in range(8)}


def test_parts_share_calls_by_their_keys(cluster: Embedded, client: Client, service: str) -> None:
    workers = [cluster.client(f"worker{next(names)}") for _ in range(2)]
    for worker in workers:
        create(worker, "done")
    with served(workers[0], service, part=0, parts=2), served(workers[1], service, part=1, parts=2):
        for n in range(10):
            assert client.call(service, b"%d" % n, key=b"k%d" % (n % 3), parts=2, timeout=30.0).body == b"re:%d" % n
    done = [{body for (body,) in rows(worker, "select body from done")} for worker in workers]
    assert sorted(done[0] | done[1]) == sorted(b"%d" % n for n in range(10))
    assert not done[0] & done[1]
    for worker in workers:
        worker.close()


def test_one_client_serves_and_another_only_after_the_first_has_withdrawn(
    cluster: Embedded, client: Client, worker: Client, service: str
) -> None:
    worker.serve(service, effect, timeout=0)
    with cluster.client(f"worker{next(names)}", timeout=0.5) as other:
        create(other, "done")
        with pytest.raises(Unavailable, match="another client serves this"):
            other.serve(service, effect, timeout=0.1)
        worker.withdraw(service)
        assert other.serve(service, effect, timeout=0) == 0
        with served(other, service):
            assert client.call(service, b"a").body == b"re:a"
    with pytest.raises(NotSubscribed):
        client.withdraw(service)


# asyncio


def test_a_client_for_asyncio_calls_and_serves(cluster: Embedded, service: str) -> None:
    async def run() -> None:
        async with (
            cluster.async_client(f"caller{next(names)}") as caller,
            cluster.async_client(f"worker{next(names)}", settings=ClientSettings(handler_attempts=2)) as worker,
        ):
            with worker.transaction() as transaction:
                transaction.execute("create table done (id, body)")

            async def handler(request: Request, transaction: Transaction) -> bytes:
                await asyncio.sleep(0)
                if request.body == b"bad":
                    raise ValueError("bad call")
                transaction.execute("insert into done values (?, ?)", (request.id, request.body))
                return b"re:" + request.body

            serves = asyncio.create_task(worker.serve(service, handler))
            replies = await asyncio.gather(*(caller.call(service, b"%d" % n, timeout=30.0) for n in range(20)))
            assert [reply.body for reply in replies] == [b"re:%d" % n for n in range(20)]
            with pytest.raises(CallFailed, match="bad call"):
                await caller.call(service, b"bad", timeout=30.0)
            call = await caller.request(service, b"later")
            assert (await caller.reply(call, timeout=30.0)).body == b"re:later"
            serves.cancel()
            with pytest.raises(asyncio.CancelledError):
                await serves
            with worker.transaction() as transaction:
                assert transaction.execute("select count(*) from done").get == 21
            assert await worker.serve(service, lambda request, transaction: b"plain", timeout=0.05) == 0
            await worker.withdraw(service)

    asyncio.run(run())


def test_a_cancelled_call_is_still_done_and_has_its_reply(cluster: Embedded, worker: Client, service: str) -> None:
    async def run() -> None:
        async with cluster.async_client(f"caller{next(names)}") as caller:
            waits = asyncio.create_task(caller.call(service, b"a", id="a"))
            while not caller.calls():
                await asyncio.sleep(0.005)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits
            reply = await caller.reply("a", timeout=30.0)
            assert reply.body == b"re:a"

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    worker.serve(service, effect, timeout=30.0, max=1)
    thread.join()
    assert rows(worker, "select body from done") == [(b"a",)]


def test_closing_the_client_ends_serve_in_another_thread(cluster: Embedded, service: str) -> None:
    worker = cluster.client(f"worker{next(names)}")
    told: list[Exception] = []

    def serve() -> None:
        try:
            worker.serve(service, effect)
        except CallerError as error:
            told.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    eventually(lambda: bool(worker.subscriptions()))
    worker.close()
    thread.join(20.0)
    assert not thread.is_alive()
    assert "closed" in str(told[0])
