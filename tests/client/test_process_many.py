"""`process_many`: many messages in one transaction, and one by one after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from pubsub.client import Client, Later, Message, Reject, Transaction
from pubsub.client.core.changes import Tried
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError

_names = count(1)
BODIES = [b"a", b"b", b"c", b"d", b"e"]


@pytest.fixture
def topic() -> str:
    return f"many{next(_names)}"


@pytest.fixture
def client(cluster: Embedded, topic: str) -> Iterator[Client]:
    settings = ClientSettings(handler_attempts=2, retry_first_seconds=0.01)
    with cluster.client(f"many{next(_names)}", settings=settings) as opened:
        opened.subscribe(topic)
        with opened.transaction() as transaction:
            transaction.execute("create table effects (body)")
        opened.put_many(topic, BODIES)
        yield opened


class Handler:
    """Stores bodies in the client's database.

    Attributes:
        calls: the bodies of each call.
        poison: the bodies that it cannot handle, with what it raises.
    """

    def __init__(self, poison: dict[bytes, Exception] | None = None) -> None:
        self.calls: list[list[bytes]] = []
        self.attempts: list[list[int]] = []
        self.poison = poison or {}

    def __call__(self, messages: list[Message], transaction: Transaction) -> None:
        self.calls.append([message.body for message in messages])
        self.attempts.append([message.attempts for message in messages])
        for message in messages:
            transaction.execute("insert into effects values (?)", (message.body,))
            if message.body in self.poison:
                raise self.poison[message.body]


def effects(client: Client) -> list[bytes]:
    with client.transaction() as transaction:
        return [body for (body,) in transaction.execute("select body from effects order by rowid")]


def test_many_messages_are_one_commit(client: Client, topic: str) -> None:
    handler = Handler()
    before = client._session.store.commits  # type: ignore[attr-defined]
    assert client.process_many(topic, handler) == 5
    assert handler.calls == [BODIES]
    assert handler.attempts == [[1] * 5]
    assert client._session.store.commits - before == 2  # type: ignore[attr-defined]  # the attempt, the effects
    assert effects(client) == BODIES
    assert client.process_many(topic, handler, timeout=0) == 0


def test_a_call_takes_at_most_so_many(client: Client, topic: str) -> None:
    handler = Handler()
    assert [client.process_many(topic, handler, max=2) for _ in range(3)] == [2, 2, 1]
    assert handler.calls == [[b"a", b"b"], [b"c", b"d"], [b"e"]]
    with pytest.raises(CallerError):
        client.process_many(topic, handler, max=0)
    with pytest.raises(CallerError, match=r"\(messages, transaction\)"):
        client.process_many(topic, None)  # type: ignore[arg-type]


def test_after_a_failure_only_the_message_at_fault_is_tried_again(client: Client, topic: str) -> None:
    handler = Handler({b"c": ValueError("no c")})
    with pytest.raises(ValueError, match="no c"):
        client.process_many(topic, handler)
    assert handler.calls == [BODIES, [b"a"], [b"b"], [b"c"]]
    assert handler.attempts == [[1] * 5, [1], [1], [1]]
    assert effects(client) == [b"a", b"b"]
    assert client.process_many(topic, handler, timeout=5) == 3
    assert handler.calls[4:] == [[b"c"], [b"d"], [b"e"]]
    assert effects(client) == [b"a", b"b", b"d", b"e"]
    (letter,) = client.dead_letters(topic)
    assert (letter.body, letter.attempts) == (b"c", 2)
    client.put_many(topic, BODIES)
    handler.poison = {}
    assert client.process_many(topic, handler, timeout=5) == 5
    assert handler.calls[7:] == [BODIES]


def test_an_outcome_concerns_a_message_that_came_alone(client: Client, topic: str) -> None:
    handler = Handler({b"b": Reject("not this one"), b"d": Later(0.0)})
    assert client.process_many(topic, handler, max=4, timeout=5) == 4
    assert handler.calls == [[b"a", b"b", b"c", b"d"], [b"a"], [b"b"], [b"c"], [b"d"]]
    handler.poison = {}
    assert client.process_many(topic, handler, timeout=5) == 2
    assert effects(client) == [b"a", b"c", b"d", b"e"]
    assert [letter.body for letter in client.dead_letters(topic)] == [b"b"]


def test_after_the_end_of_a_process_within_a_handler_messages_come_one_by_one(client: Client, topic: str) -> None:
    sub = client._session.core.subscriptions[topic]
    client.get(topic)
    batch = client.get_many(topic, 1)
    session = client._session
    with session.entered():  # What a killed process leaves: a counted attempt at the next message.
        log, offset = batch[0].position
        session.commit([Tried(topic, (log, offset + 1), 1)])
        sub.cursor.attempted((log, offset + 1), 1)
    handler = Handler()
    assert client.process_many(topic, handler) == 3
    assert handler.calls == [[b"c"], [b"d"], [b"e"]]
    assert handler.attempts == [[2], [1], [1]]


def test_an_interrupt_leaves_all_messages_and_no_attempt(client: Client, topic: str) -> None:
    def interrupted(messages: list[Message], transaction: Transaction) -> None:
        transaction.execute("insert into effects values (?)", (messages[0].body,))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        client.process_many(topic, interrupted)
    handler = Handler()
    assert client.process_many(topic, handler) == 5
    assert (handler.calls, handler.attempts) == ([BODIES], [[1] * 5])
    assert effects(client) == BODIES


def test_puts_of_a_handler_are_in_the_same_commit(client: Client, topic: str) -> None:
    def relay(messages: list[Message], transaction: Transaction) -> None:
        for message in messages:
            client.put(f"{topic}.out", message.body, transaction=transaction)
        if fails:
            raise ValueError("after the puts")

    client.subscribe(f"{topic}.out")
    fails = True
    with pytest.raises(ValueError, match="after the puts"):
        client.process_many(topic, relay)
    fails = False
    assert client.process_many(topic, relay, timeout=5) == 5
    got: list[bytes] = []
    while len(got) < 5:
        got += [message.body for message in client.get_many(f"{topic}.out", timeout=5)]
    assert got == BODIES


def test_several_topics_have_a_transaction_each(client: Client, topic: str) -> None:
    client.subscribe(f"{topic}.b")
    client.put_many(f"{topic}.b", [b"x", b"y"])
    handler = Handler()
    taken = 0
    while taken < 7:
        taken += client.process_many([topic, f"{topic}.b"], handler, timeout=5)
    assert sorted(handler.calls) == [BODIES, [b"x", b"y"]]


def test_messages_put_aside_come_one_by_one(client: Client, topic: str) -> None:
    def later(message: Message, transaction: Transaction) -> None:
        raise Later(0.0)

    assert client.process(topic, later, max=2, hold="none") == 2
    handler = Handler()
    taken = 0
    while taken < 5:
        taken += client.process_many(topic, handler, timeout=5)
    assert sorted(body for call in handler.calls for body in call) == BODIES
    assert [b"a"] in handler.calls
    assert all(number > 0 for call in handler.attempts for number in call)


def test_a_task_handles_many(cluster: Embedded, topic: str) -> None:
    calls: list[list[bytes]] = []

    async def handle(messages: list[Message], transaction: Transaction) -> None:
        calls.append([message.body for message in messages])
        await asyncio.sleep(0)
        transaction.execute("create table if not exists effects (body)")
        rows: list[Any] = [(message.body,) for message in messages]
        transaction.executemany("insert into effects values (?)", rows)
        if b"c" in calls[-1] and len(calls) == 1:
            raise ValueError("once")

    async def main() -> int:
        async with cluster.async_client(f"many{next(_names)}") as client:
            await client.subscribe(topic)
            await client.put_many(topic, BODIES)
            taken = 0
            while taken < 5:
                taken += await client.process_many(topic, handle, timeout=5)
            await client.put_many(topic, BODIES)
            return taken + await client.process_many(topic, handle, timeout=5)

    assert asyncio.run(main()) == 10
    assert calls == [BODIES, [b"a"], [b"b"], [b"c"], [b"d"], [b"e"], BODIES]
