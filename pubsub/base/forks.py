"""What a fork does to clients, Messengers and embedded clusters: of no use in the child, unharmed in the parent.

The child has a copy of each, without its threads, on the very sockets, files and counters of the parent. So whatever is
open is told in the child, before anything else runs there, and from then on raises `AfterFork` at once. Nothing of it
is closed there: it is kept out of the garbage collection for good, since closing SQLite's copy would move or delete the
write-ahead log under the parent's feet.
"""

from __future__ import annotations

import os
from typing import Final, NoReturn, Protocol
from weakref import WeakSet

from pubsub.errors import CallerError


class Forkable(Protocol):
    """What must not be used on both sides of a fork."""

    def forked(self, parent: int) -> None:
        """This is a child of process `parent`: be of no use, and touch nothing. No lock may be waited for."""


_open: Final[WeakSet[Forkable]] = WeakSet()
_kept: Final[list[object]] = []


def watch(thing: Forkable) -> None:
    """From now on a fork tells `thing` in the child."""
    _open.add(thing)


def keep(thing: object) -> None:
    """See that nobody ever collects something, at the end of the interpreter neither."""
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
