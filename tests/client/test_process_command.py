"""`pubsub client ID process TOPIC -- COMMAND`: exit codes, variables, streams, time limits and signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pubsub.client import Client
from pubsub.client.commands import main
from tests.client.opened import eventually, names
from tests.client.test_serve_signals import alive

PUBSUB = [sys.executable, "-m", "pubsub", "client"]
PATIENCE_SECONDS = 40.0


@pytest.fixture
def place(service: str, tmp_path: Path) -> list[str]:
    return ["--proxy", service, "--dir", str(tmp_path)]


def put(service: str, tmp_path: Path, topic: str, *bodies: bytes, **more: object) -> None:
    with Client("w", proxies=[service], directory=tmp_path) as worker:
        worker.subscribe(topic)
    with Client(f"p{next(names)}", proxies=[service], directory=tmp_path) as client:
        for body in bodies:
            client.put(topic, body, **more)  # type: ignore[arg-type]


def letters(capfd: pytest.CaptureFixture[str], place: list[str], topic: str) -> list[tuple[str, str, int]]:
    capfd.readouterr()
    assert main(["w", "dead-letters", topic, "--json", *place]) == 0
    return [(one["body"], one["error"], one["attempts"]) for one in json.loads(capfd.readouterr().out)]


def test_a_command_gets_each_message_on_its_input_and_says_by_its_exit_code_what_becomes_of_it(
    service: str, tmp_path: Path, topic: str, place: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    put(service, tmp_path, topic, b"done", b"bad", b"later", b"failing", b"last")
    script = (
        'read -r body; echo "$body $PUBSUB_MESSAGE_ATTEMPTS"; case "$body" in'
        ' bad) exit 65;; later) [ "$PUBSUB_MESSAGE_ATTEMPTS" = 2 ] || exit 75;; failing) echo why >&2; exit 3;; esac'
    )
    few = ["--later", "0", "--handler-attempts", "2", "--retry-first-seconds", "0.01", "--idle", "0"]
    assert main(["w", "process", topic, "--json", *few, *place, "--", "sh", "-c", script]) == 0
    said = capfd.readouterr()
    *lines, report = said.out.splitlines()
    assert lines == ["done 1", "bad 1", "later 1", "later 2", "failing 1", "failing 2", "last 1"]
    assert said.err.count("why\n") == 2
    assert json.loads(report) == {"client": "w", "topic": topic, "handled": 5}
    found = letters(capfd, place, topic)
    assert [(body, attempts) for body, _, attempts in found] == [("bad", 1), ("failing", 2)]
    assert "sh ended with 65" in found[0][1]
    assert "sh ended with 3" in found[1][1]


def test_the_variables_describe_the_message(
    service: str, tmp_path: Path, topic: str, place: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    put(service, tmp_path, topic, b"x", key=b"anna", headers={"kind": b"new", "raw": b"\xff"})
    assert main(["w", "process", topic, "--count", "1", *place, "--", "env"]) == 0
    told = dict(line.split("=", 1) for line in capfd.readouterr().out.splitlines() if line.startswith("PUBSUB_MESSAGE"))
    assert told.pop("PUBSUB_MESSAGE").endswith(".1")
    assert told.pop("PUBSUB_MESSAGE_PUBLISHER").startswith("p")
    assert int(told.pop("PUBSUB_MESSAGE_COUNTER")) > 0
    assert int(told.pop("PUBSUB_MESSAGE_STAMP")) > 0
    assert told == {
        "PUBSUB_MESSAGE_TOPIC": topic, "PUBSUB_MESSAGE_ATTEMPTS": "1",
        "PUBSUB_MESSAGE_DOUBTFUL": "", "PUBSUB_MESSAGE_GROUP": "", "PUBSUB_MESSAGE_KEY": "anna",
        "PUBSUB_MESSAGE_HEADERS": '{"kind": "new"}', "PUBSUB_MESSAGE_HEADERS_BASE64": '{"raw": "/w=="}',
    }  # fmt: skip


def test_a_key_that_no_variable_can_have_is_left_out(
    service: str, tmp_path: Path, topic: str, place: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    put(service, tmp_path, topic, b"x", key=b"a\0b")
    put(service, tmp_path, topic, b"x", key=b"k" * 200_000)
    script = "echo key=${PUBSUB_MESSAGE_KEY-none}"
    assert main(["w", "process", topic, "--count", "2", *place, "--", "sh", "-c", script]) == 0
    assert capfd.readouterr().out.splitlines()[:2] == ["key=none", "key=none"]


def test_a_large_message_that_is_not_read_is_done(service: str, tmp_path: Path, topic: str, place: list[str]) -> None:
    put(service, tmp_path, topic, b"x" * 1_000_000)
    assert main(["w", "process", topic, "--count", "1", *place, "--", "true"]) == 0
    with Client("w", proxies=[service], directory=tmp_path) as client:
        assert client.get(topic, timeout=0.1) is None


def test_a_command_that_runs_for_too_long_is_ended_with_its_children(
    service: str, tmp_path: Path, topic: str, place: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    put(service, tmp_path, topic, b"x")
    limits = ["--handler-timeout", "0.3", "--handler-attempts", "1", "--idle", "0"]
    begun = tmp_path / "begun"
    script = f"sleep 600 & echo $! > {begun}; wait"
    assert main(["w", "process", topic, *limits, *place, "--", "sh", "-c", script]) == 0
    assert not alive(int(begun.read_text()))
    ((_, error, attempts),) = letters(capfd, place, topic)
    assert ("sh ran for longer than 0.3 s and was ended" in error, attempts) == (True, 1)


def test_commands_run_side_by_side(service: str, tmp_path: Path, topic: str, place: list[str]) -> None:
    """Each command waits until all four have begun."""
    put(service, tmp_path, topic, *[b"x"] * 4)
    begun = tmp_path / "begun"
    begun.mkdir()
    script = f"touch {begun}/$PUBSUB_MESSAGE; while [ $(ls {begun} | wc -l) -lt 4 ]; do sleep 0.02; done"
    words = [
        "--count",
        "4",
        "--concurrency",
        "4",
        "--hold",
        "none",
        "--handler-timeout",
        "60",
        "--handler-attempts",
        "1",
    ]
    assert main(["w", "process", topic, *words, *place, "--", "sh", "-c", script]) == 0
    assert len(list(begun.iterdir())) == 4


def test_a_command_that_does_not_exist_is_one_line_and_takes_nothing(
    service: str, tmp_path: Path, topic: str, place: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    put(service, tmp_path, topic, b"x")
    capfd.readouterr()
    assert main(["w", "process", topic, *place, "--", "./bill"]) == 2
    assert capfd.readouterr().err == (
        "pubsub: error: ./bill cannot be run: there is no such program, or it is not executable\n"
    )
    gone = tmp_path / "gone"
    gone.write_text("#!/no/such/shell\n")
    gone.chmod(0o755)
    assert main(["w", "process", topic, *place, "--", str(gone)]) == 2
    assert f"{gone} cannot be run: " in capfd.readouterr().err
    assert (
        main(
            ["w", "process", topic, "--count", "1", *place, "--", "sh", "-c", 'exit "$((PUBSUB_MESSAGE_ATTEMPTS - 1))"']
        )
        == 0
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_goes_to_the_command_and_its_message_comes_again_without_a_failure(
    service: str, tmp_path: Path, topic: str, place: list[str], number: signal.Signals
) -> None:
    put(service, tmp_path, topic, b"one", b"two")
    begun, seen = tmp_path / "begun", tmp_path / "seen"
    script = ["sh", "-c", f"echo $$ > {begun}.new && mv {begun}.new {begun}; exec sleep 600"]
    words = [*PUBSUB, "w", "process", topic, "--handler-attempts", "1", *place, "--", *script]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        eventually(begun.exists, PATIENCE_SECONDS)
        command = int(begun.read_text())
        eventually(lambda: alive(command), PATIENCE_SECONDS)
        process.send_signal(number)
        said, errors = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, said, errors) == (0, f"handled 0 messages of {topic}\n".encode(), b"")
    assert not alive(command)
    marking = ["sh", "-c", f'echo "$(cat) $PUBSUB_MESSAGE_ATTEMPTS" >> {seen}']
    assert main(["w", "process", topic, "--handler-attempts", "1", "--count", "2", *place, "--", *marking]) == 0
    assert seen.read_text() == "one 2\ntwo 1\n"


def test_a_command_that_finishes_after_the_signal_is_done_and_nothing_further_begins(
    service: str, tmp_path: Path, topic: str, place: list[str]
) -> None:
    put(service, tmp_path, topic, b"one", b"two")
    begun, seen = tmp_path / "begun", tmp_path / "seen"
    script = ["sh", "-c", f"trap 'cat >> {seen}; exit 0' TERM; touch {begun}; while :; do sleep 0.02; done"]
    process = subprocess.Popen([*PUBSUB, "w", "process", topic, *place, "--", *script], stdout=subprocess.PIPE)
    try:
        eventually(begun.exists, PATIENCE_SECONDS)
        process.terminate()
        said, _ = process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert (process.returncode, said) == (0, f"handled 1 message of {topic}\n".encode())
    assert main(["w", "process", topic, "--idle", "0", *place, "--", "sh", "-c", f"cat >> {seen}"]) == 0
    assert seen.read_text() == "onetwo"


def test_a_second_signal_kills_a_command_that_does_not_end(
    service: str, tmp_path: Path, topic: str, place: list[str]
) -> None:
    put(service, tmp_path, topic, b"one")
    begun, told = tmp_path / "begun", tmp_path / "told"
    script = [
        "sh",
        "-c",
        f"trap 'touch {told}' TERM; echo $$ > {begun}.new; mv {begun}.new {begun}; while :; do sleep 0.02; done",
    ]
    process = subprocess.Popen([*PUBSUB, "w", "process", topic, *place, "--", *script], stdout=subprocess.PIPE)
    try:
        eventually(begun.exists, PATIENCE_SECONDS)
        process.terminate()
        eventually(told.exists, PATIENCE_SECONDS)
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)
    finally:
        process.kill()
    assert process.returncode == 130
    assert not alive(int(begun.read_text()))
