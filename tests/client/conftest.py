"""Make `rig` importable, since tests are imported one by one and not as packages, and offer a service and a cluster."""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub import embedded
from pubsub.client import Client
from pubsub.config import ProxySettings, ServerSettings
from pubsub.embedded import Embedded
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess
from tests.client.opened import names

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run a proxy and a server on threads; return the proxy's address."""
    directory = tmp_path_factory.mktemp("service")
    proxy = ProxyProcess(
        ProxySettings(id="p1", bind="tcp://127.0.0.1:0", directory=directory / "p1", startup_wait_seconds=0)
    )
    proxy.start()
    server = ServerProcess(ServerSettings(id="s1", proxies=(proxy.servers or proxy.bind,), directory=directory / "s1"))
    server.start()
    threads = [threading.Thread(target=process.run) for process in (proxy, server)]
    for thread in threads:
        thread.start()
    yield proxy.bind
    for process, thread in zip((server, proxy), reversed(threads), strict=True):
        process.stop()
        thread.join()
        process.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Embedded]:
    with embedded(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def topic() -> str:
    return f"topic{next(names)}"


@pytest.fixture
def client(cluster: Embedded) -> Iterator[Client]:
    with cluster.client(f"client{next(names)}") as opened:
        yield opened


@pytest.fixture
def nowhere() -> str:
    """An address without a process behind it."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{sock.getsockname()[1]}"
