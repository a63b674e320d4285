"""Token buckets: at most a number of units in a second, on average, and at most a second's worth at once.

Any amount goes while the bucket holds a unit, and may leave a debt, which the next one has to wait for. So a large
amount waits no longer than a small one, however many small ones there are, and the average holds.
"""

from __future__ import annotations

from math import ceil


class Bucket:
    """The bucket of one quota; it is full at first.

    Args:
        rate: units a second, above 0.
        now: the monotonic clock, in seconds.
    """

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: int, now: float) -> None:
        self.rate = rate
        self._level, self._at = float(rate), now

    def wait(self, now: float) -> float:
        """Return the seconds until an amount may be taken; 0: it may be taken now."""
        if now > self._at:
            self._level = min(float(self.rate), self._level + (now - self._at) * self.rate)
            self._at = now
        missing = 1.0 - self._level
        return missing / self.rate if missing > 0 else 0.0

    def take(self, amount: int) -> None:
        """Take an amount, which `wait` has allowed."""
        self._level -= amount


class Pace:
    """The two quotas of a topic or of a client: records and bytes a second, each None for no limit.

    Attributes:
        quota: both.
        held: number of requests that were put off.
        held_seconds: time during which the next request had to wait.
    """

    __slots__ = ("_buckets", "_until", "held", "held_seconds", "quota")

    def __init__(self, quota: tuple[int | None, int | None], now: float) -> None:
        self.quota = quota
        self._buckets = tuple(None if rate is None else Bucket(rate, now) for rate in quota)
        self.held, self.held_seconds, self._until = 0, 0.0, now

    def after(self, now: float) -> int:
        """Return the milliseconds until the next request may go; 0: it may go now."""
        seconds = max([0.0 if bucket is None else bucket.wait(now) for bucket in self._buckets])
        if seconds <= 0:
            return 0
        self.held += 1
        self.held_seconds += max(0.0, now + seconds - max(now, self._until))
        self._until = max(self._until, now + seconds)
        return ceil(seconds * 1000)

    def take(self, records: int, size: int) -> None:
        """Count a request that goes."""
        for bucket, amount in zip(self._buckets, (records, size), strict=True):
            if bucket is not None:
                bucket.take(amount)
