"""Starts commands so that an exception from a signal handler leaves none of them running.

`subprocess.Popen` starts the command before it records it. If a handler raises in between (Ctrl-C does), the command
would run on unobserved, and another process would repeat its request.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

_SIGNALS: Final[tuple[int, ...]] = (signal.SIGINT, signal.SIGTERM)


def started(words: Sequence[str], **named: Any) -> subprocess.Popen[bytes]:
    """Start a command. Signals during the start are handled when it runs; if a handler raises, the command is killed.

    Args:
        words: the command and its arguments.
        named: keyword arguments of `subprocess.Popen`.

    Raises:
        OSError, ValueError: the command cannot be run. Any exception of a signal handler.
    """
    came: list[int] = []
    handlers: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # Only it runs handlers, and may set them.
            for number in _SIGNALS:
                if callable(handler := signal.getsignal(number)):
                    handlers[number] = handler
                    signal.signal(number, lambda number, _: came.append(number))
        child: subprocess.Popen[bytes] = subprocess.Popen(list(words), **named)  # noqa: S603 - the user's own.
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    try:
        for number in came:
            handlers[number](number, None)
    except BaseException:
        with child:
            end(child, group=named.get("process_group") == 0)
        raise
    return child


def end(child: subprocess.Popen[bytes], *, group: bool) -> None:
    """Kill a command that was not waited for yet; with `group`, the whole process group that it leads."""
    if group and child.returncode is None:  # Its IDs cannot be reused before it is waited for.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
