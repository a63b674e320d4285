"""The effect of a fork on clients, Messengers and embedded clusters: unusable in the child, unharmed in the parent.

The child has a copy of each object, without its threads, on the parent's sockets, files and counters. So each open
object is notified in the child before any other code runs there. From then on it raises `AfterFork` at once. The child
closes nothing and excludes these objects from garbage collection permanently. If it closed SQLite's copy, the parent's
write-ahead log would be moved or deleted.
"""

from __future__ import annotations

import os
from typing import Final, NoReturn, Protocol
from weakref import WeakSet

from pubsub.errors import CallerError


class Forkable(Protocol):
    """An object that must not be used on both sides of a fork."""

    def forked(self, parent: int) -> None:
        """Become unusable in a child of process `parent`, touch nothing, and wait for no lock."""


_open: Final[WeakSet[Forkable]] = WeakSet()
_kept: Final[list[object]] = []


def watch(thing: Forkable) -> None:
    """Call `thing.forked` in the child of each later fork."""
    _open.add(thing)


def keep(thing: object) -> None:
    """Exclude an object from garbage collection, even at the end of the interpreter."""
    try:
        import ctypes  # noqa: PLC0415 - only after a fork.
    except ImportError:
        _kept.append(thing)
        return
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def no_pickling(what: str) -> NoReturn:
    """Refuse to be copied, or sent to another process.

    Raises:
        CallerError: always.
    """
    raise CallerError(f"{what} cannot be copied or sent to another process; make one there, under a name of its own")


def _in_child() -> None:
    parent = os.getppid()
    things = list(_open)
    _open.clear()
    for thing in things:
        keep(thing)
        thing.forked(parent)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
