"""Jobs without a subscription while a topic's two holders are merged: the records that were planned, or an error."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from pubsub.client.requests import Proxies
from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.errors import DataLoss, Unavailable
from pubsub.protocol import Outcome, Put, Read, encode_batch
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess
from pubsub.spark.batch_source import BatchReader
from pubsub.spark.ranges import RangeChanged
from tests.faults.cluster import until
from tests.spark.broker import STORE, _run
from tests.spark.test_source import numbers, values


class Split:
    """Two proxies and two servers, each server known to one proxy, until `heal` has both know both."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._proxies = [
            ProxyProcess(
                ProxySettings(id=name, bind="tcp://127.0.0.1:0", directory=directory / name, startup_wait_seconds=0.0)
            )
            for name in ("p1", "p2")
        ]
        for proxy in self._proxies:
            proxy.start()
        self._proxy_threads = [_run(proxy.run) for proxy in self._proxies]
        self.addresses = [proxy.bind for proxy in self._proxies]
        self._servers: list[tuple[ServerProcess, Any]] = []
        self._start([self.addresses[:1], self.addresses[1:]])
        self.links = [Proxies([address], 30.0) for address in self.addresses]

    def _start(self, known: list[list[str]]) -> None:
        for name, proxies in zip(("s1", "s2"), known, strict=True):
            server = ServerProcess(
                ServerSettings(
                    id=name, proxies=tuple(proxies), directory=self._directory / name, retention_hold_seconds=3600.0
                )
            )
            server.start()
            self._servers.append((server, _run(server.run)))

    def _stop(self) -> None:
        while self._servers:
            server, thread = self._servers.pop()
            server.stop()
            thread.join(10)
            server.close()

    def put(self, side: int, sender: str, first: int, previous: int, records: list[bytes]) -> None:
        body = encode_batch(records)
        message = Put(sender, "t", first, STORE, len(records), previous, crc32(body), body=body)
        assert self.links[side].ask(message).outcome is Outcome.SUCCESS  # type: ignore[arg-type]

    def reader(self, side: int, **options: str) -> BatchReader:
        from pubsub.spark.options import source_options

        given = {"proxies": self.addresses[side], "subscribe": "t", "timeout": "20", "minPartitions": "4"}
        return BatchReader(source_options(given | options, stream=False))

    def heal(self) -> None:
        self._stop()
        self._start([self.addresses, self.addresses])
        until(lambda: self._holders() == 1, "one server has the topic of both")
        until(lambda: self._logs(0) == self._logs(1), "both proxies know one holder")

    def _holders(self) -> int:
        return sum("t" in server.core.state.topics for server, _ in self._servers)

    def _logs(self, side: int) -> str:
        with suppress(Unavailable):
            return self.links[side].ask(Read("spark", "t", None)).log
        return f"none at {side}"

    def close(self) -> None:
        for link in self.links:
            link.close()
        self._stop()
        for proxy, thread in zip(self._proxies, self._proxy_threads, strict=True):
            proxy.stop()
            thread.join(10)
            proxy.close()


@pytest.fixture
def split(tmp_path: Path) -> Iterator[Split]:
    made = Split(tmp_path)
    yield made
    made.close()


def test_a_range_changed_by_a_merge_is_an_error_and_never_other_records(split: Split) -> None:
    """Records 4 to 12 of alice's are at both servers, since their answers were lost; what a merge leaves out of one."""
    for side, sender in enumerate(("bob", "carl")):
        split.put(side, sender, 1, 0, numbers(0, 4))
        split.put(side, "alice", 1, 0, numbers(4, 12))
    readers = [split.reader(side) for side in (0, 1)]
    planned = [(reader, part) for reader in readers for part in reader.partitions()]
    assert len(planned) == 8
    before = [values(reader, [part]) for reader, part in planned]
    assert before == [numbers(n, n + 3) for n in (0, 3, 6, 9)] * 2
    split.heal()
    told = []
    for (reader, part), records in zip(planned, before, strict=True):
        try:
            assert values(reader, [part]) == records
        except (RangeChanged, DataLoss) as error:
            told.append(str(error))
    assert len(told) == 4, "what the one that goes on has taken itself is the same"
    assert all("were merged while it was read" in text for text in told)
    again = split.reader(0)
    found = values(again, again.partitions())
    assert sorted(found) == sorted([*numbers(0, 12), *numbers(0, 4)]), "a job that begins now gets each record once"
