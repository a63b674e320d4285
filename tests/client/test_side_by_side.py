"""Handlers that run side by side: `process(…, concurrency=…)` of a plain subscription."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from pubsub.client import Client, Later, Message, Reject, Transaction
from pubsub.client.core.waiting import Waiting, WaitingMessages
from pubsub.client.flows.worker_pool import CONCURRENCY_MAX
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError
from tests.client.opened import PATIENCE, create, kill, names, nothing, record, rows


@pytest.fixture
def client(cluster: Embedded, topic: str) -> Iterator[Client]:
    settings = ClientSettings(handler_attempts=2, retry_first_seconds=0.0)
    with cluster.client(f"client{next(names)}", settings=settings) as opened:
        opened.subscribe(topic)
        create(opened, "taken")
        yield opened


class Meeting:
    """Handlers that return when so many of them run at once."""

    def __init__(self, number: int) -> None:
        self._barrier = threading.Barrier(number)

    def __call__(self, message: Message, transaction: Transaction) -> None:
        self._barrier.wait(PATIENCE)
        record(message, transaction)


@pytest.mark.parametrize("concurrency", [0, -1, CONCURRENCY_MAX + 1, True, "8", 1.5, None])
def test_a_concurrency_that_is_none_is_refused(client: Client, topic: str, concurrency: object) -> None:
    with pytest.raises(CallerError, match="concurrency is a number from 1"):
        client.process(topic, record, hold="none", concurrency=concurrency)  # type: ignore[arg-type]


def test_the_order_of_the_whole_topic_allows_no_concurrency(client: Client, topic: str) -> None:
    with pytest.raises(CallerError, match='concurrency=2 needs hold="key"'):
        client.process(topic, record, concurrency=2)


def test_handlers_wait_side_by_side_before_their_first_statement(client: Client, topic: str) -> None:
    client.put_many(topic, [b"%d" % number for number in range(8)])
    assert client.process(topic, Meeting(8), timeout=PATIENCE, max=8, hold="none", concurrency=8) == 8
    assert sorted(body for _, body in rows(client, "select * from taken")) == [b"%d" % number for number in range(8)]
    assert nothing(client, topic)


def test_messages_of_one_key_are_in_one_handler_at_a_time_and_in_order(client: Client, topic: str) -> None:
    keys = [b"a", b"a", b"b", b"a", b"b", b"a"]
    client.put_many(topic, [b"%d" % number for number in range(6)], keys=keys)
    lock, running, seen = threading.Lock(), set[bytes](), list[tuple[bytes, bytes]]()
    both = threading.Barrier(2)

    def handler(message: Message, transaction: Transaction) -> None:
        with lock:
            assert message.key not in running
            running.add(message.key)
        if message.body in {b"0", b"2"}:  # The first one of each key: both are in hand at once.
            both.wait(PATIENCE)
        with lock:
            running.discard(message.key)
            seen.append((message.key, message.body))

    assert client.process(topic, handler, timeout=PATIENCE, max=6, hold="key", concurrency=4) == 6
    assert [body for key, body in seen if key == b"a"] == [b"0", b"1", b"3", b"5"]
    assert [body for key, body in seen if key == b"b"] == [b"2", b"4"]


def test_an_exception_is_raised_when_all_handlers_have_ended(client: Client, topic: str) -> None:
    client.put_many(topic, [b"bad", b"good"])
    failed = threading.Event()

    def handler(message: Message, transaction: Transaction) -> None:
        if message.body == b"bad" and message.attempts == 1:
            failed.set()
            raise ValueError("on purpose")
        assert failed.wait(PATIENCE)
        record(message, transaction)

    with pytest.raises(ValueError, match="on purpose"):
        client.process(topic, handler, timeout=PATIENCE, hold="none", concurrency=2)
    while len(rows(client, "select * from taken")) < 2:  # The first call may have taken the good one.
        client.process(topic, handler, timeout=PATIENCE, hold="none", concurrency=2)
    assert sorted(body for _, body in rows(client, "select * from taken")) == [b"bad", b"good"]


def test_later_and_reject_concern_their_message_alone(client: Client, topic: str) -> None:
    client.put_many(topic, [b"later", b"never", b"now"])

    def handler(message: Message, transaction: Transaction) -> None:
        if message.body == b"later" and message.attempts == 1:
            raise Later(0.0)
        if message.body == b"never":
            raise Reject("not for us")
        record(message, transaction)

    taken = 0
    while len(rows(client, "select * from taken")) < 2:
        taken += client.process(topic, handler, timeout=PATIENCE, hold="none", concurrency=3)
    assert taken == 4
    assert [letter.error for letter in client.dead_letters()] == ["not for us"]


def test_what_a_killed_process_had_in_hand_comes_again_with_its_attempts(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    create(client, "taken")
    client.put_many(topic, [b"0", b"1"])
    both, over = threading.Barrier(3), threading.Event()

    def hanging(message: Message, transaction: Transaction) -> None:
        both.wait(PATIENCE)
        assert over.wait(PATIENCE)
        record(message, transaction)

    def work() -> None:
        with suppress(CallerError):
            client.process(topic, hanging, timeout=PATIENCE, hold="none", concurrency=2)

    thread = threading.Thread(target=work)
    thread.start()
    both.wait(PATIENCE)
    kill(client)
    over.set()
    thread.join()
    attempts: dict[bytes, int] = {}

    def handler(message: Message, transaction: Transaction) -> None:
        attempts[message.body] = message.attempts
        record(message, transaction)

    with cluster.client(name) as again:
        while len(rows(again, "select * from taken")) < 2:
            again.process(topic, handler, timeout=PATIENCE, hold="none", concurrency=2)
    assert attempts == {b"0": 2, b"1": 2}


def test_a_close_takes_back_the_attempts_that_it_ends(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    client.put_many(topic, [b"0", b"1"])
    both, over = threading.Barrier(3), threading.Event()

    def hanging(message: Message, transaction: Transaction) -> None:
        both.wait(PATIENCE)
        assert over.wait(PATIENCE)

    failed: list[BaseException] = []

    def work() -> None:
        try:
            client.process(topic, hanging, timeout=PATIENCE, hold="none", concurrency=2)
        except CallerError as error:
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    both.wait(PATIENCE)
    client.close()
    over.set()
    thread.join()
    assert "closed" in str(failed[0])
    attempts: list[int] = []
    with cluster.client(name) as again:
        while len(attempts) < 2:
            again.process(
                topic,
                lambda message, _: attempts.append(message.attempts),
                timeout=PATIENCE,
                hold="none",
                concurrency=2,
            )
    assert attempts == [1, 1]


def test_awaiting_handlers_run_side_by_side(cluster: Embedded, topic: str) -> None:
    async def main() -> list[tuple[object, ...]]:
        async with cluster.async_client(f"client{next(names)}") as client:
            await client.subscribe(topic)
            with client.transaction() as transaction:
                transaction.execute("create table taken (id, body)")
            await client.put_many(topic, [b"%d" % number for number in range(4)])
            here, all_here = 0, asyncio.Event()

            async def handler(message: Message, transaction: Transaction) -> None:
                nonlocal here
                here += 1
                if here == 4:
                    all_here.set()
                await asyncio.wait_for(all_here.wait(), PATIENCE)
                record(message, transaction)

            assert await client.process(topic, handler, timeout=PATIENCE, max=4, hold="none", concurrency=4) == 4
            with client.transaction() as transaction:
                return list(transaction.execute("select body from taken order by body"))

    assert asyncio.run(main()) == [(b"0",), (b"1",), (b"2",), (b"3",)]


def test_a_cancelled_call_cancels_its_handlers_and_counts_no_attempt(cluster: Embedded, topic: str) -> None:
    async def main() -> list[int]:
        async with cluster.async_client(f"client{next(names)}") as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"0", b"1"])
            here, both = 0, asyncio.Event()

            async def hanging(message: Message, transaction: Transaction) -> None:
                nonlocal here
                here += 1
                if here == 2:
                    both.set()
                with pytest.raises(CallerError, match="this handler is handling"):
                    await client.get(topic)
                await asyncio.Event().wait()

            call = asyncio.ensure_future(client.process(topic, hanging, timeout=PATIENCE, hold="none", concurrency=2))
            await asyncio.wait_for(both.wait(), PATIENCE)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            attempts: list[int] = []

            async def handler(message: Message, transaction: Transaction) -> None:
                attempts.append(message.attempts)

            while len(attempts) < 2:
                await client.process(topic, handler, timeout=PATIENCE, hold="none", concurrency=2)
            return attempts

    assert asyncio.run(main()) == [1, 1]


def test_a_message_in_hand_holds_its_lane() -> None:
    waiting = WaitingMessages()
    first, second = (Waiting(number, "t", b"k", 1, 0, 0, 5.0) for number in (1, 2))
    waiting.add(first)
    waiting.add(second)
    waiting.begin(first)
    assert waiting.next("t", 5.0) is None
    assert waiting.in_hand() == [first]
    waiting.give_back(first)
    waiting.give_back(first)
    assert waiting.next("t", 5.0) is first
    waiting.begin(first)
    waiting.put_off(first, 7.0, 0)
    assert waiting.next("t", 6.0) is None
    assert waiting.next("t", 7.0) is first
    waiting.begin(first)
    waiting.ended(first)
    assert waiting.next("t", 5.0) is second
    waiting.drop("t")
    waiting.give_back(second)
    assert waiting.in_hand() == []
