"""Files that a person named: what the operating system says of one, in one line, and that one is on the disk."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pubsub.errors import CallerError, PubsubError, StorageError

_DISK: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@contextmanager
def file_errors(path: Path) -> Iterator[None]:
    """Turn what the operating system says of a file into one line.

    Raises:
        StorageError: the disk is full or fails.
        CallerError: the file cannot be used, for any other reason.
    """
    try:
        yield
    except OSError as error:
        raise file_error(path, error) from None


def file_error(path: Path, error: OSError) -> PubsubError:
    """The error that says in one line what the operating system says of a file."""
    reason = error.strerror or str(error)
    return StorageError(str(path), reason) if error.errno in _DISK else CallerError(f"{path}: {reason}")


def sync(path: Path) -> None:
    """Have what is in a file, or the names in a directory, on the disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
