"""Heartbeat batching: a service with a thousand idle workers reads their heartbeats in groups.

To wake for each heartbeat costs more than all other work. While many messages come and none needs an action, they
gather for BATCHING_SECONDS. The first message that needs an action ends the batching. So the first call after an idle
time may wait BATCHING_SECONDS. With few workers nothing waits.

The rule is docs/explanation/services-engine.md, E10.
"""

from __future__ import annotations

from typing import Final

BATCHING_SECONDS: Final = 0.02

MESSAGES_MAX: Final = 100
"""Messages without an action, per second, above which messages gather."""

WORK_SECONDS: Final = 0.25
"""Time after the last action during which messages do not gather."""


class HeartbeatBatching:
    """Decides whether to wake for each message."""

    def __init__(self) -> None:
        self._worked_at = self._since = float("-inf")
        self._idle = self._idle_before = 0

    def took(self, messages: int, now: float, *, worked: bool) -> None:
        if worked:
            self._worked_at = now
        else:
            self._idle += messages

    def batching_seconds(self, now: float) -> float:
        """Seconds for which messages may gather; 0: read each at once."""
        if now - self._since >= 1.0:
            self._idle_before = self._idle if now - self._since < 2.0 else 0
            self._since, self._idle = now, 0
        if self._idle_before < MESSAGES_MAX or now - self._worked_at < WORK_SECONDS:
            return 0.0
        return BATCHING_SECONDS
