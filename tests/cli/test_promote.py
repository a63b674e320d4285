"""`pubsub server promote`: the member in sync is lost, and the dropped member continues alone."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub import Client
from pubsub.errors import DataLoss
from tests.cli.standbys import Pair, pair, pubsub, pubsub_once_silent

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as made:
        yield made


def promote(cluster: Pair, name: str, *options: str, stdin: str = "", serves: bool = False) -> tuple[int, str, str]:
    """Its exit code, output and errors. `serves`: the primary does, and the command is refused."""
    _, _, *rest = cluster.member(cluster.directory / name)
    command = pubsub if serves else pubsub_once_silent
    done = command("server", "promote", *rest, *options, stdin=stdin)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def test_a_dropped_member_serves_after_a_promotion_that_names_its_losses(cluster: Pair) -> None:
    cluster.end("b")
    cluster.until("alone")
    with Client("late", proxies=[cluster.proxy], directory=cluster.directory / "late") as client:
        client.put("orders", b"only at a", timeout=120)
    code, _, error = promote(cluster, "b", "--accept-loss", "--yes", serves=True)
    assert code == 15
    assert "receives heartbeats of its primary: it serves, or has just ended" in error
    cluster.end("a", signal.SIGKILL)
    shutil.rmtree(cluster.directory / "a")
    code, _, error = promote(cluster, "b")
    assert code == 2
    assert "give --accept-loss" in error
    code, out, error = promote(cluster, "b", "--accept-loss", stdin="y\nno\n")
    assert code == 1
    assert "does not have are lost" in error
    assert "not confirmed, nothing was done" in error
    code, out, error = promote(cluster, "b", "--accept-loss", "--json", stdin="y\ns1\n")
    assert code == 0, error
    done = json.loads(out)
    assert done["topics"] == ["orders"]
    cluster.start("b")
    assert cluster.until("single")["primary"] == done["member"]
    with Client("late", proxies=[cluster.proxy], directory=cluster.directory / "late") as client:
        got, lost = [], 0
        client.put("orders", b"after", timeout=120)
        deadline = time.monotonic() + 60
        while b"after" not in got and time.monotonic() < deadline:
            try:
                message = client.get("orders", timeout=5)
            except DataLoss:
                lost += 1
            else:
                got += [] if message is None else [message.body]
    assert got == [b"before", b"after"]
    assert lost == 1
    cluster.start("c", "--standby-of", cluster.addresses["b"])
    cluster.until("in sync")


def test_a_member_in_sync_is_not_promoted_but_started(cluster: Pair) -> None:
    cluster.end("a", signal.SIGKILL)
    cluster.until("alone")
    cluster.end("b")
    deadline = time.monotonic() + 60
    while True:  # Until the proxy has not heard it for so long that it counts as silent.
        code, _, error = promote(cluster, "b", "--accept-loss", "--yes")
        if "is in sync: start it, and it takes over by itself" in error:
            break
        assert time.monotonic() < deadline, error
    assert code == 15


def test_a_directory_of_no_member_is_refused_and_restored_points_to_promote(cluster: Pair, tmp_path: Path) -> None:
    code, _, error = promote(cluster, "nowhere", "--accept-loss", "--yes")
    assert code == 8
    assert "is not the directory of a member of a server with a standby" in error
    cluster.end("b")
    done = pubsub("server", "restored", "--dir", tmp_path / "b", "--yes")
    assert done.returncode == 8
    assert "belongs to one of two members, and the proxies record which one serves:" in done.stderr
