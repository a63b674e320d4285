"""Subscribing and getting at a real proxy and a real server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pubsub.client import Client
from pubsub.client.core.changes import Change
from pubsub.client.core.core import SYNC_SECONDS
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import (
    CallerError,
    NotSubscribed,
    StorageError,
    Superseded,
    Unavailable,
)
from tests.client.opened import PATIENCE, bodies, create, eventually, kill, names, nothing, record, rows

# Subscriptions


def test_get_without_a_subscription_raises_an_error_at_once(client: Client, topic: str) -> None:
    started = time.monotonic()
    with pytest.raises(NotSubscribed, match=f"subscribe {topic}"):
        client.get(topic, timeout=20.0)
    assert time.monotonic() - started < 5.0


def test_a_message_that_arrives_as_a_call_ends_is_returned_by_that_call(
    cluster: Embedded, client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message comes after the call's check for messages, and before its check for an answer of the service."""
    client.subscribe(topic)
    session, gets = client._session, client._calls.gets
    sub = session.core.subscriptions[topic]

    def arrived() -> bool:
        session.drive_once()  # No call waits here that would.
        return sub.available

    def comes_now(self: object, started: float) -> bool:
        with cluster.client(f"client{next(names)}") as other:
            other.put(topic, b"x")
        eventually(arrived)
        return False

    monkeypatch.setattr(type(sub), "unconfirmed_since", comes_now)
    now = session.now
    with session.entered():
        gets._want(sub, now + PATIENCE, now)
    found = gets._found(sub, now, now + PATIENCE, over=True)
    sub.waiting -= 1
    assert found is sub


def test_subscribing_again_keeps_the_position(client: Client, topic: str) -> None:
    client.subscribe(topic)
    number = client._session.core.subscriptions[topic].intent.number
    client.put_many(topic, [b"0", b"1", b"2"])
    client.subscribe(topic)
    assert bodies(client, topic, 1)[:1] == [b"0"]
    client.subscribe(topic)
    assert client._session.core.subscriptions[topic].intent.number == number
    assert nothing(client, topic)


def test_subscribing_where_a_get_waits_is_answered_at_once_and_the_get_goes_on(client: Client, topic: str) -> None:
    client.subscribe(topic)
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(client.get, topic, 30.0)
        eventually(lambda: client._session.core.subscriptions[topic].deadline is not None)
        client.subscribe(topic, timeout=5.0)
        client.put(topic, b"x")
        message = waiting.result(30.0)
    assert message is not None
    assert message.body == b"x"


def test_subscribing_again_without_an_answer_raises_an_error(cluster: Embedded, topic: str, nowhere: str) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
    alone = Client(name, proxies=[nowhere], directory=cluster.directory / "clients")
    with pytest.raises(Unavailable, match="subscribe"):
        alone.subscribe(topic, timeout=0.2)
    assert alone.subscriptions()[topic]["settled"]
    kill(alone)
    with cluster.client(name) as client:
        assert bodies(client, topic, 1) == [b"x"]


def test_unsubscribing_without_a_subscription_is_refused_and_makes_none(client: Client, topic: str) -> None:
    with pytest.raises(NotSubscribed, match="never subscribed"):
        client.unsubscribe(topic)
    assert topic not in client.subscriptions()
    client.subscribe(topic)
    client.unsubscribe(topic)
    client.unsubscribe(topic)


def test_unsubscribing_again_unsubscribes_where_another_host_subscribed_since(
    cluster: Embedded, topic: str, tmp_path: Path
) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.unsubscribe(topic)
        with cluster.client(name, directory=tmp_path) as other:
            other.subscribe(topic)
            client.unsubscribe(topic)
            with pytest.raises(Superseded):
                other.get(topic, timeout=5.0)


def test_unsubscribed_means_silent_and_subscribing_anew_starts_at_the_end(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"missed")
    client.unsubscribe(topic)
    with pytest.raises(NotSubscribed):
        client.get(topic)
    client.put(topic, b"missed too")
    client.subscribe(topic)
    client.put(topic, b"new")
    assert bodies(client, topic, 1) == [b"new"]
    assert client.subscriptions()[topic]["on"]


