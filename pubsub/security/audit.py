"""The audit: accepted and refused connections, denials, and operations, as one JSON object a line.

It is separate from the log, so that it can be kept longer and by other people. Puts and gets are not in it. Lines about
events that strangers can cause are limited in each minute; the next line has the number of the others. An operation
that must be recorded before it runs uses `must_write`, which reports success.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Final

from pubsub.errors import ConfigurationError

LINES_A_MINUTE_MAX: Final = 100
"""Limit of lines of one kind in a minute. Of the others only the number is written."""

MINUTE_SECONDS: Final = 60.0


class Audit:
    """An audit file, or none.

    Args:
        path: the file, which is appended to; None to record nothing.
        process: its process, such as "proxy p1".

    Attributes:
        problem: why the file cannot be written at present, "" if it can.

    Raises:
        ConfigurationError: the file cannot be opened.
    """

    def __init__(self, path: Path | None, process: str) -> None:
        self._path, self._process = path, process
        self._descriptor = -1
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._minute = float("-inf")
        self._torn = False
        """The last line is incomplete: the next one must begin on a new line."""
        self.problem = ""
        self.reopen()
        if self.problem:
            raise ConfigurationError(self.problem)

    def reopen(self) -> None:
        """Open the file under its name again, because log rotation may have renamed it."""
        self.close()
        if self._path is None:
            return
        try:
            # The file is not truncated. Its mode is for the owner alone, because it records the actions of users.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            self.problem = f"audit file {self._path}: {error.strerror}"
        else:
            self.problem = ""
            self._torn = self._ends_torn(self._path)

    def _ends_torn(self, path: Path) -> bool:
        """Return whether the last line is incomplete: a process was killed while it wrote, or the disk was full."""
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            return False
        with suppress(OSError):  # This user may be allowed to write the file and not to read it.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return os.pread(descriptor, 1, found.st_size - 1) != b"\n"
            finally:
                os.close(descriptor)
        return False

    def write(self, wall: float, what: str, **facts: object) -> None:
        """Write a line, unless this minute already has too many of its kind.

        Args:
            wall: seconds since 1970.
            what: the event: "entered", "refused", "denied" and others.
            facts: details of the event; empty ones are left out.
        """
        if wall >= self._minute + MINUTE_SECONDS or wall < self._minute:
            self._next_minute(wall)
        self._written[what] += 1
        if self._written[what] > LINES_A_MINUTE_MAX:
            self._left_out[what] += 1
        else:
            self._append(wall, what, facts)

    def must_write(self, wall: float, what: str, **facts: object) -> bool:
        """Write a line regardless of the limit; return False if that failed.

        Without a file there is nothing to write.
        """
        return self._append(wall, what, facts)

    def tick(self, wall: float) -> None:
        """Write the number of dropped lines when a minute is over."""
        if self._left_out and wall >= self._minute + MINUTE_SECONDS:
            self._next_minute(wall)

    def _next_minute(self, wall: float) -> None:
        for what, count in sorted(self._left_out.items()):
            self._append(wall, what, {"more": count})
        self._written.clear()
        self._left_out.clear()
        self._minute = wall

    def _append(self, wall: float, what: str, facts: dict[str, object]) -> bool:
        if self._path is None:
            return True
        if self._descriptor < 0:
            self.reopen()
        if self._descriptor < 0:
            return False
        said = {key: value for key, value in facts.items() if value not in {"", None}}
        line = json.dumps({"time": round(wall, 3), "process": self._process, "what": what} | said) + "\n"
        content = (b"\n" if self._torn else b"") + line.encode("ascii")
        try:
            written = os.write(self._descriptor, content)
        except OSError as error:
            self.problem = f"audit file {self._path}: {error.strerror}"
            return False
        self._torn = written < len(content)
        if self._torn:
            self.problem = f"audit file {self._path}: no space for a complete line"
            return False
        self.problem = ""
        return True

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
