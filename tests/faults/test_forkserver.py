"""Forked processes of tests are as those that are started: they run the same, end the same, and inherit nothing."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.cluster import ROOT, Process
from tests.faults.forkserver import Child, ForkServer, current


@pytest.fixture
def probe(tmp_path: Path) -> Iterator[Process]:
    made = Process("probe", tmp_path, ["-m", "tests.faults.probe", "one", "two words"])
    yield made
    made.end()


def facts(probe: Process) -> dict[str, Any]:
    return dict(json.loads(probe.wait_line("{")))


def test_a_forked_process_runs_as_a_started_one_and_no_two_have_the_same_random_numbers(
    probe: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OF_THE_TEST", "yes")
    forked = facts(probe.start())
    assert isinstance(probe.popen, Child)
    probe.kill()
    server = current()
    assert server is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForkServer, "takes", lambda *_: False)
        started = facts(probe.start())
    assert isinstance(probe.popen, subprocess.Popen)
    assert forked["environment"]["OF_THE_TEST"] == "yes"
    assert (forked["directory"], forked["words"]) == (str(ROOT), ["one", "two words"])
    assert forked.pop("random") != started.pop("random")
    assert forked == started
    probe.kill()
    assert facts(probe.start())["random"] != forked.get("random")


def test_a_forked_process_ends_by_its_exit_code_by_an_exception_and_by_signals(probe: Process) -> None:
    for word, code in (("exit 7", 7), ("exit 0", 0), ("raise", 1)):
        facts(probe.start())
        probe.say(word)
        assert probe.wait() == code
        assert probe.running.returncode == code
    assert probe.errors.read_text().splitlines()[-1] == "ValueError: as it was told"
    for which in (signal.SIGKILL, signal.SIGTERM):
        facts(probe.start())
        assert probe.running.poll() is None
        probe.running.send_signal(which)
        assert probe.wait() == -which
    facts(probe.start())
    probe.say("interrupt")
    probe.wait_line("waiting")
    probe.running.send_signal(signal.SIGINT)
    assert probe.wait() != 0
    assert probe.errors.read_text().splitlines()[-1] == "KeyboardInterrupt"
    probe.running.kill()  # Of nobody any more: no error.


def test_a_closed_input_ends_a_forked_process_and_a_wait_has_its_timeout(probe: Process) -> None:
    facts(probe.start())
    with pytest.raises(subprocess.TimeoutExpired):
        probe.running.wait(0.05)
    assert probe.running.stdin is not None
    probe.running.stdin.close()
    assert probe.wait() == 0


def test_a_forked_process_has_the_present_limits_of_the_test(probe: Process) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    try:
        assert facts(probe.start())["files"] == [soft - 1, hard]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_forked_processes_that_end_together_keep_their_exit_codes(tmp_path: Path) -> None:
    probes = [Process(f"p{number}", tmp_path, ["-m", "tests.faults.probe"]).start() for number in range(12)]
    for probe in probes:
        facts(probe)
    for number, probe in enumerate(probes):
        probe.say(f"exit {number}")
    assert [probe.wait() for probe in probes] == list(range(12))
    for probe in probes:
        probe.end()


def test_a_program_that_the_fork_server_does_not_load_is_started(tmp_path: Path) -> None:
    assert not any(map(ForkServer.takes, (["-c", "pass"], ["-m", "tests.spark.query", "{}"], ["-m", "pubsub", "up"])))
    made = Process("plain", tmp_path, ["-c", "print('here')"]).start()
    assert isinstance(made.popen, subprocess.Popen)
    assert made.wait() == 0
    made.end()