def test_an_intent_that_was_not_confirmed_is_asked_for_again_by_the_next_start(
    cluster: Embedded, topic: str, nowhere: str
) -> None:
    name, folder = f"client{next(names)}", cluster.directory / "clients"
    alone = Client(name, proxies=[nowhere], directory=folder)
    with pytest.raises(Unavailable, match="subscribe"):
        alone.subscribe(topic, timeout=0.1)
    kill(alone)
    with cluster.client(name) as again:
        eventually(lambda: bool(again.subscriptions()[topic]["settled"]))
        again.put(topic, b"x")
        assert bodies(again, topic, 1) == [b"x"]


def test_an_unconfirmed_unsubscribe_survives_a_kill(cluster: Embedded, topic: str, nowhere: str) -> None:
    name, folder = f"client{next(names)}", cluster.directory / "clients"
    with cluster.client(name) as client:
        client.subscribe(topic)
    alone = Client(name, proxies=[nowhere], directory=folder)
    with pytest.raises(Unavailable):
        alone.unsubscribe(topic, timeout=0.1)
    kill(alone)
    with cluster.client(name) as again:
        with pytest.raises(NotSubscribed):
            again.get(topic)
        eventually(lambda: bool(again.subscriptions()[topic]["settled"]))


def test_a_get_asks_first_where_the_subscription_is_not_confirmed(cluster: Embedded, topic: str, nowhere: str) -> None:
    settings = ClientSettings(proxies=(nowhere, *cluster.proxies), directory=cluster.directory / "clients", tries=1)
    with Client(f"client{next(names)}", settings=settings, context=cluster.context) as client:
        with pytest.raises(Unavailable):
            client.subscribe(topic, timeout=0.02)
        assert client.get(topic, timeout=1.0) is None
        assert client.subscriptions()[topic]["settled"]


# Getting


def test_get_returns_none_without_a_message_and_raises_unavailable_without_an_answer(
    cluster: Embedded, client: Client, topic: str, nowhere: str
) -> None:
    client.subscribe(topic)
    assert nothing(client, topic)
    assert client.get(topic, timeout=0) is None
    name = client.name
    client.close()
    with Client(name, proxies=[nowhere], directory=cluster.directory / "clients") as alone:
        with pytest.raises(Unavailable, match="get"):
            alone.get(topic, timeout=0.1)
        assert alone.get(topic, timeout=0) is None


