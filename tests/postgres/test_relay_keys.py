"""A relay in a cluster with keys: it needs a key for its own ID, and says so while it has none."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import psycopg
import pytest

from pubsub import Client, embedded
from pubsub.client.outgoing import tables
from pubsub.config import ClientSettings
from tests.faults.cluster import until


def test_a_relay_beside_a_client_needs_a_key_of_its_own_and_says_so(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "pubsub")
    with psycopg.connect(database) as connection:
        tables.install(connection)
        connection.execute("insert into pubsub.outgoing (topic, body) values ('orders', 'one')")
    with embedded(tmp_path / "cluster", bind="tcp://127.0.0.1:0") as cluster:
        keys = tuple(cluster.proxy_keys)
        settings = ClientSettings(
            proxies=tuple(cluster.proxies), proxy_keys=keys, key_file=cluster.key_file("billing", "put=*", "get=*"),
            directory=tmp_path,
        )  # fmt: skip
        with cluster.client("reader") as reader:
            reader.subscribe("orders")
            with Client("billing", settings=settings, database=database, relay=True) as billing:
                billing.put("bills", b"its own key serves")
                until(lambda: caplog.records, "the relay says what it lacks")
                with psycopg.connect(database) as connection:
                    (name,) = connection.execute("select name from pubsub.relay").fetchone() or ("",)
            said = [record.getMessage() for record in caplog.records]
            assert any(f"client {name} has none: pubsub keys new client {name}" in line for line in said), said
            shutil.copy(cluster.key_file(name, "put=*"), tmp_path / f"{name}.key")
            with Client("billing", settings=settings, database=database, relay=True):
                message = reader.get("orders", timeout=60)
    assert message is not None
    assert message.body == b"one"
    assert message.publisher.startswith(f"{name}/")
