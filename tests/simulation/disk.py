"""The virtual disk: files in memory under SQLite, which lose or tear unsynced writes.

Every host has a `Disk`. A file knows its writes since its last sync. A killed process leaves all its writes. A power
cut undoes unsynced writes: all of them, any of them, or a part of a single write (a tear). The kernel may have written
any page to the disk and not another. A disk can be full or fail once. A process can be killed at its n-th access from
now, so that a crash hits the middle of a commit.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import apsw

from pubsub.errors import StorageError, StoreDamaged, StoreInUse, StoreNewer

NAME = "simulated"
SECTOR = 512


class Killed(BaseException):
    """The process ends here: at this access of the disk, or at this step."""


class Failed(Exception):
    """The disk failed."""


class File:
    """One file.

    Attributes:
        data: as the kernel has it.
        undo: (offset, bytes before, bytes written, size before) of each write since the last sync.
        linked: whether the directory entry is on the disk.
    """

    __slots__ = ("data", "linked", "undo")

    def __init__(self) -> None:
        self.data = bytearray()
        self.undo: list[tuple[int, bytes, bytes | None, int]] = []
        self.linked = False

    def write(self, data: bytes, offset: int) -> None:
        size = len(self.data)
        if offset > size:
            self.data.extend(bytes(offset - size))
        end = offset + len(data)
        self.undo.append((offset, bytes(self.data[offset:end]), data, size))
        self.data[offset:end] = data

    def truncate(self, size: int) -> None:
        before = len(self.data)
        self.undo.append((size, bytes(self.data[size:]), None, before))
        del self.data[size:]

    def sync(self) -> None:
        self.undo.clear()
        self.linked = True

    def cut(self, random: Random) -> None:
        """The power goes: none, all or any part of the unsynced writes remains."""
        if not self.undo:
            return
        undo, self.undo = self.undo, []
        for offset, before, data, size in reversed(undo):
            if data is None:
                self.data[offset:] = before
            else:
                self.data[offset : offset + len(data)] = before
                del self.data[size:]
        keep = random.choice((0.0, 0.0, 0.5, 0.9, 1.0))
        for offset, _, data, _ in undo:
            if random.random() >= keep:
                continue
            if data is None:
                del self.data[offset:]
                continue
            low, high = 0, len(data)
            if random.random() < 0.2:  # a tear
                tear = SECTOR * random.randrange(0, len(data) // SECTOR + 1)
                low, high = (0, tear) if random.random() < 0.5 else (tear, high)
            if len(self.data) < offset + low:
                self.data.extend(bytes(offset + low - len(self.data)))
            self.data[offset + low : offset + high] = data[low:high]
        self.undo.clear()


class Disk:
    """The files of one host.

    Attributes:
        kill_in: number of accesses until the process is killed; None: never.
        fail_in: number of accesses until one fails; None: never.
        full: whether writes that make a file longer fail.
        full_in: number of writes until the disk is full; None: never.
        refusals: number of writes that fail, though there is space again at once.
        keeps_reserve: whether the reserve beside a store is space on a full disk.
        reserved: whether that space is taken; spare: whether the store has it, until it is taken again.
        troubled: whether any access of the running process has failed; broken: for another reason than space.
        ignores_syncs: a deliberate breakage: syncs do nothing.
    """

    def __init__(self) -> None:
        self.files: dict[str, File] = {}
        self.kill_in: int | None = None
        self.fail_in: int | None = None
        self.full_in: int | None = None
        self.full = self.troubled = self.broken = False
        self.keeps_reserve = self.reserved = self.spare = False
        self.refusals = 0
        self.ignores_syncs = False
        self.epoch = 0
        self.syncs = 0
        self._names: list[tuple[str, dict[str, File | None]]] = []
        """Changes of names by plain files since the sync of their directory: the directory, and each earlier file."""

    def end_process(self) -> None:
        """Handles that are open now are dead: nothing is written through them any more."""
        self.epoch += 1
        self.kill_in = self.fail_in = None
        self.troubled = self.broken = False

    # Names of plain files (`tests.simulation.files`): SQLite's are as safe as its own syncs.

    def named(self, name: str) -> None:
        """A file was made."""
        self._names.append((name.rpartition("/")[0], {name: None}))
        self.files[name].linked = True

    def unnamed(self, name: str) -> None:
        """A file is removed."""
        self._names.append((name.rpartition("/")[0], {name: self.files.pop(name)}))

    def renamed(self, name: str, target: str) -> None:
        """A file gets another name, in the same directory."""
        self._names.append((name.rpartition("/")[0], {name: self.files[name], target: self.files.get(target)}))
        self.files[target] = self.files.pop(name)

    def sync_names(self, directory: str) -> None:
        """All that was done to names in a directory is on the disk."""
        self._names = [one for one in self._names if one[0] != directory]

    def _cut_names(self, random: Random) -> None:
        """Keep the first so many of the changes of names."""
        names, self._names = self._names, []
        for _, before in reversed(names[random.randrange(len(names) + 1) :] if names else []):
            for name, file in before.items():
                if file is None:
                    self.files.pop(name, None)
                else:
                    self.files[name] = file

    def cut_power(self, random: Random) -> None:
        self.end_process()
        self._cut_names(random)
        for name in list(self.files):
            file = self.files[name]
            if file.linked or random.random() < 0.5:
                file.cut(random)
            else:
                del self.files[name]

    def copy(self) -> dict[str, bytes]:
        return {name: bytes(file.data) for name, file in self.files.items()}

    def restore(self, copy: dict[str, bytes]) -> None:
        self.files.clear()
        self._names.clear()
        for name, data in copy.items():
            file = self.files[name] = File()
            file.data, file.linked = bytearray(data), True

    def explains(self, error: BaseException | None) -> bool:
        """Whether an error may follow from the faults of this disk during the running process: damage never does."""
        damage = StoreDamaged | StoreNewer | StoreInUse
        return self.troubled and isinstance(error, StorageError | apsw.Error) and not isinstance(error, damage)

    def step(self) -> None:
        """One access that changes something; it may be the last one."""
        if self.kill_in is not None:
            self.kill_in -= 1
            if self.kill_in < 0:
                self.end_process()
                raise Killed
        if self.fail_in is not None:
            self.fail_in -= 1
            if self.fail_in < 0:
                self.fail_in = None
                self.troubled = self.broken = True
                raise apsw.IOError("the disk failed")

    def make_room(self) -> None:
        """There is space again."""
        self.full, self.full_in = False, None

    def mend(self) -> None:
        """All is well with it from here on."""
        self.make_room()
        self.refusals = 0
        self.kill_in = self.fail_in = None

    @property
    def is_full(self) -> bool:
        """Whether there is no space except the reserve."""
        return self.full and not self.spare

    def fill(self) -> None:
        """One write; the disk may be full from it on."""
        if self.full_in is not None:
            self.full_in -= 1
            if self.full_in < 0:
                self.full, self.full_in = True, None


class Handle:
    """An open file, as SQLite uses it."""

    __slots__ = ("disk", "epoch", "file")

    def __init__(self, disk: Disk, file: File) -> None:
        self.disk, self.file, self.epoch = disk, file, disk.epoch

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        if self.epoch != self.disk.epoch:
            raise Killed
        return bytes(self.file.data[offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        disk = self.disk
        if self.epoch != disk.epoch:
            raise Killed
        if disk.kill_in is not None or disk.fail_in is not None:
            disk.step()
        if disk.full_in is not None:
            disk.fill()
        if (disk.is_full or disk.refusals) and offset + len(data) > len(self.file.data):
            disk.broken = disk.broken or bool(disk.refusals)  # No reserve helps against these.
            disk.refusals = max(0, disk.refusals - 1)
            disk.troubled = True
            raise apsw.FullError("full")
        self.file.write(data, offset)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        if self.epoch != self.disk.epoch:
            raise Killed
        self.disk.step()
        if size < len(self.file.data):
            self.file.truncate(size)

    def xSync(self, flags: int) -> None:  # noqa: N802
        disk = self.disk
        if self.epoch != disk.epoch:
            raise Killed
        disk.step()
        disk.syncs += 1
        if not disk.ignores_syncs:
            self.file.sync()

    def xFileSize(self) -> int:  # noqa: N802
        return len(self.file.data)

    def xClose(self) -> None:  # noqa: N802
        pass

    def xLock(self, level: int) -> None:  # noqa: N802
        pass

    def xUnlock(self, level: int) -> None:  # noqa: N802
        pass

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 4096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


class Disks(apsw.VFS):
    """All disks of one run, as one file system of SQLite: `/host/…` is on that host's disk."""

    def __init__(self) -> None:
        super().__init__(NAME, base="")
        self.disks: dict[str, Disk] = {}
        self.temporary = Disk()

    def disk_of(self, name: str) -> Disk:
        return self.disks[name.split("/")[1]]

    def xOpen(self, name: Any, flags: list[int]) -> Handle:  # noqa: N802
        if name is None:
            return Handle(self.temporary, File())
        path = name if isinstance(name, str) else name.filename()
        disk = self.disk_of(path)
        file = disk.files.get(path)
        if file is None:
            file = disk.files[path] = File()
        flags[1] = flags[0]
        return Handle(disk, file)

    def xDelete(self, path: str, syncdir: bool) -> None:  # noqa: N802
        disk = self.disk_of(path)
        disk.step()
        disk.files.pop(path, None)

    def xAccess(self, path: str, flags: int) -> bool:  # noqa: N802
        return path in self.disk_of(path).files

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name


_DISKS: list[Disks] = []


def disks() -> Disks:
    """The file system, registered with SQLite once a process."""
    if not _DISKS:
        _DISKS.append(Disks())
    return _DISKS[0]


def _leave_log(db: apsw.Connection) -> None:
    db.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)


@contextmanager
def untidy() -> Iterator[None]:
    """A dead process does not clean up: its connections are closed as they are.

    A process killed during the creation of its store has an open rollback journal, which SQLite would sync at the
    collection of the connection. The dead disk refuses every access.
    """
    apsw.connection_hooks.append(_leave_log)
    before = sys.unraisablehook

    def told(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is not Killed:
            before(unraisable)

    sys.unraisablehook = told
    try:
        yield
    finally:
        if sys.unraisablehook is told:  # Else somebody has set another one meanwhile, and it is theirs to take back.
            sys.unraisablehook = before
        apsw.connection_hooks.remove(_leave_log)
