"""What every command shares: one place that turns an error into one line and an exit code.

Nothing here is imported before it is needed (rich is not, on the way of a small put), because a command that takes a
person's patience takes a script's as well.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pubsub.errors import PubsubError

if TYPE_CHECKING:
    import typer
    from rich.table import Table

EXIT_OK = 0
EXIT_ERROR = 1
EXIT_BAD_INPUT = 2
EXIT_NO_MESSAGE = 3
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


CLEAN_UP_SECONDS = 1.0
"""How long a command may take to end after an interrupt."""

_interrupts: list[int] = []


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


def run(app: typer.Typer, name: str, argv: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code; an error is one line on stderr, never a traceback.

    Args:
        app: the commands.
        name: what the user typed to get here ("pubsub", "python -m server").
        argv: the arguments; None: those of this process. None at all ask for help.
    """
    import typer

    from pubsub.parameters import prepared

    arguments = list(sys.argv[1:] if argv is None else argv) or ["--help"]
    try:
        code = prepared(app).main(args=arguments, prog_name=name, standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_OK
    except typer.TyperException as error:
        return _usage(error, name)
    except PubsubError as error:
        complain(str(error))
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has gone; what is still buffered must not raise again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_ERROR
    except Exception as error:
        if _interrupts:
            return EXIT_INTERRUPTED
        # The last resort: a person gets a line, and with PUBSUB_TRACEBACK=1 the place.
        if os.environ.get("PUBSUB_TRACEBACK"):
            raise
        complain(f"internal error: {type(error).__name__}: {error}; PUBSUB_TRACEBACK=1 shows where")
        return EXIT_INTERNAL


def complain(text: str) -> None:
    """Writes one line "pubsub: error: …" to stderr, whatever line breaks `text` holds."""
    sys.stderr.write("pubsub: error: " + " ".join(text.split()) + "\n")


def keep_log(role: str, name: str) -> None:
    """Has what a process in the foreground notices written to stderr: time, level, who, what."""
    import logging

    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s %(levelname)s {role} {name}: %(message)s")


def _usage(error: typer.TyperException, name: str) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else name
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
    from rich.console import Console

    screen = Console(highlight=False)
    if not screen.is_terminal and "COLUMNS" not in os.environ:
        screen = Console(highlight=False, width=240)
    for made in tables:
        screen.print(made)
