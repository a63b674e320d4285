"""The facts that belong to one member, in a file beside the store. A copy replaces the store, but never this file.

    member      ID of the member, random, made with the file. A wiped or restored directory is another member.
    registered  True if the store has a register. The member then serves nothing until the register allows it. False
                only for the store of a first member, while it founds the register.
    lost        True if the disk lost confirmed data. The member must not become primary before it has all data again.
    port        the member's last port, if the operating system chose it

A directory without this file belongs to a server that never had a second member.
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
    """The contents of the file, as described above."""

    member: str
    registered: bool = False
    lost: bool = False
    port: int = 0


class LocalFile:
    """The file of one directory.

    Args:
        directory: of the member; no other process uses it meanwhile.

    Raises:
        StoreDamaged: the file is damaged, so the member is unknown.
        StorageError: the disk failed.

    Attributes:
        local: the contents; None if there is no file.
    """

    def __init__(self, directory: Path) -> None:
        self._directory, self.path = directory, directory / FILE
        self.local: Local | None = None
        self._full = False
        self._read()

    def _read(self) -> None:
        with failures(self.path):
            # If the directory is not accessible, opening the store reports the error.
            if os.access(self._directory, os.X_OK) and self.path.exists():
                self.local = _parsed(self.path, self.path.read_bytes())

    def make(self, member: str, *, registered: bool = False, port: int = 0) -> Local:
        """Make this directory a member's directory, durably, unless it is one already.

        Args:
            member: ID for a new member, 16 random hex digits.
            registered: see above; True for a member that joins another one.
            port: see above.

        Raises:
            StoreFull, StorageError: it cannot be written.
        """
        self._read()  # The caller has locked the directory only now, so another process may have changed the file.
        if self.local is None:
            self._write(Local(member, registered, port=port))
        assert self.local is not None
        return self.local

    def keep(self, **changed: Any) -> None:
        """Change some of the fields, durably. Nothing is written if all fields already have these values.

        Raises:
            StoreFull, StorageError: it cannot be written.
        """
        assert self.local is not None
        if any(getattr(self.local, name) != value for name, value in changed.items()):  # Called in each turn.
            self._write(replace(self.local, **changed))

    def try_to_keep(self, **changed: Any) -> bool:
        """Like `keep`, for repeated calls. Return False if the disk is full, which is logged once.

        Raises:
            StorageError: it cannot be written for another reason.
        """
        try:
            self.keep(**changed)
        except StoreFull as error:
            if not self._full:
                _log.error("no space to record this member's state for its next start, trying again: %s", error)
            self._full = True
            return False
        self._full = False
        return True

    def _write(self, local: Local) -> None:
        new = self.path.with_name(f"{FILE}.new")
        with failures(self.path):
            with new.open("wb") as file:
                file.write(json.dumps(asdict(local), indent=1).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
            new.rename(self.path)
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
        raise StoreDamaged(str(path), "damaged: the ID of this member cannot be read") from None
