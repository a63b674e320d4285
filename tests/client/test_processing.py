"""Handlers that `Client.process` accepts, and those that it rejects before or after a call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from itertools import count
from typing import Any

import apsw
import pytest

from pubsub.base.locks import holds
from pubsub.client import Client, Message, Transaction
from pubsub.client.core.prefetch import Prefetch
from pubsub.client.flows.processing import Processing
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, HandlerMisused

_names = count(1)


@pytest.fixture
def topic() -> str:
    return f"topic{next(_names)}"


@pytest.fixture
def client(cluster: Embedded, topic: str) -> Iterator[Client]:
    with cluster.client(f"client{next(_names)}", settings=ClientSettings(handler_attempts=2)) as opened:
        opened.subscribe(topic)
        opened.put_many(topic, [b"one", b"two"])
        yield opened


async def coroutine_function(message: Any, transaction: Any) -> None:
    raise AssertionError("it must not run")


async def with_more(more: int, message: Any, transaction: Any) -> None:
    raise AssertionError("it must not run")


def generator_function(message: Any, transaction: Any) -> Any:
    yield


async def async_generator_function(message: Any, transaction: Any) -> Any:
    yield


class Callables:
    async def __call__(self, message: Any, transaction: Any) -> None:
        raise AssertionError("it must not run")

    async def method(self, message: Any, transaction: Any) -> None:
        raise AssertionError("it must not run")


@pytest.mark.parametrize(
    "handler",
    [
        coroutine_function,
        partial(with_more, 1),
        partial(partial(with_more), 1),
        Callables(),
        Callables().method,
        generator_function,
        async_generator_function,
        None,
        "handler",
    ],
    ids=repr,
)
def test_an_unusable_handler_is_refused_before_any_message_is_taken(client: Client, topic: str, handler: Any) -> None:
    before = client.subscriptions()[topic]["position"]
    with pytest.raises(CallerError, match="handler is"):
        client.process(topic, handler, timeout=5.0)
    assert client._session.core.subscriptions[topic].cursor.attempts == 0
    assert client.subscriptions()[topic]["position"] == before
    assert client.get_many(topic, timeout=5.0).bodies() == [b"one", b"two"]


@pytest.mark.parametrize(
    "handler",
    [coroutine_function, generator_function, async_generator_function],
)
@pytest.mark.filterwarnings("error")
def test_a_misuse_seen_after_the_call_is_rolled_back_and_counts_as_no_attempt(
    client: Client, topic: str, handler: Any
) -> None:
    with client.transaction() as transaction:
        transaction.execute("create table seen (body)")

    def writes(message: Message, transaction: Transaction) -> Any:
        transaction.execute("insert into seen values (?)", (message.body,))
        client.put("elsewhere", b"x", transaction=transaction)
        return handler(message, transaction)

    for _ in range(5):  # More often than a handler may fail before its message goes to the dead letters.
        with pytest.raises(CallerError, match="rolled back"):
            client.process(topic, writes, timeout=5.0)
    assert client.dead_letters() == []
    assert client.unfinished("elsewhere") == 0
    with client.transaction() as transaction:
        assert transaction.execute("select count(*) from seen").get == 0
    assert client.get_many(topic, timeout=5.0).bodies() == [b"one", b"two"]


def ends_it(message: Message, transaction: Transaction) -> None:
    transaction.execute("insert into seen values (?); commit", (message.body,))
    raise AssertionError("the statement that ended the transaction must raise")


def swallows_that(message: Message, transaction: Transaction) -> None:
    with suppress(CallerError):
        ends_it(message, transaction)


@pytest.mark.parametrize("handler", [ends_it, swallows_that])
def test_a_handler_that_ends_its_transaction_is_refused_and_its_message_is_kept(
    client: Client, topic: str, handler: Any
) -> None:
    with client.transaction() as transaction:
        transaction.execute("create table seen (body)")
    for _ in range(5):
        with pytest.raises(HandlerMisused, match="ended the transaction"):
            client.process(topic, handler, timeout=5.0)
    assert client.dead_letters() == []
    assert client.get_many(topic, timeout=5.0).bodies() == [b"one", b"two"]


@pytest.mark.parametrize("handler", [ends_it, swallows_that])
def test_an_awaited_handler_that_ends_its_transaction_is_refused(cluster: Embedded, topic: str, handler: Any) -> None:
    async def awaited(message: Message, transaction: Transaction) -> None:
        await asyncio.sleep(0)
        handler(message, transaction)

    async def main() -> None:
        settings = ClientSettings(handler_attempts=2)
        async with cluster.async_client(f"client{next(_names)}", settings=settings) as client:
            await client.subscribe(topic)
            await client.put(topic, b"one")
            with client.transaction() as transaction:
                transaction.execute("create table seen (body)")
            for _ in range(5):
                with pytest.raises(HandlerMisused, match="ended the transaction"):
                    await client.process(topic, awaited, timeout=5.0)
            assert client.dead_letters() == []
            assert (await client.get_many(topic, timeout=5.0)).bodies() == [b"one"]

    asyncio.run(main())


def test_an_interrupt_in_a_handler_counts_as_no_attempt(client: Client, topic: str) -> None:
    def interrupted(message: Message, transaction: Transaction) -> None:
        raise KeyboardInterrupt

    for _ in range(5):
        with pytest.raises(KeyboardInterrupt):
            client.process(topic, interrupted, timeout=5.0)
    assert client.dead_letters() == []
    assert client.get_many(topic, timeout=5.0).bodies() == [b"one", b"two"]


def test_an_interrupt_leaves_no_call_waiting(client: Client, topic: str) -> None:
    client.get_many(topic, timeout=5.0)
    session = client._session
    drive = session.wait

    def interrupted(done: Callable[[], bool], deadline: float) -> bool:
        raise KeyboardInterrupt

    session.wait = interrupted  # type: ignore[method-assign]
    try:
        for call in (client.get, client.get_many, lambda topic: next(client.messages(topic))):
            with pytest.raises(KeyboardInterrupt) as caught:
                call(topic)
            assert session.core.subscriptions[topic].waiting == 0, caught.traceback
    finally:
        session.wait = drive  # type: ignore[method-assign]


@pytest.mark.parametrize("way", ["process", "get", "get_many", "messages"])
def test_the_prefetch_is_read_only_under_the_lock(
    client: Client, topic: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that drives the sockets adds records at any time."""
    calls: list[tuple[str, bool]] = []

    def watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: Prefetch, *arguments: Any, **named: Any) -> Any:
            calls.append((name, holds(client._session.lock)))
            return method(self, *arguments, **named)

        return call

    for name in ("add", "lose", "clear", "take", "took", "pass_loss", "return_taken", "following"):
        monkeypatch.setattr(Prefetch, name, watched(name, getattr(Prefetch, name)))
    if way == "process":
        assert client.process(topic, lambda *_: None) == 2
    elif way == "messages":
        with closing(client.messages(topic)) as messages:  # type: ignore[type-var]
            assert next(messages).body == b"one"
    else:
        assert getattr(client, way)(topic) is not None
    client.unsubscribe(topic)
    assert {"take", "took"} <= {name for name, _ in calls}
    assert not [name for name, locked in calls if not locked]


