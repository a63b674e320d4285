"""`process` of several topics at a real proxy and server: turns, and a loop that survives a busy machine."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from pubsub.client import AsyncClient, Client, Message, Transaction
from pubsub.client.flows.turns import TOPICS_MAX, TURN_MAX
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, InvalidName, NotSubscribed, Unavailable
from tests.client.opened import PATIENCE, create, eventually, names, record, rows
from tests.spark.broker import Broker


@pytest.fixture
def topics(client: Client) -> list[str]:
    """Three subscribed topics."""
    made = [f"topic{next(names)}" for _ in "abc"]
    for topic in made:
        client.subscribe(topic)
    return made


class Heard:
    """A handler that records the topic of each message."""

    def __init__(self) -> None:
        self.topics: list[str] = []

    def __call__(self, message: Message, transaction: Transaction) -> None:
        self.topics.append(message.topic)


def here(client: Client, topics: list[str]) -> None:
    """Wait until the client holds a message of each of these topics."""
    for topic in topics:
        assert client.process(topic, lambda message, transaction: None, timeout=PATIENCE, max=1) == 1


def test_messages_of_several_topics_are_taken_by_one_call(client: Client, topics: list[str]) -> None:
    create(client, "taken")
    for topic in topics:
        client.put_many(topic, [b"%d" % number for number in range(25)])
    taken = 0
    while taken < 75:
        taken += client.process(topics, record, timeout=PATIENCE)
    assert len(rows(client, "select distinct id from taken")) == taken == 75
    assert client.process(topics, record, timeout=0.05) == 0
    assert client.process(tuple(topics[:1]), record, timeout=0) == 0


def test_a_topic_with_a_long_backlog_keeps_no_other_one_waiting(client: Client, topics: list[str]) -> None:
    long, *others = topics
    client.put_many(long, [b"x"] * 500)
    for topic in others:
        client.put_many(topic, [b"x"] * 3)
    here(client, topics)
    heard = Heard()
    assert client.process(topics, heard, timeout=PATIENCE, max=TURN_MAX + 4) == TURN_MAX + 4
    assert heard.topics.count(long) == TURN_MAX
    assert {topic: heard.topics.count(topic) for topic in others} == dict.fromkeys(others, 2)


def test_turns_go_on_from_one_call_to_the_next(client: Client, topics: list[str]) -> None:
    for topic in topics:
        client.put_many(topic, [b"x"] * 5)
    here(client, topics)
    heard = Heard()
    for _ in range(6):
        assert client.process(topics, heard, timeout=PATIENCE, max=1) == 1
    assert heard.topics[:3] == heard.topics[3:]
    assert sorted(heard.topics[:3]) == sorted(topics)


def test_a_message_on_any_topic_ends_the_wait(client: Client, topics: list[str]) -> None:
    heard, taken = Heard(), []
    for topic in reversed(topics):
        thread = threading.Thread(target=lambda: taken.append(client.process(topics, heard, timeout=PATIENCE)))
        thread.start()
        eventually(lambda: all(client._session.core.subscriptions[each].waiting for each in topics))
        client.put(topic, b"x")
        thread.join(PATIENCE)
        assert not thread.is_alive()
    assert taken == [1, 1, 1]
    assert heard.topics == list(reversed(topics))
    assert not any(client._session.core.subscriptions[topic].waiting for topic in topics)


def test_a_handler_that_fails_on_one_topic_keeps_no_other_one_waiting(client: Client, topics: list[str]) -> None:
    poisoned, *others = sorted(topics)
    for topic in topics:
        client.put_many(topic, [b"x"] * 2)
    here(client, topics)
    heard = Heard()

    def fail(message: Message, transaction: Transaction) -> None:
        if message.topic == poisoned:
            raise ValueError("poison")
        heard(message, transaction)

    failed = 0
    while len(heard.topics) < 2:
        try:
            client.process(topics, fail, timeout=PATIENCE)
        except ValueError:
            failed += 1
    assert failed <= 2
    assert sorted(heard.topics) == sorted(others)


@pytest.mark.parametrize(
    ("named", "error", "said"),
    [
        ([], CallerError, "1 to 1,000 topics"),
        (["a"] * (TOPICS_MAX + 1), CallerError, "1,001 are named"),
        (["a", "b", "a"], CallerError, "named twice"),
        ({"a"}, CallerError, "a list of strings, not set"),
        (b"a", CallerError, "a list of strings, not bytes"),
        (["a", 5], InvalidName, "not int"),
        (["$calls.a"], CallerError, "a topic of calls"),
        (["never"], NotSubscribed, "never"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_topics_are_refused(client: Client, named: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        client.process(named, record, timeout=0.0)


def test_a_missing_subscription_is_reported_though_another_topic_has_messages(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"x")
    with pytest.raises(NotSubscribed, match="never"):
        client.process([topic, "never"], record, timeout=0.0)
    assert client._session.core.subscriptions[topic].waiting == 0


# A busy machine


@pytest.mark.parametrize("several", [True, False])
def test_silence_is_no_error_of_the_loop_before_the_clients_time_out(
    cluster: Embedded, topic: str, nowhere: str, *, several: bool
) -> None:
    name, other = f"client{next(names)}", topic + "b"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.subscribe(other)
    settings = ClientSettings(proxies=(nowhere,), directory=cluster.directory / "clients", timeout_seconds=0.45)
    named = [topic, other] if several else topic
    with Client(name, settings=settings) as alone:
        for _ in range(4):
            assert alone.process(named, record, timeout=0.1) == 0
        with pytest.raises(Unavailable, match="Connection refused"):
            alone.get(topic, timeout=0.1)
        for _ in range(2):
            with pytest.raises(Unavailable, match=rf"get on {topic}: no success within 0.*Connection refused"):
                alone.process(named, record, timeout=0.1)
        assert alone.process(named, record, timeout=0.0) == 0
    with Client(name, settings=settings) as alone, pytest.raises(Unavailable):
        alone.process(named, record)


def test_an_answer_ends_the_silence(cluster: Embedded, topic: str, nowhere: str) -> None:
    settings = ClientSettings(
        proxies=(nowhere, *cluster.proxies), directory=cluster.directory / "clients", timeout_seconds=PATIENCE, tries=1
    )
    with Client(f"client{next(names)}", settings=settings, context=cluster.context) as client:
        client.subscribe(topic)
        gets = client._calls.gets
        gets._silence[topic] = PATIENCE, client._session.now - 1.0
        client._session.core.subscriptions[topic].answered_at = client._session.now
        client.put(topic, b"x")
        heard = Heard()
        while not heard.topics:
            client.process(topic, heard, timeout=0.01)


def test_the_loop_learns_at_once_that_a_topic_is_not_served(tmp_path: Path) -> None:
    broker = Broker(tmp_path)
    try:
        with Client("reader", proxies=[broker.address], directory=tmp_path / "clients") as client:
            client.subscribe("t")
            client.subscribe("u")
            broker.stop_server()

            def told() -> bool:
                try:
                    assert client.process(["t", "u"], record, timeout=0.1) == 0
                except Unavailable:
                    return True
                return False

            eventually(told)
            broker.start_server()
            client.put("u", b"x", timeout=PATIENCE)
            heard = Heard()

            def took() -> bool:
                try:
                    return bool(client.process(["t", "u"], heard, timeout=0.1))
                except Unavailable:
                    return False

            eventually(took)
            assert heard.topics == ["u"]
    finally:
        broker.close()


# For asyncio


def test_an_async_loop_takes_several_topics(cluster: Embedded, topic: str) -> None:
    topics = [topic + letter for letter in "abc"]

    async def main() -> None:
        async with cluster.async_client(f"client{next(names)}") as client:
            assert isinstance(client, AsyncClient)
            for each in topics:
                await client.subscribe(each)
                await client.put_many(each, [b"x"] * (300 if each == topics[0] else 12))
            heard = []

            async def handle(message: Message, transaction: Transaction) -> None:
                await asyncio.sleep(0)
                heard.append(message.topic)

            for each in topics:
                assert await client.process(each, handle, timeout=PATIENCE, max=1) == 1
            heard.clear()
            assert await client.process(topics, handle, timeout=PATIENCE, max=3 * TURN_MAX) == 3 * TURN_MAX
            assert {each: heard.count(each) for each in topics} == dict.fromkeys(topics, TURN_MAX)
            taken = 0
            while taken < 324 - 3 - 3 * TURN_MAX:
                taken += await client.process(topics, handle, timeout=PATIENCE)
            waiting = asyncio.create_task(client.process(topics, handle, timeout=PATIENCE))
            await asyncio.sleep(0.01)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            assert not any(client._session.core.subscriptions[each].waiting for each in topics)
            await client.put(topics[2], b"last")
            assert await client.process(topics, handle, timeout=PATIENCE) == 1
            with pytest.raises(CallerError, match="named twice"):
                await client.process([topic, topic], handle)

    asyncio.run(main())
