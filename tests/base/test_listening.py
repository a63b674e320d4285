"""A process without free files: it writes a line, closes idle connections, and continues with free files."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub.base import listening
from pubsub.base.listening import SHED_MAX, Listening
from tests.web.rig import SECONDS, statuses

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def test_a_process_without_files_writes_one_line_and_serves_again(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.base.out_of_files"]
    with (tmp_path / "log").open("w+") as log, subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, cwd=Path(__file__).parents[2]
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            port, connections_max = map(int, process.stdout.readline().split())
            assert connections_max == 32
            idle = socket.create_connection(("127.0.0.1", port), SECONDS)
            idle.sendall(GET)
            assert statuses(idle.recv(1 << 16)) == [200]
            process.stdin.write("take\n")
            process.stdin.flush()
            assert process.stdout.readline() == "full\n"
            waiting = [socket.create_connection(("127.0.0.1", port), SECONDS) for _ in range(20)]
            assert idle.recv(1) == b""  # It makes room for one of them.
            process.stdin.write("give\n")
            process.stdin.flush()
            for peer in waiting:
                peer.sendall(GET)
                assert statuses(peer.recv(1 << 16)) == [200]
                peer.close()
            idle.close()
            process.communicate("end\n", timeout=SECONDS)
        finally:
            process.kill()
        log.seek(0)
        lines = log.read().splitlines()
    assert len(lines) == 1, lines
    assert "no connection can be accepted: Too many open files" in lines[0]
    assert process.returncode == 0


def test_failed_accepts_pause_and_are_logged_once_a_minute(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = [1000.0]
    sheds: list[int] = []
    error = [errno.EMFILE]

    def accept(_: socket.socket) -> None:
        raise OSError(error[0], "no")

    monkeypatch.setattr(listening, "monotonic", lambda: now[0])
    monkeypatch.setattr(socket.socket, "accept", accept)

    def shed() -> bool:
        sheds.append(1)
        return True

    with Listening() as one:
        one.shed = shed  # type: ignore[method-assign]
        for second in range(130):
            now[0] = 1000.0 + second
            with pytest.raises(OSError, match="no"):
                one.accept()
            for _ in range(3):
                with pytest.raises(BlockingIOError):
                    one.accept()
        assert len(sheds) == 130 * SHED_MAX
        assert len(caplog.records) == 3
        error[0] = errno.ECONNABORTED
        now[0] += 1
        with pytest.raises(ConnectionAbortedError):
            one.accept()
