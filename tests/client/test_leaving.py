"""Clients, publishers and clusters that the application does not close: a warning, a free state, and no lost put."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from pubsub import embedded
from pubsub.base.database import lock_directory
from pubsub.client import AsyncClient, Client, Publisher
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, StoreFull, StoreInUse

_names = count(1)


@pytest.fixture
def topic() -> str:
    return f"topic{next(_names)}"


@pytest.fixture
def name() -> str:
    return f"client{next(_names)}"


def test_a_garbage_collected_client_warns_and_frees_its_state(cluster: Embedded, name: str) -> None:
    client = cluster.client(name)
    client.put("t", b"x")
    with pytest.warns(ResourceWarning, match=f"client {name} was not closed"):
        del client
    cluster.client(name).close()


def test_a_garbage_collected_async_client_warns_and_frees_its_state(cluster: Embedded, name: str) -> None:
    async def main() -> None:
        client = cluster.async_client(name)
        await client.put("t", b"x")
        with pytest.warns(ResourceWarning, match=f"client {name} was not closed"):
            del client
        async with cluster.async_client(name) as again:
            await again.put("t", b"x")

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_client_in_a_circle_is_closed_by_the_garbage_collection_wherever_that_runs(
    cluster: Embedded, name: str
) -> None:
    """The collection may run within a callback of the client, on the thread that drives its sockets."""
    client = cluster.client(name)
    session = client._session
    circle = [client]
    circle.append(circle)  # type: ignore[arg-type]
    gc.disable()
    try:
        done = threading.Event()

        def look() -> None:
            gc.collect()
            done.set()

        session.watchers.append(look)
        del client, circle
        with session.lock:
            session._next = 0.0
        session.wake()
        assert done.wait(10.0)
        for thread in threading.enumerate():
            if thread.name == f"close {name}":
                thread.join(10.0)
    finally:
        gc.enable()
    cluster.client(name).close()


def test_a_closed_client_causes_no_warning(cluster: Embedded, name: str, topic: str) -> None:
    import warnings

    with warnings.catch_warnings(record=True) as caught:  # As an error, a warning of a finalizer would reach no test.
        warnings.simplefilter("always")
        client = cluster.client(name)
        publisher = client.publisher(topic)
        publisher.put(b"x")
        publisher.close()
        client.close()
        del publisher, client
        gc.collect()
    assert [str(one.message) for one in caught if "was not closed" in str(one.message)] == []


def test_the_open_batch_of_a_garbage_collected_publisher_is_put_with_a_warning(
    cluster: Embedded, name: str, topic: str
) -> None:
    with cluster.client(name) as client:
        client.subscribe(topic)
        timers = list(client._session.timers)
        publisher = client.publisher(topic, linger=60.0)
        for number in range(5):
            publisher.put(b"%d" % number)
        with pytest.warns(ResourceWarning, match="the 5 messages in its open batch are put now"):
            del publisher
        found = [message.body for message in client.messages(topic, timeout=1.0)]
        assert found == [b"0", b"1", b"2", b"3", b"4"]
        assert client._session.timers == timers, "the publisher's own is gone"


def test_the_warning_about_one_open_message_is_in_the_singular(
    cluster: Embedded, name: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster.client(name) as client:
        with pytest.warns(ResourceWarning, match="; the message in its open batch is put now"):
            client.publisher(topic, linger=60.0).put(b"x")
        publisher = client.publisher(topic, linger=60.0)
        publisher.put(b"y")
    assert "the message in its open batch went to the outbox" in caplog.text


def test_the_open_batch_of_a_publisher_is_kept_at_the_clients_close_and_reported(
    cluster: Embedded, name: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with cluster.client("reader" + name) as reader:
        reader.subscribe(topic)
        client = cluster.client(name)
        publisher = client.publisher(topic, linger=60.0)
        publisher.put(b"one")
        publisher.put(b"two")
        client.close()
        text = (
            f"client {name}: a publisher on {topic} was not closed; the 2 messages in its open batch went to the outbox"
        )
        assert text in caplog.text
        with pytest.raises(CallerError, match="closed"):
            publisher.put(b"three")
        with cluster.client(name) as again:
            again.flush()
        assert [message.body for message in reader.messages(topic, timeout=1.0)] == [b"one", b"two"]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_open_batch_is_kept_if_client_and_publisher_are_collected_together(
    cluster: Embedded, name: str, topic: str
) -> None:
    with cluster.client("reader" + name) as reader:
        reader.subscribe(topic)
        client = cluster.client(name)
        publisher = client.publisher(topic, linger=60.0)
        publisher.put(b"one")
        circle: list[object] = [client, publisher]
        circle.append(circle)
        del client, publisher, circle
        gc.collect()
        with cluster.client(name) as again:
            again.flush()
        assert [message.body for message in reader.messages(topic, timeout=1.0)] == [b"one"]


def test_an_abandoned_batch_is_put_once_whichever_thread_puts_it(
    cluster: Embedded, name: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client("reader" + name) as reader, cluster.client(name) as client:
        reader.subscribe(topic)
        session, arrived = client._session, threading.Semaphore(0)
        enter = session.enter

        def counted() -> None:
            arrived.release()
            enter()

        publisher = client.publisher(topic, linger=60.0)
        publisher.put(b"one")
        left = publisher._lingering
        monkeypatch.setattr(session, "enter", counted)
        comers = [threading.Thread(target=left.finish), threading.Thread(target=left.tick, args=(0.0,))]
        with session.lock:
            del publisher
            gc.collect()
            for comer in comers:
                comer.start()
            for _ in comers:  # Both have seen that there is something to put.
                assert arrived.acquire(timeout=30)
        for comer in comers:
            comer.join()
        client.flush()
        assert [message.body for message in reader.messages(topic, timeout=1.0)] == [b"one"]


def test_a_publisher_keeps_its_client_alive(cluster: Embedded, name: str, topic: str) -> None:
    publisher = cluster.client(name).publisher(topic)
    gc.collect()
    publisher.put(b"x")
    publisher.flush()
    publisher._run.__self__.close()  # type: ignore[attr-defined]


def test_an_iteration_keeps_its_client_alive(cluster: Embedded, name: str, topic: str) -> None:
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
    messages = cluster.client(name).messages(topic, timeout=10.0)
    gc.collect()
    assert next(messages).body == b"x"
    with pytest.warns(ResourceWarning):
        del messages


def test_a_second_client_in_the_same_process_is_refused(cluster: Embedded, name: str) -> None:
    with cluster.client(name), pytest.raises(StoreInUse, match="this very process") as told:
        cluster.client(name)
    assert told.value.exit_code == 9


def test_a_second_cluster_in_the_same_process_is_refused(tmp_path: Path) -> None:
    with embedded(tmp_path), pytest.raises(StoreInUse):
        embedded(tmp_path)
    with embedded(tmp_path), pytest.raises(StoreInUse, match="this very process"):
        lock_directory(tmp_path / "server")


def test_a_cluster_that_is_collected_says_so_and_ends() -> None:
    cluster = embedded()
    directory = cluster.directory
    with pytest.warns(ResourceWarning, match="was not closed"):
        del cluster
    assert not directory.exists()


def test_a_cluster_ends_the_clients_that_are_open() -> None:
    with embedded() as cluster:
        client = cluster.client("c")
        client.put("t", b"x")
        async_client = cluster.async_client("d")
    for opened in (client, async_client):
        assert opened._session.closed  # type: ignore[attr-defined]
    with pytest.raises(CallerError, match="closed"):
        client.put("t", b"x")
    with pytest.raises(CallerError, match="closed"):
        cluster.client("e")
    cluster.close()


PROGRAM = """
import sys
from pubsub import embedded

