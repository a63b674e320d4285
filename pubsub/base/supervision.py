"""Tells systemd that a process is ready, that its loop turns, and that it stops: sd_notify(3), without a library.

systemd names a datagram socket in NOTIFY_SOCKET, where the unit has `Type=notify`, and in WATCHDOG_USEC the silence
after which it restarts the process. The loop that does the work reports its own turns, so that a loop that hangs falls
silent; no thread reports for it.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

SEND_SECONDS: Final = 1.0
"""Patience with a service manager that does not read."""

PARTS: Final = 3
"""A report is due in each such part of the watchdog's time, and a loop sleeps no longer than one."""

_log: Final = logging.getLogger(__name__)


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Tell the service manager, where there is one, a state such as `READY=1`.

    A failure is logged: the process can do its work without being heard.
    """
    address = environment.get("NOTIFY_SOCKET", "")
    if address[:1] not in {"/", "@"}:
        return
    place = "\0" + address[1:] if address[0] == "@" else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.settimeout(SEND_SECONDS)
            sock.sendto(state.encode(), place)
    except OSError as error:
        _log.warning("the service manager at %s was not told %s: %s", address, state, error.strerror or error)


class Watchdog:
    """Reports the turns of one loop.

    Args:
        environment: as systemd sets it for this process. Empty: nothing is reported.

    Attributes:
        wait_ms: the longest that the loop may sleep.
    """

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        microseconds = self._environment.get("WATCHDOG_USEC", "")
        meant = self._environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        on = meant and microseconds.isdecimal() and int(microseconds) > 0
        self._interval = int(microseconds) / 1e6 / PARTS if on else float("inf")
        self._due = 0.0 if on else float("inf")
        self.wait_ms = max(1, int(self._interval * 1000)) if on else 1 << 30

    def turned(self, now: float) -> None:
        """The loop has turned once more.

        Args:
            now: monotonic seconds.
        """
        if now >= self._due:
            self._due = now + self._interval
            notify("WATCHDOG=1", self._environment)

    def stopping(self) -> None:
        """The loop has ended, and the process stops."""
        notify("STOPPING=1", self._environment)


OFF: Final = Watchdog({})
"""Reports nothing: of a loop that shares its process with others."""
