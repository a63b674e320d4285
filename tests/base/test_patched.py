"""gevent and eventlet: everything that would stand still refuses in one line, before anything is opened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import sys
library, directory = sys.argv[1:]
from pubsub.base.patched import patched_by
if library == "gevent":
    from gevent.monkey import patch_all as patch
else:
    from eventlet.patcher import monkey_patch as patch
print(patched_by())
patch()
from pathlib import Path
from pubsub import AsyncClient, Client, ConfigurationError, ServiceClient, Worker, embedded
from pubsub.config.settings import ProxySettings, ServerSettings
from pubsub.http import Receiver, ReliableHttp
from pubsub.messenger import Messenger
from pubsub.proxy.process import ProxyProcess
from pubsub.server.process import ServerProcess
where = Path(directory)
for make in (
    lambda: Client("c", directory=where),
    lambda: AsyncClient("c", directory=where),
    lambda: ServiceClient("tcp://127.0.0.1:9"),
    lambda: Worker("w", broker="tcp://127.0.0.1:9", handler=bytes).run(),
    lambda: Messenger(),
    lambda: embedded(where),
    lambda: ReliableHttp(where),
    lambda: Receiver(where),
    lambda: ProxyProcess(ProxySettings(id="p", bind="tcp://127.0.0.1:0", directory=where)),
    lambda: ServerProcess(ServerSettings(id="s", proxies=("tcp://127.0.0.1:9",), directory=where)),
):
    try:
        make()
    except ConfigurationError as error:
        print(error)
    else:
        print("opened")
print(*where.iterdir())
"""


@pytest.mark.parametrize("library", ["gevent", "eventlet"])
def test_a_blocking_call_is_refused_under_patched_threads_and_sockets(library: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, library, str(tmp_path)],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    unpatched, *lines, made = done.stdout.split("\n")[:-1]
    assert unpatched == ""  # To import it is no obstacle.
    assert len(lines) == 10, done.stdout + done.stderr
    for line in lines:
        assert f"cannot run after {library} has replaced threads and sockets" in line
        assert "gunicorn -k gthread" in line
        assert "pubsub gateway start" in line
    assert made == ""
