"""Key files and the access list: created, read and replaced so that no reader sees a part of one.

A key file is created only if there is none, for its owner alone, and read only while no other user can read it. The
access list is never changed in place. A new file next to it is synced to the disk and renamed, so a reader sees the old
or the new version.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from pubsub.base.text import without_mark
from pubsub.errors import ConfigurationError, InvalidKey
from pubsub.security.authorized import AUTHORIZED_BYTES_MAX, Authorized, parse
from pubsub.security.keys import format_secret, parse_secret

KEY_FILE_BYTES_MAX: Final = 256
"""Limit of bytes in a key file."""

EDIT_SECONDS: Final = 5.0
"""Time for which a change of the access list waits for another one to end."""


def make_key_file(path: Path, secret: bytes) -> None:
    """Create a key file durably with mode 0600, and its directory with mode 0700 if it is missing.

    Args:
        path: the path of the new file.
        secret: the key, 32 bytes.

    Raises:
        ConfigurationError: the file exists or cannot be created. Then no part of it is left.
    """
    line = (format_secret(secret) + "\n").encode("ascii")
    with _errors(f"key file {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _make(path, line)
        except FileExistsError:
            raise ConfigurationError(
                f"key file {path} exists already and is not overwritten; for a second key: pubsub keys rotate"
            ) from None


def read_key_file(path: Path) -> bytes:
    """Return the secret key in a key file, 32 bytes.

    Raises:
        ConfigurationError: it cannot be read, other users can read it, or it has no key; the text has the remedy.
    """
    content = _read(path, f"key file {path}", KEY_FILE_BYTES_MAX, _check_private)
    try:
        return parse_secret(without_mark(content).decode("ascii").removesuffix("\n").removesuffix("\r"))
    except UnicodeDecodeError:
        reason = "it is not ASCII"
    except InvalidKey as error:
        reason = error.reason
    raise ConfigurationError(f"key file {path} does not hold a secret key, sk_…, in one line: {reason}")


def find_key(named: Path | None, usual: Path) -> bytes | None:
    """Return the secret key of a process, 32 bytes; None if it has none.

    Args:
        named: the key file in its settings, which must exist.
        usual: its default key file, which may be missing.

    Raises:
        ConfigurationError: see `read_key_file`.
    """
    if named is None and not os.path.lexists(usual):
        return None
    return read_key_file(usual if named is None else named)


def read_authorized(path: Path) -> Authorized:
    """Read the access list.

    Raises:
        ConfigurationError: it cannot be read, or any user may write it.
        AuthorizedRefused: it has an invalid line.
    """
    return parse(_read_authorized(path), f"authorized file {path}")


class AuthorizedFile:
    """The access list of a running process, which is checked again and again.

    Attributes:
        unread: the last `load` failed to read the file. The reason may go away without a change of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unread = False
        self._seen: tuple[int, ...] | None = ()

    def load(self) -> Authorized:
        """Read the access list.

        Raises:
            ConfigurationError, AuthorizedRefused: see `read_authorized`. The earlier rules stay in force then.
        """
        self._seen = self._look()  # First, so that the next check notices a write during this read.
        self.unread = True
        content = _read_authorized(self.path)
        self.unread = False
        return parse(content, f"authorized file {self.path}")

    def changed(self) -> bool:
        """Return whether the file was replaced, removed or created since the last `load`, even a failed one."""
        return self._look() != self._seen

    def _look(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def edit_authorized(path: Path, change: Callable[[str], str]) -> tuple[Authorized, Authorized]:
    """Replace the text of the access list by `change` of it, durably and in one step.

    Two changes at the same time run one after the other. A missing file counts as empty. An unchanged text is not
    written. If `change` raises, the file stays as it is.

    Returns:
        The old and the new access list.

    Raises:
        ConfigurationError: it cannot be read or written, or another change takes too long.
        AuthorizedRefused: the old or the new text is invalid.
    """
    path = Path(os.path.realpath(path))  # For a link, its target.
    name = f"authorized file {path}"
    with _errors(name), _alone(path.parent, name):
        there = path.exists()
        before = _read_authorized(path) if there else b""
        old = parse(before, name) if there else Authorized(())
        text = before.decode("utf-8")
        changed = change(text).encode("utf-8")
        new = parse(changed, name)
        if changed != before:
            _replace(path, changed)
        return old, new


def replace_file(path: Path, content: bytes, name: str) -> None:
    """Replace a file's content durably and in one step: a reader sees all of the old or all of the new content.

    Args:
        path: the file. For a link, its target is replaced. Owner and mode stay.
        content: all of its bytes.
        name: the file's name in the error's text.

    Raises:
        ConfigurationError: it cannot be written. Then it stays as it was.
    """
    with _errors(name):
        _replace(Path(os.path.realpath(path)), content)


def sync_directory(path: Path) -> None:
    """Bring a directory's list of files to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_authorized(path: Path) -> bytes:
    return _read(path, f"authorized file {path}", AUTHORIZED_BYTES_MAX, _check_kept)


def _read(path: Path, name: str, bytes_max: int, check: Callable[[Path, str, os.stat_result], None]) -> bytes:
    """Return a file's bytes after `check` of its owner and mode. It checks the open file, not the name."""
    with _errors(name):
        # Without O_NONBLOCK the call would wait for a writer if the file is a pipe.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as stream:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise ConfigurationError(f"{name} is not a file")
            check(path, name, found)
            content = stream.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise ConfigurationError(f"{name} has more than {bytes_max:,} bytes")
    return content


def _check_private(path: Path, name: str, found: os.stat_result) -> None:
    """Refuse a file that another user can read.

    The user root can read everything anyway. A file of root may be readable by a group, because containers receive
    secrets that way. The file then belongs to root, and to a group that only the container's process is in.
    """
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == 0 and os.geteuid() != 0 and not mode & 0o037:
        return
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{name} belongs to user {found.st_uid}, but this process runs as user {os.geteuid()}: "
            f"chown {os.geteuid()} {path}"
        )
    if mode & 0o077:
        raise ConfigurationError(f"{name} can be read by others (mode {mode:04o}): chmod 600 {path}")


def _check_kept(path: Path, name: str, found: os.stat_result) -> None:
    if found.st_mode & stat.S_IWOTH:
        raise ConfigurationError(f"{name} can be written by every user: chmod o-w {path}")


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """Raise the operating system's errors about a file as one line."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{name}: {error.strerror or error}") from None


@contextmanager
def _alone(directory: Path, name: str) -> Iterator[None]:
    """Allow only one change at a time in this directory. The lock ends with its process."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        deadline = time.monotonic() + EDIT_SECONDS
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise ConfigurationError(f"{name} is being changed by another command; try again") from None
                time.sleep(0.02)
        yield
    finally:
        os.close(descriptor)


def _make(path: Path, content: bytes) -> None:
    """Create a file for its owner alone; it gets its name when it is completely on the disk.

    FileExistsError if it exists.
    """
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o600)  # Independent of the umask.
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        os.link(temporary, path)  # Unlike a rename, this does not replace an existing file.
    finally:
        with suppress(OSError):
            os.unlink(temporary)
    try:
        sync_directory(path.parent)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def _replace(path: Path, content: bytes) -> None:
    """Write a new file next to the old one, with its owner and mode, sync it to the disk, and rename it."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if path.exists():
                found = path.stat()
                os.fchown(descriptor, found.st_uid, found.st_gid)
                os.fchmod(descriptor, stat.S_IMODE(found.st_mode))
            else:
                os.fchmod(descriptor, 0o644)
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
        sync_directory(path.parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
