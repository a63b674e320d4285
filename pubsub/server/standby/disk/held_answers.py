"""A primary's loops between its store and the other member: what is committed is an entry, what is said is held.

A loop is one turn of the server's loop (`server.loop`): messages in, one commit, answers out.

    enter, last in the transaction: the entry is made → into the stream file → to the standby → its ID into the store
    the commit → committed, or taken_back
    passed, with what the loop has to say: what may leave now, of this loop and of those before it

The two members' disks work side by side: the entry is on its way before the own commit begins. Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pubsub.server.standby.disk.applied import keep_entry
from pubsub.server.standby.disk.stream import Stream
from pubsub.server.standby.replication.primary import Leading
from pubsub.server.state.replies import Outgoing
from pubsub.server.storage.store import Store
from pubsub.server.topic.changes import Change

Sent = tuple[Outgoing, list[Any]]
"""A message, and its frames."""


class Loops:
    """The loops of one term.

    Args:
        leading: what decides.
        stream: this member's.
        send: sends the other member what there is for it.
    """

    def __init__(self, leading: Leading, stream: Stream, send: Callable[[], None]) -> None:
        self.leading = leading
        self._stream, self._send = stream, send
        self._open = self._counted = False

    def begin_term(self, store: Store, server: str) -> None:
        """Commit the term's first entry, before the store is read: it makes the term durable at both members.

        Args:
            store: open.
            server: the server's ID, which the store tells who opens it without a configuration.

        Raises:
            StorageError: it cannot be written.
        """
        try:
            with store.guarded():
                store.db.execute("insert or replace into meta values ('server', ?)", (server,))
                self.enter(store, [])
        except BaseException:
            self.taken_back()
            raise
        self.committed()

    def enter(self, store: Store, changes: Sequence[Change]) -> None:
        """Make an entry of all that the open transaction holds; the last thing before its commit.

        Args:
            store: whose transaction it is.
            changes: all of it.

        Raises:
            StoreFull, StorageError: it cannot be written.
        """
        self._open = self._counted = True
        entry = self.leading.begin(changes)
        if entry is not None:
            self._stream.append([entry], own=True)
            self._send()
            keep_entry(store, entry.id)

    def committed(self) -> None:
        """The transaction is durable."""
        self._open = False
        self.leading.committed()

    def taken_back(self) -> None:
        """The transaction has not come to be; its entry, if it had one already, neither."""
        if self._open:
            self._open = False
            self._stream.cut(self.leading.taken_back())

    @property
    def turns_away(self) -> bool:
        """Whether no request is taken now: too much is held, or another member is about to take over."""
        return self.leading.full or self.leading.stalled

    def passed(self, out: Sequence[Sent]) -> list[Sent]:
        """Hold what a loop has to say, once it is committed.

        What only says that this process lives does not wait (`Outgoing.waits`). Once deposed it says nothing at all.

        Args:
            out: all of it, in order.

        Returns:
            What may be sent now.
        """
        held = [one for one in out if one[0].waits]
        if held and not self._counted:  # It changed nothing; and waits all the same until the term is confirmed.
            self.leading.begin([])
            self.leading.committed()
        self._counted = False
        self.leading.hold(held, sum(len(frame) for _, frames in held for frame in frames))
        if self.leading.deposed:
            return []
        released: list[Sent] = self.leading.released()
        return [one for one in out if not one[0].waits] + released
