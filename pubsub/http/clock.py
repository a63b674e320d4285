"""The clocks of this machine, as the store's own time needs them (see `core.elapsed`)."""

from __future__ import annotations

import time
from typing import Final, Protocol

from pubsub.client.session_parts import boot_id

_UPTIME: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class HttpClock(Protocol):
    """The source of time."""

    def uptime(self) -> float:
        """Seconds since the machine started, including suspension; never decreases."""

    def wall(self) -> float:
        """Seconds since 1970; may be set at any time."""

    def boot(self) -> str:
        """Identity of the machine's current boot, "" if unknown."""


class MachineClock:
    def uptime(self) -> float:
        return time.clock_gettime(_UPTIME)

    def wall(self) -> float:
        return time.time()

    def boot(self) -> str:
        return boot_id()
