"""`pubsub up --standby`: each server has a second member, kills have no effect on clients, and a restart keeps both."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pubsub.server.standby.disk.local_file import FILE
from tests.cli.standbys import pubsub
from tests.cli.test_cluster import Up, up
from tests.cli.test_keyed_up import client

pytestmark = pytest.mark.slow

PATIENCE_SECONDS = 120.0


def status(directory: Path) -> dict[str, Any]:
    key = directory / "client.key"
    done = pubsub(
        "status", "--json", "--proxies-file", directory / "proxies", *(["--key", key] if key.exists() else [])
    )
    found: dict[str, Any] = json.loads(done.stdout) if done.returncode == 0 else {}
    return found


def until_rows(directory: Path, done: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """What status says of each server with a standby, once all is as it should be."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        rows = {row["server"]: row for row in status(directory).get("standbys", ())}
        with contextlib.suppress(KeyError):  # There is no row of one of them yet.
            if done(rows):
                return rows
        assert time.monotonic() < deadline, rows


def in_sync(directory: Path, *servers: str) -> dict[str, str]:
    """Each server's primary, once both members of each are in sync."""
    rows = until_rows(directory, lambda rows: all(rows[name]["state"] == "in sync" for name in servers))
    return {name: rows[name]["primary"] for name in servers}


def member(directory: Path, name: str) -> str:
    """The ID of the member whose process has this name."""
    return str(json.loads((directory / name / FILE).read_text())["member"])


def kill(cluster: Up, name: str) -> None:
    os.kill(cluster.pid(name), signal.SIGKILL)
    cluster.errors_until(f"{name} (pid {cluster.pid(name)}) was ended by SIGKILL".encode())


@pytest.mark.faults
@pytest.mark.parametrize("keys", [pytest.param((), marks=pytest.mark.nightly), ("--keys",)])
def test_a_server_is_killed_for_good_and_each_message_comes_once(tmp_path: Path, keys: tuple[str, ...]) -> None:
    total, taken, longest = 200, [], 0.0
    with (
        up(tmp_path, "--servers", "1", "--standby", *keys) as cluster,
        client(tmp_path, "publisher", key=bool(keys)) as publisher,
        client(tmp_path, "subscriber", key=bool(keys)) as subscriber,
    ):
        assert [one["id"] for one in cluster.facts["processes"]] == ["p1", "p2", "p3", "s1", "s1b"]
        in_sync(tmp_path, "s1")
        subscriber.subscribe("orders")
        for number in range(total):
            if number == 100:
                os.kill(cluster.pid("s1"), signal.SIGKILL)
            started = time.monotonic()
            publisher.put("orders", b"%d" % number, timeout=120)
            longest = max(longest, time.monotonic() - started)
        while len(taken) < total:
            taken += [int(message.body) for message in subscriber.get_many("orders", timeout=120)]
    assert taken == list(range(total))
    assert longest < 30


def test_a_member_that_became_primary_stays_primary_after_a_restart(tmp_path: Path) -> None:
    """Each server loses a member first: on a machine that is busy both may take over from one another at any time."""
    servers = {"s1": ("s1", "s1b"), "s2": ("s2", "s2b")}
    with up(tmp_path, "--servers", "2", "--standby") as cluster, client(tmp_path, "alice", key=False) as alice:
        alice.put("orders", b"kept")
        before, left = in_sync(tmp_path, *servers), {}
        for server, names in servers.items():
            leads, follows = sorted(names, key=lambda name: member(tmp_path, name) != before[server])
            lost, kept = (leads, follows) if server == "s1" else (follows, leads)
            kill(cluster, lost)
            left[server] = member(tmp_path, kept)
        until_rows(tmp_path, lambda rows: all(rows[one]["in_sync"] == [left[one]] for one in servers))
    with up(tmp_path) as cluster:
        assert [one["id"] for one in cluster.facts["processes"]] == ["p1", "p2", "p3", "s1", "s2", "s1b", "s2b"]
        rows = until_rows(tmp_path, lambda rows: all(rows[one]["state"] != "no heartbeat" for one in servers))
        assert {server: rows[server]["primary"] for server in servers} == left
        in_sync(tmp_path, *servers)
