"""The clocks of this machine, as the store's own time needs them (see `core.elapsed`)."""

from __future__ import annotations

import time
from typing import Final, Protocol

from pubsub.client.opening import boot_id

_UPTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class HttpClock(Protocol):
    """Where the time comes from."""

    def uptime(self) -> float:
        """Seconds since the machine started, suspension included; only ever more."""

    def wall(self) -> float:
        """Seconds since 1970; may be set at any time."""

    def boot(self) -> str:
        """Which start of the machine this is; "" where that is not known."""


class MachineClock:
    """This machine's."""

    def uptime(self) -> float:
        """Seconds since the machine started, suspension included."""
        return time.clock_gettime(_UPTIME)

    def wall(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def boot(self) -> str:
        """Which start of the machine this is; "" where that is not known."""
        return boot_id()
