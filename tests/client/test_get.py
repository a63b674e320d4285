"""`pubsub client ID get`: the taken messages if its output fails, its reader goes, or it is killed."""

from __future__ import annotations

import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pubsub.cli import main
from pubsub.client import Batch, Client, Message, Transaction
from pubsub.client.group_commands import take_from
from pubsub.client.writing import FileTarget, StreamTarget, file_target, finish_interrupted
from tests.faults import forkserver

MESSAGES = 50
NUMBERS = itertools.count()


class Shell:
    """Commands of one client, with its state in a directory of the test, on a topic of its own."""

    def __init__(self, service: str, directory: Path, topic: str) -> None:
        self.topic, self.directory = topic, directory
        self.place = ["--proxy", service, "--dir", str(directory / "state")]
        self.service = service

    def command(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "pubsub", "client", "c", *map(str, arguments), *self.place]

    def get(self, *options: str | Path, **streams: Any) -> subprocess.CompletedProcess[bytes]:
        if not streams:
            return forkserver.run("client", "c", "get", self.topic, *options, *self.place)
        kinds = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | streams
        return subprocess.run(self.command("get", self.topic, *options), timeout=60, check=False, **kinds)

    def in_process(self, *options: str | Path) -> int:
        return main(["client", "c", "get", self.topic, *map(str, options), *self.place])

    def rest(self) -> list[bytes]:
        done = self.get("--count", "100000", "--wait", "0")
        assert done.returncode in {0, 3}, done.stderr
        return done.stdout.splitlines()

    def client(self) -> Client:
        return Client("c", proxies=[self.service], directory=self.directory / "state")


def bodies(first: int = 0, last: int = MESSAGES) -> list[bytes]:
    return [b"message %d" % number for number in range(first, last)]


@pytest.fixture
def shell(service: str, tmp_path: Path, request: pytest.FixtureRequest) -> Shell:
    """A subscribed client with MESSAGES waiting."""
    made = Shell(service, tmp_path, f"t{next(NUMBERS)}")
    with made.client() as client:
        client.subscribe(made.topic)
        client.put_many(made.topic, bodies())
    return made


def test_a_full_disk_is_one_line_and_takes_nothing(shell: Shell) -> None:
    with Path("/dev/full").open("wb") as full:
        done = shell.get("--count", "10", stdout=full)
    assert (done.returncode, done.stderr) == (7, b"pubsub: error: standard output: No space left on device\n")
    assert shell.rest() == bodies()


def test_a_closed_standard_output_takes_nothing(shell: Shell) -> None:
    done = shell.get("--count", "10", stdout=None, preexec_fn=lambda: os.close(1))
    assert (done.returncode, done.stderr) == (7, b"pubsub: error: standard output: Bad file descriptor\n")
    assert shell.rest() == bodies()


