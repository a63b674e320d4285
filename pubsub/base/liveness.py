"""Heartbeat bookkeeping, both ways (Paranoid Pirate; docs/architecture.md, *Ownership*).

Whoever was not heard for `liveness` intervals counts as dead. Any traffic counts as a sign of life; a heartbeat is
sent only where nothing else went out for an interval, so a busy link carries none.
"""

from __future__ import annotations


class Liveness:
    """One peer's signs of life, and ours to it.

    Args:
        interval: seconds between heartbeats.
        liveness: intervals of silence after which the peer counts as dead.
        now: the monotonic clock, in seconds; the peer counts as heard now.
    """

    __slots__ = ("_heard", "_interval", "_sent", "patience")

    def __init__(self, interval: float, liveness: int, now: float) -> None:
        self._interval = interval
        self.patience = interval * liveness
        self._heard = now
        self._sent = now - interval

    def heard(self, now: float) -> None:
        """Something came from the peer."""
        self._heard = now

    def sent(self, now: float) -> None:
        """Something went to the peer."""
        self._sent = now

    def forget(self) -> None:
        """The peer is known to be gone: it counts as dead until it is heard again."""
        self._heard = float("-inf")

    def alive(self, now: float) -> bool:
        """Whether the peer was heard within its patience."""
        return now - self._heard < self.patience

    def silence(self, now: float) -> float:
        """Seconds since the peer was heard."""
        return now - self._heard

    def due(self, now: float) -> bool:
        """Whether a heartbeat is to be sent."""
        # The sum of `deadline`: with another one rounding could leave a heartbeat not due at its own deadline.
        return now >= self.deadline()

    def deadline(self) -> float:
        """When the next heartbeat is to be sent."""
        return self._sent + self._interval

    def expiry(self) -> float:
        """When the peer counts as dead if nothing comes."""
        return self._heard + self.patience
