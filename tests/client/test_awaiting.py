"""Handlers of the asyncio client, awaited or plain: each message's effect happens once, and no user is blocked."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import apsw
import pytest

from pubsub.client import AsyncClient, Message, Transaction
from pubsub.client.aio import BREATH_SECONDS
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, NotSubscribed, StoreFull, Unavailable

_names = count(1)


@pytest.fixture
def topic() -> str:
    return f"topic{next(_names)}"


def run(
    cluster: Embedded, topic: str, work: Callable[[AsyncClient], Coroutine[Any, Any, None]], *bodies: bytes
) -> None:
    """Run `work` with a subscribed client that finds these messages and has a table `seen`."""

    async def main() -> None:
        async with cluster.async_client(
            f"client{next(_names)}", settings=ClientSettings(handler_attempts=3, timeout_seconds=20.0)
        ) as client:
            await client.subscribe(topic)
            await client.put_many(topic, bodies)
            with client.transaction() as transaction:
                transaction.execute("create table seen (body)")
            await work(client)

    asyncio.run(main())


def seen(client: AsyncClient) -> list[bytes]:
    with client.transaction() as transaction:
        return [body for (body,) in transaction.execute("select body from seen order by rowid")]


async def write(message: Message, transaction: Transaction) -> None:
    await asyncio.sleep(0.001)
    transaction.execute("insert into seen values (?)", (message.body,))


def call(handler: Any, message: Message, transaction: Transaction) -> Any:
    return handler(message, transaction)


class Callables:
    async def __call__(self, message: Message, transaction: Transaction) -> None:
        await write(message, transaction)


async def after(more: int, message: Message, transaction: Transaction) -> None:
    await write(message, transaction)


def returns_one(message: Message, transaction: Transaction) -> Coroutine[Any, Any, None]:
    return write(message, transaction)


def plain(message: Message, transaction: Transaction) -> None:
    transaction.execute("insert into seen values (?)", (message.body,))


@pytest.mark.parametrize("handler", [write, Callables(), partial(after, 1), returns_one, plain], ids=repr)
def test_every_kind_of_handler_runs_and_takes_each_message_once(cluster: Embedded, topic: str, handler: Any) -> None:
    async def work(client: AsyncClient) -> None:
        assert await client.process(topic, handler, timeout=10.0, max=2) == 2
        assert await client.process(topic, handler, timeout=10.0) == 1
        assert await client.process(topic, handler, timeout=0.05) == 0
        assert seen(client) == [b"a", b"b", b"c"]

    run(cluster, topic, work, b"a", b"b", b"c")


def test_effect_puts_and_position_are_one_commit(cluster: Embedded, topic: str) -> None:
    out = f"{topic}.out"

    async def work(client: AsyncClient) -> None:
        await client.subscribe(out)
        fails = [b"b"]

        async def forward(message: Message, transaction: Transaction) -> None:
            await asyncio.sleep(0)
            transaction.execute("insert into seen values (?)", (message.body,))
            await client.put(out, message.body, transaction=transaction)
            if message.body in fails:
                raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await client.process(topic, forward, timeout=10.0)
        assert seen(client) == [b"a"]
        fails.clear()
        assert await client.process(topic, forward, timeout=10.0) == 2
        assert seen(client) == [b"a", b"b", b"c"]
        await client.flush()
        found = [message.body async for message in client.messages(out, timeout=0.5)]
        assert found == [b"a", b"b", b"c"]

    run(cluster, topic, work, b"a", b"b", b"c")


def test_an_awaiting_handler_does_not_block_other_tasks(cluster: Embedded, topic: str) -> None:
    other = f"{topic}.other"

    async def work(client: AsyncClient) -> None:
        entered, leave = asyncio.Event(), asyncio.Event()

        async def waits(message: Message, transaction: Transaction) -> None:
            entered.set()
            await leave.wait()
            await write(message, transaction)

        processing = asyncio.create_task(client.process(topic, waits, timeout=10.0, max=1))
        await entered.wait()
        await client.subscribe(other)
        await client.put(other, b"x")
        message = await client.get(other, timeout=10.0)
        assert message is not None
        with client.transaction() as transaction:
            transaction.execute("insert into seen values (?)", (message.body,))
        # No other call gets the message in hand, or a later one.
        assert await client.get(topic, timeout=0.05) is None
        getting = asyncio.create_task(client.get(topic, timeout=10.0))
        await asyncio.sleep(0)
        assert not processing.done()
        leave.set()
        assert await processing == 1
        following = await getting
        assert following is not None
        assert (following.body, seen(client)) == (b"b", [b"x", b"a"])

    run(cluster, topic, work, b"a", b"b")


def test_many_tasks_process_one_topic_and_each_message_is_handled_once(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        done = 0

        async def worker() -> None:
            nonlocal done
            while done < 50:
                with suppress(Unavailable):  # A busy machine may not answer in time.
                    took = await client.process(topic, write, timeout=0.5, max=3)
                    done += took

        await asyncio.gather(*[worker() for _ in range(5)])
        assert done == 50
        assert seen(client) == [b"%d" % number for number in range(50)]

    run(cluster, topic, work, *[b"%d" % number for number in range(50)])


def test_a_handler_that_waits_with_an_open_transaction_is_rolled_back_with_an_error(
    cluster: Embedded, topic: str
) -> None:
    async def work(client: AsyncClient) -> None:
        async def too_late(message: Message, transaction: Transaction) -> None:
            plain(message, transaction)
            await asyncio.sleep(0.01)

        async def hides_it(message: Message, transaction: Transaction) -> None:
            plain(message, transaction)
            try:
                await asyncio.sleep(0.01)
            except CallerError:
                await asyncio.sleep(0)

        async def renames_it(message: Message, transaction: Transaction) -> None:
            plain(message, transaction)
            try:
                await asyncio.sleep(0.01)
            except CallerError:
                raise ValueError from None

        for handler in (too_late, hides_it, renames_it, too_late):  # No attempt counts: no dead letter after three.
            with pytest.raises(CallerError, match="await first"):
                await client.process(topic, handler, timeout=10.0)
        assert seen(client) == []
        assert client.dead_letters() == []
        assert await client.process(topic, write, timeout=10.0) == 1

    run(cluster, topic, work, b"a")


def test_a_cancelled_handler_is_rolled_back_and_the_attempt_does_not_count(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        for _ in range(5):
            entered = asyncio.Event()

            async def waits(message: Message, transaction: Transaction, entered: asyncio.Event = entered) -> None:
                entered.set()
                await asyncio.Event().wait()

            processing = asyncio.create_task(client.process(topic, waits, timeout=10.0))
            await entered.wait()
            processing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await processing
            assert processing.cancelled()
        assert client.dead_letters() == []
        assert await client.process(topic, write, timeout=10.0) == 2
        assert seen(client) == [b"a", b"b"]

    run(cluster, topic, work, b"a", b"b")


@pytest.mark.parametrize("at_the_commit", [False, True])
def test_an_attempt_without_disk_space_raises_that_error_and_does_not_count(
    cluster: Embedded, topic: str, at_the_commit: bool
) -> None:
    async def work(client: AsyncClient) -> None:
        store = client._session.store
        end = store.end

        async def large(message: Message, transaction: Transaction) -> None:
            transaction.execute("insert into seen values (zeroblob(?))", (1 if at_the_commit else 1_000_000,))

        def refuse() -> None:
            if client._session.transaction is not None:
                store.undo(apsw.FullError("the disk is full"))
            end()

        for _ in range(4):
            with pytest.MonkeyPatch.context() as patch:
                if at_the_commit:
                    patch.setattr(store, "end", refuse)
                else:
                    store.db.pragma("max_page_count", store.db.pragma("page_count"))
                with pytest.raises(StoreFull):
                    await client.process(topic, large, timeout=10.0)
            assert client.dead_letters() == []
        store.db.pragma("max_page_count", 1 << 30)
        assert await client.process(topic, large, timeout=10.0) == 1
        assert client.dead_letters() == []

    run(cluster, topic, work, b"a")


def test_a_handler_that_fails_too_often_sends_its_message_to_the_dead_letters(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        async def fails(message: Message, transaction: Transaction) -> None:
            await write(message, transaction)
            if message.body == b"poison":
                raise ValueError("cannot")

        for _ in range(2):
            with pytest.raises(ValueError, match="cannot"):
                await client.process(topic, fails, timeout=10.0)
        assert await client.process(topic, fails, timeout=10.0) == 2
        assert [letter.body for letter in client.dead_letters()] == [b"poison"]
        assert seen(client) == [b"after"]

    run(cluster, topic, work, b"poison", b"after")


def test_nothing_happens_where_the_topic_is_unsubscribed_or_the_client_closed_meanwhile(
    cluster: Embedded, topic: str
) -> None:
    async def work(client: AsyncClient) -> None:
        async def unsubscribes(message: Message, transaction: Transaction) -> None:
            await client.unsubscribe(topic)
            await write(message, transaction)

        with pytest.raises(CallerError, match="changed while"):
            await client.process(topic, unsubscribes, timeout=10.0)
        assert seen(client) == []
        with pytest.raises(NotSubscribed):
            await client.get(topic)
        await client.subscribe(topic)
        await client.put(topic, b"b")

        async def closes(message: Message, transaction: Transaction) -> None:
            await client.close()
            await write(message, transaction)

        with pytest.raises(CallerError, match="closed"):
            await client.process(topic, closes, timeout=10.0)
        async with cluster.async_client(client.name) as again:
            assert await again.process(topic, write, timeout=10.0) == 1
            assert seen(again) == [b"b"]

    run(cluster, topic, work, b"a")


def test_nothing_happens_where_the_topic_is_subscribed_anew_meanwhile(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        async def subscribes_anew(message: Message, transaction: Transaction) -> None:
            await client.unsubscribe(topic)
            await client.subscribe(topic)
            await client.put(topic, b"b")
            await write(message, transaction)

        with pytest.raises(CallerError, match="changed while"):
            await client.process(topic, subscribes_anew, timeout=10.0)
        assert seen(client) == []
        assert await client.process(topic, write, timeout=10.0) == 1
        assert seen(client) == [b"b"]

    run(cluster, topic, work, b"a")


def test_a_handler_that_takes_from_its_own_topic_is_refused_at_once(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        async def takes(message: Message, transaction: Transaction) -> None:
            await client.get(topic)

        with pytest.raises(CallerError, match="return from it"):
            await client.process(topic, takes, timeout=10.0)
        assert await client.process(topic, write, timeout=10.0) == 2

    run(cluster, topic, work, b"a", b"b")


def test_a_transaction_is_of_no_use_on_other_threads_and_afterwards(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        kept: list[Transaction] = []

        async def elsewhere(message: Message, transaction: Transaction) -> None:
            kept.append(transaction)
            await asyncio.to_thread(plain, message, transaction)

        with pytest.raises(CallerError, match="thread of the handler"):
            await client.process(topic, elsewhere, timeout=10.0)
        with pytest.raises(CallerError, match="over"):
            kept[0].execute("select 1")
        assert await client.process(topic, write, timeout=10.0) == 1

    run(cluster, topic, work, b"a")


def test_puts_of_one_handler_go_out_while_the_next_one_awaits(cluster: Embedded, topic: str) -> None:
    out = f"{topic}.out"

    async def work(client: AsyncClient) -> None:
        await client.subscribe(out)

        async def forward(message: Message, transaction: Transaction) -> None:
            if message.body == b"b":
                first = await client.get(out, timeout=10.0)
                assert first is not None
            await client.put(out, message.body, transaction=transaction)

        assert await client.process(topic, forward, timeout=10.0) == 2

    run(cluster, topic, work, b"a", b"b")


@pytest.mark.parametrize("kind", ["generator", "async generator", "nothing"])
def test_an_unusable_handler_is_refused_before_any_message_is_taken(cluster: Embedded, topic: str, kind: str) -> None:
    def generator(message: Any, transaction: Any) -> Any:
        yield

    async def async_generator(message: Any, transaction: Any) -> Any:
        yield

    async def work(client: AsyncClient) -> None:
        handler: Any = {"generator": generator, "async generator": async_generator, "nothing": None}[kind]
        with pytest.raises(CallerError, match="handler is"):
            await client.process(topic, handler, timeout=10.0)
        if handler is not None:
            with pytest.raises(CallerError, match="rolled back"):
                await client.process(topic, partial(call, handler), timeout=10.0)
        assert await client.process(topic, write, timeout=10.0) == 1

    run(cluster, topic, work, b"a")


def test_the_client_asks_and_acknowledges_while_a_handler_awaits(cluster: Embedded, topic: str) -> None:
    async def work(client: AsyncClient) -> None:
        sub = client._session.core.subscriptions[topic]

        async def waits(message: Message, transaction: Transaction) -> None:
            if message.body == b"b":
                before = sub.fence.generation
                while sub.fence.generation == before:  # It rises with every request.
                    await asyncio.sleep(0.005)
            await write(message, transaction)

        assert await client.process(topic, waits, timeout=10.0) == 2
        assert seen(client) == [b"a", b"b"]

    run(cluster, topic, work, b"a", b"b")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_message_is_free_again_when_the_event_loop_of_its_handler_is_gone(cluster: Embedded, topic: str) -> None:
    client = cluster.async_client(f"client{next(_names)}")

    async def begin() -> None:
        await client.subscribe(topic)
        await client.put(topic, b"a")

    async def waits(message: Message, transaction: Transaction) -> None:
        asyncio.get_running_loop().stop()
        await asyncio.Event().wait()

    async def end() -> None:
        message = await client.get(topic, timeout=10.0)
        assert message is not None
        await client.close()

    asyncio.run(begin())
    loop = asyncio.new_event_loop()
    task = loop.create_task(client.process(topic, waits, timeout=10.0))
    loop.run_forever()
    loop.close()
    del loop, task
    gc.collect()
    asyncio.run(end())


def test_an_attempt_that_was_counted_and_never_made_does_not_count_after_the_close(
    cluster: Embedded, topic: str
) -> None:
    name, settings = f"client{next(_names)}", ClientSettings(handler_attempts=1)

    def handler(message: Message, transaction: Transaction) -> None:
        time.sleep(2 * BREATH_SECONDS)  # So others have a turn behind it, in which the task finds out.
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def work() -> None:
        async with cluster.async_client(name, settings=settings) as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"a", b"b"])
            with pytest.raises(asyncio.CancelledError):
                await asyncio.create_task(client.process(topic, handler, timeout=10.0))

    asyncio.run(work())
    handled: list[bytes] = []
    with cluster.client(name, settings=settings) as again:
        again.process(topic, lambda message, _: handled.append(message.body), timeout=10.0)
        assert (handled, again.dead_letters()) == ([b"b"], [])
