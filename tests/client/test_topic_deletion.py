"""Deletion of topics by a client, at a real proxy and a real server (docs/explanation/deletion.md, UD6 and UD7)."""

from __future__ import annotations

import asyncio

import pytest

from pubsub.client import Client, TopicDeleted
from pubsub.client.core.loss_reports import DELETED, DELETED_AFTER_ALL
from pubsub.client.topic_deletion import TopicHasSubscribers
from pubsub.embedded import Embedded
from pubsub.errors import DataLoss, NotKnown
from tests.client.opened import names
from tests.faults.cluster import until


def test_a_deleted_topic_is_gone_with_its_messages_and_settings_and_begins_anew(client: Client, topic: str) -> None:
    client.create_topic(topic, keep="ever")
    client.put(topic, b"old")
    assert client.delete_topic(topic) == TopicDeleted(topic, 1, 0)
    with pytest.raises(NotKnown):
        client.purge_topic(topic)
    client.put(topic, b"new")
    assert client.settings_of(topic).keep == "none"
    assert [message.body for message in client.read(topic, start="earliest")] == [b"new"]


def test_a_repeat_of_a_deletion_is_no_error_and_deletes_nothing(client: Client, topic: str) -> None:
    client.put(topic, b"old")
    client.delete_topic(topic)
    assert client.delete_topic(topic) == TopicDeleted(topic, None, None)
    with pytest.raises(NotKnown, match="pubsub topic list lists the topics"):
        client.delete_topic(f"{topic}never")


def test_a_topic_with_subscribers_is_deleted_only_by_force_and_they_are_told(
    client: Client, cluster: Embedded, topic: str
) -> None:
    client.subscribe(topic)
    client.put_many(topic, [b"old", b"lost", b"lost"])
    with pytest.raises(TopicHasSubscribers) as refused:
        client.delete_topic(topic)
    assert refused.value.subscribers == 1
    assert client.delete_topic(topic, force=True) == TopicDeleted(topic, 3, 1)
    with pytest.raises(DataLoss) as loss:
        client.get(topic)
    log, _, first = loss.value.first.partition(".")
    assert (first, loss.value.last, loss.value.reason) == ("1", f"{log}.3", DELETED)
    assert len(client.dead_letters(topic)) == 1
    client.put(topic, b"new")
    message = client.get(topic)
    assert message is not None
    assert message.body == b"new"


def test_a_subscriber_that_received_everything_is_told_of_the_deletion_without_a_loss(
    client: Client, topic: str
) -> None:
    client.subscribe(topic)
    for round_ in range(2):  # At first the topic has had no message.
        client.delete_topic(topic, force=True)
        with pytest.raises(DataLoss) as told:
            client.get(topic)
        assert (told.value.first, told.value.last, told.value.reason) == ("", "", DELETED_AFTER_ALL), round_
        client.put(topic, b"new")
        message = client.get(topic)
        assert message is not None
    assert client.dead_letters(topic) == []


def test_an_asynchronous_subscriber_that_received_everything_is_told_without_a_loss(
    cluster: Embedded, topic: str
) -> None:
    async def run() -> None:
        async with cluster.async_client(f"a{next(names)}") as client:
            await client.subscribe(topic)
            await client.put(topic, b"x")
            assert await client.get(topic) is not None
            await client.delete_topic(topic, force=True)
            with pytest.raises(DataLoss, match="no message is known that this client had not received") as told:
                await client.get(topic)
            assert told.value.first == ""

    asyncio.run(run())


def test_a_subscriber_of_a_pattern_is_told_and_gets_the_topic_that_begins_anew(client: Client, topic: str) -> None:
    family = f"{topic}.*"
    client.subscribe(family)
    client.put(f"{topic}.a", b"old")
    assert client.get(family) is not None
    client.delete_topic(f"{topic}.a", force=True)
    with pytest.raises(DataLoss) as loss:
        client.get(family, timeout=10)
    assert (loss.value.first, loss.value.reason) == ("", DELETED_AFTER_ALL)
    assert f"{topic}.a" not in {name for name, sub in client._session.core.subscriptions.items() if sub.intent.on}
    client.put(f"{topic}.a", b"new")
    message = client.get(family, timeout=10)
    assert message is not None
    assert message.body == b"new"


def test_delayed_messages_go_with_the_topic(client: Client, topic: str) -> None:
    client.create_topic(topic, keep="ever")
    client.put(topic, b"later", delay=0.2)
    client.delete_topic(topic)
    client.put(topic, b"due", delay=0.3)
    client.put(topic, b"new")
    client.subscribe(topic, start="earliest")
    assert [message.body for message in (client.get(topic), client.get(topic, timeout=10)) if message] == [
        b"new",
        b"due",
    ]


def test_a_publisher_that_wrote_before_the_deletion_goes_on(client: Client, cluster: Embedded, topic: str) -> None:
    with cluster.client(f"p{next(names)}") as other:
        for n in range(3):
            other.put(topic, str(n).encode())
        client.delete_topic(topic)
        for n in range(3, 6):
            other.put(topic, str(n).encode())
        client.subscribe(topic, start="earliest")
        assert [client.get(topic).body for _ in range(3)] == [b"3", b"4", b"5"]  # type: ignore[union-attr]


def test_an_asynchronous_client_deletes(cluster: Embedded, topic: str) -> None:
    async def run() -> None:
        async with cluster.async_client(f"a{next(names)}") as client:
            await client.put(topic, b"x")
            assert await client.delete_topic(topic) == TopicDeleted(topic, 1, 0)

    asyncio.run(run())


def test_topics_are_listed_with_their_figures(client: Client, cluster: Embedded, topic: str) -> None:
    client.create_topic(topic, keep="ever")
    client.subscribe(topic)
    client.put(topic, b"x")
    (facts,) = [one for one in client.topics() if one.topic == topic]
    assert (facts.records, facts.subscribers, facts.keep, facts.drop, len(facts.servers)) == (1, 1, "ever", "never", 1)
    assert (facts.bytes or 0) > 0
    client.delete_topic(topic, force=True)
    until(lambda: topic not in {one.topic for one in client.topics()}, "it is not listed")

    async def run() -> None:
        async with cluster.async_client(f"a{next(names)}") as other:
            await other.put(topic, b"y")
            assert topic in {one.topic for one in await other.topics()}

    asyncio.run(run())
