"""Heartbeats of a worker: when it sends one, and when it counts its queue or broker as dead.

Both ends have an interval and a liveness of their own, and the protocols cannot negotiate them. So a worker adapts:

* A broker may send heartbeats more often than the worker. Each is answered with one, so that the broker receives
  heartbeats as often as it expects them.
* A broker may be silent for longer than the worker's patience. The worker gives it up, and waits twice as long the next
  time. Two heartbeats in a row then show the broker's interval. The patience becomes that interval times the liveness.
* While the worker is busy, silence means nothing: the Guide's broker and queue send heartbeats to idle workers only.

A worker that has itself sent nothing for its patience was given up by the broker, and its work may be with another
worker. It *stood still*: its process or its machine was paused. It does not begin the requests in its socket.
"""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS_MAX: Final = 300.0
"""Longest silence that a worker allows a broker, however slow its heartbeats are."""


class Heartbeats:
    """The heartbeats of a worker over successive connections.

    Args:
        seconds: interval between heartbeats if nothing else is sent.
        liveness: silent intervals after which the other side counts as dead.

    Attributes:
        said: monotonic time of the last sent message.
    """

    def __init__(self, seconds: float, liveness: int) -> None:
        self.seconds, self._liveness = seconds, liveness
        self._own = self._patience = seconds * liveness
        self._heard = self._idle_since = self.said = 0.0
        self._only_beats = True
        """Whether only heartbeats came since the last heartbeat."""

    def begin(self, now: float) -> None:
        """Start with a new connection, on which READY was sent."""
        self._heard = self._idle_since = self.said = now
        self._only_beats = True

    def received(self, now: float) -> bool:
        """Note a message other than a heartbeat. Return True if a heartbeat is due before the work begins.

        Without that heartbeat the broker would soon give the worker up.
        """
        self._heard, self._only_beats = now, False
        return self.beat_due(now)

    def heard_beat(self, now: float) -> bool:
        """Note a heartbeat. Return True if it must be answered with one now."""
        gap = now - max(self._heard, self._idle_since)
        pace = self.seconds
        if self._only_beats:
            pace = min(pace, gap)
            if self._patience > self._own:
                self._patience = min(PATIENCE_SECONDS_MAX, max(self._own, self._liveness * gap))
        self._heard, self._only_beats = now, True
        # A heartbeat that is due soon leaves now, so that the broker wakes once for many workers.
        return now > self.said and now >= self.said + pace / 2

    def idle(self, now: float) -> None:
        """Note that the worker is idle. The silence of the other side counts from now on."""
        self._idle_since = now

    def silent(self, now: float) -> float:
        """Seconds of the other side's silence if it is too long for an idle worker, 0 otherwise."""
        since = max(self._heard, self._idle_since)
        return now - since if now >= since + self._patience else 0.0

    def give_up(self) -> None:
        """Note that the other side was given up for its silence."""
        self._patience = max(self._own, min(PATIENCE_SECONDS_MAX, 2 * self._patience))

    def stood_still(self, now: float) -> float:
        """Seconds since this worker sent something, if the other side has given it up for that; 0 otherwise."""
        return now - self.said if now >= self.said + self._own else 0.0

    def beat_due(self, now: float) -> bool:
        return now >= self.said + self.seconds

    def due(self, *, busy: bool) -> float:
        """Time of the next check of `beat_due` and, for an idle worker, of `silent` and `stood_still`."""
        beat = self.said + self.seconds
        return beat if busy else min(beat, max(self._heard, self._idle_since) + self._patience)
