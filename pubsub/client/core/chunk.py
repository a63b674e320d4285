"""What the iterator `messages()` has taken and is handing out, while other calls may want what is left of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import length_hint

from pubsub.client.core.changes import Taken
from pubsub.client.core.message import RunSlice
from pubsub.protocol import Position


class Chunk:
    """Messages that are taken and are being handed out one by one, while other threads may want what is left of them.

    The first of them counts as handed out from the start, so that an iteration gets on however many others call. For
    each of the others there is a token, and whoever draws that has the message: the iteration, which hands it out, or
    a call that stops the chunk, which gives it back. Drawing one is a single step of the interpreter, without a lock.

    Attributes:
        total: how many there are.
        recorded: its place in the client's record, where there is one.
        before, counters: position and last counters taken as they were.
        after: the position with all of it taken, and with what was left out behind its last message.
    """

    __slots__ = ("_left", "_tokens", "after", "before", "counters", "pieces", "recorded", "rest", "total")

    def __init__(
        self, pieces: list[RunSlice], before: Position | None, after: Position | None, counters: dict[str, int]
    ) -> None:
        self.pieces, self.before, self.after, self.counters = pieces, before, after, counters
        self.total = sum([piece.stop - piece.start for piece in pieces])
        self.recorded = 0
        self._left: list[None] = []
        self._tokens = iter([None] * (self.total - 1))
        self.rest: list[RunSlice] = []

    def claims(self) -> Iterator[None]:
        """One item for each message that may be handed out; it counts as handed out then."""
        return chain((None,), self._tokens)

    def stop(self) -> None:
        """Hand out nothing more. The session's lock is held."""
        # One bytecode step: what a signal raises strikes before it or after it, and never in the midst.
        self._left.extend(self._tokens)

    @property
    def handed(self) -> int:
        """How many were handed out."""
        return self.total - len(self._left) - length_hint(self._tokens)

    def give_back(self, topic: str) -> Taken:
        """What takes back all that it has not handed out, once it is stopped; `rest` is that then."""
        handed, position, taken = self.handed, self.before, dict(self.counters)
        self.rest = []
        for piece in self.pieces:
            count = min(handed, piece.stop - piece.start)
            handed -= count
            if count:
                kept = piece._replace(stop=piece.start + count)
                position, taken[piece.run.publisher] = kept.last, piece.run.counter + kept.stop - 1
            if piece.start + count < piece.stop:
                self.rest.append(piece._replace(start=piece.start + count))
        assert position is not None
        return Taken(topic, position, taken)

    @property
    def over(self) -> bool:
        """Whether nothing more of it is handed out."""
        return not length_hint(self._tokens)
