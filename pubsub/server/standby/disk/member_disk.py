"""One member's disk: its store, its stream file, and what it knows of itself. It does what a member's role asks for.

open           a whole copy is installed first; then the store, then the stream, which is fitted to it
following      `write` what the primary sent, `apply` what all members have
taking         `take`: apply everything
stepping down  `step_down`: the stream ends with the store again
copied         `adopt`: a whole copy takes the place of the store, `snapshot`: one is made for the other member
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
"""Bytes of entries after which a standby copies its write-ahead log back."""

_log: Final = logging.getLogger(__name__)


class MemberDisk:
    """A member's disk.

    Args:
        directory: the member's; it is not open.
        local: of the same directory, made before.
        store_bytes_max: as the setting of that name.
        stream_bytes_max: of entries that are kept.
        store, lock: of that directory, and what is held while it is written, where it is open already.
        held: keeps others out of it, see `hold`; closed with the rest.

    Raises:
        StorageError: something of it cannot be used.

    Attributes:
        store: None: this member has none yet.
        directory: as given.
        lock: held by whoever writes to the store.
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
        """Open what is there.

        Raises:
            StorageError: it cannot be used.
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
            self._local.keep(lost=True)  # Durable first: the next start finds a stream that looks as if it were whole.
            _log.error("this member takes no part until it has all from the other one: %s", error)
            return self._stream(forget=True)

    def _stream(self, *, forget: bool) -> Stream:
        directory = self.directory / STREAM
        return Stream(directory, self.end, bytes_max=self._stream_bytes_max, forget=forget)

    @property
    def end(self) -> EntryId:
        """The entry that the store ends with."""
        return ROOT if self.store is None else applied_entry(self.store)

    @property
    def staged(self) -> Sequence[Entry]:
        """What the stream held behind the store's end when it was opened."""
        return self.stream.staged

    def found(self, term: int) -> EntryId:
        """Begin the history of a store that had one member: with all that it holds as one entry that never travels.

        A member that has none of it cannot go on behind it, and is copied. So is one of an earlier history, where the
        store was served alone since: then its incarnation is another one than the term of its last entry.

        Args:
            term: under which it serves.

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
        """Write and sync what the primary sent; where there is no space for it, the standby says so.

        Raises:
            StorageError: the disk failed: what it has is not known, and nothing may be confirmed any more.
        """
        write = following.to_write()
        if write is None:
            return
        try:
            if write.cut is not None:
                self.stream.cut(write.cut)
            self.stream.append(write.entries, own=False)
        except StoreFull as error:
            self._say_room("what the primary sends", error)
            self.stream.cut(following.full_disk())
            return
        self._say_room("what the primary sends", None)
        following.synced(self.stream.sync())

    def apply(self, following: Following) -> bool:
        """Carry out on the store what all members have; False where there is no space: to be tried again later.

        Raises:
            ConfigurationError: an entry is of a later release.
            StorageError: the disk failed.
        """
        while self.store is not None and (entries := following.to_apply()):
            try:
                end = self._carry_out(self.store, entries)
            except StoreFull as error:
                self._say_room("what both members have", error)
                following.applied_to(following.applied)  # They are to be applied again.
                return False
            self._say_room("what both members have", None)
            following.applied_to(end)
            self.stream.applied(end)
            self._checkpoint(sum(entry.size for entry in entries))
        return True

    def _say_room(self, what: str, error: StoreFull | None) -> None:
        """Have the log say that there is no space, and that there is some again, each once."""
        if error is not None and not self._full.get(what):
            _log.error("no space for %s, this standby is not in sync until there is: %s", what, error)
        elif error is None and self._full.get(what):
            _log.info("there is space for %s again", what)
        self._full[what] = error is not None

    def _carry_out(self, store: Store, entries: list[Entry]) -> EntryId:
        try:
            with self.lock:
                return apply_entries(store, entries)
        except DecodeError as error:
            raise ConfigurationError(f"the primary is of a later release; upgrade its standby first: {error}") from None

    def _checkpoint(self, size: int) -> None:
        """Copy the write-ahead log back now and then: no thread does it for a standby, whom no client waits for."""
        assert self.store is not None
        self._logged += size
        if self._logged >= LOG_BYTES_MAX:
            self._logged = 0
            try:
                self.store.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            except apsw.FullError:  # The log holds it all until the next time.
                _log.error("no space to copy the write-ahead log of %s back into it", self.store.path)
            except apsw.Error as error:
                raise translate(error, self.store.path) from None

    def take(self, following: Following) -> EntryId:
        """Carry out everything that this member has, since it is primary now.

        Returns:
            The entry that the store ends with.

        Raises:
            ConfigurationError: an entry is of a later release.
            StorageError: it cannot be written.
        """
        assert self.store is not None
        self.write(following)
        return self._carry_out(self.store, following.promote())

    def step_down(self) -> EntryId:
        """Drop of the stream what this member wrote as primary and did not commit.

        Returns:
            The entry that the store ends with.

        Raises:
            StorageError: the disk failed.
        """
        end = self.end
        if self.stream.holds(end):
            self.stream.cut(end)
        else:
            self.stream.reset(end)
        return end

    # A copy

    def adopt(self, copy: PageCopy) -> None:
        """Put a whole copy in the place of the store, and open it.

        Raises:
            StorageError: the disk failed; the next start finishes it.
        """
        self.close_store()
        copy.finish()
        install(self.directory)
        self.stream.reset(copy.snapshot)
        self.store = Store(self.directory, bytes_max=self._store_bytes_max)

    # The end

    def close_store(self) -> None:
        """Close the store."""
        if self.store is not None:
            self.store.close()
            self.store = None

    def close(self) -> None:
        """Close all."""
        self.stream.close()
        self.close_store()
        if self._held is not None:
            self._held.close()


def hold(directory: Path) -> IO[str]:
    """Keep every other process out of a member's directory while the result stays open, with a store or without one.

    Raises:
        ConfigurationError: it cannot be made or written.
        StoreInUse: another process has it.
    """
    return lock_directory(directory / STREAM)


def new_member() -> str:
    """An ID of a member; 16 hex digits, not all of them zero."""
    return f"{SystemRandom().getrandbits(64) | 1:016x}"


def begin_pair(settings: ServerSettings, local: LocalFile, store: Store, lock: Turns, term: int) -> MemberDisk:
    """What the first of two members has, for a server that is alone and serves: all of it, or it goes on alone.

    What of it is there already when something fails does no harm: nobody else has any of that history yet.

    Args:
        store, lock: the server's.
        term: under which it serves.

    Raises:
        ConfigurationError, StorageError: it cannot be made; StoreFull: for want of space.
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
        local.make(new_member(), port=kept_port(store) or 0)  # From now on, and not before, it is one of two.
        opened.pop_all()
    return disk


def open_disk(
    settings: ServerSettings, local: LocalFile, make_room: Callable[[], None] = lambda: None
) -> MemberDisk | None:
    """What a member has, where this is, or is to be, one of two; None where the server is alone.

    Args:
        make_room: called where the disk is full, once: it gives back what an earlier term kept for that.

    Raises:
        ConfigurationError: it is to be a standby, and has a store of its own, which a copy would replace; or it is a
            member of another server.
        StorageError: something of it cannot be used.
    """
    directory = settings.directory
    if local.local is None and settings.standby_of is None:
        return None
    if local.local is None and (directory / FILE).exists():
        raise ConfigurationError(f"{directory} holds a store of its own; a standby begins with an empty directory")
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
        raise ConfigurationError(f"{directory} is that of a member of server {owner}, and not of {settings.id}")
    return disk


def _opened(settings: ServerSettings, local: LocalFile, held: IO[str]) -> MemberDisk:
    local.make(new_member(), registered=True)  # Of the first member's store, whatever becomes of this one.
    return MemberDisk(
        settings.directory,
        local,
        store_bytes_max=settings.store_bytes_max,
        stream_bytes_max=settings.standby_stream_bytes_max,
        held=held,
    )
