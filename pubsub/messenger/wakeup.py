"""What ends the sleep of a loop that polls."""

from __future__ import annotations

import socket


class Wakeup:
    """Wakes a loop that polls, from a signal handler or another thread.

    Its `fileno` goes into the poller; `set` makes it readable, `clear` unreadable.
    """

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """What to poll for reading."""
        return self._reader.fileno()

    def writer_fileno(self) -> int:
        """What `signal.set_wakeup_fd` may write to."""
        return self._writer.fileno()

    def set(self) -> None:
        """Make it readable; any thread may."""
        try:
            self._writer.send(b"\0")
        except OSError:
            return  # The pipe is full, and so readable already; or it is closed, and no thread sleeps on it any more.

    def clear(self) -> None:
        """Take out all that was written."""
        try:
            while self._reader.recv(4096):
                continue
        except BlockingIOError:
            return

    def close(self) -> None:
        """Release both ends."""
        self._reader.close()
        self._writer.close()
