"""A client with an interrupted step continues with its next call, from the state on disk.

The rule is docs/explanation/client-session.md, D10.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pubsub.client import Client, Message, Transaction
from pubsub.client.core.changes import RowAdded
from pubsub.client.flows.awaiting import HandlerTransaction
from pubsub.client.flows.processing import Processing
from pubsub.client.session import Session
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, Interrupted, StorageError
from tests.client.opened import PATIENCE, bodies, names, nothing


class Struck(BaseException):
    """The exception of the signal handler."""


def strike_commit(session: Session, *, committed: bool) -> None:
    """Interrupt the next commit of a put, before or after it."""
    commit = session.store.commit

    def was_interrupted(changes: Any, **named: Any) -> bool:
        if any(isinstance(change, RowAdded) for change in changes):
            session.store.commit = commit  # type: ignore[method-assign]
            if committed:
                commit(changes, **named)
            raise Struck
        return commit(changes, **named)

    session.store.commit = was_interrupted  # type: ignore[method-assign]


def cut_off(client: Client, topic: str, *, committed: bool = False) -> None:
    """Interrupt a put of the client in its commit."""
    strike_commit(client._held.calls.session, committed=committed)
    with pytest.raises(Struck):
        client.put(topic, b"struck", wait=False)


@pytest.fixture
def name() -> str:
    return f"reopening{next(names)}"


@pytest.fixture
def topic() -> str:
    return f"topic{next(names)}"


@pytest.mark.parametrize("committed", [False, True])
def test_every_kind_of_call_continues(cluster: Embedded, name: str, topic: str, committed: bool) -> None:
    calls: list[Callable[[Client], object]] = [
        lambda client: client.put(topic, b"x"),
        lambda client: client.put_many(topic, [b"x"], wait=False),
        lambda client: client.put(topic, b"x", wait=False),
        lambda client: client.get(topic, timeout=0.0),
        lambda client: client.subscribe(topic),
        lambda client: client.process(topic, lambda *_: None, timeout=0.0),
        lambda client: client.flush(),
        lambda client: client.subscriptions(),
        lambda client: client.dead_letters(),
        lambda client: client.unfinished(topic),
        lambda client: client.discard(topic),
        lambda client: next(client.messages(topic, timeout=0.0), None),
        lambda client: client.publisher(topic).close(),
    ]
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put(topic, b"first")
        for call in calls:
            cut_off(client, topic, committed=committed)
            call(client)
        cut_off(client, topic, committed=committed)
        with client.transaction() as transaction:
            client.put(topic, b"within", transaction=transaction)
        client.flush()


@pytest.mark.parametrize("committed", [False, True])
def test_an_interrupted_put_is_sent_once_if_it_was_committed(
    cluster: Embedded, name: str, topic: str, committed: bool
) -> None:
    with cluster.client(f"{name}r") as reader, cluster.client(name) as client:
        reader.subscribe(topic)
        before = client.put(topic, b"before", wait=False)
        cut_off(client, topic, committed=committed)
        assert client.put(topic, b"after").done
        assert before.done
        expected = [b"before", *([b"struck"] if committed else []), b"after"]
        assert bodies(reader, topic, len(expected)) == expected
        assert nothing(reader, topic)


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("closes", [False, True])
def test_a_publisher_continues_with_its_open_batch(
    cluster: Embedded, name: str, topic: str, committed: bool, closes: bool
) -> None:
    """The interrupted batch keeps its messages; later puts are in the next one."""
    with cluster.client(f"{name}r") as reader:
        reader.subscribe(topic)
        client = cluster.client(name)
        publisher = client.publisher(topic, linger=60.0)
        tickets = [publisher.put(b"one"), publisher.put(b"two")]
        strike_commit(client._session, committed=committed)
        with pytest.raises(Struck):
            publisher.flush()
        expected = [b"one", b"two"]
        if closes:
            client.close()
            with cluster.client(name) as again:
                again.flush()
        else:
            tickets.append(publisher.put(b"three"))
            expected.append(b"three")
            publisher.close()
            assert all(ticket.done for ticket in tickets)
            assert len({ticket.counter for ticket in tickets}) == len(tickets)
            client.close()
        assert bodies(reader, topic, len(expected)) == expected
        assert nothing(reader, topic)


def test_a_publisher_that_was_left_is_put_once(cluster: Embedded, name: str, topic: str) -> None:
    """No caller can add to its batch any more; the reopened session sends it."""
    with cluster.client(f"{name}r") as reader, cluster.client(name) as client:
        reader.subscribe(topic)
        publisher = client.publisher(topic, linger=60.0)
        publisher.put(b"left")
        cut_off(client, "others")
        with pytest.warns(ResourceWarning, match="was not closed"):
            del publisher
        client.put("others", b"x")
        assert bodies(reader, topic, 1) == [b"left"]
        assert nothing(reader, topic)


def test_a_failed_reopening_is_tried_again(cluster: Embedded, name: str, topic: str) -> None:
    with cluster.client(f"{name}r") as reader, cluster.client(name) as client:
        reader.subscribe(topic)
        publisher = client.publisher(topic, linger=60.0)
        publisher.put(b"held")
        make = client._held._make

        def refuse(**named: Any) -> Session:
            raise StorageError("store", "the disk refuses")

        client._held._make = refuse  # type: ignore[misc]
        cut_off(client, topic, committed=True)
        for _ in range(2):
            with pytest.raises(StorageError, match="refuses"):
                client.put(topic, b"never")
        with pytest.raises(StorageError, match="refuses"):
            client.close()
        client._held._make = make  # type: ignore[misc]
        client.close()
        with cluster.client(name) as again:
            again.flush()
        assert bodies(reader, topic, 2) == [b"struck", b"held"]
        assert nothing(reader, topic)


def test_a_client_that_was_closed_stays_closed(cluster: Embedded, name: str, topic: str) -> None:
    client = cluster.client(name)
    cut_off(client, topic)
    client.close()
    with pytest.raises(CallerError, match="is closed"):
        client.put(topic, b"x")
    client._held._reopened()  # As a thread that found it cut off before it was closed.
    client.close()
    with cluster.client(name) as again:
        again.put(topic, b"x")


def test_a_call_with_the_old_session_is_interrupted(cluster: Embedded, name: str, topic: str) -> None:
    with cluster.client(name) as client:
        session = client._session
        cut_off(client, topic)
        client.put(topic, b"x")
        with pytest.raises(Interrupted):
            session.enter()


def test_threads_of_an_interrupted_client_raise_interrupted_or_continue(
    cluster: Embedded, name: str, topic: str
) -> None:
    """None of them gets the error of a closed client, although its session was closed."""
    told: list[BaseException] = []
    over = threading.Event()
    with cluster.client(name) as client:

        def put() -> None:
            while not over.is_set():
                try:
                    client.put(topic, b"x", timeout=PATIENCE)
                except Interrupted:
                    pass
                except BaseException as error:
                    told.append(error)
                    raise

        threads = [threading.Thread(target=put) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(5):
            client.put("others", b"x")
            try:
                client._session.lock.acquire()
                client._session.in_step = True  # A step of this thread was cut off.
            finally:
                client._session.recover()
            client.put("others", b"y")
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
        assert not told


def test_a_coroutines_client_goes_on(cluster: Embedded, name: str, topic: str) -> None:
    async def work() -> None:
        async with cluster.async_client(name) as client:
            await client.subscribe(topic)
            async with client.publisher(topic, linger=60.0) as publisher:
                await publisher.put(b"held")
                strike_commit(client._session, committed=False)
                with pytest.raises(Struck):
                    await client.put(topic, b"struck", wait=False)
                await client.put(topic, b"after")
            found: list[bytes] = []
            while len(found) < 2:
                found.extend((await client.get_many(topic, timeout=PATIENCE)).bodies())
            assert found == [b"after", b"held"]

    asyncio.run(work())


def once(client: Client, topic: str, strike: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupt a handler's message; the same client then has its effect once, and the attempt does not count."""
    effects: list[bytes] = []

    def handle(message: Message, transaction: Transaction) -> None:
        effects.append(message.body)

    client.subscribe(topic)
    client.put(topic, b"a")
    strike()
    with pytest.raises(Struck):
        client.process(topic, handle, timeout=PATIENCE)
    monkeypatch.undo()
    effects.clear()
    assert client.put("others", b"x").done
    assert client.process(topic, handle, timeout=PATIENCE) == 1
    assert effects == [b"a"]
    assert not client.dead_letters()
    assert nothing(client, topic)


