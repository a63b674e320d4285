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

from pubsub.base.addresses import split_place
from pubsub.base.loopback import reaches_out
from pubsub.errors import ConfigurationError

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


def listen_at(address: str, *, insecure: bool, option: str = "", remedy: str, backlog: int = BACKLOG) -> Listening:
    """Make a socket that listens.

    Args:
        address: HOST:PORT; port 0: one that is free.
        insecure: other machines may reach it.
        option: names the address in errors.
        remedy: says what to do about an address that other machines reach.
        backlog: connections that wait to be accepted.

    Raises:
        ConfigurationError: the address is none, other machines would reach it, or it cannot be used.
    """
    name = f"{option} {address}".lstrip()
    try:
        place = split_place(address)
    except ValueError:
        raise ConfigurationError(f"{name} is not HOST:PORT, as 127.0.0.1:8080 or [::1]:8080") from None
    if reaches_out(f"tcp://{address}") and not insecure:
        raise ConfigurationError(f"{name} can be reached by others than this host: {remedy}")
    made = None
    try:
        family, kind, protocol, _, found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        made = Listening(family, kind, protocol)
        made.backlog = backlog
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(found)
        made.listen()  # Now, so that an address in use is found before anything else begins.
    except (OSError, ValueError) as error:
        if made is not None:
            made.close()
        raise ConfigurationError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    return made


def quiet(loop: asyncio.AbstractEventLoop) -> None:
    """Have an event loop say nothing of its own where files have run out."""
    loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if context.get("message") != _ASYNCIO_SAYS:
        loop.default_exception_handler(context)
