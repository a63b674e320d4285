"""A fork: the child's use of inherited objects raises at once, and the parent continues without harm."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pubsub import AsyncClient, Client, embedded
from pubsub.embedded import Embedded
from pubsub.errors import AfterFork, CallerError
from pubsub.messenger import Callback, Messenger, Request

_names = count(1)
SECONDS = 30.0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Embedded]:
    with embedded(tmp_path) as running:
        yield running


def in_child(work: Callable[[], None]) -> None:
    """Run `work` in a forked child; it must succeed, and soon."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(reader)
        try:
            work()
        except BaseException:  # noqa: BLE001
            os.write(writer, traceback.format_exc().encode()[-4000:])
            os._exit(1)
        gc.collect()
        os._exit(0)
    os.close(writer)
    deadline = time.monotonic() + SECONDS
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            pytest.fail("the child hangs")
        time.sleep(0.005)
    with os.fdopen(reader, "rb") as told:
        text = told.read().decode()
    assert ended[1] == 0, text


def refused(call: Callable[[], Any]) -> None:
    with pytest.raises(AfterFork, match=f"process {os.getppid()}"):
        call()


def test_every_call_of_a_client_raises_in_the_child(cluster: Embedded) -> None:
    with cluster.client("c") as client:
        client.subscribe("t")
        client.put_many("t", [b"one", b"two"])
        messages = client.messages("t", timeout=10.0)
        assert next(messages).body == b"one"
        publisher = client.publisher("t", linger=60.0)
        publisher.put(b"three")
        publisher.put(b"four")

        def work() -> None:
            for call in (
                lambda: client.put("t", b"x"),
                lambda: client.put("t", b"x", wait=False),
                lambda: client.put_many("t", [b"x"]),
                lambda: client.get("t", timeout=0),
                lambda: client.get_many("t"),
                lambda: next(messages),
                lambda: next(client.messages("t")),
                lambda: client.process("t", lambda message, transaction: None),
                lambda: client.subscribe("u"),
                lambda: client.unsubscribe("t"),
                client.flush,
                lambda: client.discard("t"),
                lambda: client.transaction().__enter__(),
                lambda: client.unfinished("t"),
                client.subscriptions,
                client.dead_letters,
                client.renew,
                lambda: publisher.put(b"x"),
                publisher.flush,
                lambda: client.publisher("t").put(b"x"),
            ):
                refused(call)
            publisher.close()
            client.close()

        in_child(work)
        publisher.close()
        assert next(messages).body == b"two"
        assert [message.body for message in client.messages("t", timeout=0.5)] == [b"three", b"four"]


@pytest.mark.slow
def test_the_parent_loses_nothing_after_use_in_a_child(cluster: Embedded) -> None:
    with cluster.client("c") as client, cluster.client("other") as other:
        other.subscribe("t")
        for number in range(20):

            def work() -> None:
                with suppress(AfterFork), client:
                    client.put("t", b"of the child")

            client.put("t", b"%d" % number)
            in_child(work)
        found: list[bytes] = []
        while len(found) < 20:
            batch = other.get_many("t", timeout=10.0)
            assert batch
            found += batch.bodies()
        assert found == [b"%d" % number for number in range(20)]
    with cluster.client("c") as client:  # The child neither removed the state nor kept it locked.
        client.put("t", b"after")


