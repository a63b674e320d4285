"""Whose turn it is to drive the sockets: the I/O thread's, or that of a caller who waits for its answer.

A hand-over between threads costs a synchronous put a quarter of its time, so a caller drives the sockets itself, and
when it is done the I/O thread leaves them alone for a short grace: the next call finds them free. Only where none
comes does the I/O thread take them back, since what arrives must be handled though nobody waits for it. A caller who
finds another at the sockets sleeps until that one is done, or has done its work for it.

The lock is what orders the threads' use of the sockets; ZeroMQ asks for no more than that. It knows its owner, since an
interrupt (Ctrl-C) may strike between taking it and the `try` that gives it back: whoever leaves gives back what is his.
For the same reason each who waits has a lock of his own, which the driver opens, and no `Condition`, whose inner lock
an interrupt can leave taken.

Waking a thread costs more than all else that an answer makes the driver do, so only those are woken who have what they
wait for, and of the others one when nobody drives any more. Who was woken to drive and leaves without having driven
(its time is over, or it was interrupted) wakes another one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from threading import TIMEOUT_MAX, Lock, RLock, get_ident

from pubsub.base.clock import Clock
from pubsub.base.locks import holds


def _closed_lock() -> Lock:
    lock = Lock()
    lock.acquire()
    return lock


class _Waiter:
    """A caller who waits.

    Attributes:
        done: what for; lock: who opens it wakes him; chosen: he was woken to drive.
        outer: the same thread, which waits already, and is in a signal's handler now.
    """

    __slots__ = ("chosen", "done", "lock", "outer")

    def __init__(self, done: Callable[[], bool], outer: _Waiter | None) -> None:
        self.done, self.lock, self.chosen, self.outer = done, _closed_lock(), False, outer

    def has_it(self) -> bool:
        """Whether it waits for nothing any more, or is itself to find out what is wrong with what it waits for."""
        try:
            return self.done()
        except Exception:  # noqa: BLE001 - it is raised where that caller looks, on its own thread.
            return True


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
        self._waiting: dict[int, _Waiter] = {}
        self._thread_waits = _closed_lock()
        self._grace_until = clock.monotonic() + grace_seconds
        self._since = 0.0
        self._parked = self._thread_drives = False

    @property
    def callers(self) -> int:
        """Callers who wait to drive, or for the driver to do their work; the I/O thread gives way to them."""
        return len(self._waiting)

    def try_take(self) -> bool:
        """Take the turn if it is free; not if this thread has it already."""
        return not self.is_mine() and self._lock.acquire(blocking=False)

    def is_mine(self) -> bool:
        """Whether this thread has the turn."""
        return holds(self._lock)

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
            mine = _Waiter(done, self._waiting.get(get_ident()))
            self._waiting[get_ident()] = mine
            try:
                if self._thread_drives:
                    self._wake()  # It sees us and gives way; another caller would go back to sleep.
                while True:
                    mine.chosen = False  # Before the try: who has the turn chooses again when giving it up.
                    if self.try_take():
                        break
                    left = deadline - self._clock.monotonic()
                    if left <= 0 or done():
                        return False
                    mine.lock.acquire(timeout=min(left, TIMEOUT_MAX))
            except BaseException:
                mine.chosen = True  # For all we know it was, and is interrupted before it drives.
                raise
            finally:
                self._leave()
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
        self._leave()
        self.caller_gives()
        self._tell()  # It may have struck when the turn was given back, or the waiter gone, and nobody told of it yet.

    def _leave(self) -> None:
        """This thread waits no more. Where it was to drive and does not, or nobody else waits, another one is told."""
        mine = self._waiting.pop(get_ident(), None)
        if mine is None:
            return
        if mine.outer is not None:
            self._waiting[get_ident()] = mine.outer
        if not self.is_mine() and (mine.chosen or not self._waiting):
            self._tell()

    def announce(self) -> None:
        """Let the callers go whose work the driver did."""
        for waiter in tuple(self._waiting.values()):
            if waiter.has_it():
                _open(waiter.lock)

    def stop(self) -> None:
        """Let everybody see that it is over."""
        for waiter in tuple(self._waiting.values()):
            _open(waiter.lock)
        _open(self._thread_waits)

    def _tell(self) -> None:
        """Nobody drives: let the callers go who wait for nothing any more, and have another one drive."""
        drives = False
        for waiter in tuple(self._waiting.values()):
            if waiter.has_it():
                _open(waiter.lock)
            elif not drives:
                drives = waiter.chosen = True
                _open(waiter.lock)
        if not drives and self._parked:
            _open(self._thread_waits)

    def thread_takes(self, stopped: Callable[[], bool]) -> bool:
        """Take the turn as the I/O thread, when no caller has it, wants it or had it just now; False when stopped."""
        while not stopped():
            now = self._clock.monotonic()
            free = not self._waiting and now >= self._grace_until
            if free and self._lock.acquire(blocking=False):
                self._parked, self._thread_drives = False, True
                return True
            # Special case: a caller drives for long. It is not to be asked again and again; it will say so.
            long = bool(self._waiting) or (free and now - self._since > self._grace)
            if long and not self._parked:
                self._parked = True  # And one look more: who gives the turn back behind that look says so.
                continue
            self._thread_waits.acquire(timeout=1.0 if long else max(self._grace_until - now, self._grace / 4))
            self._parked = False
        return False

    def thread_gives(self) -> None:
        """End the turn of the I/O thread."""
        self._thread_drives = False
        self._lock.release()
        self._tell()
