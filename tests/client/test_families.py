"""Subscriptions to patterns of topics, with a proxy and a server on threads (docs/explanation/families.md)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import count

import pytest

from pubsub import Client, Message, Transaction
from pubsub.client.core import families
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, InvalidName, NotSubscribed, Unavailable
from tests.ports import free_port

_families = count(1)


@pytest.fixture
def family() -> str:
    """The first token of this test's topics."""
    return f"family{next(_families)}"


@pytest.fixture
def other(cluster: Embedded) -> Iterator[Client]:
    """A publisher."""
    with cluster.client(f"publisher{next(_families)}") as opened:
        yield opened


def take(client: Client, name: str, most: int) -> list[tuple[str, bytes]]:
    """Take this many messages: topic and body of each."""
    out: list[tuple[str, bytes]] = []
    for message in client.messages(name, timeout=20.0):
        out.append((message.topic, message.body))
        if len(out) == most:
            return out
    return out


def test_the_first_message_of_a_topic_that_begins_later_is_received(client: Client, other: Client, family: str) -> None:
    client.subscribe(f"{family}.>")
    other.put(f"{family}.eu", b"1")
    other.put(f"{family}.us.east", b"2")
    other.put(f"else.{family}", b"no")
    assert sorted(take(client, f"{family}.>", 2)) == [(f"{family}.eu", b"1"), (f"{family}.us.east", b"2")]
    other.put(f"{family}.eu", b"3")
    message = client.get(f"{family}.>", timeout=20.0)
    assert message is not None
    assert (message.topic, message.body) == (f"{family}.eu", b"3")
    assert client.get(f"{family}.>", timeout=0.1) is None


def test_a_client_that_was_away_finds_the_topics_that_began_meanwhile(cluster: Embedded, family: str) -> None:
    name = f"away{family}"
    with cluster.client(name) as client:
        client.subscribe(f"{family}.*")
    with cluster.client(f"p{family}") as other:
        for number in range(20):
            other.put(f"{family}.{number}", b"%d" % number)
    with cluster.client(name) as client:
        assert sorted(take(client, f"{family}.*", 20)) == sorted((f"{family}.{n}", b"%d" % n) for n in range(20))
    with cluster.client(name) as client:
        assert client.get(f"{family}.*", timeout=0.1) is None


def test_messages_from_before_the_pattern_are_not_received(cluster: Embedded, other: Client, family: str) -> None:
    other.put(f"{family}.a", b"before")
    skew = 1_000_000  # The test's servers allow for a skew; a start well after the message is beyond it.
    with cluster.client(f"late{family}") as client:
        client.subscribe(f"{family}.*")
        other.put(f"{family}.a", b"after")
        found = take(client, f"{family}.*", 1)
        assert found[0][1] in {b"before", b"after"}
        assert client._session.core.families.by_pattern[f"{family}.*"].stamp > skew


def test_process_takes_turns_among_the_topics_of_a_pattern(client: Client, other: Client, family: str) -> None:
    client.subscribe(f"{family}.>")
    for topic in ("a", "b"):
        other.put_many(f"{family}.{topic}", [b"%d" % n for n in range(15)])
    handled: list[tuple[str, bytes]] = []

    def handle(message: Message, transaction: Transaction) -> None:
        handled.append((message.topic, message.body))

    while len(handled) < 30:
        assert client.process(f"{family}.>", handle, timeout=20.0) > 0
    for topic in ("a", "b"):
        mine = [body for name, body in handled if name == f"{family}.{topic}"]
        assert mine == [b"%d" % n for n in range(15)]


def test_a_topic_that_begins_during_the_call_ends_the_wait(client: Client, other: Client, family: str) -> None:
    client.subscribe(f"{family}.*")
    assert len(client.get_many(f"{family}.*", timeout=0)) == 0
    ticket = other.put(f"{family}.new", b"x", wait=False)
    batch = client.get_many(f"{family}.*", timeout=20.0)
    assert [(message.topic, message.body) for message in batch] == [(f"{family}.new", b"x")]
    other.flush()
    assert ticket.done


def test_an_ended_pattern_brings_nothing_and_a_new_one_begins_anew(client: Client, other: Client, family: str) -> None:
    pattern = f"{family}.>"
    client.subscribe(pattern)
    other.put(f"{family}.a", b"1")
    assert take(client, pattern, 1) == [(f"{family}.a", b"1")]
    client.unsubscribe(pattern)
    with pytest.raises(NotSubscribed):
        client.get(pattern, timeout=0)
    with pytest.raises(NotSubscribed):
        client.get(f"{family}.a", timeout=0)
    client.subscribe(pattern)
    other.put(f"{family}.a", b"3")
    assert (f"{family}.a", b"3") in take(client, pattern, 1) + take(client, pattern, 1)


def test_a_topic_of_a_pattern_can_be_taken_from_by_its_name_but_not_ended(
    client: Client, other: Client, family: str
) -> None:
    client.subscribe(f"{family}.>")
    other.put(f"{family}.a", b"1")
    assert take(client, f"{family}.>", 1)
    other.put(f"{family}.a", b"2")
    message = client.get(f"{family}.a", timeout=20.0)
    assert message is not None
    assert message.body == b"2"
    for call in (client.unsubscribe, client.subscribe):
        with pytest.raises(CallerError, match=f"by its pattern {family}.>"):
            call(f"{family}.a")


