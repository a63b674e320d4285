"""Each foreground process notifies systemd when it is ready, that it works, and that it stops."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub import embedded
from tests.base.test_supervision import Manager
from tests.cli.standbys import FAST
from tests.cli.test_roles import proxy, running, server


@contextlib.contextmanager
def supervised(tmp_path: Path, *words: str | Path) -> Iterator[str]:
    """A process that systemd watches, from its ready line on; it must be ready, work and stop in order."""
    manager = Manager(str(tmp_path / f"notify-{len(list(tmp_path.iterdir()))}"))
    with pytest.MonkeyPatch.context() as patch, contextlib.closing(manager.sock):
        for name, value in manager.environment(300_000).items():
            patch.setenv(name, value)
        with running(*words) as (process, ready):
            assert set(manager.until("READY=1")) <= {"WATCHDOG=1"}
            assert manager.next() == "WATCHDOG=1"
            assert manager.next() == "WATCHDOG=1"
            yield ready
            process.send_signal(signal.SIGTERM)
            assert set(manager.until("STOPPING=1")) <= {"WATCHDOG=1"}
            assert process.wait(120) == 0
            assert set(manager.told()) <= {"WATCHDOG=1"}


def test_a_proxy_a_server_a_standby_and_a_gateway_notify_the_manager(tmp_path: Path) -> None:
    fresh = ["--startup-wait-seconds", "0", *FAST[:2]]
    with supervised(tmp_path, *proxy(tmp_path / "p1"), *fresh) as ready:
        reached = ["--proxy", ready.split()[-1]]
        with supervised(tmp_path, *server(tmp_path / "s1")[:4], *reached, "--dir", tmp_path / "s1", *FAST) as first:
            standby = ["--standby-of", first.split()[-1], "--dir", tmp_path / "s1b"]
            with (
                supervised(tmp_path, *server(tmp_path)[:4], *reached, *standby, *FAST),
                supervised(tmp_path, "gateway", "start", "--bind", "127.0.0.1:0", "--dir", tmp_path / "g", *reached),
            ):
                pass


def test_a_witness_and_an_http_receiver_notify_the_manager(tmp_path: Path) -> None:
    with (
        supervised(tmp_path, *proxy(tmp_path / "w"), "--witness"),
        supervised(tmp_path, "http", "serve", "--dir", tmp_path / "h", "--bind", "127.0.0.1:0"),
    ):
        pass


def test_an_embedded_cluster_does_not_notify_the_manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager(str(tmp_path / "notify"))
    for name, value in manager.environment(1).items():
        monkeypatch.setenv(name, value)
    with contextlib.closing(manager.sock):
        with embedded() as cluster, cluster.client("c") as client:
            client.put("t", b"x")
        assert manager.told() == []
