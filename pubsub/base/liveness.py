"""Heartbeats, both ways (Paranoid Pirate; docs/explanation/ownership.md, *Announcements*).

A peer that is silent for `liveness` intervals counts as dead. Any message is a sign of life. A heartbeat is sent only
if nothing was sent for an interval, so a busy link has none.
"""

from __future__ import annotations


class Liveness:
    """The signs of life of one peer, and ours to it.

    Args:
        interval: seconds between heartbeats.
        liveness: intervals of silence after which the peer counts as dead.
        now: the monotonic clock, in seconds; the peer counts as alive now.
    """

    __slots__ = ("_interval", "_received", "_sent", "patience")

    def __init__(self, interval: float, liveness: int, now: float) -> None:
        self._interval = interval
        self.patience = interval * liveness
        self._received = now
        self._sent = now - interval

    def received(self, now: float) -> None:
        """Record a message from the peer."""
        self._received = now

    def sent(self, now: float) -> None:
        """Record a message to the peer."""
        self._sent = now

    def forget(self) -> None:
        """Count the peer as dead until its next message."""
        self._received = float("-inf")

    def alive(self, now: float) -> bool:
        """Return whether the peer's last message is recent enough."""
        return now - self._received < self.patience

    def silence(self, now: float) -> float:
        """Return the seconds since the peer's last message."""
        return now - self._received

    def due(self, now: float) -> bool:
        """Return whether a heartbeat has to be sent."""
        # Use the sum in `deadline`. A different expression could round differently, so that a heartbeat is not due at
        # its own deadline.
        return now >= self.deadline()

    def deadline(self) -> float:
        """Return the time of the next heartbeat."""
        return self._sent + self._interval

    def expiry(self) -> float:
        """Return the time at which the peer counts as dead if no message arrives."""
        return self._received + self.patience
