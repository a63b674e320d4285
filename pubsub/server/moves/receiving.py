"""Receiving a topic from another server: accept, store chunks in their final place, merge.

The rules are those of docs/explanation/merge.md, *Rules of the transfer*, M2.

Batches are stored as they arrive, under new log numbers, invisible until the merge. All other parts of a topic are
small and wait in memory. A transfer does not survive this process: after a crash its rows are deleted, it is unknown,
and the giver starts again. So an acceptance binds neither side. The merge is one transaction, and `done` leaves after
its commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from pubsub.base.limits import DELAYED_ROWS_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.messages import Outcome
from pubsub.protocol.transfers import Transfer
from pubsub.server.moves.chunks import READS, DelayedRows, Moving, Piece, Staged, read
from pubsub.server.topic.delayed import Delayed
from pubsub.server.topic.stages import Stage, StageKey
from pubsub.server.upkeep.staging import PIECES_MAX

INCOMING_MAX: Final = 16
"""Transfers received at the same time; a further offer is answered `busy`."""

MOVING_BYTES_MAX: Final = 128 * 1024 * 1024
"""Memory limit in bytes for the descriptions in all transfers together; above it chunks are answered `full`."""

IDLE_SECONDS: Final = 60.0
"""Silence after which a transfer is forgotten."""


@dataclass(slots=True)
class Incoming:
    """One transfer.

    Attributes:
        next: the number of the expected chunk.
        opened: numbers of the logs with stored batches.
        pieces: number of stage fragments that have arrived.
        stages: the stages that have arrived so far, with this store's numbers.
        delayed: the delayed puts that have arrived so far, on a shelf of this store.
        copies: the number under which copied records of groups were stored; 0: none has arrived.
    """

    topic: str
    giver: str
    transfer: str
    received_at: float
    next: int = 0
    moving: Moving = field(default_factory=Moving)
    opened: set[int] = field(default_factory=set)
    pieces: int = 0
    stages: dict[StageKey, Stage] = field(default_factory=dict)
    delayed: Delayed = field(default_factory=Delayed)
    copies: int = 0


Key = tuple[str, str]
"""Topic and giver."""

Reply = Transfer | tuple[Outcome, str]
"""The next step, or the reason why there is none."""


class Receiving:
    """All transfers to this server.

    Args:
        sender: this server's ID.
        number: returns a new log number.
        store: stores batches that arrived.
        discard: deletes the stored batches of these log numbers.
        unstage: deletes the stored rows of these stages.
        unshelve: deletes the delayed puts of these shelves.
        uncopy: deletes the copied records that were stored under a number.
        merge: merges a topic that has arrived completely.
        keep: called with a transfer that is about to be forgotten, which is restored if the loop is undone.
    """

    def __init__(
        self,
        sender: str,
        *,
        number: Callable[[], int],
        store: Callable[[Incoming, Piece, float], None],
        discard: Callable[[list[int]], None],
        merge: Callable[[Incoming, float], None],
        unstage: Callable[[Iterable[Stage]], None] = lambda _: None,
        unshelve: Callable[[Iterable[int]], None] = lambda _: None,
        uncopy: Callable[[int], None] = lambda _: None,
        keep: Callable[[dict[Key, Incoming], Key], None] = lambda items, key: None,
    ) -> None:
        self._sender = sender
        self._number, self._store, self._discard, self._merge = number, store, discard, merge
        self._unstage, self._unshelve, self._uncopy, self._keep = unstage, unshelve, uncopy, keep
        self.incoming: dict[Key, Incoming] = {}

    def offered(self, message: Transfer, now: float) -> Reply:
        """Accept an offer, unless too many transfers are under way."""
        key = (message.topic, message.sender)
        if key not in self.incoming and len(self.incoming) >= INCOMING_MAX:
            return Outcome.BUSY, "too_many_transfers"
        known = self.incoming.get(key)
        if known is None or known.transfer != message.transfer:
            self._forget(key)
            self.incoming[key] = Incoming(message.topic, message.sender, message.transfer, now)
        accepted = self._step(message, "accepted")
        accepted.form = READS
        return accepted

    def chunk(self, message: Transfer, now: float) -> Reply:
        """Store a chunk if it is the next one, and answer with the number of the chunk expected now."""
        incoming = self._find(message, now)
        if incoming is None:
            return Outcome.UNKNOWN, "transfer"
        if message.chunk == incoming.next:
            held = sum(one.moving.size for one in self.incoming.values())
            if held + len(message.body) > MOVING_BYTES_MAX:
                return Outcome.FULL, "MOVING_BYTES_MAX"
            try:
                piece = read(message.body, incoming.moving, self._number)
            except DecodeError as error:
                self._forget((message.topic, message.sender))
                return Outcome.REFUSED, error.reason.replace(" ", "_")
            if isinstance(piece, Staged):
                incoming.pieces += len(piece.pieces)
                if incoming.pieces > PIECES_MAX:
                    self._forget((message.topic, message.sender))
                    return Outcome.REFUSED, "PIECES_MAX"
            if isinstance(piece, DelayedRows) and len(incoming.delayed) + len(piece.rows) > DELAYED_ROWS_MAX:
                self._forget((message.topic, message.sender))
                return Outcome.REFUSED, "DELAYED_ROWS_MAX"
            if piece is not None:
                self._store(incoming, piece, now)
            incoming.next += 1
        return self._step(message, "chunk", incoming.next)

    def commit(self, message: Transfer, now: float) -> Reply:
        """Merge if all chunks have arrived; the giver has sent all."""
        incoming = self._find(message, now)
        if incoming is None:
            return Outcome.UNKNOWN, "transfer"
        if incoming.next != message.chunk or not incoming.moving.open:
            return self._step(message, "chunk", incoming.next)
        self._keep(self.incoming, (message.topic, message.sender))
        del self.incoming[message.topic, message.sender]
        self._merge(incoming, now)
        return self._step(message, "done")

    def drop(self, topic: str) -> None:
        """Forget the transfers of a topic, because this server gives it away."""
        for key in [key for key in self.incoming if key[0] == topic]:
            self._forget(key)

    def drop_log(self, topic: str, log: str) -> None:
        """Forget the transfers of a topic with this open log, because the log was abandoned."""
        for key, incoming in list(self.incoming.items()):
            if key[0] == topic and incoming.moving.open == log:
                self._forget(key)

    def drop_givers(self, may_give: Callable[[str], bool]) -> None:
        """Forget the transfers from servers that may no longer give."""
        for key in [key for key in self.incoming if not may_give(key[1])]:
            self._forget(key)

    def brings(self, log: int, shelf: int = 0) -> bool:
        """Return True if a transfer brings the log, or the shelf, with this number."""
        logs = (one.number for incoming in self.incoming.values() for one in incoming.moving.logs.values())
        return log in logs or any(shelf in incoming.delayed.shelves for incoming in self.incoming.values())

    def clear(self) -> None:
        """Forget all transfers: the loop was undone, and the chunks that arrived in it are not stored."""
        for key in list(self.incoming):
            self._forget(key)

    def tick(self, now: float) -> None:
        """Forget transfers that have gone silent."""
        for key in [key for key, incoming in self.incoming.items() if now - incoming.received_at >= IDLE_SECONDS]:
            self._forget(key)

    def deadline(self) -> float:
        """Return the time at which `tick` has something to do (monotonic seconds)."""
        return min((incoming.received_at for incoming in self.incoming.values()), default=float("inf")) + IDLE_SECONDS

    def _find(self, message: Transfer, now: float) -> Incoming | None:
        incoming = self.incoming.get((message.topic, message.sender))
        if incoming is None or incoming.transfer != message.transfer:
            return None
        incoming.received_at = now
        return incoming

    def _forget(self, key: tuple[str, str]) -> None:
        if key in self.incoming:
            self._keep(self.incoming, key)
            incoming = self.incoming.pop(key)
            self._discard([log.number for log in incoming.moving.logs.values()])
            self._unstage(incoming.stages.values())
            self._unshelve(incoming.delayed.shelves)
            if incoming.copies:
                self._uncopy(incoming.copies)

    def _step(self, message: Transfer, step: str, chunk: int = 0) -> Transfer:
        return Transfer(self._sender, message.topic, step, message.transfer, chunk)
