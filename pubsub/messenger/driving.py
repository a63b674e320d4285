"""Decides which thread drives the sockets: the I/O thread, or a caller that waits for its answer.

A hand-over between threads costs a synchronous put a quarter of its time. So a waiting caller drives the sockets
itself. Afterwards the I/O thread leaves the sockets alone for a short grace, so that the next call finds them free. If
no call comes, the I/O thread takes them back, because arriving messages must be handled even if no caller waits. A
caller that finds another thread at the sockets sleeps until that thread is done, or has done the caller's work.

A lock orders the threads' use of the sockets, as ZeroMQ requires. The lock knows its owner, because an interrupt
(Ctrl-C) may strike between taking the lock and the `try` that releases it: a leaving thread releases only its own
lock. For the same reason each waiter has its own lock, which the driver opens. A `Condition` has an inner lock that an
interrupt can leave taken.

Waking a thread is the most expensive part of an answer. So the driver wakes only the waiters with finished work. When
no thread drives any more, it wakes one further waiter. If that waiter leaves without driving, because of its deadline
or an interrupt, it wakes another one.

The rules are those of docs/explanation/client-session.md, D5, D6 and D7.
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
    """A waiting caller.

    Attributes:
        done: returns True when the caller's work is done.
        lock: opened to wake the caller.
        chosen: the caller was woken to drive.
        outer: an earlier wait of the same thread, if the present one runs in a signal handler.
    """

    __slots__ = ("chosen", "done", "lock", "outer")

    def __init__(self, done: Callable[[], bool], outer: _Waiter | None) -> None:
        self.done, self.lock, self.chosen, self.outer = done, _closed_lock(), False, outer

    def has_it(self) -> bool:
        """Return True if `done` returns True or raises; the caller then sees the exception on its own thread."""
        try:
            return self.done()
        except Exception:  # noqa: BLE001 - the caller calls `done` again and gets the exception on its own thread.
            return True


def _open(lock: Lock) -> None:
    """Wake the thread that waits for the lock, or let the next wait return at once."""
    with suppress(RuntimeError):  # The lock is free already, or another thread was first.
        lock.release()


class Driving:
    """The right to drive the sockets; one thread has it at a time.

    Args:
        grace_seconds: time for which the I/O thread leaves the sockets alone after a caller drove them.
        wake: ends the sleep of the driving thread; safe from any thread.
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
        """Number of callers that wait to drive or for their work; the I/O thread gives way to them."""
        return len(self._waiting)

    def try_take(self) -> bool:
        """Take the turn if it is free; False also if this thread has it already."""
        return not self.is_mine() and self._lock.acquire(blocking=False)

    def is_mine(self) -> bool:
        return holds(self._lock)

    def give_up(self) -> None:
        """End a short turn without a grace; does nothing if this thread has no turn."""
        if self.is_mine():
            self._lock.release()
            self._tell()

    def caller_takes(self, done: Callable[[], bool], deadline: float) -> bool:
        """Take the turn as a caller.

        Args:
            done: returns True when the caller's work is done; another driver may do it.
            deadline: on the monotonic clock, in seconds.

        Returns:
            True when this thread has the turn; False when `done()` returns True or the deadline has passed.
        """
        if not self.try_take():
            mine = _Waiter(done, self._waiting.get(get_ident()))
            self._waiting[get_ident()] = mine
            try:
                if self._thread_drives:
                    self._wake()  # The I/O thread gives way to us; another caller would go back to sleep.
                while True:
                    mine.chosen = (
                        False  # Reset it before the try: the present driver chooses again when it gives up the turn.
                    )
                    if self.try_take():
                        break
                    left = deadline - self._clock.monotonic()
                    if left <= 0 or done():
                        return False
                    mine.lock.acquire(timeout=min(left, TIMEOUT_MAX))
            except BaseException:
                mine.chosen = True  # It may have been chosen just now, and cannot drive any more.
                raise
            finally:
                self._leave()
        self._since = self._clock.monotonic()
        return True

    def caller_gives(self) -> None:
        """End the turn of a caller; does nothing if this thread has no turn."""
        if self.is_mine():
            self._grace_until = self._clock.monotonic() + self._grace
            self._lock.release()
            self._tell()

    def recover(self) -> None:
        """Clean up after an exception in a caller: end its wait and its turn."""
        self._leave()
        self.caller_gives()
        self._tell()  # The exception may have come between giving back the turn and waking the next thread.

    def _leave(self) -> None:
        """End this thread's wait. Wake another thread if this one was chosen to drive, or if no other caller waits."""
        mine = self._waiting.pop(get_ident(), None)
        if mine is None:
            return
        if mine.outer is not None:
            self._waiting[get_ident()] = mine.outer
        if not self.is_mine() and (mine.chosen or not self._waiting):
            self._tell()

    def announce(self) -> None:
        """Wake the callers that `done` returns True for."""
        for waiter in tuple(self._waiting.values()):
            if waiter.has_it():
                _open(waiter.lock)

    def stop(self) -> None:
        """Wake all threads because the loop ends."""
        for waiter in tuple(self._waiting.values()):
            _open(waiter.lock)
        _open(self._thread_waits)

    def _tell(self) -> None:
        """Wake the callers that `done` returns True for, and one other thread to drive."""
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
        """Take the turn as the I/O thread when no caller has it, wants it, or had it within the grace. False when
        stopped.
        """
        while not stopped():
            now = self._clock.monotonic()
            free = not self._waiting and now >= self._grace_until
            if free and self._lock.acquire(blocking=False):
                self._parked, self._thread_drives = False, True
                return True
            # Special case: a caller drives for a long time. Wait until it wakes this thread instead of polling.
            long = bool(self._waiting) or (free and now - self._since > self._grace)
            if long and not self._parked:
                self._parked = True  # Look once more: the turn may have been given back just before `_parked` was set.
                continue
            self._thread_waits.acquire(timeout=1.0 if long else max(self._grace_until - now, self._grace / 4))
            self._parked = False
        return False

    def thread_gives(self) -> None:
        self._thread_drives = False
        self._lock.release()
        self._tell()
