"""`pubsub client ID serve|call|replies` as processes: signals during a handler, a reader that goes, and no worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from pubsub.client.commands import main
from tests.client.opened import eventually, names

PUBSUB = [sys.executable, "-m", "pubsub", "client"]
PATIENCE_SECONDS = 40.0


def alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return b"\0" in Path(f"/proc/{pid}/cmdline").read_bytes()  # Not one that has ended and waits for its parent.
    return False


def make(service: str, body: str, place: list[str], call: str = "c1") -> None:
    """Make a call; on a busy machine its first part, a subscription, may take longer than a wait."""
    words = ["c", "call", service, body, "--id", call, "--wait", "1", *place]
    eventually(lambda: main(words) == 30, PATIENCE_SECONDS)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_within_a_handler_ends_serve_and_the_next_worker_answers_once(
    service: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    assert main(["w", "serve", name, "--idle", "0", *place]) == 0
    make(name, "hello", place)
    begun = tmp_path / "begun"
    # `handler-attempts 1`: an attempt that counted would be the last, and the call end with an error.
    script = ["sh", "-c", f"echo $$ > {begun}.new && mv {begun}.new {begun}; exec sleep 600"]
    words = [*PUBSUB, "w", "serve", name, "--handler-attempts", "1", *place, "--", *script]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        eventually(begun.exists, PATIENCE_SECONDS)
        command = int(begun.read_text())
        eventually(lambda: alive(command), PATIENCE_SECONDS)  # In the midst of its exec it has no words.
        process.send_signal(number)
        said, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, said) == (130, b"")
    assert b"Traceback" not in errors
    assert not alive(command)
    capfd.readouterr()
    marks = tmp_path / "marks"
    marking = [*place, "--count", "1", "--", "sh", "-c", f"echo $PUBSUB_CALL >> {marks}; tr a-z A-Z"]
    assert main(["w", "serve", name, "--handler-attempts", "1", *marking]) == 0
    for _ in range(2):
        assert main(["c", "replies", "c1", "--wait", "20", *place]) == 0
        assert capfd.readouterr().out.endswith("HELLO")
    make(name, "hello", place, "c2")
    assert main(["w", "serve", name, "--handler-attempts", "1", *marking]) == 0
    assert marks.read_text().split() == ["c1", "c2"]


def test_a_signal_ends_the_commands_that_run_side_by_side_and_no_attempt_counts(
    service: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    together = ["--group", "--concurrency", "2"]
    assert main(["w", "serve", name, "--group", "--idle", "0", *place]) == 0
    for call in ("c1", "c2"):
        make(name, "hello", place, call)
    script = ["sh", "-c", f"echo $$ > {tmp_path}/$PUBSUB_CALL.new && mv {tmp_path}/$PUBSUB_CALL.new"
              f" {tmp_path}/$PUBSUB_CALL.begun; exec sleep 600"]  # fmt: skip
    words = [*PUBSUB, "w", "serve", name, *together, *place, "--", *script]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, start_new_session=True)
    begun = [tmp_path / f"{call}.begun" for call in ("c1", "c2")]
    try:
        eventually(lambda: all(path.exists() for path in begun), PATIENCE_SECONDS)
        os.killpg(process.pid, signal.SIGTERM)  # As a terminal does: the commands get it, too, and may end first.
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, b"Traceback" in errors, b"failed" in errors) == (130, False, False)
    assert not any(alive(int(path.read_text())) for path in begun)
    assert main(["w", "serve", name, *together, "--count", "2", *place, "--", "tr", "a-z", "A-Z"]) == 0
    capfd.readouterr()
    for call in ("c1", "c2"):
        assert main(["c", "replies", call, "--wait", "20", *place]) == 0
        assert capfd.readouterr().out == "HELLO"
    assert main(["w", "serve", name, "--concurrency", "2", *place]) == 2
    assert "--concurrency needs --group" in capfd.readouterr().err


def test_a_reader_that_goes_ends_the_command_and_the_reply_stays(
    service: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place, name = ["--proxy", service, "--dir", str(tmp_path)], f"service{next(names)}"
    assert main(["w", "serve", name, "--idle", "0", *place]) == 0
    body = "x" * 1_000_000  # More than a pipe holds.
    (tmp_path / "body").write_text(body)
    make(name, f"@{tmp_path / 'body'}", place)
    assert main(["w", "serve", name, "--count", "1", *place]) == 0
    words = [*PUBSUB, "c", "replies", "c1", "--wait", "20", *place]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.read(10) == b"x" * 10
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, errors) == (141, b"")
    capfd.readouterr()
    assert main(["c", "replies", "c1", *place]) == 0
    assert capfd.readouterr().out == body


def test_each_command_reports_a_missing_proxy_and_calls_nothing(
    nowhere: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    place = ["--proxy", nowhere, "--dir", str(tmp_path), "--timeout-seconds", "1"]
    for words in (["w", "serve", "billing"], ["c", "call", "billing", "17", "--id", "c1"]):
        assert main([*words, *place]) == 4
        (line,) = [line for line in capfd.readouterr().err.splitlines() if "error" in line]
        assert nowhere.removeprefix("tcp://") in line
    assert main(["c", "replies", "c1", *place]) == 33