def was_interrupted(*_: Any, **__: Any) -> None:
    raise Struck


def test_an_exception_between_a_handler_and_its_commit_leaves_no_open_transaction(
    cluster: Embedded, name: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client(name, settings=ClientSettings(handler_attempts=1)) as client:
        once(client, topic, lambda: monkeypatch.setattr(HandlerTransaction, "commit", was_interrupted), monkeypatch)


def test_an_exception_as_a_handler_ends_leaves_its_thread_in_no_handler(
    cluster: Embedded, name: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def call(self: Processing, *_: Any, **__: Any) -> None:
        self.session.handlers.add(threading.get_ident())
        raise Struck

    def strike() -> None:
        monkeypatch.setattr(Processing, "_call", call)
        monkeypatch.setattr(Processing, "_uncount", lambda *_: None)  # It would need the discarding, too.

    with cluster.client(name) as client:
        once(client, topic, strike, monkeypatch)


@pytest.mark.parametrize("most", [1, 10])
def test_calls_that_wait_for_the_topic_are_woken_when_a_batch_is_over(
    cluster: Embedded, name: str, topic: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"a", b"b"][:most])
        session, handled, woken = client._session, list[bytes](), list[int]()
        tell = session.tell_waiting

        def told() -> None:
            woken.append(len(handled))
            tell()

        monkeypatch.setattr(session, "tell_waiting", told)
        while len(handled) < min(most, 2):
            client.process(topic, lambda message, _: handled.append(message.body), timeout=PATIENCE, max=most)
        assert woken
        assert woken[-1] == len(handled)


def test_a_thread_finds_its_own_interrupted_step_while_another_has_the_lock(cluster: Embedded, name: str) -> None:
    """The thread that drives the sockets takes the lock to find the same; a call that began then raised Interrupted."""
    with cluster.client(name) as client:
        session, has_it, over = client._session, threading.Event(), threading.Event()

        def hold() -> None:
            with session.lock:
                has_it.set()
                over.wait(PATIENCE)

        holder = threading.Thread(target=hold)
        holder.start()
        assert has_it.wait(PATIENCE)
        session.in_step = threading.get_ident()
        found = session.found_cut_off()
        over.set()
        holder.join()
        assert found
        assert client.put("others", b"x").done
