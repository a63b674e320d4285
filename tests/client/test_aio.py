"""The client for asyncio: the same calls, awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pubsub.client import AsyncClient, Client, Message, Transaction
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, InDoubt, NotSubscribed, Unavailable

_names = count(1)


@pytest.fixture
def topic() -> str:
    return f"topic{next(_names)}"


def run(cluster: Embedded, work: Callable[[AsyncClient], Coroutine[Any, Any, None]], **options: Any) -> None:
    async def main() -> None:
        async with cluster.async_client(f"client{next(_names)}", **options) as client:
            await work(client)

    asyncio.run(main())


def test_an_async_client_puts_and_gets(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)
        ticket = await client.put(topic, b"one")
        counters = await client.put_many(topic, [b"two", b"three"])
        message = await client.get(topic, timeout=5.0)
        assert message is not None
        assert (message.body, message.counter) == (b"one", ticket.counter)
        found = [message.counter async for message in client.messages(topic, timeout=0.2)]
        assert found == list(counters)
        assert await client.get(topic, timeout=0.02) is None
        await client.unsubscribe(topic)
        with pytest.raises(NotSubscribed):
            await client.get(topic)

    run(cluster, work)


def test_coroutines_wait_side_by_side(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)
        getting = [asyncio.create_task(client.get(topic, timeout=10.0)) for _ in range(5)]
        await asyncio.gather(*[client.put(topic, b"%d" % number) for number in range(5)])
        found = await asyncio.gather(*getting)
        assert sorted(message.body for message in found if message) == [b"%d" % number for number in range(5)]

    run(cluster, work)


def test_a_get_that_is_cancelled_has_taken_nothing(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)
        getting = asyncio.create_task(client.get(topic, timeout=10.0))
        await asyncio.sleep(0)
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting
        assert client._session.core.subscriptions[topic].waiting == 0
        assert not client._held.metadata._waits
        await client.put(topic, b"x")
        message = await client.get(topic, timeout=5.0)
        assert message is not None

    run(cluster, work)


def test_an_async_client_processes_and_has_transactions(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)
        with client.transaction() as transaction:
            transaction.execute("create table taken (body)")
            ticket = await client.put(topic, b"x", transaction=transaction)
        await client.flush()
        assert ticket.done

        def handler(message: Message, transaction: Transaction) -> None:
            transaction.execute("insert into taken values (?)", (message.body,))

        assert await client.process(topic, handler, timeout=5.0) == 1
        with client.transaction() as transaction:
            assert transaction.execute("select body from taken").get == b"x"
            with pytest.raises(CallerError):
                await client.put(topic, b"y")

    run(cluster, work)


def test_a_message_beyond_the_publishers_room_is_not_put(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        publisher = client.publisher(topic, records=1)
        most = 2 * client.settings.window
        for _ in range(most):
            await publisher.put(b"x")
        with pytest.raises(Unavailable):
            await publisher.put(b"y")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(publisher.put(b"y"), 0.01)
        assert client.unfinished(topic) == most

    run(cluster, work, proxies=["tcp://127.0.0.1:1"], timeout=0.1)


def test_a_publisher_batches(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)
        async with client.publisher(topic, records=10) as publisher:
            tickets = [await publisher.put(b"%d" % number) for number in range(1000)]
        assert all(ticket.done for ticket in tickets)
        found: list[bytes] = []
        while len(found) < 1000:
            found += (await client.get_many(topic, timeout=5.0)).bodies()
        assert found == [b"%d" % number for number in range(1000)]

    run(cluster, work)


def test_the_rest_of_an_iteration_that_is_left_comes_again(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)
        await client.put_many(topic, [b"a", b"b", b"c"])
        messages = client.messages(topic, timeout=5.0)
        async for message in messages:
            assert message.body == b"a"
            break
        message_after = await client.get(topic, timeout=5.0)
        assert message_after is not None
        assert message_after.body == b"b"

    run(cluster, work)


def test_an_unanswered_put_is_in_doubt_and_can_be_discarded(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        with pytest.raises(InDoubt):
            await client.put(topic, b"x", timeout=0.05)
        assert client.unfinished(topic) == 1
        assert client.discard(topic) == 1

    run(cluster, work, proxies=["tcp://127.0.0.1:1"])


@pytest.mark.parametrize("kind", ["get", "get_many", "messages", "process"])
def test_a_cancelled_loop_ends_and_every_message_is_taken_once(cluster: Embedded, topic: str, kind: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)
        taken: list[bytes] = []

        async def handler(message: Message, transaction: Transaction) -> None:
            taken.append(message.body)

        async def take() -> None:
            while True:
                if kind == "get":
                    message = await client.get(topic, timeout=10.0)
                    taken.extend([message.body] if message else [])
                elif kind == "get_many":
                    taken.extend((await client.get_many(topic, timeout=10.0)).bodies())
                elif kind == "process":
                    await client.process(topic, handler, timeout=10.0)
                else:
                    async for message in client.messages(topic, timeout=10.0):
                        taken.append(message.body)

        for number in range(150):
            task = asyncio.create_task(take())
            await asyncio.sleep(0)
            await client.put(topic, b"%d" % number)
            # Cancelled in all the turns of the loop around that in which the message comes.
            for _ in range(number % 7):
                await asyncio.sleep(0)
            while number % 3 == 0 and len(taken) <= number:
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=10.0)
            assert done, "the cancellation was swallowed"
            assert task.cancelled()
            while len(taken) <= number:
                taken.extend((await client.get_many(topic, timeout=10.0)).bodies())
        assert taken == [b"%d" % number for number in range(150)]

    run(cluster, work)


def test_a_put_that_is_cancelled_ends_and_is_kept(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)

        async def put() -> None:
            while True:
                await client.put(topic, b"x")

        for number in range(100):
            task = asyncio.create_task(put())
            for _ in range(number % 9):
                await asyncio.sleep(0)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=10.0)
            assert done, "the cancellation was swallowed"
        await client.flush()
        assert client.unfinished(topic) == 0

    run(cluster, work)


def test_a_loop_with_constant_messages_can_be_cancelled(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        await client.subscribe(topic)
        await client.put_many(topic, [b"x"] * 60_000)
        taken = 0

        async def take() -> None:
            nonlocal taken
            while True:
                assert await client.get(topic, timeout=10.0)
                taken += 1

        task = asyncio.create_task(take())
        while not taken:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        assert taken < 10_000

    run(cluster, work)


def test_a_cancelled_close_is_finished_all_the_same(cluster: Embedded, topic: str) -> None:
    async def main() -> None:
        for turns in range(5):
            client = cluster.async_client("closes")
            await client.put(topic, b"x")
            closing = asyncio.create_task(client.close())
            for _ in range(turns):
                await asyncio.sleep(0)
            closing.cancel()
            await asyncio.wait([closing])
            if not client._session.closed:
                await client.close()
            assert client._session.released

    asyncio.run(main())


def test_the_async_client_has_all_methods_of_the_blocking_one(cluster: Embedded, tmp_path: Path) -> None:
    def public(kind: type) -> set[str]:
        return {name for name in dir(kind) if not name.startswith("_")}

    assert public(AsyncClient) == public(Client)
    for name in (name for name in public(Client) if callable(getattr(Client, name))):
        own, other = (inspect.signature(getattr(kind, name)).parameters for kind in (AsyncClient, Client))
        assert list(own) == list(other), name

    async def main() -> None:
        async with cluster.async_client("whole") as client:
            assert client.settings.proxies == cluster.proxies
            assert client.path.name == "whole.db"
            assert client.publisher_id.startswith("whole/")
            assert client.export(tmp_path) == tmp_path / "client_whole"

    asyncio.run(main())


def test_an_attempt_does_not_count_if_the_client_is_closed_meanwhile(cluster: Embedded, topic: str) -> None:
    name, settings = f"client{next(_names)}", ClientSettings(handler_attempts=1)
    handled: list[bytes] = []

    async def work() -> None:
        client = cluster.async_client(name, settings=settings)
        await client.subscribe(topic)
        await client.put(topic, b"a")
        entered, goes_on = asyncio.Event(), asyncio.Event()

        async def waits(message: Message, transaction: Transaction) -> None:
            entered.set()
            await goes_on.wait()
            transaction.execute("select 1")

        processing = asyncio.create_task(client.process(topic, waits, timeout=10.0))
        await entered.wait()
        await client.close()
        goes_on.set()
        with pytest.raises(CallerError):
            await processing

    asyncio.run(work())
    with cluster.client(name, settings=settings) as again:
        again.process(topic, lambda message, _: handled.append(message.body), timeout=10.0)
        assert (handled, again.dead_letters()) == ([b"a"], [])
