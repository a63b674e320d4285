"""Headers through a Spark query: a client's put comes out of the source, and goes through the sink to a client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pubsub import Client
from tests.spark.broker import Broker

pytestmark = pytest.mark.spark


def test_a_query_copies_messages_with_keys_and_headers(session: Any, broker: Broker, tmp_path: Path) -> None:
    place = {"proxies": broker.address}
    puts = [(b"%d" % n, b"k" * (n % 3), {"n": b"%d" % n, "raw": b"\0\xff"} if n % 2 else {}) for n in range(50)]
    with Client("reader", proxies=[broker.address], directory=broker.directory / "clients") as client:
        client.subscribe("copy")
        bodies, keys, headers = (list(column) for column in zip(*puts, strict=True))
        client.put_many("orders", bodies, keys=keys, headers=headers)
        given = place | {"subscribe": "orders", "subscription": "copying", "startingOffsets": "earliest"}
        rows = session.readStream.format("pubsub").options(**given, includeHeaders="true").load()
        assert rows.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"
        query = (
            rows.select("value", "key", "headers")
            .writeStream.format("pubsub")
            .options(**place, topic="copy", checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        found = list(client.messages("copy", timeout=5.0))
    assert sorted((m.body, m.key, m.headers) for m in found) == sorted(puts, key=lambda put: put[0])
    plain = session.read.format("pubsub").options(**place, subscribe="orders").load()
    assert "headers" not in plain.columns
    headed = session.read.format("pubsub").options(**place, subscribe="copy", includeHeaders="true").load()
    assert headed.where("headers[0].key = 'n'").count() == 25
