"""Share the taken messages of a `messages()` iteration between the iteration and other calls.

The rule is docs/explanation/continuing.md, C8.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from operator import length_hint

from pubsub.client.core.changes import Taken
from pubsub.client.core.message import RunSlice
from pubsub.protocol import Position


class Chunk:
    """Messages that are taken and yielded one by one, while other threads may take the rest.

    The first message counts as yielded from the start, so an iteration proceeds however many other calls there are.
    Each other message has a token, and a message belongs to the party that draws its token. This is either the
    iteration, which yields the message, or a call that stops the chunk, which gives it back. Drawing a token is a
    single step of the interpreter and needs no lock.

    Attributes:
        total: number of messages.
        recorded: its place in the client's record, if there is one.
        before, counters: position and last taken counters before the chunk.
        after: the position with the whole chunk taken, including records skipped after its last message.
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
        """Yield one item for each message that may be yielded; the message then counts as yielded."""
        return chain((None,), self._tokens)

    def stop(self) -> None:
        """Yield no more. The session's lock is held."""
        # One bytecode step: an exception of a signal handler comes before or after it, never within.
        self._left.extend(self._tokens)

    @property
    def handed(self) -> int:
        """Number of yielded messages."""
        return self.total - len(self._left) - length_hint(self._tokens)

    def return_taken(self, topic: str) -> Taken:
        """Return the change that gives back the messages not yielded by a stopped chunk, and set `rest` to them."""
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
        """True if no more messages will be yielded."""
        return not length_hint(self._tokens)
