"""Whose turn it is to drive the sockets: the I/O thread's, or that of a caller who waits for its answer.

A hand-over between threads costs a synchronous put a quarter of its time, so a caller drives the sockets itself, and
when it is done the I/O thread leaves them alone for a short grace: the next call finds them free. Only where none
comes does the I/O thread take them back, since what arrives must be handled though nobody waits for it. A caller who
finds another at the sockets sleeps until that one has done its work for it, or leaves: then one of those whose work is
not done is woken to drive. To wake all for each answer cost a put more than all else where many threads waited. Who was
woken, and leaves without having driven, wakes the next one.

The lock is what orders the threads' use of the sockets; ZeroMQ asks for no more than that. It knows its owner, since an
interrupt (Ctrl-C) may strike between taking it and the `try` that gives it back: whoever leaves gives back what is his.
For the same reason each who waits has a lock of his own, which the driver opens, and no `Condition`, whose inner lock
an interrupt can leave taken.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import Lock, RLock, get_ident
from typing import Final

from pubsub.base.clock import Clock

_NAP_SECONDS: Final = 1.0
"""A caller who sleeps looks so often by itself: a missed word costs so much at most, never a hang."""


def _is_over(done: Callable[[], bool]) -> bool:
    """Whether a caller is to be woken to see for himself: his work is done, or he is told by an exception."""
    try:
        return done()
    except Exception:  # noqa: BLE001 - it is raised again where he waits.
        return True


def _closed_lock() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock


def _open(lock: Lock) -> None:
    """Let go who waits for it; where nobody does yet, he will not wait."""
    with suppress(RuntimeError):  # The lock is free already, or another thread released it first.
        lock.release()


class Driving:
    """The right to drive, which one thread has at a time.

    Args:
        clock: for the grace.
        grace_seconds: how long the I/O thread leaves the sockets alone after a caller drove them.
        wake: makes the driver return from its sleep; callable from any thread.
    """

    def __init__(self, clock: Clock, grace_seconds: float, wake: Callable[[], None]) -> None:
        self._clock, self._grace, self._wake = clock, grace_seconds, wake
        self._lock = RLock()
        self._waiting: dict[int, tuple[Lock, Callable[[], bool]]] = {}
        self._thread_waits = _closed_lock()
        self._grace_until = clock.monotonic() + grace_seconds
        self._since = 0.0
        self._parked = False

    @property
    def callers(self) -> int:
        """Callers who wait to drive, or for the driver to do their work; the I/O thread gives way to them."""
        return len(self._waiting)

    def try_take(self) -> bool:
        """Take the turn if it is free; not if this thread has it already."""
        return not self.is_mine() and self._lock.acquire(blocking=False)

    def is_mine(self) -> bool:
        """Whether this thread has the turn."""
        # As `Condition` asks it; no variable of ours could be set in the same instant as the lock.
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def give_up(self) -> None:
        """End a turn that was too short to speak of, a look or a send; nothing where this thread has none."""
        if self.is_mine():
            self._lock.release()
            self._tell()

    def caller_takes(self, done: Callable[[], bool], deadline: float) -> bool:
        """Take the turn as a caller.

        Args:
            done: what the caller waits for; another driver may bring it about.
            deadline: on the monotonic clock, in seconds.

        Returns:
            True when this thread has the turn; False when `done()` or too late.
        """
        if not self.try_take():
            mine = _closed_lock()
            self._waiting[get_ident()] = mine, done
            try:
                self._wake()  # The I/O thread sees us and gives way; another caller goes back to sleep.
                while not self.try_take():
                    left = deadline - self._clock.monotonic()
                    if left <= 0 or done():
                        return False
                    mine.acquire(timeout=min(left, _NAP_SECONDS))
            finally:
                self._waiting.pop(get_ident(), None)
                if not self.is_mine():
                    self._pass_on()
        self._since = self._clock.monotonic()
        return True

    def caller_gives(self) -> None:
        """End the turn of a caller; nothing where this thread has none."""
        if self.is_mine():
            self._grace_until = self._clock.monotonic() + self._grace
            self._lock.release()
            self._tell()

    def recover(self) -> None:
        """An exception left a caller, wherever it struck: he waits for nothing any more, and has no turn."""
        self._waiting.pop(get_ident(), None)
        self.announce()
        self.caller_gives()

    def announce(self) -> None:
        """Let all callers who wait look at what they wait for."""
        for waiting, _ in tuple(self._waiting.values()):
            _open(waiting)

    def announce_done(self) -> bool:
        """Let those callers go whose work the driver did; whether others wait on."""
        others = False
        for waiting, done in tuple(self._waiting.values()):
            if _is_over(done):
                _open(waiting)
            else:
                others = True
        return others

    def _pass_on(self) -> None:
        """A caller leaves who may have been the one that was woken to drive."""
        if self._waiting and self.try_take():  # Else whoever has the turn tells when he gives it.
            self._lock.release()
            self._wake_one()

    def _wake_one(self) -> None:
        """Have one of the callers whose work is not done see whether the turn is free."""
        for waiting, done in tuple(self._waiting.values()):
            if not _is_over(done):
                _open(waiting)
                return

    def stop(self) -> None:
        """Let everybody see that it is over."""
        self.announce()
        _open(self._thread_waits)

    def _tell(self) -> None:
        if self._waiting:
            if self.announce_done():
                self._wake_one()
        elif self._parked:
            _open(self._thread_waits)

    def thread_takes(self, stopped: Callable[[], bool]) -> bool:
        """Take the turn as the I/O thread, when no caller has it, wants it or had it just now; False when stopped."""
        while not stopped():
            now = self._clock.monotonic()
            free = not self._waiting and now >= self._grace_until
            if free and self._lock.acquire(blocking=False):
                return True
            # Special case: a caller drives for long. It is not to be asked again and again; it will say so.
            self._parked = bool(self._waiting) or (free and now - self._since > self._grace)
            # A missed word costs one second at most, never a hang.
            self._thread_waits.acquire(timeout=1.0 if self._parked else max(self._grace_until - now, self._grace / 4))
            self._parked = False
        return False

    def thread_gives(self) -> None:
        """End the turn of the I/O thread."""
        self._lock.release()
        self._tell()
