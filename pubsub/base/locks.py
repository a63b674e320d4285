"""Asks a lock itself whether the calling thread holds it.

An exception from a signal handler may arrive between any two instructions of the main thread. It may arrive after a
lock was acquired and before a line could record that. So only the lock itself knows. `_is_owned` is no public method,
but `threading.Condition` calls it on its lock in every release of Python.
"""

from __future__ import annotations

from threading import RLock


def holds(lock: RLock) -> bool:
    """Return whether the calling thread holds the lock."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def release_all(lock: RLock) -> None:
    """Release the lock as often as the calling thread holds it, possibly never."""
    while holds(lock):
        lock.release()