def test_a_reader_that_has_gone_takes_nothing(shell: Shell) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = shell.get("--count", "10", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")
    assert shell.rest() == bodies()


def test_messages_not_written_to_the_reader_go_to_the_next_get(shell: Shell) -> None:
    large = [b"%d " % number + b"x" * 40_000 for number in range(20)]
    with shell.client() as client:
        client.put_many(shell.topic, large)
    process = subprocess.Popen(
        shell.command("get", shell.topic, "--count", "1000", "--batch", "7"), stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    read = [process.stdout.readline() for _ in range(3)]
    process.stdout.close()  # A pipe holds 64 KiB, and a reader's buffer some: far less than the backlog.
    assert process.wait(60) == 141
    assert [line[:-1] for line in read] == bodies()[:3]
    rest = shell.rest()
    assert rest[-13:] == large[-13:], "more than the pipe can have held"
    everything = bodies() + large
    assert rest == everything[len(everything) - len(rest) :]
    assert (len(everything) - len(rest)) % 7 == 0, "whole batches were taken"


@pytest.mark.slow
def test_a_file_that_cannot_be_written_takes_nothing(shell: Shell, tmp_path: Path) -> None:
    done = shell.get("--out", tmp_path / "none" / "out")
    assert done.returncode == 2
    assert b"No such file or directory" in done.stderr
    done = shell.get("--out", tmp_path)
    assert done.returncode == 2
    assert b"Is a directory" in done.stderr
    done = shell.get("--out", "/dev/full", "--count", "10")
    assert (done.returncode, done.stderr) == (7, b"pubsub: error: /dev/full: No space left on device\n")
    assert Path("/dev/full").is_char_device()
    assert shell.rest() == bodies()


def test_a_file_is_not_touched_without_a_message(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"as it was")
    assert shell.rest() == bodies()
    assert shell.in_process("--out", out, "--wait", "0") == 3
    assert shell.in_process("--out", tmp_path / "new", "--wait", "0") == 3
    assert main(["client", "c", "get", "other", "--out", str(out), *shell.place]) == 6
    assert out.read_bytes() == b"as it was"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "state"]


def test_a_file_is_replaced_completely_and_keeps_its_mode_and_links(shell: Shell, tmp_path: Path) -> None:
    out, link = tmp_path / "out", tmp_path / "link"
    out.write_bytes(b"as it was")
    out.chmod(0o640)
    link.symlink_to(out)
    assert shell.in_process("--out", link, "--count", "30", "--batch", "7") == 0
    assert out.read_bytes() == b"".join(body + b"\n" for body in bodies(0, 30))
    assert out.stat().st_mode & 0o777 == 0o640
    assert link.is_symlink()
    assert shell.in_process("--out", out, "--count", "30") == 0
    assert out.read_bytes() == b"".join(body + b"\n" for body in bodies(30))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out", "state"]


KILLED_AFTER = """
import os, sys
from pathlib import Path
from pubsub.client import writing
from pubsub.client.flows.gets import Gets

place, left = sys.argv[1], int(sys.argv[2])

def die():
    os.kill(os.getpid(), 9)

real_write, real_rename, real_hand_on = writing.FileTarget.write, writing._rename, Gets.take_into

def write(self, contents, transaction):
    global left
    real_write(self, contents, transaction)
    left -= 1
    if place == "before the commit" and not left:
        die()

def hand_on(self, *arguments, **more):
    found = real_hand_on(self, *arguments, **more)
    if place == "after the commit" and not left:
        die()
    return found

def rename(*arguments):
    if place == "before the rename":
        die()
    real_rename(*arguments)
    die()

writing.FileTarget.write, Gets.take_into = write, hand_on
if "rename" in place:
    writing._rename = rename
from pubsub.cli import main
sys.argv = ["pubsub", *sys.argv[3:]]
sys.exit(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("place", ["before the commit", "after the commit", "before the rename", "after the rename"])
@pytest.mark.parametrize("again", ["out", "other"])
def test_each_message_is_in_one_file_once_wherever_get_is_killed(
    shell: Shell, tmp_path: Path, place: str, again: str
) -> None:
    """Files are moved away when they appear, as by a program that works on them."""
    found: list[bytes] = []

    def collect() -> None:
        for path in (tmp_path / "out", tmp_path / "other"):
            if path.exists():
                found.extend(path.read_bytes().splitlines())
                path.unlink()

    arguments = shell.command("get", shell.topic, "--count", "20", "--batch", "5", "--out", tmp_path / "out")[3:]
    done = subprocess.run([sys.executable, "-c", KILLED_AFTER, place, "2", *arguments], timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    collect()
    while (code := shell.in_process("--out", tmp_path / again, "--count", "20", "--wait", "0")) == 0:
        collect()
    assert code == 3
    assert found == bodies()
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_failed_batch_is_not_taken_and_each_other_batch_is_taken_once(shell: Shell, tmp_path: Path) -> None:
    seen: list[bytes] = []

    def take(batch: Batch, transaction: Transaction) -> None:
        transaction.execute("create table if not exists seen (id text primary key)")
        transaction.executemany("insert into seen values (?)", [(message.id,) for message in batch])
        if len(seen) == 20:
            raise ValueError("not now")
        seen.extend(message.body for message in batch)

    with shell.client() as client:
        for _ in range(2):
            assert client._run(client._calls.gets.hand_on(shell.topic, 10, take, 5.0, fsync=False)) == 10
        with pytest.raises(ValueError, match="not now"):
            client._run(client._calls.gets.hand_on(shell.topic, 10, take, 5.0, fsync=False))
        with client.transaction() as transaction:
            assert transaction.execute("select count(*) from seen").get == 20
        assert [message.body for message in client.get_many(shell.topic, 10, 5.0)] == bodies(20, 30)
    assert seen == bodies(0, 20)
    assert shell.rest() == bodies(30)


def test_a_fifo_is_written_directly(shell: Shell, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = subprocess.Popen(shell.command("get", shell.topic, "--count", "1000", "--wait", "0", "--out", fifo))
    assert fifo.read_bytes().splitlines() == bodies()
    assert process.wait(30) == 0
    assert fifo.is_fifo()


def test_messages_of_a_killed_get_wait_for_their_directory(shell: Shell, tmp_path: Path) -> None:
    away, back = tmp_path / "away", tmp_path / "back"
    away.mkdir()
    with shell.client() as client:
        target = FileTarget(away / "out", "c")

        def sink(batch: Batch, transaction: Transaction) -> None:
            target.write(b"".join(message.body for message in batch), transaction)

        assert client._run(client._calls.gets.hand_on(shell.topic, 2, sink, 5.0, fsync=True)) == 2
    away.rename(back)
    assert b"No such file" in shell.get().stderr
    back.rename(away)
    with shell.client() as client:
        assert finish_interrupted(client) == [away / "out"]
    assert (away / "out").read_bytes() == b"".join(bodies(0, 2))


def test_a_file_that_a_killed_get_had_just_named_is_not_replaced_by_the_same_get(shell: Shell, tmp_path: Path) -> None:
    target = FileTarget(tmp_path / "out", "c")
    with shell.client() as client:

        def sink(batch: Batch, transaction: Transaction) -> None:
            target.write(b"".join(batch.bodies()), transaction)

        assert client._run(client._calls.gets.hand_on(shell.topic, 2, sink, 5.0, fsync=True)) == 2
        target.part.replace(target.path)  # It was killed behind this.
    assert shell.in_process("--out", target.path) == 0
    assert target.path.read_bytes() == b"".join(bodies(0, 2))
    assert shell.rest() == bodies(2)


def test_a_service_that_answers_late_is_no_unreachable_one(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for a message ends before any answer can come, so the service is asked again.

    The wait even ends before the service is asked, as on a busy machine: each reading of the clock takes longer.
    """
    looks = itertools.count()
    slow = SimpleNamespace(monotonic=lambda: time.monotonic() + 1e-3 * next(looks))
    monkeypatch.setattr("pubsub.client.commands.time", slow)
    monkeypatch.setattr("pubsub.client.commands.QUESTION_SECONDS", 1e-4)
    out = shell.directory / "late"
    assert shell.in_process("--out", out, "--wait", "0") == 0
    assert out.read_bytes() == bodies()[0]


@pytest.mark.slow
def test_messages_taken_before_a_failure_are_in_the_file(shell: Shell, tmp_path: Path) -> None:
    """A limit of the file's size stands for a disk that fills up during the command."""
    import resource

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    with shell.client() as client:
        client.put_many(shell.topic, [b"%d" % number * 100_000 for number in range(10)])
    size = 4_000_000
    with shell.client() as client:
        client.put_many(shell.topic, [b"%d" % number * 1_000_000 for number in range(5)])
    done = shell.get("--count", "1000", "--batch", "1", "--wait", "30", "--out", tmp_path / "out", preexec_fn=limit)
    assert done.returncode == 7
    assert done.stderr.count(b"\n") == 1
    assert b"File too large" in done.stderr
    taken = (tmp_path / "out").read_bytes().splitlines()
    rest = shell.rest()
    assert len(taken) + len(rest) == MESSAGES + 15
    assert not set(taken) & set(rest)


def test_messages_taken_before_an_interrupt_are_in_the_file(shell: Shell, tmp_path: Path) -> None:
    process = subprocess.Popen(
        shell.command("get", shell.topic, "--count", "1000", "--wait", "60", "--out", tmp_path / "out")
    )
    part = tmp_path / "out.c.part"
    deadline = time.monotonic() + 20
    whole = b"".join(body + b"\n" for body in bodies())
    while not (part.exists() and part.read_bytes() == whole):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    rest = shell.rest()
    there = (tmp_path / "out").read_bytes().splitlines() if (tmp_path / "out").exists() else []
    assert [*there, *rest] == bodies()


def test_messages_as_json_into_a_pipe(shell: Shell) -> None:
    done = shell.get("--count", "1000", "--batch", "3", "--json", "--wait", "0")
    assert [json.loads(line)["body"].encode() for line in done.stdout.splitlines()] == bodies()


def test_a_closed_standard_input_puts_nothing(shell: Shell) -> None:
    for options in ([], ["--lines"]):
        command = shell.command("put", shell.topic, "-", *options)
        done = subprocess.run(command, capture_output=True, timeout=60, check=False, preexec_fn=lambda: os.close(0))
        assert (done.returncode, done.stderr) == (2, b"pubsub: error: standard input: Bad file descriptor\n")
    assert shell.rest() == bodies()


@pytest.mark.parametrize(
    "words", ["status", "status --json", "client c dead-letters", "client c subscribe t", "client c flush"]
)
def test_other_commands_report_a_full_output_in_one_line(shell: Shell, words: str) -> None:
    place = shell.place if words.startswith("client") else shell.place[:2]
    command = [sys.executable, "-m", "pubsub", *words.split(), *place]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (7, b"pubsub: error: standard output: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, timeout=60, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_confirmation_without_input_counts_as_no(shell: Shell) -> None:
    command = ["topic", "unsubscribe", shell.topic, "--subscriber", "c", "--proxy", shell.service]
    done = subprocess.run(
        [sys.executable, "-m", "pubsub", *command],
        capture_output=True, text=True, timeout=60, check=False, preexec_fn=lambda: os.close(0),
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "pubsub: error: not confirmed, nothing was done; --yes confirms"
    assert done.returncode == 1
    assert shell.rest() == bodies()


def test_the_path_of_standard_output_under_dev_is_standard_output(shell: Shell, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_bytes(b"before\n")
    with kept.open("ab") as stream:
        words = shell.command("get", shell.topic, "--count", "2", "--wait", "0", "--out", "/dev/stdout")
        subprocess.run(words, stdout=stream, check=True, timeout=60)
    assert kept.read_bytes().splitlines() == [b"before", *bodies(0, 2)]


def test_a_file_with_a_non_text_name_gets_every_message_once(shell: Shell, tmp_path: Path) -> None:
    out = tmp_path / os.fsdecode(b"caf\xe9")  # A name in Latin-1.
    assert shell.in_process("--out", out, "--count", "20", "--batch", "7") == 0
    assert out.read_bytes().splitlines() == bodies(last=20)
    with shell.client() as client, client.transaction() as transaction:
        FileTarget(out, "c").write(b"late\n", transaction)  # It is killed behind this commit.
    assert shell.in_process("--out", out) == 0
    assert out.read_bytes() == b"late\n"


# Members of a group


def test_members_of_a_group_share_the_messages(service: str, tmp_path: Path, topic: str) -> None:
    place = ["--proxy", service, "--dir", str(tmp_path / "state")]
    done = forkserver.run("client", "w1", "get", topic, "--group", "g", "--wait", "0", *place)
    assert (done.returncode, done.stdout) == (3, b"")
    with Client("p", proxies=[service], directory=tmp_path / "p") as client:
        client.put_many(topic, bodies())
    first = forkserver.run("client", "w1", "get", topic, "--group", "g", "--count", "20", "--wait", "20", *place)
    out = tmp_path / "out"
    words = ["--count", "30", "--wait", "30", "--out", str(out), *place]
    second = forkserver.run("client", "w2", "get", topic, "--group", "g", *words)
    assert (first.returncode, second.returncode) == (0, 0), second.stderr
    assert (first.stdout.splitlines(), out.read_bytes().splitlines()) == (bodies(0, 20), bodies(20))
    assert main(["client", "w1", "get", topic, "--group", "g", "--batch", "5", *place]) == 2


def test_output_that_fails_gives_the_message_back_without_an_attempt(service: str, tmp_path: Path, topic: str) -> None:
    with Client("w", proxies=[service], directory=tmp_path) as client:
        client.subscribe(topic, group="g", attempts=1)
        client.put(topic, b"x")

        def fail(message: Message) -> bytes:
            raise OSError(message.attempts, "no room")

        target = StreamTarget(io.BytesIO())
        step = take_from(client, topic, "g", target, fail)
        for _ in range(2):  # Were the attempt counted, the message would be a dead letter.
            with pytest.raises(OSError, match="no room") as caught:
                step(1, 20.0)
            assert caught.value.errno == 1
        assert take_from(client, topic, "g", target, lambda message: message.body)(1, 20.0) == 1


def test_a_file_has_only_what_was_committed(service: str, tmp_path: Path) -> None:
    """A member of a group may lose a message to another one after it has written it."""
    with Client("w", proxies=[service], directory=tmp_path) as client:
        with file_target(tmp_path / "out", client) as target:
            for contents in (b"one ", b"lost, and longer ", b"two"):
                with suppress(ZeroDivisionError), client.transaction() as transaction:
                    target.write(contents, transaction)
                    assert not contents.startswith(b"lost") or 1 / 0
        assert (tmp_path / "out").read_bytes() == b"one two"
