"""What every command shares: one place that turns an error into one line and an exit code.

Nothing here is imported before it is needed (rich is not, on the way of a small put), because a command that takes a
person's patience takes a script's as well.
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
"""Gives for a group and a command that it does not have what to call instead, or ""."""

CLEAN_UP_SECONDS = 1.0
"""How long a command may take to end after an interrupt."""

STOP_SECONDS = 5.0
"""How long a process may take to end after its parent has."""

_interrupts: list[int] = []
_handlers: list[Callable[[int, object], None]] = []
"""What Ctrl-C calls, once this process is known to be ours."""


def end_silently_when_interrupted() -> None:
    """Has a signal end this process at once, without a traceback: while modules are loaded, and when all is done."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_with_parent(lifeline: str | None) -> None:
    """Has this process end in order when the one that started it has ended, however that was.

    Args:
        lifeline: the number of a file descriptor, the reading end of a pipe that only the parent holds open; None:
            nobody's life matters.
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
    """Has Ctrl-C end this process whatever it is doing, soon; for the main thread of a process that is ours.

    An interrupt strikes between any two instructions, those that take and give back included, and what is left held may
    keep the clean-up waiting for ever. All state is durable at every instant, so the clean-up gets a limit.
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
    """Has SIGTERM end this process as Ctrl-C does, where it is ours: for a command that has others run meanwhile.

    They would go on, with nobody to take what they say.
    """
    import signal

    for handler in _handlers:
        signal.signal(signal.SIGTERM, handler)


class ReaderGone(PubsubError):
    """Whoever read our standard output has closed it: the command ends without a word."""

    exit_code = EXIT_READER_GONE


class _Output(io.FileIO):
    """Standard output whose failure is told from any other file's, and from a socket's."""

    def write(self, contents: Any) -> int:
        try:
            return super().write(contents) or 0
        except BrokenPipeError:
            raise ReaderGone("standard output: its reader is gone") from None
        except OSError as error:
            raise StorageError("standard output", error.strerror or str(error)) from None


class _Errors(io.FileIO):
    """Standard error that never fails: what nobody can read is dropped."""

    def write(self, contents: Any) -> int:
        try:
            return super().write(contents) or 0
        except OSError:
            return len(contents)


def take_streams() -> None:
    """Has the standard streams of this process, which is ours, be there and fail in known ways.

    One that was closed before the start is opened so that its use fails as that of a closed one does, instead of
    being None to Python, and so that no file of ours gets its number: input is not readable, output not writable.
    What is written to errors then goes nowhere.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            found = os.open(os.devnull, mode)  # The system gives the lowest free number, and that is the closed one.
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
    """Runs a command line and returns its exit code; an error is one line on stderr, never a traceback.

    Args:
        app: the commands.
        name: what the user typed to get here ("pubsub", "python -m server").
        argv: the arguments; None: those of this process, which is then ours, with its streams. None at all ask for
            help.
        hint: gives for a group and a command that it does not have what to call instead, or "".
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
    except Exception as error:  # noqa: BLE001 - whatever it is, a person gets one line.
        return _failed(error)


def _failed(error: Exception) -> int:
    """Says what an error has to say; its exit code."""
    if isinstance(error, ReaderGone | BrokenPipeError):
        return EXIT_READER_GONE
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        error = too_few(0)
    if isinstance(error, PubsubError):
        complain(str(error))
        return error.exit_code
    if _interrupts:
        return EXIT_INTERRUPTED
    # The last resort: a person gets a line, and with PUBSUB_TRACEBACK=1 the place.
    if os.environ.get("PUBSUB_TRACEBACK"):
        raise error
    complain(f"internal error: {type(error).__name__}: {error}; PUBSUB_TRACEBACK=1 shows where")
    return EXIT_INTERNAL


def complain(text: str) -> None:
    """Writes one line "pubsub: error: …" to stderr, whatever line breaks `text` holds."""
    _tell("error: " + text)


def note(text: str) -> None:
    """Writes one line "pubsub: …" to stderr."""
    _tell(text)


def _tell(text: str) -> None:
    sys.stderr.write("pubsub: " + without_secrets(" ".join(text.split())) + "\n")


def announce(line: str) -> None:
    """Writes the line by which a process in the foreground says that it is ready, and tells systemd where it waits.

    The process goes on where nobody can read the line.
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
    """What is still buffered goes nowhere, and does not fail again with what is written next."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def keep_log(role: str, name: str) -> None:
    """Has what a process in the foreground notices written to stderr: time, level, who, what."""
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
    """Prints what a command did: `facts` as one line of JSON if `as_json`, else `sentence`."""
    if as_json:
        print_json(facts)
    else:
        sys.stdout.write(sentence + "\n")


def print_json(facts: object) -> None:
    """Prints one line of JSON; what JSON has no form for (a path) as text."""
    import json

    sys.stdout.write(json.dumps(facts, default=str) + "\n")


def size(count: float | None) -> str:
    """Bytes in the unit that suits them; "" where they are not known."""
    if count is None:
        return ""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def screen(width: int | None = None) -> Console:
    """A terminal to which a name is nothing but its characters: no colour in brackets, no emoji between colons."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=width)


def table(*columns: str, title: str | None = None) -> Table:
    """An empty table for a person."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def print_table(*tables: Table) -> None:
    """Prints tables: as wide as the terminal, or as wide as they are where there is none."""
    found = screen()
    if not found.is_terminal and "COLUMNS" not in os.environ:
        found = screen(240)
    for made in tables:
        found.print(made)
