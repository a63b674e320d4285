"""Write the messages of the command `get` before their position is committed, so that none is lost unwritten.

To a stream (a pipe, a terminal, a device) each message is written at least once. A batch is written and flushed, and
then its position is committed. A process that is killed in between writes that batch again.

Into a file each message is written exactly once. A part file beside it grows by a batch and is fsynced. One commit then
holds both the position and the length of the part file. At the end the part file gets the name of the file. A process
that is killed leaves the part file and that row behind. The next `get` of the client truncates the part file to the
committed length and renames it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pubsub.client.files import file_error, file_errors, sync
from pubsub.client.storage.file_table import forget_file, keep_file, kept_size
from pubsub.errors import CallerError

if TYPE_CHECKING:
    from pubsub.client import Client
    from pubsub.client.storage.transaction import Transaction


class StreamTarget:
    """Writes to an open stream, or to a path that cannot be renamed: standard output, a pipe, a device.

    Args:
        stream: the stream.
        path: its name in errors; None: errors are raised unchanged.
    """

    fsync = False

    def __init__(self, stream: IO[bytes], path: Path | None = None) -> None:
        self._stream, self._path = stream, path

    def write(self, contents: bytes, transaction: Transaction) -> None:
        """Write and flush; the commit follows."""
        try:
            _write(self._stream, contents)
            self._stream.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            if self._path is None:
                raise
            raise file_error(self._path, error) from None


class FileTarget:
    """Writes into a part file beside `path`, which becomes `path` at the end.

    Args:
        path: a regular file, or none yet; its directory exists.
        client: the client's ID, in the part file's name.
    """

    fsync = True

    def __init__(self, path: Path, client: str) -> None:
        self.path = path
        self.part = path.with_name(f"{path.name}.{client}.part")
        self._stream: IO[bytes] | None = None

    def write(self, contents: bytes, transaction: Transaction) -> None:
        """Append and fsync, and store the length of the part file in the commit that follows.

        What an earlier call wrote and no commit covers is cut off: a member of a group may lose a message meanwhile.
        """
        size = kept_size(transaction, self.path)
        with file_errors(self.part):
            if self._stream is None:
                self._stream = self.part.open("wb", buffering=0)
                sync(self.part.parent)
            if self._stream.tell() != size:
                self._stream.truncate(size)
                self._stream.seek(size)
            _write(self._stream, contents)
            os.fsync(self._stream.fileno())
        keep_file(transaction, self.path, self.part, size + len(contents))

    def finish(self, client: Client) -> None:
        """Rename the part file if a batch of it was committed, which the store knows; otherwise remove it."""
        if self._stream is None:
            return
        self._stream.close()
        if self.path not in finish_interrupted(client):
            with suppress(OSError):
                self.part.unlink()


@contextmanager
def file_target(path: Path, client: Client) -> Iterator[StreamTarget | FileTarget]:
    """Open a target by a file's name; the file appears, or is replaced, at the end of the block.

    Raises:
        CallerError, StorageError: it cannot be written.
    """
    # The file that a symbolic link names is replaced, and not the link.
    path = Path(os.path.realpath(path))
    with file_errors(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            path.parent.stat()
            mode = stat.S_IFREG
    if stat.S_ISDIR(mode) or not path.parent.is_dir():
        raise CallerError(f"{path}: {os.strerror(errno.EISDIR if stat.S_ISDIR(mode) else errno.ENOTDIR)}")
    if not stat.S_ISREG(mode):
        with file_errors(path):
            stream = path.open("wb", buffering=0)
        with stream:
            yield StreamTarget(stream, path)
        return
    target = FileTarget(path, client.name)
    try:
        yield target
    finally:
        target.finish(client)


def finish_interrupted(client: Client) -> list[Path]:
    """Complete the files of which an earlier `get` of this client has committed a part.

    Returns:
        These files, each complete now.

    Raises:
        CallerError, StorageError: one cannot be completed; the next call tries again.
    """
    session = client._session
    with session.entered():
        found = session.store.files()
    done = []
    for stored, part, size in found:
        path = Path(os.fsdecode(stored))
        # A file that already has its name and is still there counts as done too: the `get` that made it, repeated, must
        # not replace it.
        if _rename(path, Path(os.fsdecode(part)), size) or os.path.lexists(path):
            done.append(path)
        with client.transaction() as transaction:
            forget_file(transaction, stored)
    return done


def _rename(path: Path, part: Path, size: int) -> bool:
    """Rename a part file to its final name; False if that was done already and only its row was left."""
    with file_errors(part):
        path.parent.stat()  # If the directory cannot be read, a file that seems missing may exist.
        try:
            stream = part.open("r+b")
        except FileNotFoundError:
            return False
        with stream:
            stream.truncate(size)
            with suppress(FileNotFoundError):
                os.fchmod(stream.fileno(), stat.S_IMODE(path.stat().st_mode))
            os.fsync(stream.fileno())
        part.replace(path)
        sync(path.parent)
    return True


def _write(stream: IO[bytes], contents: bytes) -> None:
    """Write all of it, also to an unbuffered stream that takes less at a time."""
    rest = memoryview(contents)
    while rest:
        rest = rest[stream.write(rest) :]
