"""Messages of a copy of the store from the primary to the standby: the next step, and repeats.

    the primary   `Giving`: holds a snapshot while the other member needs a copy and asks for it; answers range by range
    the standby   `Getting`: asks for a range until its pages are right, then for the next one

The standby makes up for lost messages, because it asks again. The primary repeats only `begin`. `Leading` and
`Following` decide whether a copy counts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from pubsub.errors import StoreFull
from pubsub.protocol.standby import Copy
from pubsub.server.standby.disk.member_disk import MemberDisk
from pubsub.server.standby.disk.pages import PageCopy
from pubsub.server.standby.disk.snapshot import LOG_BYTES_MAX, Snapshot
from pubsub.server.standby.election.proposer import Identity
from pubsub.server.standby.replication.follower import Following
from pubsub.server.standby.replication.primary import Leading

AGAIN_BEATS: Final = 4
"""Heartbeats of the members' link after which an unanswered message is repeated."""

SILENT_BEATS: Final = 60
"""Heartbeats of the members' link after which a silent copy is given up, because a snapshot keeps the write-ahead
log from starting over."""

_log: Final = logging.getLogger(__name__)


class Giving:
    """The primary's side.

    Args:
        identity: of this member, for its messages.
        disk: of the store to copy.
        beat: seconds between two heartbeats of the members' link.

    Attributes:
        pending: True if `outgoing` may have more to send at once.
    """

    def __init__(self, identity: Identity, disk: MemberDisk, beat: float) -> None:
        self._me, self._disk, self._beat = identity, disk, beat
        self.pending = False
        self._snapshot: Snapshot | None = None
        self._token = self._reached = 0
        self._asked_at = self._begun_at = float("-inf")
        self._answers: Iterator[Copy] = iter(())

    def outgoing(self, leading: Leading, now: float) -> list[Copy]:
        """Return the messages that are due: at most one with pages, so that a copy delays nothing else.

        Raises:
            StorageError: the store cannot be read.
        """
        self.pending = False
        wanted = leading.to_copy()
        if wanted is None:
            self.close()
            return []
        snapshot = self._snapshot
        if snapshot is not None and snapshot.log_bytes() > LOG_BYTES_MAX:
            _log.warning("the copy for member %s starts again: the write-ahead log grew too large", wanted[0])
            snapshot = None
        if snapshot is not None and now - self._asked_at > SILENT_BEATS * self._beat:
            snapshot = None
        if snapshot is None or wanted[1] != self._token:
            self.close()
            self._snapshot, self._reached = self._made(), 0
            snapshot = self._snapshot
            self._token, self._asked_at, self._begun_at = wanted[1], now, float("-inf")
        out = [one for one in [next(self._answers, None)] if one is not None]
        self.pending = bool(out)
        unsaid = self._begun_at == float("-inf")
        if not out and (unsaid or now - max(self._begun_at, self._asked_at) > AGAIN_BEATS * self._beat):
            self._begun_at = now
            out.append(snapshot.begin(self._me.server, self._me.store, self._me.member, leading.term, self._token))
        return out

    def _made(self) -> Snapshot:
        assert self._disk.store is not None
        with self._disk.lock:
            snapshot = Snapshot(self._disk.store)
        self._disk.stream.pin(snapshot.entry)
        return snapshot

    def asked(self, message: Copy, now: float) -> None:
        """Process the standby's hashes of a range. A request for a snapshot that is closed gets the answer "gone"."""
        if message.step != "hashes":
            return
        me = self._me
        if self._snapshot is not None and message.token == self._token:
            self._asked_at, self._reached = now, message.first
            self._answers = self._snapshot.answers(message, me.server, me.store, me.member)
        else:
            gone = Copy(me.server, me.store, me.member, "gone", message.token, 0, message.snapshot, message.first, 1)
            self._answers = iter([gone])

    @property
    def percent(self) -> int:
        """Percent of the store that the other member has, according to its last request."""
        return 0 if self._snapshot is None else min(100, 100 * self._reached // max(1, self._snapshot.pages))

    @property
    def busy(self) -> bool:
        return self._snapshot is not None

    def close(self) -> None:
        """Close the snapshot, so that the write-ahead log can start over."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._disk.stream.pin(None)
        self._snapshot, self._answers = None, iter(())


class Getting:
    """The standby's side.

    Args:
        identity: of this member, for its messages.
        disk: of the store to replace.
        beat: seconds between two heartbeats of the members' link.
    """

    def __init__(self, identity: Identity, disk: MemberDisk, beat: float) -> None:
        self._me, self._disk, self._beat = identity, disk, beat
        self._copy: PageCopy | None = None
        self._term = 0
        self._again_at = self._heard = float("-inf")

    def receive(self, message: Copy, following: Following, now: float) -> bool:
        """Process a message of the primary about a copy.

        Returns:
            True if the copy is complete and may replace the store: `disk.adopt(taken())` is next.

        Raises:
            StoreFull, StorageError: the disk is full, or failed.
        """
        copy = self._copy
        if message.step == "begin":
            if copy is not None and (copy.token, copy.snapshot) == (message.token, message.snapshot):
                self._heard = now
            elif following.begin_copy(message.term, message.token, message.snapshot):
                self._begin(message, now)
            return False
        if copy is None or message.token != copy.token:
            return False
        self._heard = now
        if message.step == "gone":
            self.give_up(following)
        elif copy.take(message):
            self._again_at = now
            if copy.complete:
                self._disk.stream.prepare(copy.snapshot)  # After this step the copy needs no more space.
            return copy.complete and following.copied(copy.token)
        elif message.first == copy.first:  # The pages are under way. A new request would have them sent twice.
            self._again_at = now + AGAIN_BEATS * self._beat
        return False

    def _begin(self, message: Copy, now: float) -> None:
        if self._copy is not None:
            self._copy.close()
        store = self._disk.store
        self._copy = PageCopy(self._disk.directory, message, None if store is None else store.db)
        self._term, self._again_at, self._heard = message.term, now, now

    def outgoing(self, following: Following, now: float) -> list[Copy]:
        """Return the request for the current range, new or repeated.

        The range is first copied from this member's own store.

        Raises:
            StorageError: the disk failed.
        """
        copy = self._copy
        if copy is None:
            return []
        if following.known > self._term or now - self._heard > SILENT_BEATS * self._beat:
            self.give_up(following)
            return []
        if now < self._again_at or copy.complete:
            return []
        self._again_at = now + AGAIN_BEATS * self._beat
        try:
            return [copy.request(self._me.server, self._me.store, self._me.member)]
        except StoreFull:
            self.full(following)
            return []

    def full(self, following: Following) -> None:
        """Give up the copy because the disk is full. The primary begins it again and again."""
        _log.error(
            "the disk under %s is full: the copy starts again by itself once space is free", self._disk.directory
        )
        self.give_up(following)

    def give_up(self, following: Following) -> None:
        """Give up a copy that does not arrive. The pages received so far serve the next copy."""
        self.close()
        following.give_up_copy()

    def taken(self) -> PageCopy:
        """Hand over the complete copy to the caller."""
        copy, self._copy = self._copy, None
        assert copy is not None
        return copy

    @property
    def busy(self) -> bool:
        return self._copy is not None

    def close(self) -> None:
        """Close the copy's file. Its pages stay for the next copy."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
