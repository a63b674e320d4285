"""A publisher's batch while it is being filled, and the tickets of its messages."""

from __future__ import annotations

from pubsub.client.contents import Contents
from pubsub.client.core.chain import DISCARDED, DONE, Chain, Row
from pubsub.client.session import Session


class Filling:
    """A batch that is being filled; `row` is there once it is in the outbox."""

    __slots__ = ("_drafted", "bodies", "headers", "keys", "row", "size")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.keys: dict[int, bytes] = {}
        """Keys, and headers as bytes, of those messages that have any, by their place."""
        self.headers: dict[int, bytes] = {}
        self.size = 0
        self.row: Row | None = None
        self._drafted: list[Row] = []

    def put(self, topic: str, session: Session) -> None:
        """Into the outbox with it, and out. The session's lock is held.

        Raises:
            TooLarge, StorageError, StateCopied: nothing was written, nothing is sent.
        """
        if self._drafted and session.torn and session.store.has_row(self._drafted[0].counter):
            (self.row,) = self._drafted  # An exception struck behind the commit; the client is about to be closed.
            return
        chain = session.core.outbox.chain(topic)
        contents = Contents(self.bodies, self._column(self.keys), self._column(self.headers))
        (self.row,) = session.accumulator.put(chain, (contents,), session.until(None), self._drafted)

    def moved(self, chain: Chain) -> bool:
        """The client was opened again; return True if the store has this batch."""
        drafted = [row.counter for row in self._drafted]
        self._drafted = []
        for row in chain.rows:
            if row.counter in drafted:
                self.row = row
        return self.row is not None

    def _column(self, values: dict[int, bytes]) -> list[bytes]:
        return [values.get(at, b"") for at in range(len(self.bodies))] if values else []


class BatchTicket(tuple[Filling, int]):
    """One message of a batch: where it is on its way. (A tuple of batch and index, which is made fastest.)"""

    __slots__ = ()

    @property
    def counter(self) -> int | None:
        """Its number, which its subscribers see as `Message.counter`; None while its batch is open."""
        row = self[0].row
        return None if row is None else row.counter + self[1]

    @property
    def done(self) -> bool:
        """Whether it is on the server's disk."""
        row = self[0].row
        return row is not None and row.state == DONE

    @property
    def discarded(self) -> bool:
        """Whether it was given up by `discard`."""
        row = self[0].row
        return row is not None and row.state == DISCARDED
