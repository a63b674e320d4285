"""Commands that are started for somebody, and do not outlive an exception that a signal's handler raises meanwhile.

`subprocess.Popen` starts the command before it knows of it. What a handler raises in between (Ctrl-C is one) leaves a
command that nobody waits for and nobody ends, while its request is done once more by somebody else.
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
    """Start a command. Signals that come meanwhile are handled as soon as it runs; it is ended where that raises.

    Args:
        words: the command and its arguments; named: as of `subprocess.Popen`.

    Raises:
        OSError, ValueError: it cannot be run. Whatever a signal's handler raises.
    """
    came: list[int] = []
    handlers: dict[int, Any] = {}
    try:
        if threading.current_thread() is threading.main_thread():  # No other one runs handlers, or may set them.
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
    """Kill a command that was not waited for yet; `group`: it leads a process group, all of which is killed."""
    if group and child.returncode is None:  # Until it is waited for its process ID, and that of its group, is its own.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
    child.kill()
