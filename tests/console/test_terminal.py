from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from pubsub import console
from pubsub.errors import (
    ConfigurationError,
    InDoubt,
    NotSubscribed,
    PubsubError,
    StateCopied,
    StoreInUse,
    Unavailable,
)


def application(body: Callable[[], None]) -> typer.Typer:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

    @app.command()
    def command(number: int = 1) -> None:
        body()

    return app


def fails_with(error: BaseException) -> Callable[[], None]:
    def body() -> None:
        raise error

    return body


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (PubsubError("x"), 1),
        (Unavailable("get", "t", 1.0), 4),
        (InDoubt("c", "t", 1.0, "no answer", 2), 5),
        (NotSubscribed("c", "t"), 6),
        (ConfigurationError("x"), 8),
        (StoreInUse("/x", "process 1"), 9),
        (StateCopied("c", "/x", "y"), 10),
    ],
)
def test_an_error_is_one_line_with_its_own_exit_code(
    error: PubsubError, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert console.run(application(fails_with(error)), "pubsub", ["--number", "2"]) == code
    captured = capsys.readouterr()
    assert captured.err == f"pubsub: error: {error}\n"
    assert captured.out == ""


def test_a_put_in_doubt_names_the_next_command(capsys: pytest.CaptureFixture[str]) -> None:
    console.run(application(fails_with(InDoubt("c", "t", 1.0, "no answer", 2))), "pubsub", ["--number", "2"])
    error = capsys.readouterr().err
    assert "pubsub client c flush" in error
    assert "pubsub client c discard t" in error


def test_a_wrong_command_line_is_one_line_that_names_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.run(application(lambda: None), "pubsub", ["--number", "many"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("pubsub: error: Invalid value for '--number'")
    assert error.endswith("see: pubsub --help\n")
    assert error.count("\n") == 1


def test_a_command_without_arguments_prints_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert console.run(application(lambda: None), "pubsub", []) == 0
    assert "Usage: pubsub" in capsys.readouterr().out


def test_an_interrupt_ends_with_130() -> None:
    assert console.run(application(fails_with(KeyboardInterrupt())), "pubsub", ["--number", "2"]) == 130


def test_a_chosen_exit_code_is_kept() -> None:
    assert console.run(application(fails_with(typer.Exit(3))), "pubsub", ["--number", "2"]) == 3


def test_an_unexpected_error_is_one_line_and_a_traceback_on_request(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PUBSUB_TRACEBACK", raising=False)
    app = application(fails_with(ZeroDivisionError("two\nlines")))
    assert console.run(app, "pubsub", ["--number", "2"]) == 70
    error = capsys.readouterr().err
    assert (
        error == "pubsub: error: internal error: ZeroDivisionError: two lines; set PUBSUB_TRACEBACK=1 for a traceback\n"
    )
    monkeypatch.setenv("PUBSUB_TRACEBACK", "1")
    with pytest.raises(ZeroDivisionError):
        console.run(app, "pubsub", ["--number", "2"])


def test_a_closed_reader_is_no_error_of_the_program() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "pubsub", "config", "show", "--json"], stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


COMMANDS = (
    ["--help"],
    ["--version"],
    ["config", "show"],
    ["config", "show", "--json"],
    ["client", "get", "--help"],
)


def pubsub(*arguments: str, **streams: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "pubsub", *arguments]
    return subprocess.run(command, timeout=60, check=False, **{"stderr": subprocess.PIPE, **streams})


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_full_output_disk_is_one_line_and_exit_code_7_for_every_command(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = pubsub(*arguments, stdout=full)
    assert done.stderr == b"pubsub: error: standard output: No space left on device\n"
    assert done.returncode == 7


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_closed_output_pipe_ends_every_command_silently(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = pubsub(*arguments, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_closed_standard_output_is_one_line(arguments: list[str]) -> None:
    done = pubsub(*arguments, preexec_fn=lambda: os.close(1))
    assert done.stderr == b"pubsub: error: standard output: Bad file descriptor\n"
    assert done.returncode == 7


def test_a_closed_standard_error_changes_nothing() -> None:
    done = pubsub("config", "show", "--json", stdout=subprocess.PIPE, stderr=None, preexec_fn=lambda: os.close(2))
    assert done.returncode == 0
    assert json.loads(done.stdout)
    done = pubsub("bogus", stdout=subprocess.PIPE, stderr=None, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (2, b"")
    with Path("/dev/full").open("wb") as full:
        assert pubsub("bogus", stdout=subprocess.PIPE, stderr=full).returncode == 2


def test_a_result_is_a_sentence_or_json(capsys: pytest.CaptureFixture[str]) -> None:
    console.report(False, {"a": 1}, "did it")
    console.report(True, {"a": 1}, "did it")
    plain, facts = capsys.readouterr().out.splitlines()
    assert plain == "did it"
    assert json.loads(facts) == {"a": 1}


def test_a_table_is_not_truncated_without_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    table = console.table("a", "b")
    table.add_row("x" * 90, "y" * 90)
    console.print_table(table)
    assert "x" * 90 + "   " + "y" * 90 in capsys.readouterr().out


STUCK = """
import sys, threading
from pubsub import console
console.end_when_interrupted()
held = threading.Lock()
held.acquire()
try:
    print("waits", flush=True)
    held.acquire()
finally:
    held.acquire()  # What the interrupt left held, the clean-up waits for.
"""


def test_a_name_in_a_table_is_not_markup(capsys: pytest.CaptureFixture[str]) -> None:
    made = console.table("topic")
    for name in ("[red]a", "[/b]", ":smile:"):
        made.add_row(name)
    console.print_table(made)
    assert [line.strip() for line in capsys.readouterr().out.splitlines()][3:6] == ["[red]a", "[/b]", ":smile:"]


@pytest.mark.parametrize(
    ("count", "text"), [(None, ""), (0, "0 B"), (1023, "1,023 B"), (1536, "1.5 KiB"), (2**50, "1,024.0 TiB")]
)
def test_a_size_is_shown_in_a_suitable_unit(count: int | None, text: str) -> None:
    assert console.size(count) == text


def test_an_interrupt_ends_a_command_whose_clean_up_hangs() -> None:
    process = subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"waits\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
    finally:
        process.kill()
        process.communicate()


def test_a_failure_caused_by_an_interrupt_counts_as_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    app = application(fails_with(RuntimeError("cannot join")))
    assert console.run(app, "x", ["--number", "1"]) == 70
    monkeypatch.setattr("pubsub.console.terminal._interrupts", [signal.SIGINT])
    assert console.run(app, "x", ["--number", "1"]) == 130
