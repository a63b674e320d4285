"""Which locks the calling thread holds, asked of the lock itself.

An exception of a signal's handler may strike between any two instructions of the main thread: also between the instant
in which a lock is taken and a line that would note it. So only the lock knows. `_is_owned` is no public method, but
`threading.Condition` rests on it in every release of Python: it asks a lock that it was given whether it is owned.
"""

from __future__ import annotations

from threading import RLock


def holds(lock: RLock) -> bool:
    """Return whether the calling thread holds the lock."""
    return bool(lock._is_owned())  # type: ignore[attr-defined]


def release_all(lock: RLock) -> None:
    """Release the lock as often as the calling thread holds it, which may be never."""
    while holds(lock):
        lock.release()
