"""Too few open files are one line before libzmq ends the process with a core dump."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pubsub.base.open_files import FILES_FREE_MIN, check_files
from pubsub.cli import main
from pubsub.errors import ConfigurationError

PROGRAM = """
import os, resource, sys
from pathlib import Path
from pubsub import Client, ConfigurationError, ServiceClient, embedded
from pubsub.messenger import Messenger

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]


def server(place):
    with embedded(place):
        pass


def client(place):
    Client("c", proxies=["tcp://127.0.0.1:9"], directory=place).close()


def messenger(place):
    with Messenger() as one:
        one.listen("tcp://127.0.0.1:0", print)


def service(place):
    ServiceClient("tcp://127.0.0.1:9").close()


for make in (client, messenger, service, server):
    make(Path(sys.argv[1]) / f"warm-{make.__name__}")
    used, outcomes = len(os.listdir("/proc/self/fd")), []
    for more in range(0, 70, 3):
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + more, hard))
        try:
            make(Path(sys.argv[1]) / make.__name__)
            outcomes.append("opened")
        except ConfigurationError as error:
            outcomes.append("refused" if "ulimit -n 1024" in str(error) else str(error))
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    print(*dict.fromkeys(outcomes))
"""


@pytest.mark.slow
def test_a_caller_that_opens_sockets_is_refused_or_succeeds_at_every_limit(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["refused opened"] * 4


@contextmanager
def limited(more: int) -> Iterator[None]:
    """As many files more than are open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(map(int, os.listdir("/proc/self/fd")))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]  # What is free below the limit is taken.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1 + more, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for each in held:
            os.close(each)


def test_the_error_names_the_free_files_and_how_to_allow_more() -> None:
    with limited(FILES_FREE_MIN - 5), pytest.raises(ConfigurationError, match=r"; [12]\d are left, .* ulimit -n 1024$"):
        check_files()
    with limited(FILES_FREE_MIN + 5):
        check_files()


def test_a_command_that_gets_no_file_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(
        signal, "signal", lambda *_: None
    )  # It would end a cluster by the signals of this very process.
    assert main(["up", "--dir", str(tmp_path)]) == 8
    error = capsys.readouterr().err
    assert "ulimit -n 1024" in error
    assert error.count("\n") == 1
