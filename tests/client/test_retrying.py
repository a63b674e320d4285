"""Failed messages, and those that a handler puts off, come again in time, once, and in the order that was asked for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pubsub import Later, Reject
from pubsub.base.clock import SystemClock
from pubsub.client import Client, Message, Transaction
from pubsub.client.core import waiting as core
from pubsub.client.storage.store import Store
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, StoreNewer
from tests.client.opened import PATIENCE, create, kill, names, record, rows

SOON = ClientSettings(retry_first_seconds=0.0)
LONG = ClientSettings(retry_first_seconds=3000.0, retry_longest_seconds=3000.0)


class Shifted(SystemClock):
    """A wall clock that a test sets."""

    shift = 0.0

    def wall(self) -> float:
        return time.time() + self.shift


class Handler:
    """Notes what it handles; fails as a test says.

    Attributes:
        raises: by body, what the next attempts raise.
    """

    def __init__(self, **raises: list[Exception]) -> None:
        self.raises = {body.encode(): [*errors] for body, errors in raises.items()}
        self.seen: list[tuple[str, int]] = []
        self.times: list[float] = []

    def __call__(self, message: Message, transaction: Transaction) -> None:
        self.seen.append((message.body.decode(), message.attempts))
        self.times.append(time.monotonic())
        transaction.execute("insert into taken values (?, ?)", (message.id, message.body))
        if self.raises.get(message.body):
            raise self.raises[message.body].pop(0)


def opened(cluster: Embedded, name: str, settings: ClientSettings = SOON, **more: Any) -> Client:
    return cluster.client(name, settings=settings, **more)


def begun(client: Client, topic: str, *bodies: str) -> None:
    """Subscribe, and put `key:rest` messages under their key."""
    create(client, "taken")
    client.subscribe(topic)
    for body in bodies:
        key, colon, _ = body.partition("_")
        client.put(topic, body.encode(), key=key.encode() if colon else b"")


def taken(client: Client) -> list[str]:
    return [body.decode() for _, body in rows(client, "select * from taken order by rowid")]


@pytest.fixture
def name() -> str:
    return f"client{next(names)}"


@pytest.fixture
def client(cluster: Embedded, name: str) -> Iterator[Client]:
    with opened(cluster, name) as made:
        yield made


# Failures


def test_a_failed_message_comes_again_after_a_wait_that_doubles(cluster: Embedded, topic: str, name: str) -> None:
    settings = ClientSettings(retry_first_seconds=0.1, retry_longest_seconds=0.2, handler_attempts=5)
    with opened(cluster, name, settings) as client:
        begun(client, topic, "a")
        handler = Handler(a=[ValueError(str(number)) for number in range(4)])
        for number in range(4):
            with pytest.raises(ValueError, match=str(number)):
                client.process(topic, handler, timeout=PATIENCE)
        assert client.process(topic, handler, timeout=PATIENCE) == 1
    assert handler.seen == [("a", number) for number in (1, 2, 3, 4, 5)]
    waits = [after - before for before, after in zip(handler.times, handler.times[1:], strict=False)]
    assert [wait >= least for wait, least in zip(waits, (0.1, 0.2, 0.2, 0.2), strict=True)] == [True] * 4


def test_other_topics_go_on_while_a_message_waits_and_a_call_on_its_topic_ends_in_time(
    cluster: Embedded, topic: str, name: str
) -> None:
    other = topic + "other"
    with opened(cluster, name, LONG) as client:
        begun(client, topic, "a", "b")
        client.subscribe(other)
        client.put(other, b"c")
        handler = Handler(a=[ValueError("no")])
        with pytest.raises(ValueError, match="no"):
            client.process(topic, handler, timeout=PATIENCE)
        assert client.process(topic, handler, timeout=0.05) == 0, "what is behind it waits, too"
        assert client.process([topic, other], handler, timeout=PATIENCE) == 1
        assert handler.seen == [("a", 1), ("c", 1)]
        client.close()  # It waits for nothing.


def test_a_restart_begins_neither_the_attempts_nor_the_wait_anew(cluster: Embedded, topic: str, name: str) -> None:
    handler, clock = Handler(a=[ValueError("no")] * 5), Shifted()
    client = opened(cluster, name, LONG, clock=clock)
    begun(client, topic, "a")
    with pytest.raises(ValueError, match="no"):
        client.process(topic, handler, timeout=PATIENCE)
    kill(client)
    client = opened(cluster, name, LONG, clock=clock)
    assert client.process(topic, handler, timeout=0.3) == 0, "it waits on"
    kill(client)
    clock.shift = 3001.0
    with opened(cluster, name, LONG, clock=clock) as client, pytest.raises(ValueError, match="no"):
        client.process(topic, handler, timeout=PATIENCE)
    assert handler.seen == [("a", 1), ("a", 2)]


def test_a_get_takes_a_message_that_waits_and_the_next_one_does_not_wait(
    cluster: Embedded, topic: str, name: str
) -> None:
    with opened(cluster, name, LONG) as client:
        begun(client, topic, "a", "b")
        handler = Handler(a=[ValueError("no")])
        with pytest.raises(ValueError, match="no"):
            client.process(topic, handler, timeout=PATIENCE)
        message = client.get(topic, timeout=PATIENCE)
        assert message is not None
        assert (message.body, message.attempts) == (b"a", 0)
        assert client.process(topic, handler, timeout=PATIENCE) == 1
    with opened(cluster, name, LONG) as client:
        client.put(topic, b"c")
        assert client.process(topic, handler, timeout=PATIENCE) == 1, "the stored wait is that of a taken message"
    assert handler.seen == [("a", 1), ("b", 1), ("c", 1)]


# Later and Reject


def test_a_message_that_is_put_off_keeps_its_place_and_does_not_fail(cluster: Embedded, topic: str, name: str) -> None:
    with opened(cluster, name, ClientSettings(handler_attempts=1)) as client:
        begun(client, topic, "a", "b")
        handler = Handler(a=[Later(0.05), Later(0.05), Later(0)])
        while taken(client) != ["a", "b"]:
            assert client.process(topic, handler, timeout=PATIENCE) >= 1
        assert handler.seen == [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 1)]
        assert client.dead_letters() == []


def test_failures_of_a_message_that_was_put_off_count_alone(cluster: Embedded, topic: str, name: str) -> None:
    settings = ClientSettings(retry_first_seconds=0.0, handler_attempts=2)
    for hold in ("all", "none"):
        with opened(cluster, name, settings) as client:
            if hold == "all":
                create(client, "taken")
            client.subscribe(topic)
            client.put(topic, b"a")
            handler = Handler(a=[Later(0), Later(0), ValueError("one"), Later(0), ValueError("two")])
            while not client.dead_letters():
                with suppress(ValueError):
                    client.process(topic, handler, timeout=PATIENCE, hold=hold)  # type: ignore[arg-type]
            assert handler.seen == [("a", number) for number in range(1, 6)]
            (letter,) = client.dead_letters()
            assert (letter.error, letter.attempts) == ("ValueError: two", 2)
            with client.transaction() as transaction:
                transaction.execute("delete from pubsub_dead_letters")


def test_a_rejected_message_is_a_dead_letter_at_once_with_its_reason(client: Client, topic: str) -> None:
    begun(client, topic, "a", "b")
    handler = Handler(a=[Reject("no such customer")])
    assert client.process(topic, handler, timeout=PATIENCE) + client.process(topic, handler, timeout=0.2) == 2
    assert (taken(client), handler.seen) == (["b"], [("a", 1), ("b", 1)])
    (letter,) = client.dead_letters(topic)
    assert (letter.body, letter.error, letter.attempts) == (b"a", "no such customer", 1)


# What waits behind


def test_with_hold_none_nothing_waits_behind_and_the_message_comes_once(client: Client, topic: str) -> None:
    begun(client, topic, "k_1", "k_2", "k_3")
    handler = Handler(k_1=[Later(0.1)])
    while len(taken(client)) < 3:
        client.process(topic, handler, timeout=PATIENCE, hold="none")
    assert taken(client) == ["k_2", "k_3", "k_1"]
    assert handler.seen[-1] == ("k_1", 2)
    assert client.process(topic, handler, timeout=0.1, hold="none") == 0


def test_with_hold_key_the_messages_of_the_key_wait_in_order_and_no_others(client: Client, topic: str) -> None:
    begun(client, topic, "k_1", "l_1", "k_2", "x", "l_2", "k_3")
    handler = Handler(k_1=[Later(0.1), ValueError("no")], x=[Later(0.05)])
    while len(taken(client)) < 6:
        with suppress(ValueError):
            client.process(topic, handler, timeout=PATIENCE, hold="key")
    found = taken(client)
    assert [one for one in found if one.startswith("k")] == ["k_1", "k_2", "k_3"]
    assert found[:2] == ["l_1", "l_2"], "a message without a key holds up none"
    assert [number for body, number in handler.seen if body == "k_1"] == [1, 2, 3]
    assert [number for body, number in handler.seen if body == "k_2"] == [1]


def test_a_killed_process_loses_and_doubles_none_that_was_put_aside(cluster: Embedded, topic: str, name: str) -> None:
    handler = Handler(k_1=[Later(0.0)], k_2=[ValueError("no")])
    client = opened(cluster, name)
    begun(client, topic, "k_1", "k_2", "l_1")
    steps = 0
    while len(taken(client)) < 3:
        with suppress(ValueError):
            client.process(topic, handler, timeout=PATIENCE, max=1, hold="key")
        kill(client)
        client, steps = opened(cluster, name), steps + 1
        assert steps < 20, taken(client)
        assert len(set(taken(client))) == len(taken(client)), "a message was handled twice"
    assert [body for body in taken(client) if body != "l_1"] == ["k_1", "k_2"]
    assert client.process(topic, handler, timeout=0.2, hold="key") == 0
    client.close()


def test_an_interrupted_attempt_at_a_waiting_message_does_not_count(client: Client, topic: str) -> None:
    begun(client, topic, "a")
    handler = Handler(a=[Later(0), KeyboardInterrupt(), KeyboardInterrupt()])  # type: ignore[list-item]
    assert client.process(topic, handler, timeout=PATIENCE, max=1, hold="none") == 1
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            client.process(topic, handler, timeout=PATIENCE, hold="none")
    assert client.process(topic, handler, timeout=PATIENCE, hold="none") == 1
    assert handler.seen == [("a", 1), ("a", 2), ("a", 2), ("a", 2)]


def test_at_the_limit_the_topic_waits_and_loses_nothing(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "WAITING_MAX", 2)
    begun(client, topic, "k_1", "k_2", "k_3", "l_1")
    handler = Handler(k_1=[Later(0.3)])
    until = time.monotonic() + PATIENCE
    while [one.number for one in client._session.core.waiting.rows()] != [1, 2]:
        assert time.monotonic() < until
        handler.raises[b"k_1"] = [Later(0.3)]  # The first waits until two do, on a machine of any speed.
        client.process(topic, handler, timeout=0.05, hold="key")
    while len(taken(client)) < 4:
        client.process(topic, handler, timeout=PATIENCE, hold="key")
    assert [body for body in taken(client) if body != "l_1"] == ["k_1", "k_2", "k_3"]


def test_a_message_for_which_there_is_no_room_keeps_its_place(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core, "WAITING_MAX", 1)
    begun(client, topic, "a", "b", "c")
    handler = Handler(a=[Later(0.3)], b=[Later(0.1)])
    while len(taken(client)) < 3:
        client.process(topic, handler, timeout=PATIENCE, hold="none")
    assert taken(client) == ["b", "c", "a"]


def test_with_hold_all_waiting_messages_of_an_earlier_call_come_first(client: Client, topic: str) -> None:
    begun(client, topic, "a", "b")
    handler = Handler(a=[Later(0.2)])
    assert client.process(topic, handler, timeout=PATIENCE, max=1, hold="none") == 1
    while len(taken(client)) < 2:
        client.process(topic, handler, timeout=PATIENCE)
    assert taken(client) == ["a", "b"]


def test_waiting_messages_and_those_of_the_service_take_turns(client: Client, topic: str) -> None:
    begun(client, topic, "a", *[f"b{number}" for number in range(5)])
    handler = Handler(a=[Later(0)] * 100)
    while len(taken(client)) < 5:
        client.process(topic, handler, timeout=PATIENCE, max=20, hold="none")
    assert len([1 for body, _ in handler.seen if body == "a"]) < 30


def test_an_unsubscribe_and_a_fresh_subscription_give_waiting_messages_up(client: Client, topic: str) -> None:
    begun(client, topic, "a")
    handler = Handler(a=[Later(0), Later(0)])
    for leave in (lambda: client.unsubscribe(topic), lambda: client.subscribe(topic, fresh=True)):
        assert client.process(topic, handler, timeout=PATIENCE, max=1, hold="none") == 1
        client.subscribe(topic)
        assert len(client._session.core.waiting) == 1, "a subscription that continues keeps them"
        leave()
        assert len(client._session.core.waiting) == 0
        assert rows(client, "select * from pubsub_later") == []
        client.subscribe(topic)
        client.put(topic, b"a")


def test_an_older_release_is_kept_out_while_messages_wait(
    cluster: Embedded, topic: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    handler = Handler(a=[Later(0)])
    with opened(cluster, name) as client:
        path = Path(client.path)
        begun(client, topic, "a")
        client.process(topic, handler, timeout=PATIENCE, max=1, hold="none")
    with monkeypatch.context() as older:
        older.setattr("pubsub.client.storage.store.FORMAT_WAITING", 2)
        with pytest.raises(StoreNewer):
            Store(path)
    with opened(cluster, name) as client:
        assert client.process(topic, handler, timeout=PATIENCE, hold="none") == 1
    opened(cluster, name).close()
    with monkeypatch.context() as older:
        older.setattr("pubsub.client.storage.store.FORMAT_WAITING", 2)
        Store(path).close()


def test_another_value_of_hold_is_refused_before_any_message_is_taken(client: Client, topic: str) -> None:
    begun(client, topic, "a")
    with pytest.raises(CallerError, match="hold is"):
        client.process(topic, record, timeout=1.0, hold="some")  # type: ignore[arg-type]
    assert client.process(topic, record, timeout=PATIENCE) == 1


# Coroutines and services


def test_awaited_handlers_put_off_and_reject(cluster: Embedded, topic: str, name: str) -> None:
    seen: list[tuple[bytes, int]] = []

    async def handle(message: Message, transaction: Transaction) -> None:
        await asyncio.sleep(0)
        seen.append((message.body, message.attempts))
        if message.body == b"a" and message.attempts == 1:
            raise Later(0.1)
        if message.body == b"b":
            raise Reject("no")

    async def main() -> None:
        async with cluster.async_client(name, settings=SOON) as client:
            await client.subscribe(topic)
            await client.put_many(topic, [b"a", b"b", b"c"])
            while len(seen) < 4:
                await client.process(topic, handle, timeout=PATIENCE, hold="none")
            assert [(letter.body, letter.error) for letter in client.dead_letters()] == [(b"b", "no")]

    asyncio.run(main())
    assert seen == [(b"a", 1), (b"b", 1), (b"c", 1), (b"a", 2)]


def test_a_call_is_put_off_without_holding_up_others_and_rejected_at_once(cluster: Embedded, name: str) -> None:
    service, asked = f"service{next(names)}", []

    def handle(request: Any, transaction: Transaction) -> bytes:
        asked.append(request.body)
        if request.body == b"no":
            raise Reject("no such customer")
        if request.body == b"later" and asked.count(b"later") == 1:
            raise Later(0.1)
        return bytes(request.body)

    with opened(cluster, name + "caller") as caller, opened(cluster, name) as worker:
        for body in (b"later", b"no", b"x"):
            caller.request(service, body, id=body.decode())
        assert worker.serve(service, handle, timeout=PATIENCE, max=3) == 3
        assert caller.reply("later", timeout=PATIENCE).body == b"later"
        assert caller.reply("x", timeout=PATIENCE).body == b"x"
        with pytest.raises(Exception, match="no such customer"):
            caller.reply("no", timeout=PATIENCE)
    assert asked == [b"later", b"no", b"x", b"later"]
