"""Members of a group, in both shells, at a real proxy and a real server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from pubsub import embedded
from pubsub.client import Client, Later, Message, Reject, Request, Transaction
from pubsub.client.errors import CallFailed, GroupDiffers, GroupEnded
from pubsub.embedded import Embedded
from pubsub.errors import NotSubscribed
from tests.client.opened import PATIENCE, create, kill, names, record, rows


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic{next(names)}"


def member(cluster: Embedded, topic: str, **values: object) -> Client:
    client = cluster.client(f"client{next(names)}")
    client.subscribe(topic, group="g", **values)  # type: ignore[arg-type]
    create(client, "taken")
    return client


def put(cluster: Embedded, topic: str, count: int) -> None:
    with cluster.client(f"client{next(names)}") as client:
        numbers = range(count)
        client.put_many(topic, [b"%d" % n for n in numbers], keys=[b"k%d" % (n % 7) for n in numbers])


def done(*clients: Client) -> list[int]:
    return sorted(int(body) for client in clients for _, body in rows(client, "select * from taken"))


@pytest.mark.parametrize("mode", ["shared", "keyed"])
def test_two_members_do_each_message_once(cluster: Embedded, topic: str, mode: str) -> None:
    with member(cluster, topic, mode=mode) as one, member(cluster, topic) as other:
        put(cluster, topic, 200)

        def work(client: Client) -> None:
            while client.process(topic, record, 1.0, group="g", concurrency=2):
                pass

        threads = [threading.Thread(target=work, args=(client,)) for client in (one, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert done(one, other) == list(range(200))


def test_outcomes_of_handlers_are_kept_by_the_group(cluster: Embedded, topic: str) -> None:
    with member(cluster, topic, attempts=2) as client:
        put(cluster, topic, 4)
        attempts: list[tuple[bytes, int]] = []

        def handler(message: Message, transaction: Transaction) -> None:
            attempts.append((message.body, message.attempts))
            record(message, transaction)
            if message.body == b"1" and message.attempts == 1:
                raise Later(0.05)
            if message.body == b"2":
                raise Reject("not for us")
            if message.body == b"3" and message.attempts == 1:
                raise ZeroDivisionError

        failures = 0
        while len(done(client)) < 3:
            try:
                client.process(topic, handler, PATIENCE, group="g")
            except ZeroDivisionError:
                failures += 1
        assert failures == 1
        assert done(client) == [0, 1, 3]
        assert sorted(attempts) == [(b"0", 1), (b"1", 1), (b"1", 2), (b"2", 1), (b"3", 1), (b"3", 2)]


def test_a_dead_letter_says_why_the_last_attempt_failed(cluster: Embedded, topic: str) -> None:
    def handler(message: Message, transaction: Transaction) -> None:
        raise ValueError(f"no such account,\nattempt {message.attempts}")

    with member(cluster, topic, attempts=2) as client:
        put(cluster, topic, 1)
        for _ in range(2):
            with pytest.raises(ValueError, match="no such account"):
                client.process(topic, handler, PATIENCE, group="g")
        while not (letters := client.group_dead_letters(topic, "g")):
            client.process(topic, handler, 0.1, group="g")
        reason = "attempts_used_up: ValueError: no such account, attempt 2"
        assert [(one.kind, one.reason, one.attempts) for one in letters] == [("dead", reason, 2)]


def test_a_killed_member_comes_back_with_what_it_did(cluster: Embedded, topic: str) -> None:
    client = member(cluster, topic)
    name = client.name
    put(cluster, topic, 50)
    taken = 0
    while taken < 30:
        taken += client.process(topic, record, PATIENCE, max=30 - taken, group="g")
    kill(client)
    with cluster.client(name) as again, member(cluster, topic) as other:
        while len(done(again, other)) < 50:
            again.process(topic, record, 0.1, group="g")
            other.process(topic, record, 0.1, group="g")
        assert done(again, other) == list(range(50))


def test_get_leave_end_and_differing_values(cluster: Embedded, topic: str) -> None:
    with member(cluster, topic, mode="keyed", parts=4) as one, member(cluster, topic) as other:
        with pytest.raises(GroupDiffers, match="keyed parts=4"):
            other.subscribe(topic, group="g", mode="shared")
        put(cluster, topic, 20)
        first = one.get(topic, PATIENCE, group="g")
        assert first is not None
        assert first.part in range(4)
        one.leave(topic, group="g")
        found = {first.body, *(message.body for message in other.messages(topic, 1.0, group="g"))}
        assert len(found) == 20
        one.end_group(topic, "g")
        with pytest.raises(GroupEnded):
            other.get(topic, PATIENCE, group="g")
        with pytest.raises(NotSubscribed):
            one.get(topic, group="g")


def test_awaiting_members(cluster: Embedded, topic: str) -> None:
    async def main() -> int:
        async with cluster.async_client(f"client{next(names)}") as client:
            await client.subscribe(topic, group="g")
            with client.transaction() as transaction:
                transaction.execute("create table taken (id, body)")
            await asyncio.to_thread(put, cluster, topic, 40)

            async def handler(message: Message, transaction: Transaction) -> None:
                await asyncio.sleep(0)
                record(message, transaction)

            taken = 0
            while taken < 40:
                taken += await client.process(topic, handler, PATIENCE, group="g", concurrency=8)
            with client.transaction() as transaction:
                return len(list(transaction.execute("select distinct body from taken")))

    assert asyncio.run(main()) == 40


def test_several_workers_serve_one_service(cluster: Embedded, topic: str) -> None:
    workers = [cluster.client(f"client{next(names)}") for _ in range(2)]
    both = threading.Barrier(2)
    served: dict[str, int] = {}

    def serve(client: Client) -> None:
        def handler(request: Request, transaction: Transaction) -> bytes:
            if request.body == b"bad":
                raise Reject("no such thing")
            if request.body in {b"0", b"1"}:
                both.wait(PATIENCE)
            return request.body * 2

        served[client.name] = client.serve(topic, handler, timeout=2.0, group=True)

    threads = [threading.Thread(target=serve, args=(client,)) for client in workers]
    for thread in threads:
        thread.start()
    with cluster.client(f"client{next(names)}") as caller:
        calls = [caller.request(topic, body, timeout=PATIENCE) for body in (b"0", b"1", b"2", b"bad")]
        replies = [caller.reply(call, timeout=PATIENCE).body for call in calls[:3]]
        with pytest.raises(CallFailed, match="no such thing"):
            caller.reply(calls[3], timeout=PATIENCE)
    for thread in threads:
        thread.join()
    assert replies == [b"00", b"11", b"22"]
    assert sum(served.values()) == 4
    assert min(served.values()) > 0


def test_an_awaiting_worker_serves_beside_others(cluster: Embedded, topic: str) -> None:
    async def main() -> tuple[list[bytes], int]:
        async with cluster.async_client(f"client{next(names)}") as worker:

            async def handler(request: Request, transaction: Transaction) -> bytes:
                await asyncio.sleep(0)
                return request.body + b"!"

            serving = asyncio.ensure_future(worker.serve(topic, handler, max=3, group=True, concurrency=3))
            async with cluster.async_client(f"client{next(names)}") as caller:
                found = await asyncio.gather(*[caller.call(topic, b"%d" % n, timeout=PATIENCE) for n in range(3)])
            return [reply.body for reply in found], await serving

    assert asyncio.run(main()) == ([b"0!", b"1!", b"2!"], 3)