with embedded(sys.argv[1]) as cluster:
    proxies = cluster.proxies
    reader = cluster.client("reader")
    reader.subscribe("t")
    reader.close()
from pubsub import Client
client = Client("c", proxies=["tcp://127.0.0.1:1"], directory=sys.argv[1] + "/clients")
publisher = client.publisher("t", linger=60.0)
publisher.put(b"one")
publisher.put(b"two")
"""


@pytest.mark.parametrize("warnings", ["default::ResourceWarning", "error"])
def test_the_open_batch_of_a_publisher_is_kept_at_the_end_of_the_program(tmp_path: Path, warnings: str) -> None:
    words = [sys.executable, "-W", warnings, "-c", PROGRAM, str(tmp_path)]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60.0, check=False)
    assert ended.returncode == 0
    if warnings != "error":
        assert "client c was not closed" in ended.stderr
    assert "the 2 messages in its open batch went to the outbox just now" in ended.stderr
    assert "Traceback" not in ended.stderr
    with embedded(tmp_path) as cluster, cluster.client("reader") as reader:
        with cluster.client("c") as client:
            assert client.unfinished("t") == 2
            client.flush()
        assert [message.body for message in reader.messages("t", timeout=1.0)] == [b"one", b"two"]


def test_a_client_that_could_not_be_opened_leaves_nothing_to_close(tmp_path: Path) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CallerError):
            Client("not a name", directory=tmp_path)
        gc.collect()


def test_every_put_that_returned_is_kept_though_the_client_is_closed_at_that_moment(
    cluster: Embedded, name: str, topic: str
) -> None:
    with cluster.client("reader" + name) as reader:
        reader.subscribe(topic)
        for turn in range(5):
            client = cluster.client(name)
            publisher = client.publisher(topic, linger=60.0, records=50)
            put: list[bytes] = []
            told: list[bytes] = []  # A put that waits for room when the client is closed is in its batch by then.

            def work(
                number: int,
                put: list[bytes] = put,
                told: list[bytes] = told,
                publisher: Publisher = publisher,
                turn: int = turn,
            ) -> None:
                for count_ in range(1_000_000):
                    body = b"%d %d %d" % (turn, number, count_)
                    try:
                        publisher.put(body)
                    except CallerError:
                        told.append(body)
                        return
                    put.append(body)

            threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
            for thread in threads:
                thread.start()
            while len(put) < 500:
                threads[0].join(0.001)
            (publisher if turn % 2 else client).close()
            for thread in threads:
                thread.join()
            client.close()
            with cluster.client(name) as again:
                again.flush()
            found: list[bytes] = []
            while not set(put) <= set(found) and (batch := reader.get_many(topic, timeout=5.0)):
                found += [body for body in batch.bodies() if body.startswith(b"%d " % turn)]
            assert len(found) == len(set(found))
            assert set(put) <= set(found) <= {*put, *told}


def test_a_flush_waits_for_earlier_puts_only(cluster: Embedded, name: str, topic: str) -> None:
    with cluster.client(name) as client, client.publisher(topic, records=50) as publisher:
        stop = False

        def put() -> None:
            while not stop:
                publisher.put(b"x")

        thread = threading.Thread(target=put)
        thread.start()
        try:
            for flush in (publisher.flush, client.flush):
                ticket = publisher.put(b"mine")
                publisher.close_batch()
                flush(timeout=20.0)
                assert ticket.done
        finally:
            stop = True
            thread.join()


@pytest.mark.parametrize("awaited", [False, True])
def test_a_client_closes_though_the_disk_refuses_the_return_of_its_messages(
    cluster: Embedded, name: str, topic: str, monkeypatch: pytest.MonkeyPatch, awaited: bool
) -> None:
    def refuse(*changes: object, **how: object) -> None:
        raise StoreFull("c.db", "no space left, says the test")

    client = cluster.async_client(name) if awaited else cluster.client(name)
    with cluster.client(f"{name}b") as writer, monkeypatch.context() as patch:
        if isinstance(client, AsyncClient):
            asyncio.run(client.subscribe(topic))
        else:
            client.subscribe(topic)
        writer.put_many(topic, [b"a", b"b"])
        session, gets = client._session, client._calls.gets
        flow = gets.get_chunk(topic, 10.0)
        with suppress(StopIteration):
            wait = next(flow)
            while True:
                wait = flow.send(session.wait(wait.done, wait.deadline))
        patch.setattr(session.store, "commit", refuse)
        with pytest.raises(StoreFull):
            asyncio.run(client.close()) if isinstance(client, AsyncClient) else client.close()
    assert session.released
    cluster.client(name).close()  # Its state is free.
