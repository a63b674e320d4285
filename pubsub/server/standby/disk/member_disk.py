"""One member's disk: its store, its stream file, and its own file. The member's role calls these steps.

opening        installs a complete copy, then opens the store, then the stream, which is fitted to the store
following      `write` stores the primary's entries, `apply` applies the entries that all members have
taking over    `take` applies everything
stepping down  `step_down` cuts the stream at the end of the store
copying        `adopt` replaces the store by a complete copy
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from random import SystemRandom
from typing import IO, Final

import apsw

from pubsub.base.database import Turns, lock_directory, translate
from pubsub.config.settings import ServerSettings
from pubsub.errors import ConfigurationError, DecodeError, StoreDamaged, StoreFull
from pubsub.protocol.standby import ROOT, EntryId
from pubsub.server.standby.disk.applied import applied_entry, apply_entries, keep_entry
from pubsub.server.standby.disk.local_file import LocalFile
from pubsub.server.standby.disk.pages import PageCopy, install
from pubsub.server.standby.disk.stream import STREAM_BYTES_MAX, Stream
from pubsub.server.standby.replication.entries import Entry
from pubsub.server.standby.replication.follower import Following
from pubsub.server.storage.local import kept_port
from pubsub.server.storage.schema import FILE
from pubsub.server.storage.store import Store

STREAM: Final = "stream"

LOG_BYTES_MAX: Final = 16 * 1024 * 1024
"""Bytes of entries after which a standby copies its write-ahead log back into the store's file."""

_log: Final = logging.getLogger(__name__)


class MemberDisk:
    """A member's disk.

    Args:
        directory: of the member; not open yet.
        local: the file in that directory, made before.
        store_bytes_max: as the setting of that name.
        stream_bytes_max: maximum bytes of entries to keep.
        store, lock: the store of that directory and its write lock, if it is open already.
        held: the lock of the directory, see `hold`; closed with the rest.

    Raises:
        StorageError: a file cannot be used.

    Attributes:
        store: None if this member has none yet.
        lock: held while the store is written.
    """

    def __init__(
        self,
        directory: Path,
        local: LocalFile,
        *,
        store_bytes_max: int = 0,
        stream_bytes_max: int = STREAM_BYTES_MAX,
        store: Store | None = None,
        lock: Turns | None = None,
        held: IO[str] | None = None,
    ) -> None:
        self.directory, self._local, self._held = directory, local, held
        self._store_bytes_max, self._stream_bytes_max = store_bytes_max, stream_bytes_max
        self.lock = lock or Turns()
        self._logged = 0
        self._full: dict[str, bool] = {}
        self.store = store
        self.open()

    def open(self) -> None:
        """Open the store and the stream.

        Raises:
            StorageError: a file cannot be used.
        """
        with contextlib.ExitStack() as opened:
            if self.store is None:
                install(self.directory)
            if self.store is None and (self.directory / FILE).exists():
                self.store = Store(self.directory, bytes_max=self._store_bytes_max)
                opened.callback(self.close_store)
            self.stream = self._open_stream()
            opened.pop_all()

    def _open_stream(self) -> Stream:
        try:
            return self._stream(forget=False)
        except StoreDamaged as error:
            self._local.keep(lost=True)  # Recorded first: the next start finds a stream that looks intact.
            _log.error("this member cannot become primary until it has all data from the other one: %s", error)
            return self._stream(forget=True)

    def _stream(self, *, forget: bool) -> Stream:
        directory = self.directory / STREAM
        return Stream(directory, self.end, bytes_max=self._stream_bytes_max, forget=forget)

    @property
    def end(self) -> EntryId:
        """The last entry of the store."""
        return ROOT if self.store is None else applied_entry(self.store)

    @property
    def staged(self) -> Sequence[Entry]:
        """The entries that the stream had behind the store's end when it was opened."""
        return self.stream.staged

    def found(self, term: int) -> EntryId:
        """Begin the history of a store that had one member. Its present contents count as one entry that never travels.

        A member without that entry cannot continue from it, and is copied. The same applies to a member with an earlier
        history, if the store was served alone since. The store's incarnation then differs from the term of its last
        entry.

        Args:
            term: the term under which this member serves.

        Raises:
            StorageError: it cannot be written.
        """
        assert self.store is not None
        if self.end == ROOT or self.end.term != self.store.incarnation():
            with self.lock, self.store.guarded():
                keep_entry(self.store, EntryId(term, 0))
            self.stream.reset(self.end)
        return self.end

    # As standby

    def write(self, following: Following) -> None:
        """Write and sync the primary's entries. If the disk is full, the standby reports it in its next ACK.

        Raises:
            StorageError: the disk failed. Its contents are unknown, and this member may confirm nothing more.
        """
        write = following.to_write()
        if write is None:
            return
        try:
            if write.cut is not None:
                self.stream.cut(write.cut)
            self.stream.append(write.entries, own=False)
        except StoreFull as error:
            self._say_room("new entries of the primary", error)
            self.stream.cut(following.full_disk())
            return
        self._say_room("new entries of the primary", None)
        following.synced(self.stream.sync())

    def apply(self, following: Following) -> bool:
        """Apply to the store the entries that all members have. Return False if the disk is full: try again later.

        Raises:
            ConfigurationError: an entry is of a later release.
            StorageError: the disk failed.
        """
        while self.store is not None and (entries := following.to_apply()):
            try:
                end = self._carry_out(self.store, entries)
            except StoreFull as error:
                self._say_room("entries to apply to the store", error)
                following.applied_to(following.applied)  # The next call applies these entries again.
                return False
            self._say_room("entries to apply to the store", None)
            following.applied_to(end)
            self.stream.applied(end)
            self._checkpoint(sum(entry.size for entry in entries))
        return True

    def _say_room(self, what: str, error: StoreFull | None) -> None:
        """Log once that space is lacking, and once that it is free again."""
        if error is not None and not self._full.get(what):
            _log.error("no space for %s: this standby is not in sync until space is free: %s", what, error)
        elif error is None and self._full.get(what):
            _log.info("space is free again for %s", what)
        self._full[what] = error is not None

    def _carry_out(self, store: Store, entries: list[Entry]) -> EntryId:
        try:
            with self.lock:
                return apply_entries(store, entries)
        except DecodeError as error:
            raise ConfigurationError(f"the primary is of a later release; upgrade its standby first: {error}") from None

    def _checkpoint(self, size: int) -> None:
        """Copy the write-ahead log back now and then. No client waits for a standby, so it needs no thread for this."""
        assert self.store is not None
        self._logged += size
        if self._logged >= LOG_BYTES_MAX:
            self._logged = 0
            try:
                self.store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.FullError:  # The log keeps everything until the next time.
                _log.error("no space to copy the write-ahead log of %s back into it: free some space", self.store.path)
            except apsw.Error as error:
                raise translate(error, self.store.path) from None

    def take(self, following: Following) -> EntryId:
        """Apply all entries of this member, because it becomes the primary.

        Returns:
            The last entry of the store.

        Raises:
            ConfigurationError: an entry is of a later release.
            StorageError: it cannot be written.
        """
        assert self.store is not None
        self.write(following)
        return self._carry_out(self.store, following.promote())

    def step_down(self) -> EntryId:
        """Drop the entries of the stream that this member wrote as primary and did not commit.

        Returns:
            The last entry of the store.

        Raises:
            StorageError: the disk failed.
        """
        end = self.end
        if self.stream.holds(end):
            self.stream.cut(end)
        else:
            self.stream.reset(end)
        return end

    # Copy of the store

    def adopt(self, copy: PageCopy) -> None:
        """Replace the store by a complete copy, and open it.

        Raises:
            StorageError: the disk failed; the next start completes the replacement.
        """
        self.close_store()
        copy.finish()
        install(self.directory)
        self.stream.reset(copy.snapshot)
        self.store = Store(self.directory, bytes_max=self._store_bytes_max)

    # Closing

    def close_store(self) -> None:
        if self.store is not None:
            self.store.close()
            self.store = None

    def close(self) -> None:
        self.stream.close()
        self.close_store()
        if self._held is not None:
            self._held.close()