def test_a_constraint_checked_at_the_commit_is_the_handlers_failure(client: Client, topic: str) -> None:
    """It counts as a failed attempt, so a message that always breaks the constraint moves to the dead letters."""
    with client.transaction() as transaction:
        transaction.execute("create table parents (name text primary key)")
        transaction.execute(
            "create table children (parent text references parents (name) deferrable initially deferred, body text)"
        )
    client._session.store.db.pragma("foreign_keys", 1)
    seen: list[bytes] = []

    def handle(message: Message, transaction: Transaction) -> None:
        seen.append(message.body)
        parent = "nobody" if message.body == b"one" else None
        transaction.execute("insert into children values (?, ?)", (parent, message.body))

    for _ in range(4):
        with suppress(apsw.ConstraintError):
            client.process(topic, handle)
        if b"two" in seen:
            break
    assert seen == [b"one", b"one", b"two"], "handler_attempts is 2"
    assert [letter.body for letter in client.dead_letters()] == [b"one"]


def test_an_attempt_that_succeeded_is_not_taken_back(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise each call would need a further commit, and would lose the count of the next message."""
    monkeypatch.setattr(Processing, "uncount", lambda *_: pytest.fail("taken back"))
    assert client.process(topic, lambda *_: None, max=1) == 1


def test_a_failed_handler_is_one_line_with_its_own_last_line_and_a_traceback_for_debug_only(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    def handle(message: Message, transaction: Transaction) -> None:
        raise ValueError("no\nstock")

    place = f"{__file__}:{handle.__code__.co_firstlineno + 1}"
    with caplog.at_level("DEBUG", "pubsub.client"):
        with pytest.raises(ValueError, match="no"):
            client.process(topic, handle, timeout=5.0)
        assert client.process(topic, handle, max=1, timeout=5.0) == 1
    shown = [(one.levelname, one.getMessage()) for one in caplog.records if one.levelname != "DEBUG"]
    (first, again, given_up) = [text for _, text in shown]
    assert [level for level, _ in shown] == ["WARNING", "WARNING", "ERROR"]
    assert first.endswith(f"attempt 1: ValueError('no\\nstock') at {place}")
    assert again.endswith(f"attempt 2: ValueError('no\\nstock') at {place}")
    assert given_up.endswith("after 2 attempts: ValueError: no stock")
    assert [one.levelname for one in caplog.records if one.exc_info] == ["DEBUG", "DEBUG"]
