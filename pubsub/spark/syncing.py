"""Brings what a query wrote to local directories onto the disk, before its records are acknowledged.

Spark closes its files and does not sync them. A power cut may take a file that was closed half a minute ago. By then
the service may have deleted the records in it, because they were acknowledged.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from pubsub.client.files import sync
from pubsub.errors import StorageError

MARGIN_SECONDS: Final = 10.0
"""Maximum difference between a file's times and the clock, such as of a network's file server."""


LEFT_OUT: Final = (FileNotFoundError, PermissionError)
"""Errors of a file that was removed meanwhile, or that another user has closed to this one, such as `lost+found`."""


class Directories:
    """Directories with everything below them.

    Args:
        paths: of the directories. Each file that does not exist, or may not be read, is left out.
        clock: seconds since 1970, as of files' times.
        sync: syncs one path.
    """

    def __init__(
        self, paths: Sequence[str], clock: Callable[[], float] = time.time, sync: Callable[[Path], None] = sync
    ) -> None:
        self._paths, self._clock, self._sync = tuple(paths), clock, sync
        self._since = float("-inf")

    def sync(self) -> None:
        """Bring everything onto the disk that changed since the last call.

        Raises:
            StorageError: the disk fails; nothing may be acknowledged.
        """
        began = self._clock()
        for path in self._paths:
            try:
                for changed in self._changed(path):
                    with suppress(*LEFT_OUT):
                        self._sync(Path(changed))
            except OSError as error:
                raise StorageError(path, f"cannot be written to the disk: {error.strerror}") from error
        self._since = began - MARGIN_SECONDS

    def _changed(self, path: str) -> Iterator[str]:
        """Yield the changed files of a directory, and then the directory; those below come first."""
        try:
            with os.scandir(path) as entries:
                held = list(entries)
        except LEFT_OUT:
            return
        for entry in held:
            with suppress(*LEFT_OUT):
                if entry.is_dir(follow_symlinks=False):
                    yield from self._changed(entry.path)
                elif entry.is_file(follow_symlinks=False) and self._is_new(entry.stat()):
                    yield entry.path
        with suppress(*LEFT_OUT):
            if self._is_new(os.stat(path)):
                yield path

    def _is_new(self, facts: os.stat_result) -> bool:
        return max(facts.st_mtime, facts.st_ctime) >= self._since  # A rename changes the second.
