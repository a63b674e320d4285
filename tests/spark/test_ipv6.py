"""Spark's source and sink where the proxy and the server are at addresses of IPv6, by each option that names one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.client.requests import Proxies
from pubsub.protocol import Outcome
from pubsub.spark.options import sink_options
from pubsub.spark.sink import publish
from tests.spark.broker import Broker
from tests.spark.test_sink import staged
from tests.spark.test_source import ALL, batch, numbers, stream, values


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Broker]:
    made = Broker(tmp_path / "broker", {"bind": "tcp://[::1]:0"}, bind="tcp://[::1]:0")
    assert made.address.startswith("tcp://[::1]:")
    yield made
    made.close()


def test_a_stream_and_a_batch_at_ipv6_read_the_rows_of_a_sink(there: Broker) -> None:
    options = sink_options({"proxies": there.address, "topic": "t", "timeout": "30"})
    with Proxies(options.proxies, options.timeout) as link:
        assert publish(options, [staged(link, options, 0, *numbers(0, 5))], 0)["t"].outcome is Outcome.SUCCESS
    reader = stream(there)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ALL)
    assert values(reader, reader.partitions(start, end)) == numbers(0, 5)
    reader.commit(end)
    whole = batch(there)
    assert values(whole, whole.partitions()) == numbers(0, 5)


def test_a_file_and_a_list_name_proxies_at_ipv6(there: Broker, tmp_path: Path) -> None:
    there.put("t", numbers(0, 5))
    file = tmp_path / "proxies"
    file.write_text(f"{there.address.removeprefix('tcp://')}\n")
    for named in ({"proxies": "", "proxiesFile": str(file)}, {"proxies": f"tcp://[::1]:9, {there.address}"}):
        reader = batch(there, **named)
        assert values(reader, reader.partitions()) == numbers(0, 5)
