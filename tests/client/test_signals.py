"""A signal handler that uses the client during one of its calls: refused, and the outer call continues."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from linecache import getline
from types import FrameType, FunctionType
from typing import Any, cast

import pytest

from pubsub.client import Client, Message, Publisher, Transaction
from pubsub.embedded import Embedded
from pubsub.errors import CallerError
from tests.client.opened import PATIENCE


def test_a_signal_handlers_call_within_a_step_of_the_client_is_refused(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client("nested") as client:
        enter = client._session.core.outbox.enter
        refused = []

        def handler(*arguments: Any) -> None:
            monkeypatch.undo()
            with pytest.raises(CallerError, match="inside another call"):
                client.put("nested", b"inner")
            refused.append(True)
            enter(*arguments)

        monkeypatch.setattr(client._session.core.outbox, "enter", handler)
        assert client.put("nested", b"outer").done
        assert refused
        assert client.put("nested", b"after").done


def test_a_signal_handlers_call_at_the_end_of_a_transaction_keeps_its_lock(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client("asked") as client:
        follow = client._session.follow

        def handler(**named: Any) -> None:
            monkeypatch.undo()
            with pytest.raises(CallerError, match="inside another call"):
                client.unfinished("asked")
            follow(**named)

        with client.transaction() as transaction:
            client.put("asked", b"inner", transaction=transaction)
            monkeypatch.setattr(client._session, "follow", handler)
        client.flush()
        assert client.put("asked", b"after").done


def test_a_signal_handlers_call_during_a_coroutines_processing_keeps_its_lock(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[bytes] = []

    def handle(message: Message, transaction: Transaction) -> None:
        transaction.execute("select 1")
        handled.append(message.body)

    async def work() -> None:
        async with cluster.async_client("asking") as client:
            await client.subscribe("asking")
            await client.put("asking", b"x")
            assert await client.get("asking", timeout=PATIENCE) is not None
            await client.put("asking", b"y")
            commit = client._session.commit

            def was_interrupted(*arguments: Any, **named: Any) -> bool:
                monkeypatch.undo()
                with pytest.raises(CallerError, match="inside another call"):
                    client.unfinished("asking")
                return commit(*arguments, **named)

            async with asyncio.timeout(PATIENCE):
                while not client._session.core.subscriptions["asking"].available:
                    await asyncio.sleep(0.005)
            monkeypatch.setattr(client._session, "commit", was_interrupted)
            assert await client.process("asking", handle, timeout=PATIENCE) == 1
            assert (await client.put("asking", b"after")).done

    asyncio.run(work())
    assert handled == [b"y"]


@pytest.mark.parametrize(
    "inner",
    [
        lambda client: client.get("taken", timeout=5.0),
        lambda client: client.subscribe("inner", timeout=5.0),
        lambda client: client.subscribe("taken", timeout=5.0),
        lambda client: client.call("nobody", b"inner", timeout=5.0),
        lambda client: client.put("inner", b"inner", timeout=5.0),
        lambda client: client.put_many("inner", [b"inner"], timeout=5.0),
    ],
    ids=["get", "subscribe", "subscribe again", "call", "put", "put_many"],
)
def test_a_signal_handlers_waiting_call_as_its_thread_takes_the_turn_is_refused(
    cluster: Embedded, monkeypatch: pytest.MonkeyPatch, inner: Callable[[Client], object]
) -> None:
    with cluster.client("taking") as client, cluster.client("giving") as other:
        client.subscribe("taken")
        turn = client._session._messenger._loop.turn
        takes = turn.caller_takes

        def handler(*arguments: Any) -> bool:
            taken = takes(*arguments)
            if taken:
                monkeypatch.undo()
                with pytest.raises(CallerError, match="inside another call of client taking"):
                    inner(client)
                other.put("taken", b"outer")
            return taken

        monkeypatch.setattr(turn, "caller_takes", handler)
        message = client.get("taken", timeout=PATIENCE)
        assert message is not None
        assert message.body == b"outer"
        assert client.subscriptions().keys() == {"taken"}
        client.unsubscribe("taken")


def within(function: Callable[..., object], line: str, handler: Callable[[], object]) -> Callable[..., Any]:
    """The callback of `sys.settrace`: run a signal handler once, before a line of a function."""
    code, called = cast(FunctionType, function).__code__, False

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal called
        if event == "line" and not called and getline(code.co_filename, frame.f_lineno).strip() == line:
            called = True
            sys.settrace(None)
            handler()
        return step

    return lambda frame, event, argument: step if frame.f_code is code else None


@pytest.mark.parametrize("key", [b"", b"k"], ids=["short way", "long way"])
@pytest.mark.parametrize(
    "inner",
    [Publisher.flush, Publisher.close, Publisher.close_batch, lambda publisher: publisher.put(b"inner", key=b"k")],
    ids=["flush", "close", "close_batch", "put"],
)
def test_a_signal_handlers_use_of_a_publisher_within_its_put_is_refused_without_loss(
    cluster: Embedded, topic: str, inner: Callable[[Publisher], object], key: bytes
) -> None:
    refused = []
    with cluster.client(f"within-{topic}") as client:
        client.subscribe(topic)
        with client.publisher(topic, linger=60.0) as publisher:

            def handler() -> None:
                with pytest.raises(CallerError, match="inside another call of the publisher"):
                    inner(publisher)
                refused.append(True)

            publisher.put(b"first")
            sys.settrace(within(Publisher._add if key else Publisher.put, "bodies.append(body)", handler))
            try:
                publisher.put(b"second", key=key)
            finally:
                sys.settrace(None)
            assert refused
        assert [message.body for message in client.get_many(topic, timeout=PATIENCE)] == [b"first", b"second"]


@pytest.mark.parametrize("key", [b"", b"k"], ids=["short way", "long way"])
def test_a_batch_due_while_a_signal_handler_waits_within_a_put_is_sent_behind_the_put(
    cluster: Embedded, topic: str, key: bytes
) -> None:
    done = []
    with cluster.client(f"due-{topic}") as client:
        client.subscribe(topic)
        with client.publisher(topic, linger=60.0) as publisher:

            def handler() -> None:
                publisher._deadline = float("-inf")
                publisher.tick(client._session.now)
                done.append(client.put(f"{topic}-other", b"inner").done)

            publisher.put(b"first")
            sys.settrace(within(Publisher._add if key else Publisher.put, "bodies.append(body)", handler))
            try:
                ticket = publisher.put(b"second", key=key)
            finally:
                sys.settrace(None)
            assert done == [True]
            publisher.flush()
            assert ticket.done
        bodies: list[bytes] = []
        while len(bodies) < 2 and (message := client.get(topic, timeout=PATIENCE)) is not None:
            bodies.append(message.body)
        assert bodies == [b"first", b"second"]
