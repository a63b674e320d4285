"""Makes `rig` importable: tests are imported one by one, not as packages. And a service for commands."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pubsub.config import ProxySettings, ServerSettings
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A proxy and a server on threads; the proxy's address."""
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
