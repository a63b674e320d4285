"""A primary's loops between its store and the other member: each commit becomes an entry, and the output is held.

A loop is one turn of the server's loop (`server.loop`): messages in, one commit, answers out.

    enter       last in the transaction: the entry is made, written to the stream file and sent to the standby; its ID
                goes into the store
    committed   after the commit, or taken_back if it failed
    passed      with the output of the loop: returns the output of this and earlier loops that may leave now

The disks of both members work in parallel: the entry is under way before the primary's own commit begins. This module
decides nothing.

The rules are those of docs/explanation/failover.md, F6; docs/explanation/put.md, P14.
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
"""A message and its frames."""


class HeldAnswers:
    """The loops of one term.

    Args:
        leading: decides when the output may leave.
        stream: of this member.
        send: sends all messages that are due to the other member.
    """

    def __init__(self, leading: Leading, stream: Stream, send: Callable[[], None]) -> None:
        self.leading = leading
        self._stream, self._send = stream, send
        self._open = self._counted = False

    def begin_term(self, store: Store, server: str) -> None:
        """Commit the term's first entry before the store is read. This makes the term durable at both members.

        Args:
            store: open.
            server: ID of the server. The store keeps it for commands that open it without a configuration.

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
        """Make an entry of all changes in the open transaction. This is the last step before the commit.

        Args:
            store: the store of the transaction.
            changes: all of its changes.

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
        """Record that the transaction is durable."""
        self._open = False
        self.leading.committed()

    def taken_back(self) -> None:
        """Record that the transaction failed, and take back its entry if there is one."""
        if self._open:
            self._open = False
            self._stream.cut(self.leading.taken_back())

    @property
    def rejects(self) -> bool:
        """True if no request is accepted now: too much is held, or the other member is about to take over."""
        return self.leading.full or self.leading.stalled

    def passed(self, out: Sequence[Sent]) -> list[Sent]:
        """Hold the output of a loop after its commit.

        Messages that only show that this process lives are not held (`Outgoing.waits`). A deposed primary sends nothing
        at all.

        Args:
            out: all messages, in order.

        Returns:
            The messages that may be sent now.
        """
        held = [one for one in out if one[0].waits]
        if held and not self._counted:  # A loop without changes also waits until the term is confirmed.
            self.leading.begin([])
            self.leading.committed()
        self._counted = False
        self.leading.hold(held, sum(len(frame) for _, frames in held for frame in frames))
        if self.leading.deposed:
            return []
        released: list[Sent] = self.leading.released()
        return [one for one in out if not one[0].waits] + released
