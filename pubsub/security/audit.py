"""The audit: who came in, who was refused, who was denied what, who operated; one JSON object a line.

It is kept apart from the log, so that it can be kept for longer and by somebody else. Puts and gets are not in it. What
strangers can have happen as often as they like is bounded: in a minute so many lines of a kind, and then how many more
there were. What must be in it before it is done, is: `must_write` says whether it is.
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
"""Lines of one kind in a minute; of more only the number is written."""

MINUTE_SECONDS: Final = 60.0


class Audit:
    """An audit file, or none.

    Args:
        path: where it is appended to; None: nothing is written down.
        process: whose it is: "proxy p1".

    Attributes:
        problem: why it cannot be written at present, "" while it can.

    Raises:
        ConfigurationError: it cannot be written from the start.
    """

    def __init__(self, path: Path | None, process: str) -> None:
        self._path, self._process = path, process
        self._descriptor = -1
        self._written: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()
        self._minute = float("-inf")
        self._torn = False
        """The last line is there in part: the next one must not go on in it."""
        self.problem = ""
        self.reopen()
        if self.problem:
            raise ConfigurationError(self.problem)

    def reopen(self) -> None:
        """Open the file under its name again: it may have been renamed, to be kept."""
        self.close()
        if self._path is None:
            return
        try:
            # Not truncated, and made for its owner alone: it says who does what.
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            self.problem = f"audit file {self._path}: {error.strerror}"
        else:
            self.problem = ""
            self._torn = self._ends_torn(self._path)

    def _ends_torn(self, path: Path) -> bool:
        """Whether the last line has no end: an earlier process was killed in it, or its disk was full."""
        found = os.fstat(self._descriptor)
        if not stat.S_ISREG(found.st_mode) or not found.st_size:
            return False
        with suppress(OSError):  # It may be one that is written and not read.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                return os.pread(descriptor, 1, found.st_size - 1) != b"\n"
            finally:
                os.close(descriptor)
        return False

    def write(self, wall: float, what: str, **facts: object) -> None:
        """A line, unless there were too many of its kind in this minute.

        Args:
            wall: seconds since 1970.
            what: happened: "entered", "refused", "denied" …
            facts: about it; those that are "" are left out.
        """
        if wall >= self._minute + MINUTE_SECONDS or wall < self._minute:
            self._next_minute(wall)
        self._written[what] += 1
        if self._written[what] > LINES_A_MINUTE_MAX:
            self._left_out[what] += 1
        else:
            self._append(wall, what, facts)

    def must_write(self, wall: float, what: str, **facts: object) -> bool:
        """A line that is never left out; whether it is written. Without a file there is nothing to write."""
        return self._append(wall, what, facts)

    def tick(self, wall: float) -> None:
        """Say how many lines were left out in a minute that is over."""
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
            self.problem = f"audit file {self._path}: no space for a whole line"
            return False
        self.problem = ""
        return True

    def close(self) -> None:
        """Write no more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
