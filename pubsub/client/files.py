"""Handle files that a user named: one-line errors of the operating system, and fsync."""

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
    """Turn an error of the operating system about a file into one of ours.

    Raises:
        StorageError: the disk is full or fails.
        CallerError: the file cannot be used for another reason.
    """
    try:
        yield
    except OSError as error:
        raise file_error(path, error) from None


def file_error(path: Path, error: OSError) -> PubsubError:
    """Return the one-line error for an error of the operating system about a file."""
    reason = error.strerror or str(error)
    return StorageError(str(path), reason) if error.errno in _DISK else CallerError(f"{path}: {reason}")


def sync(path: Path) -> None:
    """Fsync a file's content, or the names in a directory."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)
