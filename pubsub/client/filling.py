"""Hold a publisher's batch while it fills, and define the tickets of its messages."""

from __future__ import annotations

from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.chain import DISCARDED, DONE, Chain, Row
from pubsub.client.session import Session


class Filling:
    """A batch that fills; `row` is its outbox row once it is there."""

    __slots__ = ("_drafted", "bodies", "due", "headers", "keys", "row", "size")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.keys: dict[int, bytes] = {}
        """Keys by index of the message, and likewise encoded headers, for messages that have any."""
        self.headers: dict[int, bytes] = {}
        self.size = self.due = 0
        self.row: Row | None = None
        self._drafted: list[Row] = []

    def put(self, topic: str, session: Session) -> None:
        """Write the batch to the outbox and send it. The session's lock is held.

        Raises:
            TooLarge, StorageError, StateCopied: nothing was written, nothing is sent.
        """
        if self._drafted and session.unusable and session.store.has_row(self._drafted[0].counter):
            (self.row,) = self._drafted  # An exception came after the commit; the client is about to be closed.
            return
        chain = session.core.outbox.chain(topic)
        contents = BatchContents(self.bodies, self._column(self.keys), self._column(self.headers), self.due)
        (self.row,) = session.accumulator.put(chain, (contents,), session.until(None), self._drafted)

    def moved(self, chain: Chain) -> bool:
        """Find this batch in the chain after the client opened itself again; return True if the store has it."""
        drafted = [row.counter for row in self._drafted]
        self._drafted = []
        for row in chain.rows:
            if row.counter in drafted:
                self.row = row
        return self.row is not None

    def _column(self, values: dict[int, bytes]) -> list[bytes]:
        return [values.get(at, b"") for at in range(len(self.bodies))] if values else []


class BatchTicket(tuple[Filling, int]):
    """The delivery state of one message of a batch. (A tuple of batch and index, because a tuple is made fastest.)"""

    __slots__ = ()

    @property
    def counter(self) -> int | None:
        """The message's number, which its subscribers see as `Message.counter`; None while its batch is open."""
        row = self[0].row
        return None if row is None else row.counter + self[1]

    @property
    def done(self) -> bool:
        """True once the message is on the server's disk."""
        row = self[0].row
        return row is not None and row.state == DONE

    @property
    def discarded(self) -> bool:
        """True if `discard` gave the message up."""
        row = self[0].row
        return row is not None and row.state == DISCARDED
