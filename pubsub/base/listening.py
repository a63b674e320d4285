"""A listening socket that survives it when the process is out of files.

asyncio tries as many accepts as the backlog is long, and logs a traceback for each (python/cpython#151615): thousands
of lines a second. Here idle connections make room, the first failure ends the turn, and a minute has one line.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from time import monotonic
from typing import Any, Final

BACKLOG: Final = 1_024
"""Connections that wait to be accepted, where a socket says no other number."""

ACCEPTS_MAX: Final = 32
"""Connections that are accepted in one turn of the event loop; they are counted when it is over."""

PAUSE_SECONDS: Final = 0.9
"""After a failed accept nothing is accepted for so long; asyncio itself waits a second before it tries again."""

LOG_SECONDS: Final = 60.0
"""Between two lines that say that files have run out."""

SHED_MAX: Final = 16
"""Idle connections that are closed for one failed accept."""

_OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ASYNCIO_SAYS: Final = "socket.accept() out of system resource"

_log: Final = logging.getLogger(__name__)


class Listening(socket.socket):
    """A socket that listens.

    Attributes:
        backlog: connections that wait to be accepted.
        shed: closes an idle connection of its server; False: there is none.
    """

    backlog = BACKLOG
    shed: Callable[[], bool] = staticmethod(lambda: False)
    _failed = _logged = float("-inf")

    def listen(self, backlog: int = 0, /) -> None:
        """Listen, with the socket's own backlog: the number that asyncio is told bounds the accepts of a turn, too."""
        del backlog
        super().listen(self.backlog)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            OSError: files have run out, which has asyncio pause for a second.
            BlockingIOError: they had just before, which ends asyncio's turn.
        """
        try:
            return super().accept()
        except OSError as error:
            if error.errno not in _OUT_OF_FILES:
                raise
            now = monotonic()
            if now - self._failed < PAUSE_SECONDS:
                raise BlockingIOError(errno.EAGAIN, "accepting pauses") from None
            self._failed = now
            closing = sum(1 for _ in range(SHED_MAX) if self.shed())
            if now - self._logged >= LOG_SECONDS:
                self._logged = now
                _log.error(
                    "no connection can be accepted: %s; %d idle ones are closed. Allow this process more files"
                    " (ulimit -n, LimitNOFILE=)",
                    error.strerror,
                    closing,
                )
            raise


def quiet(loop: asyncio.AbstractEventLoop) -> None:
    """Have an event loop say nothing of its own where files have run out."""
    loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if context.get("message") != _ASYNCIO_SAYS:
        loop.default_exception_handler(context)
