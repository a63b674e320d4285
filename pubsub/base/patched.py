"""gevent and eventlet: if they have replaced threads and sockets, a waiting call stops all greenlets.

A call waits in libzmq's poll and for locks of the interpreter. Neither library knows these. A `get` that waits for 10 s
stops every other greenlet as long. One of them may be the `put` that it waits for (zeromq/pyzmq#765). So such a process
is refused before anything is opened.
"""

from __future__ import annotations

import sys
from typing import Final

from pubsub.errors import ConfigurationError

_MODULES: Final = ("thread", "socket", "select")
"""The names of both libraries for the modules that they replace; `threading` belongs to `thread`."""


def patched_by() -> str:
    """Return the library that has replaced threads, sockets or polling in this process; "" for none."""
    for library, place, asked in (
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ):
        is_patched = getattr(sys.modules.get(place), asked, None)
        if is_patched is not None and any(map(is_patched, _MODULES)):
            return library
    return ""


def refuse_patched(what: str) -> None:
    """Check that threads and sockets are the interpreter's.

    Args:
        what: the subject of the error's text.

    Raises:
        ConfigurationError: they are not; the text names alternatives.
    """
    if library := patched_by():
        raise ConfigurationError(
            f"{what} cannot run after {library} has replaced threads and sockets: each call that waits would stop every"
            " greenlet; use workers with threads (gunicorn -k gthread), or topics over HTTP (pubsub gateway start)"
        )
