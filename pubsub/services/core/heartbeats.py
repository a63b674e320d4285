"""Heartbeats of a worker: when it sends one, and when it takes its queue or broker for dead.

Both ends have an interval and a liveness of their own, and the protocols cannot agree on them. So a worker adapts:

* Of a broker that sends heartbeats more often than the worker does, each is answered by one. It hears the worker as
  often as it expects to.
* A broker that is silent for longer than the worker's patience is given up, and waited for twice as long the next time.
  Two heartbeats in a row then tell its interval, and the patience is that interval times the liveness.
* While the worker works, silence means nothing: the Guide's broker and queue send heartbeats to idle workers only.

A worker that itself was silent for its patience was given up by the broker, and its work may be with another one. It
*stood still*: its process was stopped, or the machine was. What it finds in its socket then is not begun.
"""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS_MAX: Final = 300.0
"""Of silence of a broker, however slow its heartbeats are."""


class Heartbeats:
    """The heartbeats of one connection after another.

    Args:
        seconds: between heartbeats where nothing else is sent.
        liveness: such intervals of silence after which the other side counts as dead.

    Attributes:
        seconds: as given.
        said: when something was sent last, on the monotonic clock in seconds.
    """

    def __init__(self, seconds: float, liveness: int) -> None:
        self.seconds, self._liveness = seconds, liveness
        self._own = self._patience = seconds * liveness
        self._heard = self._idle_since = self.said = 0.0
        self._only_beats = True
        """Whether nothing but a heartbeat came since the last one."""

    def begin(self, now: float) -> None:
        """A connection is new, and READY was sent."""
        self._heard = self._idle_since = self.said = now
        self._only_beats = True

    def heard(self, now: float) -> bool:
        """Something else than a heartbeat came; whether one is to be sent now, before the work begins.

        The broker is about to give the worker up then.
        """
        self._heard, self._only_beats = now, False
        return self.beat_due(now)

    def heard_beat(self, now: float) -> bool:
        """A heartbeat came; whether it is to be answered by one now."""
        gap = now - max(self._heard, self._idle_since)
        pace = self.seconds
        if self._only_beats:
            pace = min(pace, gap)
            if self._patience > self._own:
                self._patience = min(PATIENCE_SECONDS_MAX, max(self._own, self._liveness * gap))
        self._heard, self._only_beats = now, True
        # A beat that is due soon goes out while both are awake: the broker is woken once for many workers.
        return now > self.said and now >= self.said + pace / 2

    def idle(self, now: float) -> None:
        """The worker has nothing to do any more: silence counts from now on."""
        self._idle_since = now

    def silent(self, now: float) -> float:
        """For how long the other side has been silent, where that is too long; otherwise 0. For idle workers."""
        since = max(self._heard, self._idle_since)
        return now - since if now >= since + self._patience else 0.0

    def give_up(self) -> None:
        """The other side is given up for its silence."""
        self._patience = max(self._own, min(PATIENCE_SECONDS_MAX, 2 * self._patience))

    def stood_still(self, now: float) -> float:
        """For how long this worker has sent nothing, where the other side has given it up for that; otherwise 0."""
        return now - self.said if now >= self.said + self._own else 0.0

    def beat_due(self, now: float) -> bool:
        """Whether a heartbeat is to be sent."""
        return now >= self.said + self.seconds

    def due(self, *, busy: bool) -> float:
        """When `beat_due` or, of an idle worker, `silent` or `stood_still` is to be looked at."""
        beat = self.said + self.seconds
        return beat if busy else min(beat, max(self._heard, self._idle_since) + self._patience)
