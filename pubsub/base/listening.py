"""A listening socket that stays usable when the process runs out of files.

asyncio attempts as many accepts as the backlog is long, and logs a traceback for each (python/cpython#151615), which is
thousands of lines a second. This socket closes idle connections to make room, ends the turn at the first failure, and
logs one line a minute.
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
"""Default limit of connections that wait to be accepted."""

ACCEPTS_MAX: Final = 32
"""Connections that are accepted in one turn of the event loop. They are counted after it."""

PAUSE_SECONDS: Final = 0.9
"""Time without accepts after a failed one. asyncio itself waits a second before it tries again."""

LOG_SECONDS: Final = 60.0
"""Time between two log lines about missing files."""

SHED_MAX: Final = 16
"""Idle connections that are closed for one failed accept."""

_OUT_OF_FILES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ASYNCIO_SAYS: Final = "socket.accept() out of system resource"

_log: Final = logging.getLogger(__name__)


class Listening(socket.socket):
    """A socket that listens.

    Attributes:
        backlog: limit of connections that wait to be accepted.
        shed: closes an idle connection of the server; returns False if there is none.
    """

    backlog = BACKLOG
    shed: Callable[[], bool] = staticmethod(lambda: False)
    _failed = _logged = float("-inf")

    def listen(self, backlog: int = 0, /) -> None:
        """Listen with the socket's own backlog. The number from asyncio also bounds the accepts of a turn."""
        del backlog
        super().listen(self.backlog)

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            OSError: files have run out; asyncio then pauses for a second.
            BlockingIOError: they ran out just before; this ends asyncio's turn.
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
    """Create a socket that listens.

    Args:
        address: HOST:PORT; port 0 for any free port.
        insecure: allow an address that other machines reach.
        option: names the address in errors.
        remedy: the advice in the error about an address that other machines reach.
        backlog: limit of connections that wait to be accepted.

    Raises:
        ConfigurationError: the address is invalid or cannot be used, or other machines would reach it.
    """
    name = f"{option} {address}".lstrip()
    try:
        place = split_place(address)
    except ValueError:
        raise ConfigurationError(f"{name} is not HOST:PORT, as 127.0.0.1:8080 or [::1]:8080") from None
    if reaches_out(f"tcp://{address}") and not insecure:
        raise ConfigurationError(f"{name} can be reached from other hosts: {remedy}")
    made = None
    try:
        family, kind, protocol, _, found = socket.getaddrinfo(*place, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        made = Listening(family, kind, protocol)
        made.backlog = backlog
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(found)
        made.listen()  # Now, to find an address in use before other work begins.
    except (OSError, ValueError) as error:
        if made is not None:
            made.close()
        raise ConfigurationError(f"{name}: {getattr(error, 'strerror', None) or error}") from None
    return made


def quiet(loop: asyncio.AbstractEventLoop) -> None:
    """Suppress an event loop's own log lines about missing files."""
    loop.set_exception_handler(_handle)


def _handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if context.get("message") != _ASYNCIO_SAYS:
        loop.default_exception_handler(context)
