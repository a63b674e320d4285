"""What a command needs: its options, its output, its exit codes."""

from pubsub.console.terminal import (
    EXIT_ERROR,
    EXIT_NO_MESSAGE,
    ReaderGone,
    announce,
    complain,
    end_when_interrupted,
    end_when_terminated,
    end_with_parent,
    keep_log,
    note,
    print_json,
    print_table,
    report,
    run,
    table,
    take_streams,
)

__all__ = [
    "EXIT_ERROR",
    "EXIT_NO_MESSAGE",
    "ReaderGone",
    "announce",
    "complain",
    "end_when_interrupted",
    "end_when_terminated",
    "end_with_parent",
    "keep_log",
    "note",
    "print_json",
    "print_table",
    "report",
    "run",
    "table",
    "take_streams",
]