def test_a_message_that_was_got_never_comes_again_after_a_kill(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    client = cluster.client(name)
    client.subscribe(topic)
    client.put_many(topic, [b"%d" % number for number in range(10)])
    first = client.get(topic, timeout=5.0)
    assert first is not None
    assert first.body == b"0"
    assert client.get_many(topic, 3, timeout=5.0).bodies() == [b"1", b"2", b"3"]
    kill(client)
    with cluster.client(name) as again:
        assert bodies(again, topic, 6) == [b"%d" % number for number in range(4, 10)]


@pytest.mark.parametrize("how", ["get", "iterate", "hand_on"])
def test_a_taken_message_is_returned_though_the_next_put_cannot_be_read(
    cluster: Embedded, topic: str, nowhere: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    name, other = f"client{next(names)}", topic + "other"
    with Client(name, proxies=[nowhere], directory=cluster.directory / "clients") as alone:
        alone.put(other, b"later", wait=False)

    def refuse(counter: int) -> bytes:
        raise StorageError("c.db", "cannot be read, says the test")

    with cluster.client(name) as client:
        session, taken = client._session, []
        client.subscribe(topic)
        client.put_many(topic, [b"1", b"2", b"3"])
        assert client.get(topic) is not None  # The others come along.
        with monkeypatch.context() as patch:
            patch.setattr(session.store, "body", refuse)
            with session.entered():
                session.core.finish(other, session.until(None))  # Its body is on the disk only.
            if how == "get":
                taken = client.get_many(topic, 2, timeout=5.0).bodies()
            elif how == "iterate":
                messages = client.messages(topic)
                taken = [next(messages).body, next(messages).body]
            else:
                flow = client._calls.gets.hand_on(
                    topic, 2, lambda batch, _: taken.extend(batch.bodies()), 5.0, fsync=False
                )
                assert client._run(flow) == 2
        assert taken == [b"2", b"3"]
        client.flush(timeout=5.0)


def test_a_waiting_get_returns_as_soon_as_a_message_comes(cluster: Embedded, client: Client, topic: str) -> None:
    client.subscribe(topic)
    with cluster.client("writer" + topic) as writer:
        thread = threading.Timer(0.05, lambda: writer.put(topic, b"at last"))
        thread.start()
        started = time.monotonic()
        message = client.get(topic, timeout=20.0)
        assert time.monotonic() - started < 5.0
        thread.join()
    assert message is not None
    assert message.body == b"at last"


def test_each_of_several_waiting_threads_gets_a_message(client: Client, topic: str) -> None:
    client.subscribe(topic)
    found: list[bytes] = []

    def work() -> None:
        message = client.get(topic, timeout=20.0)
        assert message is not None
        found.append(message.body)

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for number in range(6):
        client.put(topic, b"%d" % number)
    for thread in threads:
        thread.join(20.0)
    assert sorted(found) == [b"%d" % number for number in range(6)]


def test_iterating_hands_out_every_message_and_gives_the_rest_back(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"%d" % number for number in range(100)])
        iterator = client.messages(topic, timeout=5.0)
        assert [next(iterator).body for _ in range(3)] == [b"0", b"1", b"2"]
        got = client.get(topic, timeout=5.0)  # Another call within the loop takes the next message.
        assert got is not None
        assert got.body == b"3"
        assert next(iterator).body == b"4"
        iterator.close()  # type: ignore[attr-defined]
        got = client.get(topic, timeout=5.0)
        assert got is not None
        assert got.body == b"5"
        iterator = client.messages(topic, timeout=5.0)
        assert next(iterator).body == b"6"
    with cluster.client(name) as again:
        found = [message.body for message in again.messages(topic, timeout=0.2)]
        assert found == [b"%d" % number for number in range(7, 100)]


def elsewhere(call: Callable[[], Any]) -> Any:
    """Run a call on another thread, and return its result."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join(30.0)
    return found[0]


def test_messages_not_yet_returned_by_an_iteration_go_to_any_caller(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"%d" % number for number in range(100)])
        create(client, "taken")
        iterator = client.messages(topic, timeout=5.0)
        assert [next(iterator).body for _ in range(3)] == [b"0", b"1", b"2"]
        assert elsewhere(lambda: client.get(topic, timeout=5.0)).body == b"3"
        assert next(iterator).body == b"4"
        assert elsewhere(lambda: client.get_many(topic, 2, timeout=5.0)).bodies() == [b"5", b"6"]
        assert next(iterator).body == b"7"
        assert elsewhere(lambda: client.process(topic, record, 5.0, 2)) == 2
        assert next(iterator).body == b"10"
        other = client.messages(topic, timeout=5.0)
        assert elsewhere(lambda: next(other)).body == b"11"
        assert next(iterator).body == b"12"
        elsewhere(client.close)
    with cluster.client(name) as again:
        assert [body for _, body in rows(again, "select * from taken")] == [b"8", b"9"]
        found = [message.body for message in again.messages(topic, timeout=0.2)]
        assert found == [b"%d" % number for number in range(13, 100)]


def test_threads_that_iterate_get_and_process_side_by_side_take_every_message_once(client: Client, topic: str) -> None:
    total = 3_000
    client.subscribe(topic)
    create(client, "taken")
    client.put_many(topic, [b"%d" % number for number in range(total)])
    found: list[bytes] = []

    def iterate() -> None:
        found.extend(message.body for message in client.messages(topic, timeout=1.0))

    def get() -> None:
        while (message := client.get(topic, timeout=1.0)) is not None:
            found.append(message.body)

    def get_many() -> None:
        while batch := client.get_many(topic, 7, timeout=1.0):
            found.extend(batch.bodies())

    def process() -> None:
        while client.process(topic, record, 1.0, 5):
            continue

    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(take) for take in (iterate, get, get_many, process, iterate, get)]:
            done.result(60.0)
    found += [body for _, body in rows(client, "select * from taken")]
    assert sorted(found, key=int) == [b"%d" % number for number in range(total)]


def test_an_iteration_that_ends_inside_a_transaction_does_not_end_it(client: Client, topic: str) -> None:
    client.subscribe(topic)
    create(client, "taken")
    client.put_many(topic, [b"0", b"1", b"2"])
    iterator = client.messages(topic, timeout=5.0)
    with client.transaction() as transaction:
        transaction.execute("insert into taken values (?, ?)", ("before", b""))
        with pytest.raises(CallerError):
            next(iterator)
    iterator = client.messages(topic, timeout=5.0)
    assert next(iterator).body == b"0"
    with client.transaction() as transaction:
        transaction.execute("insert into taken values (?, ?)", ("inside", b""))
        iterator.close()  # type: ignore[attr-defined]
    assert [name for name, _ in rows(client, "select * from taken")] == ["before", "inside"]
    assert bodies(client, topic, 2) == [b"1", b"2"]


def test_an_iteration_whose_commit_fails_has_taken_nothing(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.subscribe(topic)
    client.put_many(topic, [b"0", b"1", b"2"])
    first = client.get(topic, timeout=5.0)  # The others come along.
    assert first is not None
    assert first.body == b"0"

    def refuse(changes: Iterable[Change], *, fsync: bool = False) -> bool:
        raise StorageError("c.db", "cannot be written, says the test")

    with monkeypatch.context() as patch:
        patch.setattr(client._session.store, "commit", refuse)
        with pytest.raises(StorageError, match="says the test"):
            next(client.messages(topic, timeout=5.0))
    assert bodies(client, topic, 2) == [b"1", b"2"]


def test_taken_messages_are_acknowledged_without_a_further_call(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"x")
    assert client.get(topic, timeout=5.0) is not None
    sub = client._session.core.subscriptions[topic]
    eventually(lambda: sub.cursor.acknowledged == sub.cursor.position)


@pytest.mark.parametrize("handed", [1, 3])
def test_an_ended_iteration_acknowledges_its_messages_despite_an_earlier_fsync(
    client: Client, topic: str, handed: int
) -> None:
    client.subscribe(topic)
    client.put_many(topic, [b"1", b"2", b"3"])
    session = client._session
    sub = session.core.subscriptions[topic]
    messages = client.messages(topic, timeout=5.0)
    assert next(messages).body == b"1"
    with session.lock:
        session.sync()
    assert [next(messages).body for _ in range(handed - 1)] == [b"2", b"3"][: handed - 1]
    messages.close()
    assert sub.cursor.position is not None
    assert sub.cursor.position[1] == handed
    eventually(lambda: sub.cursor.acknowledged == sub.cursor.position)


def test_the_thread_that_drives_the_sockets_learns_when_to_fsync(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.subscribe(topic)
    client.put_many(topic, [b"1", b"2"])
    assert client.get(topic, timeout=5.0) is not None  # The other one comes along.
    session = client._session
    told: list[Any] = []
    sub = session.core.subscriptions[topic]
    eventually(lambda: sub.cursor.acknowledged == sub.cursor.position)
    with monkeypatch.context() as patch, session.lock:  # No other thread has a turn meanwhile.
        patch.setattr(session._messenger, "wake", lambda: told.append(session.deadline()))
        session._next = float("inf")
        started = session.now
        assert client.get(topic, timeout=5.0) is not None
        assert told
        assert started <= told[-1] - SYNC_SECONDS <= session.now
