"""Common parts of all commands: one place turns an error into one line and an exit code.

Modules are imported only when needed (a small put needs no rich), because scripts run commands often and start-up time
counts.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pubsub.base.open_files import too_few
from pubsub.errors import PubsubError, StorageError, without_secrets

if TYPE_CHECKING:
    import typer
    from rich.console import Console
    from rich.table import Table

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_BAD_INPUT = 2
EXIT_NO_MESSAGE = 3
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_READER_GONE = 141


Hint = Callable[[str, str], str]
"""Returns, for a group and an unknown command, the command to use instead, or ""."""

CLEAN_UP_SECONDS = 1.0
"""Time for a command to end after an interrupt."""

STOP_SECONDS = 5.0
"""Time for a process to end after its parent has ended."""

_interrupts: list[int] = []
_handlers: list[Callable[[int, object], None]] = []
"""Handlers of Ctrl-C, once `run` owns this process."""


def end_silently_when_interrupted() -> None:
    """Let a signal end this process at once without a traceback: while modules load, and after all work is done."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_with_parent(lifeline: str | None) -> None:
    """End this process cleanly after its parent has ended for any reason.

    Args:
        lifeline: the number of a file descriptor: the reading end of a pipe that only the parent holds open. None: do
            not watch a parent.
    """
    if lifeline is None:
        return
    import signal
    import threading
    import time

    number = int(lifeline)

    def wait() -> None:
        with contextlib.suppress(OSError):
            os.read(number, 1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(STOP_SECONDS)
        os._exit(EXIT_ERROR)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()


def end_when_interrupted() -> None:
    """Let Ctrl-C end this process soon, in any state; for the main thread of a process that we own.

    An interrupt arrives between any two instructions, including those that acquire and release locks. A lock that stays
    held could block the clean-up permanently. All state is durable at every instant, so the clean-up has a time limit.
    """
    import signal
    import threading

    def interrupt(number: int, _: object) -> None:
        _interrupts.append(number)
        limit = threading.Timer(CLEAN_UP_SECONDS, os._exit, (EXIT_INTERRUPTED,))
        limit.daemon = True
        limit.start()
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    _handlers.append(interrupt)


def end_when_terminated() -> None:
    """Let SIGTERM end this process as Ctrl-C does, if we own it; for a command with child processes.

    Otherwise the children would continue without a reader of their output.
    """
    import signal

    for handler in _handlers:
        signal.signal(signal.SIGTERM, handler)


class ReaderGone(PubsubError):
    """The reader of standard output has closed it; the command ends silently."""

    exit_code = EXIT_READER_GONE


class _Output(io.FileIO):
    """Standard output with an error of its own, distinct from errors of other files and sockets."""

    def write(self, contents: Any) -> int:
        try:
            return super().write(contents) or 0
        except BrokenPipeError:
            raise ReaderGone("the reader of standard output has closed it") from None
        except OSError as error:
            raise StorageError("standard output", error.strerror or str(error)) from None


class _Errors(io.FileIO):
    """Standard error that never fails: text that cannot be written is dropped."""

    def write(self, contents: Any) -> int:
        try:
            return super().write(contents) or 0
        except OSError:
            return len(contents)


def take_streams() -> None:
    """Open missing standard streams of this process, which we own, and give their failures known errors.

    A stream that was closed before the start is opened so that its use fails like a closed one. Otherwise Python would
    set it to None, and one of our files could get its number. Input is then not readable, output not writable, and text
    to standard error is dropped.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            found = os.open(os.devnull, mode)  # The system assigns the lowest free number: that of the closed stream.
            os.set_inheritable(found, True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it stays open
    lines = os.isatty(1)
    encoding, errors = getattr(sys.stdout, "encoding", "utf-8"), getattr(sys.stdout, "errors", "strict")
    output = _Output(1, "wb", closefd=False)
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(output), encoding, errors, line_buffering=lines)
    encoding = getattr(sys.stderr, "encoding", "utf-8")
    told = _Errors(2, "wb", closefd=False)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(told), encoding, "backslashreplace", line_buffering=True)


def run(app: typer.Typer, name: str, argv: Sequence[str] | None = None, hint: Hint | None = None) -> int:
    """Run a command line and return its exit code. An error is one line on stderr, never a traceback.

    Args:
        app: the commands.
        name: the command as the user typed it ("pubsub", "python -m server").
        argv: the arguments. None: those of this process, which we then own with its streams. An empty list shows the
            help.
        hint: see `Hint`.
    """
    if argv is None:
        take_streams()
    code = _run(app, name, argv, hint)
    try:
        sys.stdout.flush()
    except (PubsubError, BrokenPipeError) as error:
        code = _failed(error) if code == EXIT_OK else code
        _give_up_output()
    if argv is None:
        end_silently_when_interrupted()
    return code


def _run(app: typer.Typer, name: str, argv: Sequence[str] | None, hint: Hint | None) -> int:
    import typer

    from pubsub.console.parameters import prepared

    try:
        if argv is None:
            end_when_interrupted()
        arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
        code = prepared(app).main(args=arguments, prog_name=name, standalone_mode=False)
        return code if isinstance(code, int) else EXIT_OK
    except typer.TyperException as error:
        return _usage(error, name, hint)
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:  # noqa: BLE001 - any error is one line for a person.
        return _failed(error)


def _failed(error: Exception) -> int:
    if isinstance(error, ReaderGone | BrokenPipeError):
        return EXIT_READER_GONE
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        error = too_few(0)
    if isinstance(error, PubsubError):
        complain(str(error))
        return error.exit_code
    if _interrupts:
        return EXIT_INTERRUPTED
    # Any other error is a fault of ours: print one line, or the traceback with PUBSUB_TRACEBACK=1.
    if os.environ.get("PUBSUB_TRACEBACK"):
        raise error
    complain(f"internal error: {type(error).__name__}: {error}; set PUBSUB_TRACEBACK=1 for a traceback")
    return EXIT_INTERNAL


def complain(text: str) -> None:
    """Write one line "pubsub: error: …" to stderr; line breaks in `text` become spaces."""
    _tell("error: " + text)


def note(text: str) -> None:
    """Write one line "pubsub: …" to stderr."""
    _tell(text)


def _tell(text: str) -> None:
    sys.stderr.write("pubsub: " + without_secrets(" ".join(text.split())) + "\n")


def announce(line: str) -> None:
    """Write the line that says that a foreground process is ready, and notify systemd if it waits.

    The process continues if the line cannot be written.
    """
    if "NOTIFY_SOCKET" in os.environ:
        from pubsub.base.supervision import notify

        notify("READY=1")
    try:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    except (PubsubError, OSError) as error:
        _give_up_output()
        note(f"{line} ({error})")


def _give_up_output() -> None:
    """Discard buffered output, so that the next write does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def keep_log(role: str, name: str) -> None:
    """Write the log of a foreground process to stderr, with time, level, role and name."""
    import logging

    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {role} {name}: %(message)s")


def _usage(error: typer.TyperException, name: str, hint: Hint | None) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else name
    unknown = re.fullmatch(r"No such command '([^']*)'.*", error.format_message())
    if unknown is not None and hint is not None and (instead := hint(path, unknown[1])):
        complain(f"no such command {unknown[1]!r}; did you mean: {instead}? See: {path} --help")
        return error.exit_code
    complain(f"{error.format_message().rstrip('.')}; see: {path} --help")
    return error.exit_code


def report(as_json: bool, facts: Mapping[str, object], sentence: str) -> None:
    """Print a result: `facts` as one line of JSON if `as_json`, otherwise `sentence`."""
    if as_json:
        print_json(facts)
    else:
        sys.stdout.write(sentence + "\n")


def print_json(facts: object) -> None:
    """Print one line of JSON; values that JSON lacks (such as a path) become text."""
    import json

    sys.stdout.write(json.dumps(facts, default=str) + "\n")


def size(count: float | None) -> str:
    """Return bytes in a suitable unit, "" if unknown."""
    if count is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def screen(width: int | None = None) -> Console:
    """Return a terminal that prints names literally: no markup in brackets, no emoji between colons."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=width)


def table(*columns: str, title: str | None = None) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def print_table(*tables: Table) -> None:
    """Print tables as wide as the terminal, or at their full width if there is none."""
    found = screen()
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found = screen(240)
    for made in tables:
        found.print(made)
