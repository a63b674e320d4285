"""A gateway with a full disk: it refuses, its earlier answers stay true, and it continues when there is room."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.cluster import Cluster
from tests.gateway.serving import Gateway

pytestmark = pytest.mark.slow
FILE_BYTES_MAX = 4 << 20
"""No file of the gateway's may grow beyond it: what SQLite is told then is what a full disk says."""

PROGRAM = (
    "import resource, sys; from pubsub.cli import main;"
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({FILE_BYTES_MAX}, resource.RLIM_INFINITY)); sys.exit(main())"
)


def test_a_full_disk_is_answered_507_and_nothing_is_put(cluster: Cluster, tmp_path: Path) -> None:
    with Gateway(cluster, tmp_path / "data") as gateway:
        gateway.subscribe("full", "s")
        gateway.put("full", b"before")
    assert gateway.process.command[:2] == ["-m", "pubsub"]
    gateway.process.command[:2] = ["-c", PROGRAM]
    with gateway:
        large = gateway.ask("POST", "/topics/full/messages", b"x" * 2 * FILE_BYTES_MAX, idempotency_key="large")
        assert (large.status_code, large.json()["type"]) == (507, "urn:pubsub:problem:storage")
        assert str(tmp_path) not in large.text
        gateway.put("full", b"small", idempotency_key="small")
        assert [one["body"] for one in gateway.take("full", "s", 2)] == ["before", "small"]
    gateway.process.command[:2] = ["-m", "pubsub"]
    with gateway:
        gateway.put("full", b"small", idempotency_key="small")
        gateway.put("full", b"x" * 2 * FILE_BYTES_MAX, idempotency_key="large")
        assert len(gateway.take("full", "s", 1)[0]["body"]) == 2 * FILE_BYTES_MAX
