"""A socket pair that ends the sleep of a polling loop."""

from __future__ import annotations

import socket


class Wakeup:
    """Wakes a polling loop from a signal handler or another thread.

    Poll its `fileno`; `set` makes it readable, `clear` unreadable.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """The descriptor to poll for reading."""
        return self._reader.fileno()

    def writer_fileno(self) -> int:
        """The descriptor for `signal.set_wakeup_fd`."""
        return self._writer.fileno()

    def set(self) -> None:
        """Make it readable. Any thread may call it."""
        try:
            self._writer.send(b"\0")
        except OSError:
            return  # The pipe is full and so readable already, or it is closed and no thread sleeps on it.

    def clear(self) -> None:
        """Read all bytes, so that it is unreadable again."""
        try:
            while self._reader.recv(4096):
                continue
        except BlockingIOError:
            return

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
