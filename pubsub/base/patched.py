"""gevent and eventlet: where they have replaced threads and sockets, a call that waits stops all greenlets.

A call waits in libzmq's poll and for locks of the interpreter, of which neither library knows. A `get` that waits for
10 s has every other greenlet wait as long, and one of them may be the `put` that it waits for (zeromq/pyzmq#765). That
is refused before anything is opened.
"""

from __future__ import annotations

import sys
from typing import Final

from pubsub.errors import ConfigurationError

_MODULES: Final = ("thread", "socket", "select")
"""As both call what they replace; `threading` goes with `thread`."""


def patched_by() -> str:
    """Which of them has replaced threads, sockets or polling in this process; "" where none has."""
    for library, place, asked in (
        ("gevent", "gevent.monkey", "is_module_patched"),
        ("eventlet", "eventlet.patcher", "is_monkey_patched"),
    ):
        is_patched = getattr(sys.modules.get(place), asked, None)
        if is_patched is not None and any(map(is_patched, _MODULES)):
            return library
    return ""


def refuse_patched(what: str) -> None:
    """See that threads and sockets are the interpreter's.

    Args:
        what: cannot run otherwise, for the error's text.

    Raises:
        ConfigurationError: they are not; the text says what works.
    """
    if library := patched_by():
        raise ConfigurationError(
            f"{what} cannot run where {library} has replaced threads and sockets: each call that waits would stop every"
            " greenlet; use workers with threads (gunicorn -k gthread), or topics over HTTP (pubsub gateway start)"
        )
