"""Operators' calls about consumer groups, at a real proxy and a real server (docs/how-to/share-work.md)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pubsub.client import Client, Reject
from pubsub.client.errors import GroupInDoubt
from pubsub.embedded import Embedded, embedded
from pubsub.errors import CallerError, InvalidName, NotKnown, NotNow, NotSubscribed
from tests.client.opened import names
from tests.client.silent_members import claims
from tests.faults.cluster import until


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    directory: Path = tmp_path_factory.mktemp("cluster")
    with embedded(directory, server=lambda settings: replace(settings, member_liveness_seconds=1.0)) as running:
        yield running


def make(client: Client, topic: str, *bodies: bytes, **values: object) -> None:
    client.subscribe(topic, group="g", **values)  # type: ignore[arg-type]
    for body in bodies:
        client.put(topic, body)


def reject(client: Client, topic: str, number: int) -> None:
    def handle(message: object, transaction: object) -> None:
        raise Reject("no such customer")

    taken = 0
    while taken < number:
        taken += client.process(topic, handle, 5.0, number - taken, group="g")
    until(lambda: len(client.group_dead_letters(topic, "g")) == number, "they are dead letters")


def test_groups_are_listed_with_their_values_and_figures(client: Client, topic: str) -> None:
    make(client, topic, b"a", b"b", mode="keyed", parts=8, attempts=3, on_lost="redeliver", lost_seconds=30)
    client.subscribe(topic, group="another")
    first, second = client.groups(topic)
    assert (first.name, first.mode, first.parts, first.waiting) == ("another", "shared", 0, 0)
    assert (second.topic, second.name, second.mode, second.parts) == (topic, "g", "keyed", 8)
    assert (second.on_lost, second.lost_seconds, second.attempts, second.waiting) == ("redeliver", 30.0, 3, 2)
    assert str(second) == "keyed in 8 parts, on_lost=redeliver, lost_seconds=30, 3 attempts"
    assert str(first) == "shared, on_lost=wait, lost_seconds=600, 5 attempts"


def test_the_groups_of_all_topics_are_listed(client: Client, topic: str) -> None:
    make(client, topic, b"a")
    client.put(f"{topic}.none", b"x")
    until(lambda: [one for one in client.groups() if one.topic == topic], "the report has it")
    assert [(one.name, one.waiting) for one in client.groups() if one.topic.startswith(topic)] == [("g", 1)]


def test_a_name_that_does_not_exist_is_answered_with_the_closest_ones(client: Client, topic: str) -> None:
    with pytest.raises(NotKnown, match=f"topic {topic} does not exist"):
        client.groups(topic)
    client.put(topic, b"x")
    with pytest.raises(NotKnown, match=f"topic {topic} has no group billing; it has none; pubsub client ID subscribe"):
        client.redrive_group(topic, "billing")
    client.subscribe(topic, group="billing")
    with pytest.raises(NotKnown, match="did you mean billing"):
        client.redrive_group(topic, "biling")
    with pytest.raises(NotKnown, match="there are: billing"):
        client.redrive_group(topic, "zzz")
    with pytest.raises(NotKnown, match="has no group zzz"):
        client.group_members(topic, "zzz")
    with pytest.raises(NotKnown, match="has no member w9"):
        client.release_member(topic, "billing", "w9")
    with pytest.raises(InvalidName):
        client.group_members(topic, "a b")


def test_a_release_hands_the_claims_of_a_silent_member_to_others_with_the_mark(client: Client, topic: str) -> None:
    make(client, topic, b"a", b"b")
    assert claims(client, topic, "g", "ghost") == 2
    (found,) = client.groups(topic)
    assert (found.in_doubt, found.in_doubt_members, found.waiting) == (2, 1, 0)
    (member,) = [one for one in client.group_members(topic, "g") if one.client == "ghost"]
    assert (member.heard, member.claimed, member.in_doubt, len(member.ranges)) == (False, 2, 2, 1)
    with pytest.raises(NotKnown, match="did you mean ghost"):
        client.release_member(topic, "g", "gost")
    with pytest.raises(NotKnown, match=f"has no member ghost/{'0' * 16}; its stores: {member.store}"):
        client.release_member(topic, "g", "ghost", store="0" * 16)
    assert client.release_member(topic, "g", "ghost") == 2
    seen: list[tuple[bytes, bool]] = []
    while len(seen) < 2:
        client.process(topic, lambda message, _: seen.append((message.body, message.doubtful)), 5.0, 2, group="g")
    assert sorted(seen) == [(b"a", True), (b"b", True)]
    assert client.release_member(topic, "g", "ghost", lost_disk=True) == 0
    assert [one for one in client.group_members(topic, "g") if one.client == "ghost"] == []


def test_a_member_that_is_heard_is_released_only_by_force(client: Client, topic: str) -> None:
    make(client, topic, b"a")

    def handle(message: object, transaction: object) -> None:
        with pytest.raises(NotNow, match=f"member {client.name} of group g is heard, so nothing of it is released"):
            operator.release_member(topic, "g", client.name)
        operator.release_member(topic, "g", client.name, force=True)

    with Client(f"o{next(names)}", settings=client.settings, context=client._session.context) as operator:
        client.process(topic, handle, 5.0, 1, group="g", claim="before")


def test_dead_letters_are_listed_redriven_and_dropped(client: Client, topic: str) -> None:
    make(client, topic, b"a", b"b", b"c")
    reject(client, topic, 3)
    first, second, third = client.group_dead_letters(topic, "g")
    assert (first.reason, first.kind, first.attempts) == ("no such customer", "dead", 1)
    assert first.publisher == client.publisher_id
    with pytest.raises(CallerError, match="is no ID of a dead letter"):
        client.redrive_group(topic, "g", ["7"])
    with pytest.raises(NotKnown, match="has no dead letter 0123456789abcdef"):
        client.redrive_group(topic, "g", ["0123456789abcdef.7"])
    assert client.redrive_group(topic, "g", []) == 0
    assert client.redrive_group(topic, "g", [second.id]) == 1
    seen = []
    client.process(topic, lambda message, _: seen.append(message.body), 5.0, 1, group="g")
    assert seen == [b"b"]
    assert client.drop_group_letters(topic, "g", [first.id]) == 1
    until(lambda: [one.id for one in client.group_dead_letters(topic, "g")] == [third.id], "one is left")
    assert client.drop_group_letters(topic, "g") == 1
    assert client.redrive_group(topic, "g") == 0


def test_values_are_changed_and_a_wrong_one_is_refused(client: Client, topic: str) -> None:
    make(client, topic)
    changed = client.change_group(topic, "g", on_lost="redeliver", lost_seconds=5, attempts=2)
    assert (changed.on_lost, changed.lost_seconds, changed.attempts, changed.mode) == ("redeliver", 5.0, 2, "shared")
    assert client.change_group(topic, "g", mode="keyed", parts=4).parts == 4
    for wrong in ({}, {"on_lost": "never"}, {"lost_seconds": 0.5}, {"attempts": 0}, {"parts": 4}, {"mode": "any"}):
        with pytest.raises(CallerError):
            client.change_group(topic, "g", **wrong)  # type: ignore[arg-type]


def test_a_group_with_dead_letters_does_not_become_keyed(client: Client, topic: str) -> None:
    make(client, topic, b"a")
    reject(client, topic, 1)
    with pytest.raises(NotNow, match="so its mode stays"):
        client.change_group(topic, "g", mode="keyed", parts=4)


def test_a_group_with_messages_in_doubt_ends_only_by_force(client: Client, topic: str) -> None:
    make(client, topic, b"a")
    assert claims(client, topic, "g", "ghost") == 1
    with pytest.raises(GroupInDoubt) as refused:
        client.end_group(topic, "g")
    assert (refused.value.records, refused.value.members) == (1, ("ghost",))
    client.end_group(topic, "g", force=True)
    assert client.groups(topic) == []
    with pytest.raises(NotSubscribed):
        client.process(topic, lambda message, _: None, 1.0, group="g")


def test_a_group_that_is_not_suspended_is_resumed_without_a_change(client: Client, topic: str) -> None:
    make(client, topic, b"a")
    assert client.resume_group(topic, "g", skip=True) == 0
    assert client.groups(topic)[0].waiting == 1


def test_an_asynchronous_client_does_the_same(cluster: Embedded, topic: str) -> None:
    async def run() -> None:
        async with cluster.async_client(f"a{next(names)}") as client:
            await client.subscribe(topic, group="g")
            await client.put(topic, b"x")
            assert [one.waiting for one in await client.groups(topic)] == [1]
            assert await client.group_members(topic, "g") == []
            assert await client.group_dead_letters(topic, "g") == []
            assert (await client.change_group(topic, "g", attempts=7)).attempts == 7
            assert await client.redrive_group(topic, "g") == 0
            assert await client.drop_group_letters(topic, "g") == 0
            assert await client.resume_group(topic, "g", skip=False) == 0
            with pytest.raises(NotKnown):
                await client.release_member(topic, "g", "nobody")

    asyncio.run(run())
