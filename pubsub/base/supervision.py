"""Tells systemd that a process is ready, that its loop turns, and that it stops: sd_notify(3), without a library.

systemd names a datagram socket in NOTIFY_SOCKET if the unit has `Type=notify`. WATCHDOG_USEC is the silence after which
it restarts the process. The working loop itself reports its turns, and no other thread does, so a loop that hangs falls
silent.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping
from typing import Final

SEND_SECONDS: Final = 1.0
"""Time limit for a service manager that does not read."""

PARTS: Final = 3
"""Reports in the watchdog's time. A loop sleeps no longer than the time between two of them."""

_log: Final = logging.getLogger(__name__)


def notify(state: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send the service manager, if there is one, a state such as `READY=1`.

    A failure is only logged, because the process can work without it.
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
        _log.warning("the service manager at %s did not get %s: %s", address, state, error.strerror or error)


class Watchdog:
    """Reports the turns of one loop.

    Args:
        environment: the variables that systemd sets for this process; empty to report nothing.

    Attributes:
        wait_ms: the longest time that the loop may sleep.
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
        """Report a turn of the loop if a report is due.

        Args:
            now: monotonic seconds.
        """
        if now >= self._due:
            self._due = now + self._interval
            notify("WATCHDOG=1", self._environment)

    def stopping(self) -> None:
        """Report that the process stops."""
        notify("STOPPING=1", self._environment)


OFF: Final = Watchdog({})
"""Reports nothing, for a loop that shares its process with others."""