def hold(directory: Path) -> IO[str]:
    """Lock a member's directory against other processes while the result stays open, with or without a store in it.

    Raises:
        ConfigurationError: the directory cannot be made or written.
        StoreInUse: another process has it.
    """
    return lock_directory(directory / STREAM)


def new_member() -> str:
    """Return a new ID of a member: 16 hex digits, not all zero."""
    return f"{SystemRandom().getrandbits(64) | 1:016x}"


def begin_pair(settings: ServerSettings, local: LocalFile, store: Store, lock: Turns, term: int) -> MemberDisk:
    """Make the files of the first of two members, for a server that is alone and serves.

    If this fails, the server goes on alone. Files that are left after a failure do no harm: no other process has any of
    that history yet.

    Args:
        settings: of the server.
        local: the file of its directory.
        store, lock: of the server.
        term: the term under which it serves.

    Raises:
        ConfigurationError, StorageError: a file cannot be made; StoreFull if the disk is full.
    """
    with contextlib.ExitStack() as opened:
        held = hold(settings.directory)
        opened.callback(held.close)
        disk = MemberDisk(
            settings.directory,
            local,
            store_bytes_max=settings.store_bytes_max,
            stream_bytes_max=settings.standby_stream_bytes_max,
            store=store,
            lock=lock,
            held=held,
        )
        opened.callback(disk.stream.close)
        disk.found(term)
        local.make(new_member(), port=kept_port(store) or 0)  # This last step makes it one of two members.
        opened.pop_all()
    return disk


def open_disk(
    settings: ServerSettings, local: LocalFile, make_room: Callable[[], None] = lambda: None
) -> MemberDisk | None:
    """Open the disk of a present or future member of two; return None for a server that is alone.

    Args:
        settings: of the server.
        local: the file of its directory.
        make_room: called once if the disk is full. It gives back the space that an earlier term reserved for this case.

    Raises:
        ConfigurationError: the directory belongs to a member of another server, or a new standby has a store of its
            own, which a copy would replace.
        StorageError: a file cannot be used.
    """
    directory = settings.directory
    if local.local is None and settings.standby_of is None:
        return None
    if local.local is None and (directory / FILE).exists():
        raise ConfigurationError(f"{directory} has a store of its own: start the standby with an empty directory")
    held = hold(directory)
    try:
        try:
            disk = _opened(settings, local, held)
        except StoreFull:
            make_room()
            disk = _opened(settings, local, held)
    except BaseException:
        held.close()
        raise
    owner = "" if disk.store is None else disk.store.server_id
    if owner not in {"", settings.id}:
        disk.close()
        raise ConfigurationError(f"{directory} belongs to a member of server {owner}, not of {settings.id}")
    return disk


def _opened(settings: ServerSettings, local: LocalFile, held: IO[str]) -> MemberDisk:
    local.make(new_member(), registered=True)  # The first member's store has a register already.
    return MemberDisk(
        settings.directory,
        local,
        store_bytes_max=settings.store_bytes_max,
        stream_bytes_max=settings.standby_stream_bytes_max,
        held=held,
    )
