"""`pubsub service …` as people type it: each role a process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys

import pytest

from pubsub.services.client import ServiceClient
from tests.faults.cluster import ROOT, until
from tests.faults.forkserver import run
from tests.services.running import Running, Town, address

pytestmark = pytest.mark.slow


@pytest.fixture
def town(tmp_path):
    with Town(tmp_path) as made:
        yield made


def pubsub(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return run("service", *words, stdin=given)


def served(town: Town, *command: str) -> str:
    """A lazy server; its address."""
    at = address()
    town.service("server", "serve", "--bind", at, *command).wait_line("server service ready")
    return at


@pytest.mark.parametrize("kind", ["simple", "paranoid"])
def test_a_queue_and_a_worker_with_a_command_answer_calls(town, kind):
    front, back = address(), address()
    queue = town.service("queue", "queue", "--kind", kind, "--frontend", front, "--backend", back)
    assert queue.wait_line("queue") == f"queue queue ready: clients {front}, workers {back}"
    worker = town.service("worker", "work", "shout", "--kind", kind, "--broker", back, "--", "tr", "a-z", "A-Z")
    assert worker.wait_line("worker") == f"worker shout ready: {back}"
    one = pubsub("call", "shout", "hello", "--kind", "lazy", "--broker", front)
    assert (one.returncode, one.stdout, one.stderr) == (0, b"HELLO", b"")
    many = pubsub(
        "call", "shout", "-", "--kind", "lazy", "--broker", front, "--count", "30", "--parallel", "7", given=b"hi"
    )
    assert (many.returncode, many.stdout) == (0, b"HI\n" * 30)
    for process in (worker, queue):
        process.running.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        assert "Traceback" not in process.errors.read_text()


def test_json_is_one_line_for_each_reply_with_binary_data_in_base64(town):
    at = served(town)
    done = pubsub("call", "x", "ü", "--kind", "lazy", "--broker", at, "--json")
    facts = json.loads(done.stdout)
    assert (facts["service"], facts["reply"]) == ("x", "ü")
    assert 0 < facts["seconds"] < 60
    done = pubsub("call", "x", "-", "--kind", "lazy", "--broker", at, "--json", given=b"\xff")
    assert json.loads(done.stdout)["reply_base64"] == "/w=="


def test_a_command_that_fails_gives_no_reply_and_the_server_goes_on(town):
    at = served(town, "--", "sh", "-c", "read word; test $word = good && echo done")
    bad = pubsub("call", "x", "bad\n", "--kind", "lazy", "--broker", at, "--timeout", "0.5", "--tries", "1")
    assert (bad.returncode, bad.stdout) == (23, b"")
    good = pubsub("call", "x", "good\n", "--kind", "lazy", "--broker", at)
    assert good.stdout == b"done\n"
    assert "sh: exit code 1" in (town.directory / "server.1.err").read_text()


def test_a_wrong_address_is_named_soon_and_the_call_gives_up():
    nobody = address()
    done = pubsub("call", "x", "y", "--kind", "lazy", "--broker", nobody, "--timeout", "1.5", "--tries", "2")
    assert done.returncode == 23
    first, last = done.stderr.decode().splitlines()
    assert first == f"pubsub: {nobody} cannot be reached: Connection refused; the attempts go on"
    # 3 s, or a little more on a busy machine.
    assert re.match(rf"pubsub: error: call of x: no reply from {nobody} within [0-9.]+ s, sent 2 times", last)
    assert last.endswith(f" ({nobody}: Connection refused)")


def test_calls_of_many_that_fail_are_counted():
    done = pubsub(
        *("call", "x", "y", "--kind", "lazy", "--broker", address()),
        *("--timeout", "0.1", "--tries", "1", "--count", "12", "--parallel", "12"),
    )
    assert done.returncode == 23
    lines = done.stderr.decode().splitlines()
    assert (len(lines), lines[-1]) == (11, "pubsub: error: 12 of 12 calls got no reply")


def test_a_worker_reports_a_missing_queue(town):
    nobody = address()
    worker = town.service("worker", "work", "x", "--kind", "paranoid", "--broker", nobody)
    until(lambda: f"{nobody} cannot be reached: Connection refused" in worker.errors.read_text(), "it says so")
    worker.running.send_signal(signal.SIGINT)
    assert worker.wait() == 0


def test_a_closed_reader_ends_the_calls_silently(town):
    at = served(town)
    command = f"{sys.executable} -m pubsub service call x hello --kind lazy --broker {at} --count 3000 --parallel 20"
    done = subprocess.run(
        ["bash", "-c", f"{command} | head -2; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        timeout=100,
        check=False,
        cwd=ROOT,
    )
    assert (done.stdout, done.stderr) == (b"hello\nhello\n141\n", b"")


def test_closed_standard_streams_are_errors_of_one_line(town):
    at = served(town)
    for body, closed in (("-", "<&-"), ("hello", ">&-")):
        done = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m pubsub service call x {body} --kind lazy --broker {at} {closed}"],
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=100,
            check=False,
            cwd=ROOT,
        )
        assert done.returncode in {2, 7}
        assert done.stderr.count(b"\n") == 1
        assert done.stderr.startswith(b"pubsub: error: standard")


def test_an_interrupt_ends_a_waiting_call(town):
    caller = town.service("call", "call", "x", "y", "--kind", "lazy", "--broker", address(), "--timeout", "60")
    until(lambda: "cannot be reached" in caller.errors.read_text(), "it waits")
    caller.running.send_signal(signal.SIGINT)
    assert caller.wait() == 130
    assert "Traceback" not in caller.errors.read_text()


def test_a_worker_that_is_ended_answers_the_request_in_hand_first(town, tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    at = served(town, "--", "sh", "-c", f"cat {go} && echo done")
    server = town.processes[0]
    with ServiceClient(at, kind="lazy", timeout=60.0) as client:
        future = client.submit("", b"x")
        with go.open("w"):  # Opens once the command reads.
            server.running.send_signal(signal.SIGTERM)
        assert future.result(60).body == b"done\n"
    assert server.wait() == 0


def test_a_second_signal_does_not_wait(town, tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    at = served(town, "--", "cat", str(go))
    server = town.processes[0]
    with ServiceClient(at, kind="lazy", timeout=60.0) as client:
        client.submit("", b"x")
        with go.open("w"):
            for number in (signal.SIGTERM, signal.SIGINT):  # Two alike are one to a process that had no time yet.
                server.running.send_signal(number)
            assert server.wait() == 130


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("call", "x", "y", "--broker", "nonsense"), 8, "allowed: tcp://HOST:PORT"),
        (("call", "x", "y"), 2, "--broker"),
        (("call", "x", "y", "--kind", "pigeon", "--broker", "tcp://127.0.0.1:1"), 2, "use one of: lazy"),
        (("queue", "--kind", "simple", "--frontend", "tcp://127.0.0.1:0", "--backend", "x"), 8, "--backend"),
        (
            ("queue", "--kind", "odd", "--frontend", "tcp://127.0.0.1:0", "--backend", "tcp://127.0.0.1:0"),
            2,
            "paranoid",
        ),
        (("work", "x", "--broker", "tcp://127.0.0.1:1", "--kind", "simple", "--", "no-such-command"), 2, "no-such"),
        (("serve", "--bind", "tcp://0.0.0.0:0"), 8, "--insecure"),
        (("serve", "--bind", "tcp://127.0.0.1:0", "--kind", "mail"), 2, "use one of: lazy"),
    ],
    ids=str,
)
def test_mistakes_are_one_line_and_a_code(words, code, part):
    done = pubsub(*words)
    assert done.returncode == code
    assert done.stderr.count(b"\n") == 1
    assert part in done.stderr.decode()


def test_an_address_in_use_is_reported():
    with Running() as running:
        front, _ = running.queue("simple")
        done = pubsub("serve", "--bind", front)
    assert (done.returncode, done.stdout) == (8, b"")
    assert b"is in use by another process" in done.stderr


def test_each_command_explains_itself():
    for command in ("queue", "work", "serve", "call"):
        done = pubsub(command, "--help")
        assert done.returncode == 0
        assert b"Usage: " in done.stdout


def test_a_command_that_writes_without_end_is_ended(town):
    at = served(town, "--", "cat", "/dev/zero")
    with ServiceClient(at, kind="lazy", timeout=60.0) as client:
        client.submit("", b"x")
        until(lambda: "it wrote more than" in town.processes[0].errors.read_text(), "the server says why")
