"""Handlers of a client at a real proxy and a real server: their effects happen once, also after failures."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pubsub.client import Client, Message, Transaction
from pubsub.client.flows.processing import Processing
from pubsub.config.settings import ClientSettings
from pubsub.embedded import Embedded
from pubsub.errors import CallerError, StorageError, StoreFull
from tests.client.opened import PATIENCE, bodies, create, kill, names, nothing, record, rows

# Processing


def test_process_takes_at_most_a_batch_and_says_how_many(client: Client, topic: str) -> None:
    create(client, "taken")
    client.subscribe(topic)
    client.put_many(topic, [b"%d" % number for number in range(5)])
    assert client.process(topic, record, timeout=5.0, max=3) == 3
    assert client.process(topic, record, timeout=5.0) == 2
    assert client.process(topic, record, timeout=0.05) == 0
    assert [body for _, body in rows(client, "select * from taken")] == [b"%d" % number for number in range(5)]


def test_a_handler_that_raises_undoes_effect_puts_and_position(client: Client, topic: str) -> None:
    create(client, "taken")
    client.subscribe(topic)
    client.subscribe(topic + "out")
    client.put(topic, b"x")

    def fail(message: Message, transaction: Transaction) -> None:
        record(message, transaction)
        client.put(topic + "out", b"never", transaction=transaction)
        raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError):
        client.process(topic, fail, timeout=5.0)
    assert rows(client, "select * from taken") == []
    assert client.unfinished(topic + "out") == 0
    assert client.process(topic, record, timeout=5.0) == 1
    assert len(rows(client, "select * from taken")) == 1


def test_a_message_goes_to_the_dead_letters_after_the_last_attempt(cluster: Embedded, topic: str) -> None:
    settings = ClientSettings(handler_attempts=3)
    with cluster.client(f"client{next(names)}", settings=settings) as client:
        create(client, "taken")
        client.subscribe(topic)
        client.put_many(topic, [b"good", b"poison", b"after"])

        def handler(message: Message, transaction: Transaction) -> None:
            if message.body == b"poison":
                raise ValueError("cannot digest")
            record(message, transaction)

        for _ in range(2):
            with pytest.raises(ValueError, match="digest"):
                client.process(topic, handler, timeout=5.0)
        assert client.process(topic, handler, timeout=5.0) == 2
        assert [body for _, body in rows(client, "select * from taken")] == [b"good", b"after"]
        (letter,) = client.dead_letters(topic)
        assert (letter.body, letter.attempts, letter.error) == (b"poison", 3, "ValueError: cannot digest")


def test_an_attempt_that_the_disk_has_no_room_for_does_not_count(cluster: Embedded, topic: str) -> None:
    with cluster.client(f"client{next(names)}", settings=ClientSettings(handler_attempts=2)) as client:
        create(client, "taken")
        client.subscribe(topic)
        client.put(topic, b"x")
        db = client._session.store.db

        def large(message: Message, transaction: Transaction) -> None:
            transaction.execute("insert into taken values (?, zeroblob(1000000))", (message.id,))

        db.pragma("max_page_count", db.pragma("page_count"))
        for _ in range(4):  # More often than a handler may fail before its message goes to the dead letters.
            with pytest.raises(StoreFull):
                client.process(topic, large, timeout=5.0)
        db.pragma("max_page_count", 1 << 30)
        assert client.process(topic, large, timeout=5.0) == 1
        assert client.dead_letters() == []
        assert len(rows(client, "select id from taken")) == 1


def test_an_attempt_that_kills_the_process_counts(cluster: Embedded, topic: str) -> None:
    name = f"client{next(names)}"
    settings = ClientSettings(handler_attempts=3)
    seen = []
    with cluster.client(name) as client:
        client.subscribe(topic)
        client.put_many(topic, [b"poison", b"after"])
    for _ in range(3):
        client = cluster.client(name, settings=settings)

        def die(message: Message, transaction: Transaction, client: Client = client) -> None:
            seen.append(message.body)
            kill(client)
            raise KeyboardInterrupt

        with pytest.raises(BaseException):  # noqa: B017, PT011
            client.process(topic, die, timeout=5.0)
    assert seen == [b"poison"] * 3
    with cluster.client(name, settings=settings) as client:
        taken: list[bytes] = []
        assert client.process(topic, lambda message, transaction: taken.append(message.body), timeout=5.0) == 2
        assert taken == [b"after"]
        assert [letter.body for letter in client.dead_letters()] == [b"poison"]


def test_a_handler_blocks_no_other_thread_until_it_uses_its_transaction(
    cluster: Embedded, client: Client, topic: str
) -> None:
    client.subscribe(topic)
    client.put(topic, b"a")
    begun, go_on = threading.Event(), threading.Event()
    others: list[bool] = []

    def handle(message: Message, transaction: Transaction) -> None:
        begun.set()
        assert go_on.wait(PATIENCE)
        client.put(topic, b"b", transaction=transaction)

    with ThreadPoolExecutor() as pool:
        processing = pool.submit(client.process, topic, handle, PATIENCE)
        assert begun.wait(PATIENCE)
        others.append(client.put("others", b"x").done)
        with client.transaction() as transaction:
            client.put("others", b"y", transaction=transaction)
        assert client.get(topic, timeout=0.0) is None, "it is in the hand of the handler"
        assert client.unfinished(topic) == 0
        go_on.set()
        assert processing.result(PATIENCE) == 1
    assert others == [True]
    assert bodies(client, topic, 1) == [b"b"]


def test_a_handler_that_raises_before_it_uses_its_transaction_has_failed(cluster: Embedded, topic: str) -> None:
    def fail(message: Message, transaction: Transaction) -> None:
        raise ValueError(message.body)

    with cluster.client(f"client{next(names)}", settings=ClientSettings(handler_attempts=2)) as client:
        client.subscribe(topic)
        client.put(topic, b"a")
        with pytest.raises(ValueError, match="a"):
            client.process(topic, fail, timeout=PATIENCE)
        assert client.process(topic, fail, timeout=PATIENCE) == 1
        assert [letter.attempts for letter in client.dead_letters()] == [2]
        assert nothing(client, topic)


CALLS: dict[str, Callable[[Client, str], object]] = {
    "put": lambda client, topic: client.put(topic, b"x"),
    "put without waiting": lambda client, topic: client.put(topic, b"x", wait=False),
    "put_many": lambda client, topic: client.put_many(topic, [b"x"]),
    "get": lambda client, topic: client.get(topic, timeout=0.0),
    "process": lambda client, topic: client.process(topic, lambda *_: None, timeout=0.0),
    "subscribe": lambda client, topic: client.subscribe("another"),
    "flush": lambda client, topic: client.flush(),
    "transaction": lambda client, topic: client.transaction().__enter__(),
    "publisher": lambda client, topic: client.publisher("others").put(b"x"),
    "close": lambda client, topic: client.close(),
}


@pytest.mark.filterwarnings("ignore:a publisher on others:ResourceWarning")
@pytest.mark.parametrize("begun", [False, True], ids=["before its transaction", "within it"])
@pytest.mark.parametrize("call", CALLS)
def test_a_handlers_thread_uses_its_client_only_by_its_transaction(
    client: Client, topic: str, call: str, begun: bool
) -> None:
    """A put without the transaction would happen once more with each attempt."""
    client.subscribe(topic)
    client.put(topic, b"a")

    def handle(message: Message, transaction: Transaction) -> None:
        if begun:
            transaction.execute("select 1")
        with pytest.raises(CallerError, match="inside a transaction or a handler"):
            CALLS[call](client, topic)

    assert client.process(topic, handle, timeout=PATIENCE) == 1
    assert client.put("others", b"y").done
    assert nothing(client, topic)


def test_a_handlers_puts_are_fsynced_before_they_are_sent(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b", b"c"])
    events: list[str] = []
    store, messenger = client._session.store, client._session._messenger
    begin, send = store.begin, messenger.send

    def beginning(*, fsync: bool) -> None:
        events.append("fsynced" if fsync else "commit")
        begin(fsync=fsync)

    def sending(peer: Any, contents: Any, *args: Any, **kwargs: Any) -> int:
        head = contents if isinstance(contents, bytes) else contents[0]
        if head.startswith(b"PUT"):
            events.append("put")
        return send(peer, contents, *args, **kwargs)

    store.begin, messenger.send = beginning, sending  # type: ignore[method-assign]

    def forward(message: Message, transaction: Transaction) -> None:
        client.put(topic + "out", message.body, transaction=transaction)

    assert client.process(topic, forward, timeout=5.0) == 3
    client.flush()
    first = events.index("put")
    assert "fsynced" in events[:first]
    assert events[:first].index("fsynced") > max(
        index for index, event in enumerate(events[:first]) if event == "commit"
    )


def test_an_attempt_counted_ahead_does_not_count_for_another_message(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(processing: Processing) -> None:
        raise StorageError("c.db", "cannot be written, says the test")

    client.subscribe(topic)
    client.put_many(topic, [b"a", b"b"])
    with monkeypatch.context() as patch:
        patch.setattr(Processing, "send_due", refuse)
        with pytest.raises(StorageError):
            client.process(topic, lambda message, transaction: None)  # One is handled, and the next one counted.
    client.unsubscribe(topic)
    client.subscribe(topic)
    client.put(topic, b"c")
    attempts = []

    def handler(message: Message, transaction: Transaction) -> None:
        attempts.append(transaction.execute("select attempts from pubsub_subscriptions where topic = ?", (topic,)).get)

    assert client.process(topic, handler, timeout=10.0) == 1
    assert attempts == [1]