def test_two_patterns_that_overlap_bring_a_topic_once(client: Client, other: Client, family: str) -> None:
    client.subscribe(f"{family}.*")
    client.subscribe(f"{family}.>")
    other.put(f"{family}.a", b"1")
    other.put(f"{family}.a.b", b"2")
    assert sorted(take(client, f"{family}.>", 2)) == [(f"{family}.a", b"1"), (f"{family}.a.b", b"2")]
    client.unsubscribe(f"{family}.>")
    other.put(f"{family}.a", b"3")
    other.put(f"{family}.a.b", b"4")
    assert take(client, f"{family}.*", 1) == [(f"{family}.a", b"3")]
    assert client.get(f"{family}.*", timeout=0.2) is None


def test_patterns_of_the_service_and_one_too_many_are_refused(client: Client, family: str) -> None:
    with pytest.raises(InvalidName):
        client.subscribe("$dead.*")
    with pytest.raises(InvalidName, match="last token"):
        client.subscribe("*.>.x")
    for number in range(16):
        client.subscribe(f"{family}.{number}.>")
    with pytest.raises(CallerError, match="16 patterns"):
        client.subscribe(f"{family}.more.>")


def test_a_pattern_that_was_never_subscribed_to_says_so(client: Client) -> None:
    for call in (client.get, client.unsubscribe):
        with pytest.raises(NotSubscribed):
            call("never.*")


def test_while_a_proxy_is_away_a_pattern_waits_and_names_it(cluster: Embedded, family: str) -> None:
    away = f"tcp://127.0.0.1:{free_port()}"
    client = cluster.client(f"half{family}", proxies=[*cluster.proxies, away], timeout=1.5)
    with client, pytest.raises(Unavailable, match="every proxy must confirm a pattern; no confirmation of " + away):
        client.subscribe(f"{family}.>")


async def _take_async(cluster: Embedded, family: str) -> list[tuple[str, bytes]]:
    async with cluster.async_client(f"async{family}") as client:
        await client.subscribe(f"{family}.>")
        await client.put(f"{family}.a", b"1")
        await client.put(f"{family}.b", b"2")
        out = []
        async for message in client.messages(f"{family}.>", timeout=20.0):
            out.append((message.topic, message.body))
            if len(out) == 2:
                break
        await client.put(f"{family}.c", b"3")

        async def handle(message: Message, transaction: Transaction) -> None:
            out.append((message.topic, message.body))

        await client.process(f"{family}.>", handle, timeout=20.0)
        await client.unsubscribe(f"{family}.>")
        return out


def test_the_asyncio_client_does_the_same(cluster: Embedded, family: str) -> None:
    found = asyncio.run(_take_async(cluster, family))
    assert sorted(found) == [(f"{family}.a", b"1"), (f"{family}.b", b"2"), (f"{family}.c", b"3")]


def test_a_fresh_subscription_drops_what_waits(client: Client, other: Client, family: str) -> None:
    pattern = f"{family}.>"
    client.subscribe(pattern)
    other.put(f"{family}.a", b"1")
    assert take(client, pattern, 1) == [(f"{family}.a", b"1")]
    client.subscribe(pattern, fresh=True)
    other.put(f"{family}.a", b"2")
    assert (f"{family}.a", b"2") in take(client, pattern, 1) + take(client, pattern, 1)


def test_a_pattern_may_begin_at_the_earliest_message_and_not_at_a_place_in_one_topic(
    client: Client, other: Client, family: str
) -> None:
    other.put(f"{family}.a", b"before")
    with pytest.raises(CallerError, match="not at a place in one topic"):
        client.subscribe(f"{family}.*", start="last:3")
    client.subscribe(f"{family}.*", start="earliest")
    assert take(client, f"{family}.*", 1) == [(f"{family}.a", b"before")]


def test_the_log_warns_before_a_pattern_brings_too_many_topics_and_when_it_does(
    cluster: Embedded, family: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(families, "PATTERN_TOPICS_MAX", 10)

    def said(part: str) -> list[str]:
        return [record.message for record in caplog.records if part in record.message]

    with cluster.client(f"crowded{family}") as crowded:
        crowded.subscribe(f"{family}.>")
        seen = []
        for number in range(10):
            crowded.put(f"{family}.{number}", b"%d" % number)
            assert take(crowded, f"{family}.>", 1) == [(f"{family}.{number}", b"%d" % number)]
            seen.append(len(said("patterns have brought 9 topics; beyond 10 it joins no more")))
        assert seen == [0] * 8 + [1, 1]
        assert said("than it may join") == []
        crowded.put(f"{family}.10", b"10")
        until = time.monotonic() + 30
        while not said("than it may join") and time.monotonic() < until:
            crowded.get(f"{family}.>", timeout=0.1)
        assert len(said(f"client crowded{family}: {family}.> matches more topics than it may join, 10 for all")) == 1
        crowded.unsubscribe(f"{family}.>")
