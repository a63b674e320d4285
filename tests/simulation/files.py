"""Plain files on the virtual disk: the parts of `os` and of paths that the shipped code calls to write files itself.

Members of a pair keep a stream of entries, a copy under way and a small local file beside the store. Their code runs as
shipped. Within a run the modules' `os` is `SimulatedOs`, and their directory is a `DiskPath`. A file's bytes are as
safe as its last fsync, and its name as the last fsync of its directory. After a power cut the later creations,
renamings and removals exist up to any of them, in their order.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import PosixPath
from types import SimpleNamespace
from typing import Any

import apsw

from pubsub.base.database import open_database
from tests.simulation.disk import NAME, Disk, File, Killed, disks


@contextmanager
def _system(disk: Disk) -> Iterator[None]:
    """Translate the disk's errors to those of the operating system."""
    try:
        yield
    except apsw.FullError:
        raise OSError(errno.ENOSPC, "no space is left") from None
    except apsw.IOError:
        raise OSError(errno.EIO, "the disk failed") from None


class _Open:
    """An open file, or a directory (`file` is None)."""

    __slots__ = ("disk", "epoch", "file", "path")

    def __init__(self, disk: Disk, path: str, file: File | None) -> None:
        self.disk, self.path, self.file, self.epoch = disk, path, file, disk.epoch

    def data(self) -> File:
        """The file, of a process that still runs."""
        if self.epoch != self.disk.epoch:
            raise Killed
        assert self.file is not None
        return self.file


class SimulatedOs:
    """In place of `os`, in the modules that write files."""

    O_RDONLY, O_RDWR, O_CREAT, O_TRUNC, O_CLOEXEC = os.O_RDONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_CLOEXEC
    X_OK = os.X_OK

    def __init__(self) -> None:
        self._open: dict[int, _Open] = {}
        self._next = 1000

    def forget(self) -> None:
        """Close the open files of killed processes."""
        self._open.clear()

    def access(self, path: object, mode: int) -> bool:
        """Whether it can be entered."""
        return True

    def open(self, path: object, flags: int, mode: int = 0) -> int:
        """Open a file, or a directory."""
        name = str(path)
        disk = disks().disk_of(name)
        file = disk.files.get(name)
        if flags & os.O_CREAT and file is None:
            with _system(disk):
                disk.step()
                if disk.is_full:
                    disk.troubled = True
                    raise apsw.FullError("full")
            file = disk.files[name] = File()
            disk.named(name)
        elif flags & os.O_TRUNC and file is not None:
            file.truncate(0)
        if file is None and flags & os.O_RDWR:
            raise FileNotFoundError(errno.ENOENT, "no such file", name)
        self._next += 1
        self._open[self._next] = _Open(disk, name, file)
        return self._next

    def close(self, number: int) -> None:
        """Close it."""
        self._open.pop(number)

    def pwrite(self, number: int, data: Any, offset: int) -> int:
        """Write."""
        return self.pwritev(number, [data], offset)

    def pwritev(self, number: int, buffers: Sequence[Any], offset: int) -> int:
        """Write several buffers, as one write."""
        opened = self._open[number]
        file, disk, data = opened.data(), opened.disk, b"".join(buffers)
        with _system(disk):
            if disk.kill_in is not None or disk.fail_in is not None:
                disk.step()
            disk.fill()
            if disk.is_full and offset + len(data) > len(file.data):
                disk.troubled = True
                raise apsw.FullError("full")
        file.write(data, offset)
        return len(data)

    def pread(self, number: int, size: int, offset: int) -> bytes:
        """Read."""
        return bytes(self._open[number].data().data[offset : offset + size])

    def ftruncate(self, number: int, size: int) -> None:
        """Make it shorter, or longer."""
        opened = self._open[number]
        file = opened.data()
        with _system(opened.disk):
            opened.disk.step()
        if size < len(file.data):
            file.truncate(size)
        elif size > len(file.data):
            file.write(bytes(size - len(file.data)), len(file.data))

    def fstat(self, number: int) -> Any:
        """Its size."""
        return SimpleNamespace(st_size=len(self._open[number].data().data))

    def fsync(self, number: int) -> None:
        """Have the bytes of a file, or the names in a directory, on the disk."""
        opened = self._open[number]
        disk = opened.disk
        if opened.epoch != disk.epoch:
            raise Killed
        with _system(disk):
            disk.step()
        disk.syncs += 1
        if disk.ignores_syncs:
            return
        if opened.file is None:
            disk.sync_names(opened.path)
        else:
            opened.file.undo.clear()

    fdatasync = fsync


class _Whole(BytesIO):
    """A file that is opened to be read, or written anew."""

    def __init__(self, system: SimulatedOs, path: DiskPath, mode: str) -> None:
        self._number: int | None = None
        self._system, self._at = system, 0
        if mode == "rb":
            super().__init__(bytes(path.simulated().data))
        else:
            super().__init__()
            self._number = system.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)

    def flush(self) -> None:
        if self._number is not None:
            data = self.getvalue()[self._at :]
            if data:
                self._system.pwrite(self._number, data, self._at)
                self._at += len(data)

    def fileno(self) -> int:
        assert self._number is not None
        return self._number

    def close(self) -> None:
        if self._number is not None:
            self.flush()
            self._system.close(self._number)
            self._number = None
        super().close()


SYSTEM = SimulatedOs()


class DiskPath(PosixPath):
    """A path on the virtual disk, for code that asks paths and not `os`."""

    def simulated(self) -> File:
        """The file that is there."""
        file = disks().disk_of(str(self)).files.get(str(self))
        if file is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(self))
        return file

    def open(self, mode: str = "r", *_: Any, **__: Any) -> Any:  # type: ignore[override]
        return _Whole(SYSTEM, self, mode)

    def read_bytes(self) -> bytes:
        return bytes(self.simulated().data)

    def exists(self, **_: Any) -> bool:
        return str(self) in disks().disk_of(str(self)).files

    def mkdir(self, *_: Any, **__: Any) -> None:
        return

    def stat(self, **_: Any) -> Any:
        return SimpleNamespace(st_size=len(self.simulated().data))

    def glob(self, pattern: str) -> Any:  # type: ignore[override]
        names = sorted(disks().disk_of(str(self)).files)
        return [path for path in map(DiskPath, names) if path.parent == self and path.match(pattern)]

    def unlink(self, missing_ok: bool = False) -> None:
        disk = disks().disk_of(str(self))
        with _system(disk):
            disk.step()
        if str(self) in disk.files:
            disk.unnamed(str(self))
        elif not missing_ok:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(self))

    def rename(self, target: Any) -> Any:
        disk = disks().disk_of(str(self))
        with _system(disk):
            disk.step()
        disk.renamed(str(self), str(target))
        return target


def open_beside(path: Any, pragmas: Sequence[tuple[str, Any]]) -> apsw.Connection:
    """A second connection to a store: it reads the write-ahead log for itself, since there is no shared memory."""
    return open_database(path, (("locking_mode", "exclusive"), *pragmas), vfs=NAME)
