"""The client against a real proxy and a real server, on threads: opening, the disk, closing."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pubsub import embedded
from pubsub.client import Client, Message, Transaction
from pubsub.embedded import Embedded
from pubsub.errors import (
    CallerError,
    ConfigurationError,
    StoreFull,
)
from tests.client.opened import bodies, create, eventually, names, nothing, rows

# The example of the documentation


def test_the_example_of_the_client_runs(cluster: Embedded) -> None:
    with cluster.client("billing") as client:
        create(client, "ledger")
        client.subscribe("orders")
        client.put("orders", b"first")
        message = client.get("orders", timeout=1.0)
        assert message is not None
        assert (message.topic, message.body, message.publisher) == ("orders", b"first", client.publisher_id)
        client.subscribe("receipts")
        client.put("orders", b"second")

        def handle(message: Message, transaction: Transaction) -> None:
            transaction.execute("insert into ledger values (?, ?)", (message.id, message.body))
            client.put("receipts", b"done", transaction=transaction)

        assert client.process("orders", handle, timeout=1.0) == 1
        assert [body for _, body in rows(client, "select * from ledger")] == [b"second"]
        receipt = client.get("receipts", timeout=5.0)
        assert receipt is not None
        assert receipt.body == b"done"
        assert nothing(client, "orders")


# The disk


def test_a_client_with_a_full_disk_sends_no_request(client: Client, topic: str) -> None:
    client.subscribe(topic)
    client.put(topic, b"before")
    db = client._session.store.db
    db.pragma("max_page_count", db.pragma("page_count"))
    sent = client._session.core.flights._token
    with pytest.raises(StoreFull):
        client.put(topic, bytes(1 << 20))
    assert client._session.core.flights._token == sent
    assert client.unfinished(topic) == 0
    db.pragma("max_page_count", 1 << 30)
    client.put(topic, b"after")
    assert bodies(client, topic, 2) == [b"before", b"after"]


def test_power_safe_fsyncs_every_commit(cluster: Embedded, topic: str) -> None:
    with cluster.client(f"client{next(names)}", power_safe=True) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
        assert client._session.store.db.pragma("synchronous") == 2
        assert bodies(client, topic, 1) == [b"x"]
        sub = client._session.core.subscriptions[topic]
        assert sub.cursor.safe == sub.cursor.position


# Opening and closing


def test_a_closed_client_raises_an_error(client: Client, topic: str) -> None:
    client.close()
    client.close()
    with pytest.raises(CallerError, match="closed"):
        client.put(topic, b"x")
    with pytest.raises(CallerError, match="closed"):
        client.get(topic)


def test_closing_ends_the_calls_that_wait(client: Client, topic: str) -> None:
    client.subscribe(topic)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            client.get(topic, timeout=30.0)
        except CallerError as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    sub = client._session.core.subscriptions[topic]
    eventually(lambda: sub.waiting > 0)
    client.close()
    thread.join(5.0)
    assert not thread.is_alive()
    assert "closed" in str(caught[0])


def test_a_client_without_proxies_or_with_a_bad_address_is_a_bad_configuration(tmp_path: Path) -> None:
    for proxies in ([], ["nonsense"]):
        with pytest.raises(ConfigurationError):
            Client("c", proxies=proxies, directory=tmp_path)
    Client("c", proxies="tcp://127.0.0.1:1", directory=tmp_path).close()


def test_a_dead_proxy_is_skipped(cluster: Embedded, topic: str, nowhere: str) -> None:
    with cluster.client(f"client{next(names)}", proxies=(nowhere, *cluster.proxies)) as client:
        client.subscribe(topic)
        client.put(topic, b"x")
        assert client._session.core.proxy == 1
        assert bodies(client, topic, 1) == [b"x"]


def test_the_state_is_exported_as_the_tree_of_the_paper(client: Client, topic: str, tmp_path: Path) -> None:
    client.subscribe(topic + "/a")
    ticket = client.put(topic + "/a", b"x")
    message = client.get(topic + "/a", timeout=5.0)
    assert message is not None
    root = client.export(tmp_path)
    assert root.name == f"client_{client.name}"
    folder = root / f"{topic}%2Fa"
    assert (folder / "last_get_id").read_text().strip() == message.id
    assert (folder / "last_put_counter").read_text().strip() == str(ticket.counter)


def test_an_embedded_cluster_keeps_its_directory(tmp_path: Path, topic: str) -> None:
    with embedded(tmp_path) as first, first.client("c") as client:
        client.subscribe(topic)
        client.put(topic, b"kept")
    with embedded(tmp_path) as second, second.client("c") as client:
        assert bodies(client, topic, 1, timeout=20.0) == [b"kept"]
