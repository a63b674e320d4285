"""Groups: callers who put at the same time to the same topic share one row (docs/architecture.md, *Groups*).

What a caller puts is a share. It waits in its topic's queue until the group is written; whoever writes it takes out all
that wait there, and a caller who gives up takes out its own. Both are one operation of a deque, which Python makes
without giving another thread its turn, so a share is taken by one of the two and nobody needs a lock to join.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from pubsub.client.contents import Contents
from pubsub.client.core.chain import Chain, Row
from pubsub.errors import PubsubError

HOLD_SECONDS: Final = 0.002
"""While a row of its topic is in flight a group is held so long at most: then it is written, whoever answers."""

_NEVER: Final = float("inf")


class Share:
    """One caller's record.

    Attributes:
        body, key, headers: what; headers as `encode_headers` writes them.
        size: bytes that it adds to a batch, but for the tables.
        until: how long its caller waits.
        row, index: the row that holds it, and where; None until the group is written.
        error: why it could not be written; nothing of it was.
    """

    __slots__ = ("body", "error", "headers", "index", "key", "row", "size", "until")

    def __init__(self, body: bytes, key: bytes, headers: bytes, until: float) -> None:
        self.body, self.key, self.headers, self.until = body, key, headers, until
        self.size = len(body) + len(key) + len(headers)
        self.row: Row | None = None
        self.index = 0
        self.error: PubsubError | None = None

    @property
    def contents(self) -> Contents:
        """It as a batch of its own."""
        return Contents((self.body,), (self.key,) if self.key else (), (self.headers,) if self.headers else ())


class Groups:
    """The open groups of a client, one a topic."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Share]] = {}
        self._due: dict[str, float] = {}
        """When each open group is to be written. A topic that has none may stand here, too."""

    def join(self, chain: Chain, share: Share, now: float) -> bool | None:
        """Have a record put with those that wait already. From any thread.

        Returns:
            Whether it opens a group that its caller has to write, since no answer will have it written; None: it opens
            one that is held. False where the group was open before.
        """
        topic = chain.topic
        queue = self._waiting.get(topic)
        if queue is None:
            queue = self._waiting.setdefault(topic, deque())
        queue.append(share)
        # In this order: whoever takes the share out after this look takes out the time, too, or leaves one too many.
        opens = topic not in self._due
        if opens:
            self._due.setdefault(topic, now + HOLD_SECONDS)
        return (None if chain.is_busy else True) if opens else False

    def is_open(self, topic: str) -> bool:
        """Whether somebody waits for others, or for an answer, to be written. From any thread."""
        return topic in self._due

    def withdraw(self, topic: str, share: Share) -> bool:
        """Its caller gives up; whether it was still here, and is not put then. From any thread."""
        try:
            self._waiting[topic].remove(share)
        except (KeyError, ValueError):
            return False
        return True

    def take(self, topic: str) -> list[Share]:
        """All that wait on a topic, in order; they are to be written now."""
        self._due.pop(topic, None)
        queue, taken = self._waiting.get(topic), []
        try:
            while queue is not None:
                taken.append(queue.popleft())
        except IndexError:
            pass  # Asking first whether there is one would not do: its caller may take it out meanwhile.
        return taken

    def answered(self, topic: str) -> None:
        """A row of a topic is done: what is held there is held no longer."""
        if topic in self._due:
            self._due[topic] = -_NEVER

    def due(self, now: float) -> list[str]:
        """The topics whose groups are to be written now."""
        return [topic for topic, at in tuple(self._due.items()) if at <= now]

    def deadline(self) -> float:
        """When the next group is to be written; infinity: there is none."""
        return min(tuple(self._due.values())) if self._due else _NEVER

    @property
    def topics(self) -> list[str]:
        """Where a group may be open."""
        return list(self._due)


def batches(shares: Sequence[Share], records_max: int, bytes_max: int) -> Iterator[tuple[Contents, Sequence[Share]]]:
    """Shares as batches of at most so many records and bytes, a larger record alone; those of each batch beside it.

    Records with a key or headers, and all behind the first of them, are apart from the plain ones before it.
    """
    start, size, plain = 0, 0, True
    for index, share in enumerate(shares):
        its = share.size
        is_plain = its == len(share.body)  # A body and nothing else.
        begins_others = plain and not is_plain
        if begins_others or size + its > bytes_max or index - start >= records_max:
            if index > start:
                yield _batch(shares[start:index])
            start, size = index, 0
        plain = plain and is_plain
        size += its
    if start < len(shares):
        yield _batch(shares[start:])


def _batch(shares: Sequence[Share]) -> tuple[Contents, Sequence[Share]]:
    keys, headers = [share.key for share in shares], [share.headers for share in shares]
    bodies = [share.body for share in shares]
    return Contents(bodies, keys if any(keys) else (), headers if any(headers) else ()), shares
