"""Key files and the file of who is authorized: how they are made, read and rewritten, so that none is ever half there.

A key file is made where none was, for its owner alone, and read only while that is still so. The file of who is
authorized is never changed in place: a new one beside it is brought to the disk and takes its name, so whoever reads it
sees the one or the other.
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
"""Bytes of a key file."""

EDIT_SECONDS: Final = 5.0
"""How long a change of the file of who is authorized waits for another one to end."""


def make_key_file(path: Path, secret: bytes) -> None:
    """Makes a key file, durably, with mode 0600, and its directory where there is none, with mode 0700.

    Args:
        path: where there is no file yet.
        secret: the key, 32 bytes.

    Raises:
        ConfigurationError: there is one already, or it cannot be made; then nothing is left of it.
    """
    line = (format_secret(secret) + "\n").encode("ascii")
    with _errors(f"key file {path}"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _make(path, line)
        except FileExistsError:
            raise ConfigurationError(
                f"key file {path} is there already and is not overwritten; to have a second key: pubsub keys rotate"
            ) from None


def read_key_file(path: Path) -> bytes:
    """The secret key of a key file, 32 bytes.

    Raises:
        ConfigurationError: it cannot be read, others can read it too, or it holds no key; what to do about it.
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
    """The secret key of a process, 32 bytes; None where it has none.

    Args:
        named: the key file that its settings name; then it must be there.
        usual: where its key file is otherwise, if there is one.

    Raises:
        ConfigurationError: as `read_key_file`.
    """
    if named is None and not os.path.lexists(usual):
        return None
    return read_key_file(usual if named is None else named)


def read_authorized(path: Path) -> Authorized:
    """What the file of who is authorized says.

    Raises:
        ConfigurationError: it cannot be read, or anybody may write it.
        AuthorizedRefused: it says something that cannot be, with the line.
    """
    return parse(_read_authorized(path), f"authorized file {path}")


class AuthorizedFile:
    """The file of who is authorized, looked at again and again while a process runs.

    Args:
        path: where it is.

    Attributes:
        unread: the last `load` could not read it, for a reason that may be over though the file is the same.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.unread = False
        self._seen: tuple[int, ...] | None = ()

    def load(self) -> Authorized:
        """What the file says now.

        Raises:
            ConfigurationError, AuthorizedRefused: as `read_authorized`. Then what it said before is what counts.
        """
        self._seen = self._look()  # First: what is written while it is read is seen the next time.
        self.unread = True
        content = _read_authorized(self.path)
        self.unread = False
        return parse(content, f"authorized file {self.path}")

    def changed(self) -> bool:
        """Whether the file is another one, gone, or there again since the last `load`, also one that failed."""
        return self._look() != self._seen

    def _look(self) -> tuple[int, ...] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def edit_authorized(path: Path, change: Callable[[str], str]) -> tuple[Authorized, Authorized]:
    """Has `change` make a new text of the file from its text, and puts that in its place, durably and at once.

    Two changes at the same time come one after the other. A file that is not there is one without text, and a text that
    is the same is not written. What `change` raises leaves the file as it is.

    Returns:
        What the file said, and what it says now.

    Raises:
        ConfigurationError: it cannot be read or written, or another change does not end.
        AuthorizedRefused: the file says something that cannot be, before or after.
    """
    path = Path(os.path.realpath(path))  # Of a link, the file that it leads to.
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
    """Puts content under a name at once, durably: whoever reads it sees what was there before, or all of it.

    Args:
        path: the file; of a link, the file that it leads to is replaced. It keeps its owner and mode.
        content: all of its bytes.
        name: of the file, for the error's text.

    Raises:
        ConfigurationError: it cannot be written; then it is as it was.
    """
    with _errors(name):
        _replace(Path(os.path.realpath(path)), content)


def sync_directory(path: Path) -> None:
    """Brings to the disk which files a directory has."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_authorized(path: Path) -> bytes:
    return _read(path, f"authorized file {path}", AUTHORIZED_BYTES_MAX, _check_kept)


def _read(path: Path, name: str, bytes_max: int, check: Callable[[Path, str, os.stat_result], None]) -> bytes:
    """A file's bytes, after `check` has looked at whose it is: at the file that is open, not at the name."""
    with _errors(name):
        # A pipe under this name would wait for a writer without O_NONBLOCK.
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
    """Refuse a file that somebody else can read.

    The system's own user reads everything anyway. A file of his may be readable by a group, since that is how a
    container is handed a secret: it belongs to him, and to a group that only the container's process is in.
    """
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid == 0 and os.geteuid() != 0 and not mode & 0o037:
        return
    if found.st_uid != os.geteuid():
        raise ConfigurationError(
            f"{name} belongs to user {found.st_uid}, who can read it, and this is user {os.geteuid()}: "
            f"chown {os.geteuid()} {path}"
        )
    if mode & 0o077:
        raise ConfigurationError(f"{name} can be read by others (mode {mode:04o}): chmod 600 {path}")


def _check_kept(path: Path, name: str, found: os.stat_result) -> None:
    if found.st_mode & stat.S_IWOTH:
        raise ConfigurationError(f"{name} can be written by anybody: chmod o-w {path}")


@contextmanager
def _errors(name: str) -> Iterator[None]:
    """What the operating system says of a file, as one line."""
    try:
        yield
    except OSError as error:
        raise ConfigurationError(f"{name}: {error.strerror or error}") from None


@contextmanager
def _alone(directory: Path, name: str) -> Iterator[None]:
    """Only one change at a time in this directory; the lock ends with the process that has it."""
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
    """A new file, for its owner alone, that has its name when all of it is on the disk; FileExistsError: one has it."""
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(descriptor, 0o600)  # Whatever the umask takes away.
            stream.write(content)
            stream.flush()
            os.fsync(descriptor)
        os.link(temporary, path)  # Which takes no name that is there, as a rename would.
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
    """A new file beside the old one, with its owner and mode, brought to the disk, takes its name."""
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
