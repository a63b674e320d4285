"""Concurrent calls of one client: the guarantees of each hold during any other."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubsub.client import Client, Message, Transaction
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, InDoubt, TooLarge, Unavailable
from pubsub.protocol import Outcome, Status
from tests.client.opened import names


def elsewhere(call: Callable[[], Any]) -> Any:
    """Run a call on another thread, and return its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(30.0)
    return found[0]


def test_messages_of_an_iteration_are_given_back_when_the_client_is_closed(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"%d" % number for number in range(10)])
        iterator = client.messages(topic, timeout=5.0)
        assert next(iterator).body == b"0"
        session, found = client._session, []
        wait = session.wait

        def acknowledging(done: Callable[[], bool], deadline: float) -> bool:
            """The close waits for its last acknowledgements, and the iteration goes on meanwhile."""
            found.append(elsewhere(lambda: next(iterator)).body)
            return wait(done, deadline)

        session.wait = acknowledging  # type: ignore[method-assign]
        client.close()
        assert found == [b"1"]
        iterator.close()  # type: ignore[attr-defined]
    with cluster.client(name) as again:
        assert [message.body for message in again.messages(topic, timeout=0.2)] == [b"%d" % at for at in range(2, 10)]


def test_a_publisher_is_made_between_two_steps_and_not_within_one(client: Client, topic: str) -> None:
    with client.transaction():
        thread = threading.Thread(target=client.publisher, args=(topic,))
        thread.start()
        thread.join(0.3)
        # A step goes through all chains, and looks for one before it makes it: two of one topic would know nothing
        # of each other's puts.
        assert topic not in client._session.core.outbox.chains
    thread.join(10.0)
    assert topic in client._session.core.outbox.chains


def test_one_subscribe_that_ends_keeps_the_other_ones_wish_to_supersede(tmp_path: Path, nowhere: str) -> None:
    settings = ClientSettings(proxies=(nowhere,), directory=tmp_path)
    with Client("c", settings=settings) as client:
        core, intend = client._session.core, client._calls.subscribing.intend
        short, long = intend("t", True, 0.01), intend("t", True, 30.0)
        next(short), next(long)
        with pytest.raises(Unavailable):
            short.send(False)
        sub = core.subscriptions["t"]
        higher = Status("s1", Outcome.SUPERSEDED, number=core.numbers.highest + 5, epoch=1)
        with client._session.entered():
            core.receive(sub.tokens[-1], higher, client._session.now)
        assert sub.failure is None
        assert core.numbers.highest > higher.number
        long.close()


def test_put_many_beyond_the_outbox_limit_leaves_nothing_in_the_transaction(tmp_path: Path, nowhere: str) -> None:
    settings = ClientSettings(proxies=(nowhere,), directory=tmp_path, outbox_bytes_max=1 << 20)
    with Client("c", settings=settings) as client:
        with client.transaction() as transaction:
            client.put("t", b"before", transaction=transaction)
            with pytest.raises(TooLarge):
                client.put_many("t", [b"x"] * 70_000 + [b"x" * 900_000], transaction=transaction)
            client.put("t", b"behind", transaction=transaction)
        assert client.unfinished("t") == 2


def test_a_transaction_that_is_entered_within_itself_is_refused_and_the_client_goes_on(
    tmp_path: Path, nowhere: str
) -> None:
    with Client("c", settings=ClientSettings(proxies=(nowhere,), directory=tmp_path)) as client:
        block = client.transaction()
        with pytest.raises(CallerError, match="inside a transaction"), block, block:
            pass
        with client.transaction() as transaction:
            client.put("t", b"x", transaction=transaction)
        assert client.unfinished("t") == 1


def test_unanswered_puts_and_discards_leave_nothing_waiting(tmp_path: Path, nowhere: str) -> None:
    settings = ClientSettings(proxies=(nowhere,), directory=tmp_path, try_seconds=0.02)
    with Client("c", settings=settings) as client:
        for _ in range(3):
            with pytest.raises(InDoubt):
                client.put("t", b"x", timeout=0.1)
            client.discard("t")
        assert len(client._session.core.flights) == 0
        assert client._session._messenger._core.callbacks == 0


def test_an_attempt_that_begins_while_the_client_is_closed_does_not_count(cluster: Embedded, topic: str) -> None:
    async def closed_meanwhile(name: str) -> bool:
        client, began = cluster.async_client(name), threading.Event()
        await client.subscribe(topic)
        await client.put_many(topic, [b"0", b"1"])
        assert await client.get(topic, timeout=5.0) is not None
        loop, session = asyncio.get_running_loop(), client._session
        wait, tasks = session.wait, []

        async def handler(message: Message, transaction: Transaction) -> None:
            began.set()
            await asyncio.sleep(30.0)

        async def process() -> None:
            tasks.append(asyncio.ensure_future(client.process(topic, handler, 5.0)))

        def acknowledging(done: Callable[[], bool], deadline: float) -> bool:
            asyncio.run_coroutine_threadsafe(process(), loop).result(10.0)
            assert began.wait(10.0)
            return wait(done, deadline)

        session.wait = acknowledging  # type: ignore[method-assign]
        await client.close()
        for task in tasks:
            task.cancel()
            await asyncio.wait([task])
        return bool(tasks)

    # On a busy machine messages are acknowledged before the close, which then waits for nothing.
    tried = [f"client{next(names)}" for _ in range(20)]
    name = next(name for name in tried if asyncio.run(closed_meanwhile(name)))
    with cluster.client(name) as again:
        assert again._session.core.subscriptions[topic].cursor.attempts == 0
