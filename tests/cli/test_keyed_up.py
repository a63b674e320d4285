"""`pubsub up --keys` in use: clients with a key notice nothing of kills, and keys come to a cluster without a loss."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pubsub import Client
from pubsub.config.loading import load
from pubsub.config.settings import ClientSettings
from pubsub.errors import ConfigurationError
from tests.cli.test_cluster import Up, up

pytestmark = pytest.mark.slow

SMALL = ("--proxies", "1", "--servers", "1")


def client(directory: Path, name: str, *, key: bool = True, **options: Any) -> Client:
    """A client as the variables that `up` prints make it."""
    named: dict[str, object] = {"proxies_file": directory / "proxies", "directory": directory / name}
    if key:
        named["key_file"] = directory / "client.key"
    return Client(name, settings=load(ClientSettings, named, environment={}, file=os.devnull).settings, **options)


def kill(cluster: Up, name: str) -> None:
    """SIGKILL of a process that `up` starts again; the test's own `Up` knows the first process ID only."""
    os.kill(cluster.pid(name), signal.SIGKILL)
    cluster.errors_until(f"{name} (pid {cluster.pid(name)}) was ended by SIGKILL; starting it again".encode())


@pytest.mark.faults
def test_proxies_and_servers_are_killed_and_each_message_comes_once(tmp_path: Path) -> None:
    total, taken = 900, []
    with (
        up(tmp_path, "--proxies", "2", "--servers", "1", "--keys", "--restart") as cluster,
        client(tmp_path, "publisher") as publisher,
        client(tmp_path, "subscriber") as subscriber,
    ):
        subscriber.subscribe("orders")
        for number in range(total):
            if number % 300 == 100:
                kill(cluster, ("p1", "s1", "p2")[number // 300])
            publisher.put("orders", b"%d" % number, timeout=120)
        while len(taken) < total:
            taken += [int(message.body) for message in subscriber.get_many("orders", timeout=120)]
    assert taken == list(range(total))


def test_a_cluster_gets_keys_by_a_stop_and_a_start_without_loss(tmp_path: Path) -> None:
    with up(tmp_path, *SMALL), client(tmp_path, "alice", key=False) as alice:
        alice.subscribe("orders")
        alice.put("orders", b"taken")
        alice.put("orders", b"waiting at the server")
        message = alice.get("orders", timeout=120)
        assert message is not None
        assert message.body == b"taken"
    with client(tmp_path, "alice", key=False) as alice:
        alice.put("orders", b"waiting at the client", wait=False)
    with up(tmp_path, *SMALL, "--keys"):
        with pytest.raises(ConfigurationError, match="has a key, and client alice has none"):
            client(tmp_path, "alice", key=False)
        with client(tmp_path, "alice") as alice:
            alice.flush(timeout=120)
            found: list[bytes] = []
            while len(found) < 2:
                found += [message.body for message in alice.get_many("orders", timeout=120)]
            assert found == [b"waiting at the server", b"waiting at the client"]


def test_a_client_key_that_was_revoked_stays_so_over_a_restart(tmp_path: Path) -> None:
    from pubsub.cli import main

    with up(tmp_path, *SMALL, "--keys"):
        pass
    assert main(["keys", "revoke", "*", "--authorized", str(tmp_path / "authorized")]) == 0
    with up(tmp_path, *SMALL, "--keys"):
        assert "client" not in (tmp_path / "authorized").read_text().replace("of clients only", "")


def test_a_server_whose_key_was_revoked_is_not_started_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pubsub.cli import main

    with up(tmp_path, *SMALL, "--keys"):
        pass
    assert main(["keys", "revoke", "s1", "--authorized", str(tmp_path / "authorized")]) == 0
    code, errors = Up(tmp_path, *SMALL, "--keys").stop()
    assert code == 8
    assert "the key of server s1" in errors
    assert "is not authorized; to authorize it: pubsub keys authorize server s1 pk_" in errors