@pytest.mark.slow
def test_a_fork_during_calls_of_other_threads_does_no_harm(cluster: Embedded) -> None:
    from threading import Thread

    with cluster.client("c") as client:
        client.subscribe("t")
        stop = False

        def put() -> None:
            while not stop:
                client.put("t", b"x", wait=False)

        threads = [Thread(target=put) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(10):
                in_child(lambda: refused(lambda: client.put("t", b"x")))
        finally:
            stop = True
            for thread in threads:
                thread.join()
        client.flush()


def test_a_fork_while_threads_share_groups_does_no_harm(cluster: Embedded) -> None:
    """What waits in a group when the child is made is the parent's, which writes it once."""
    from threading import Thread

    with cluster.client("c") as client, cluster.client("reader") as reader:
        reader.subscribe("t")
        done: list[bytes] = []

        def put(name: int) -> None:
            for number in range(50):
                body = b"%d:%d" % (name, number)
                assert client.put("t", body).done
                done.append(body)

        threads = [Thread(target=put, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            in_child(lambda: refused(lambda: client.put("t", b"child")))
        for thread in threads:
            thread.join()
        got: list[bytes] = []
        while len(got) < 200:
            got += reader.get_many("t", timeout=SECONDS).bodies()
        assert sorted(got) == sorted(done)


def test_a_fork_inside_a_transaction_does_no_harm(cluster: Embedded) -> None:
    with cluster.client("c") as client:
        with client.transaction() as transaction:
            transaction.execute("create table seen (body)")

            def work() -> None:
                refused(lambda: transaction.execute("insert into seen values (1)"))
                refused(lambda: client.put("t", b"x", transaction=transaction))
                refused(lambda: client.get("t"))

            in_child(work)
            transaction.execute("insert into seen values (2)")
        with client.transaction() as transaction:
            assert list(transaction.execute("select * from seen")) == [(2,)]


PROGRAM = """
import logging, os, sys
logging.disable()
from pubsub import embedded

with embedded(sys.argv[1]) as cluster:
    client = cluster.client("c")
    client.put("t", b"before")
    publisher = client.publisher("t", linger=60.0)
    publisher.put(b"held")
    child = os.fork()
    if child:
        assert os.waitpid(child, 0)[1] == 0
        client.put("t", b"after")
        publisher.close()
        client.close()
        print("parent", client.path.exists())
"""


@pytest.mark.slow
def test_a_child_that_simply_ends_does_no_harm(tmp_path: Path) -> None:
    """The end of its interpreter leaves the blocks and collects everything that there is."""
    words = [sys.executable, "-W", "ignore", "-W", "error::ResourceWarning", "-c", PROGRAM, str(tmp_path)]
    for _ in range(3):
        ended = subprocess.run(words, capture_output=True, text=True, timeout=SECONDS, check=False)
        assert (ended.stdout, ended.stderr, ended.returncode) == ("parent True\n", "", 0)


def test_an_embedded_cluster_makes_no_client_in_the_child_and_keeps_its_directory(tmp_path: Path) -> None:
    with embedded() as cluster, cluster.client("c") as client:

        def work() -> None:
            refused(lambda: cluster.client("d"))
            refused(lambda: cluster.async_client("d"))
            cluster.close()
            with cluster:
                pass

        in_child(work)
        assert cluster.directory.exists()
        client.put("t", b"x")


def test_a_directory_is_free_when_the_parent_leaves_it_though_a_child_lives(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    with embedded(tmp_path) as cluster, cluster.client("c"):
        child = os.fork()
        if not child:
            os.close(writer)
            os.read(reader, 1)
            os._exit(0)
    try:
        with embedded(tmp_path) as cluster, cluster.client("c") as client:
            assert client.put("t", b"x").done
    finally:
        os.close(writer)
        os.close(reader)
        os.waitpid(child, 0)


def test_an_async_client_raises_in_the_child(cluster: Embedded) -> None:
    client = cluster.async_client("c")

    def work() -> None:
        async def main() -> None:
            for call in (
                client.put("t", b"x"),
                client.get("t"),
                client.subscribe("t"),
                client.process("t", lambda message, transaction: None),
                client.flush(),
            ):
                with pytest.raises(AfterFork):
                    await call
            await client.close()

        asyncio.run(main())

    in_child(work)
    asyncio.run(client.close())


def test_a_messenger_raises_in_the_child() -> None:
    with Messenger() as served, Messenger() as messenger:
        requests: list[Request] = []
        address = served.listen("tcp://127.0.0.1:0", requests.append)
        peer = messenger.connect(address)
        replies: list[Any] = []
        messenger.send(peer, b"x", lambda *reply: replies.append(reply))
        assert messenger.wait(lambda: bool(requests), messenger.clock.monotonic() + 10.0)

        def work() -> None:
            refused(lambda: requests[0].reply(b"of the child"))
            refused(lambda: messenger.hurry(peer))
            refused(lambda: messenger.send(peer, b"x"))
            refused(lambda: messenger.connect(address))
            refused(lambda: messenger.wait(lambda: False, messenger.clock.monotonic() + 1.0))
            refused(lambda: messenger.disconnect(peer))
            messenger.close()

        in_child(work)
        requests[0].reply(b"of the parent")
        assert messenger.wait(lambda: bool(replies), messenger.clock.monotonic() + 10.0)
        assert bytes(replies[0][1]) == b"of the parent"
        answers: list[Any] = []
        messenger.send(peer, b"x", lambda *answer: answers.append(answer), Callback.ECHO)
        assert messenger.wait(lambda: bool(answers), messenger.clock.monotonic() + 10.0)


def own_client(directory: str, address: str, name: str) -> None:
    """What a child is to do: open one of its own."""
    with Client(name, proxies=[address], directory=directory) as client:
        client.put("t", name.encode(), timeout=SECONDS)


def use(client: Client) -> None:
    client.put("t", b"x")


@pytest.fixture
def service(tmp_path: Path) -> Iterator[str]:
    """A cluster on tcp, as other processes need it."""
    from dataclasses import replace
    from socket import socket

    with socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    with embedded(tmp_path / "service", proxy=lambda settings: replace(settings, bind=address)):
        yield address


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children_of_multiprocessing_open_their_own_client(service: str, tmp_path: Path, method: str) -> None:
    context: Any = multiprocessing.get_context(method)
    with Client("parent", proxies=[service], directory=tmp_path) as client:
        client.subscribe("t")
        children = [
            context.Process(target=own_client, args=(str(tmp_path), service, f"child{number}")) for number in range(2)
        ]
        for child in children:
            child.start()
        for child in children:
            child.join(SECONDS)
            assert child.exitcode == 0
        found = sorted([client.get("t", timeout=SECONDS).body for _ in range(2)])  # type: ignore[union-attr]
        assert found == [b"child0", b"child1"]
        if method == "fork":
            inherits = context.Process(target=use, args=(client,))
            inherits.start()
            inherits.join(SECONDS)
            assert inherits.exitcode == 1  # AfterFork.
        else:
            with pytest.raises(CallerError, match="another process"):
                context.Process(target=use, args=(client,)).start()
        client.put("t", b"after")


def test_no_client_object_can_be_pickled(cluster: Embedded) -> None:
    async_client: AsyncClient = cluster.async_client("d")
    with cluster.client("c") as client, client.publisher("t") as publisher, Messenger() as messenger:
        for thing in (client, publisher, cluster, messenger, async_client):
            with pytest.raises(CallerError, match="another process"):
                pickle.dumps(thing)
    asyncio.run(async_client.close())


def test_the_child_gets_the_name_of_the_process_that_uses_the_client(cluster: Embedded) -> None:
    from pubsub.errors import StoreInUse

    with cluster.client("c"):

        def work() -> None:
            with pytest.raises(StoreInUse, match=f"process {os.getppid()}"):
                Client("c", directory=cluster.directory / "clients", proxies=["tcp://127.0.0.1:1"])

        in_child(work)
