"""What is one member's own, in a file beside the store: a copy of the store replaces all that the store holds.

    member      its ID, random and made with the file: a directory that was wiped or restored is another member
    registered  its store has a register, so it serves nothing before that says so; it is the first member's store that
                has none yet, which is being made
    lost        its disk lost what it had confirmed: it must not become primary before it has all again
    port        the port that it had, where that was left to chance

A directory without the file is that of a server that never had a second member.
"""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from pubsub.errors import StoreDamaged, StoreFull
from pubsub.protocol.names import is_hex
from pubsub.server.standby.disk.segment import failures, sync_directory
from pubsub.server.storage.schema import MEMBER

FILE: Final = MEMBER

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Local:
    """What the file says; see above."""

    member: str
    registered: bool = False
    lost: bool = False
    port: int = 0


class LocalFile:
    """The file of one directory.

    Args:
        directory: the member's, which nobody else uses meanwhile.

    Raises:
        StoreDamaged: it cannot be read as what was written; who it is is not known then.
        StorageError: the disk failed.

    Attributes:
        local: what it says; None: there is no such file.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self.path = directory, directory / FILE
        self.local: Local | None = None
        self._full = False
        self._read()

    def _read(self) -> None:
        with failures(self.path):
            # A directory that cannot be entered is told of by whoever opens the store.
            if os.access(self._directory, os.X_OK) and self.path.exists():
                self.local = _parsed(self.path, self.path.read_bytes())

    def make(self, member: str, *, registered: bool = False, port: int = 0) -> Local:
        """Make this directory that of a member, durably, if it is not that of one.

        Args:
            member: its ID if it has none yet, 16 random hex digits.
            registered: see above; True for who joins another member.
            port: see above.

        Raises:
            StoreFull, StorageError: it cannot be written.
        """
        self._read()  # Whoever makes it has locked the directory only now: another process may have changed it.
        if self.local is None:
            self._write(Local(member, registered, port=port))
        assert self.local is not None
        return self.local

    def keep(self, **changed: Any) -> None:
        """Change some of it, durably; nothing is written where that is what it says.

        Raises:
            StoreFull, StorageError: it cannot be written.
        """
        assert self.local is not None
        if any(getattr(self.local, name) != value for name, value in changed.items()):  # Looked at in each turn.
            self._write(replace(self.local, **changed))

    def try_to_keep(self, **changed: Any) -> bool:
        """The same, to be tried again and again; False where there is no space, which the log says once.

        Raises:
            StorageError: it cannot be written for another reason.
        """
        try:
            self.keep(**changed)
        except StoreFull as error:
            if not self._full:
                _log.error("no space for what this member is to know at its next start, it tries again: %s", error)
            self._full = True
            return False
        self._full = False
        return True

    def _write(self, local: Local) -> None:
        beside = self.path.with_name(f"{FILE}.new")
        with failures(self.path):
            with beside.open("wb") as file:
                file.write(json.dumps(asdict(local), indent=1).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            beside.rename(self.path)
            sync_directory(self._directory)
        self.local = local


def _parsed(path: Path, data: bytes) -> Local:
    try:
        found = json.loads(data)
        kinds = {field.name: type(getattr(Local(""), field.name)) for field in fields(Local)}
        if not all(type(found[name]) is kind for name, kind in kinds.items()) or not is_hex(found["member"]):
            raise ValueError("other fields")
        return Local(**{name: found[name] for name in kinds})
    except (ValueError, KeyError, TypeError):
        raise StoreDamaged(str(path), "damaged: which member this is cannot be read") from None
