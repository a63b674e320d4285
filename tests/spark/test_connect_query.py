"""A streaming copy through Spark Connect, with keys: exactly once through a killed server, and no secret shown."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pubsub.security.keys import format_secret
from tests.faults.cluster import SPARK_SECONDS, Process, until
from tests.ports import free_port
from tests.spark.keyed import KeyedBroker
from tests.spark.pages import shown

pytestmark = [pytest.mark.spark, pytest.mark.nightly]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[KeyedBroker]:
    made = KeyedBroker(tmp_path / "broker")
    yield made
    made.close()


def start_server(directory: Path, name: str, port: int, ui_port: int, events: Path) -> Process:
    words = ["-m", "tests.spark.connect", "server", str(port), str(ui_port), str(events)]
    server = Process(name, directory, words).start()

    def listens() -> bool:
        with socket.socket() as sock:
            return sock.connect_ex(("127.0.0.1", port)) == 0

    until(listens, "the server of Spark Connect listens", SPARK_SECONDS)
    return server


def test_a_copy_through_a_killed_connect_server_has_each_row_once(broker: KeyedBroker, tmp_path: Path) -> None:
    """The key file's path is shown, and the key in it nowhere: not in pages, answers, events, plans, the checkpoint."""
    rows = [b"%d" % number for number in range(4000)]
    pair = broker.make("client", "spark", "put=t.copy", "get=t,t.copy", "names=copy,hold-*")
    broker.put("t", rows)
    events, port, ui_port = tmp_path / "events", free_port(), free_port()
    events.mkdir()

    def copy(name: str, *, once: bool) -> Process:
        facts: dict[str, Any] = {"url": f"sc://127.0.0.1:{port}", "checkpoint": str(tmp_path / "checkpoint")}
        facts |= {"options": broker.options("spark"), "once": once}
        return Process(name, tmp_path, ["-m", "tests.spark.connect", "copy", json.dumps(facts)]).start()

    processes = [start_server(tmp_path, "server1", port, ui_port, events), copy("first", once=False)]
    try:
        until(lambda: '"batch"' in processes[1].output.read_text(), "a batch is copied", SPARK_SECONDS)
        pages = shown(f"http://127.0.0.1:{ui_port}")
        for process in processes:
            process.kill()
        assert 0 < len(broker.records("t.copy")) < len(rows), "the server is killed in the middle"
        processes += [start_server(tmp_path, "server2", port, ui_port, events), copy("second", once=True)]
        assert processes[3].wait(SPARK_SECONDS) == 0, processes[3].errors.read_text()[-2000:]
    finally:
        for process in processes:
            process.kill()
    assert Counter(broker.records("t.copy")) == Counter(rows)
    *batches, result = [json.loads(line) for line in processes[3].output.read_text().splitlines() if line[:2] == '{"']
    assert batches[-1]["behind"] == {"t": 0}
    assert result["counts"] == [len(rows), len(rows)]
    assert result["exit"] == 22
    assert "client spark may not get from private" in result["said"]
    files = [file for place in (events, tmp_path / "checkpoint") for file in place.rglob("*") if file.is_file()]
    files += [file for process in processes for file in (process.output, process.errors)]
    seen = b"\0".join([*(file.read_bytes() for file in files), *(page.encode() for page in pages.values())])
    assert any(path.startswith("connect/session/") for path in pages)
    assert broker.file("spark").encode() in seen
    for form in (format_secret(pair.secret).encode()[3:], pair.secret, pair.secret.hex().encode()):
        assert form not in seen
