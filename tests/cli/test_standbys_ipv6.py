"""Servers with a standby where all addresses are of IPv6: synchronized, switched, promoted and joined."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub import Client
from pubsub.errors import DataLoss
from tests.cli.standbys import Pair, pair, pubsub, pubsub_once_silent

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path, "[::1]") as made:
        assert made.proxy.startswith("tcp://[::1]:")
        yield made


def received(cluster: Pair) -> list[bytes]:
    """What waits for the client `late`, who is told where something is lost."""
    found: list[bytes] = []
    with Client("late", proxies=[cluster.proxy], directory=cluster.directory / "late") as client:
        while not found:
            try:
                found += [message.body for message in client.get_many("orders", 10, timeout=120)]
            except DataLoss:
                continue
            assert found, "nothing came in time"
    return found


def test_the_primary_is_switched_and_dies(cluster: Pair) -> None:
    primary = cluster.row()["primary"]
    done = pubsub("server", "switch", "s1", "--proxy", cluster.proxy, "--json")
    assert done.returncode == 0, done.stderr
    assert cluster.until("in sync")["primary"] != primary
    cluster.end("b", signal.SIGKILL)
    assert cluster.until("alone")["primary"] == primary
    assert received(cluster) == [b"before"]


def test_a_promoted_member_is_named_by_the_address_it_listened_at(cluster: Pair) -> None:
    cluster.end("b")
    cluster.until("alone")
    cluster.end("a", signal.SIGKILL)
    shutil.rmtree(cluster.directory / "a")
    _, _, *options = cluster.member(cluster.directory / "b")
    bound = ["--bind", cluster.addresses["b"]]
    done = pubsub_once_silent("server", "promote", *options, *bound, "--accept-loss", "--yes", "--json")
    assert done.returncode == 0, done.stderr
    (alarm,) = (text for text in cluster.status()["warnings"] if "start member" in text)
    assert f"start member {json.loads(done.stdout)['member']} at {cluster.addresses['b']}" in alarm
    cluster.start("b")
    cluster.until("single")
    cluster.start("c", "--standby-of", cluster.addresses["b"])
    cluster.until("in sync")
    cluster.end("b", signal.SIGKILL)
    cluster.until("alone")
    assert received(cluster) == [b"before"]
