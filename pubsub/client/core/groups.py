"""Let callers that put to the same topic at the same time share one row (docs/explanation/batches.md, *Open batches*).

A `Share` is one caller's record. It waits in the open batch of its topic until the batch is written. The writer takes
all records out of the queue, and a caller that gives up takes out its own. Both are one operation of a deque, during
which Python runs no other thread. So only one of the two gets a record, and joining needs no lock.

The rule is docs/explanation/batches.md, B5.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

from pubsub.client.batch_contents import BatchContents
from pubsub.client.core.chain import Chain, Row
from pubsub.errors import PubsubError

HOLD_SECONDS: Final = 0.002
"""Longest time for which an open batch waits for an answer while a row of its topic is in flight."""

_NEVER: Final = float("inf")


class Share:
    """One caller's record.

    Attributes:
        headers: as encoded by `encode_headers`.
        size: bytes that it adds to a batch, without the tables.
        until: deadline of its caller.
        row, index: the row with the record, and its place there; None until the open batch is written.
        error: the cause if it could not be written; nothing of it was.
    """

    __slots__ = ("body", "error", "headers", "index", "key", "row", "size", "until")

    def __init__(self, body: bytes, key: bytes, headers: bytes, until: float) -> None:
        self.body, self.key, self.headers, self.until = body, key, headers, until
        self.size = len(body) + len(key) + len(headers)
        self.row: Row | None = None
        self.index = 0
        self.error: PubsubError | None = None

    @property
    def contents(self) -> BatchContents:
        return BatchContents((self.body,), (self.key,) if self.key else (), (self.headers,) if self.headers else ())


class Groups:
    def __init__(self) -> None:
        self._waiting: dict[str, deque[Share]] = {}
        self._due: dict[str, float] = {}
        """Due times of open batches. A topic without an open batch may have an entry too."""

    def join(self, chain: Chain, share: Share, now: float) -> bool | None:
        """Add a record to the open batch of its topic. Any thread may call this.

        Returns:
            True if it opens a batch that its caller must write, since no answer will cause that. None if it opens a
            batch that is held. False if the batch was open before.
        """
        topic = chain.topic
        queue = self._waiting.get(topic)
        if queue is None:
            queue = self._waiting.setdefault(topic, deque())
        queue.append(share)
        # In this order: a thread that takes the record out later also takes out the due time, or leaves one too many.
        opens = topic not in self._due
        if opens:
            self._due.setdefault(topic, now + HOLD_SECONDS)
        return (None if chain.is_busy else True) if opens else False

    def is_open(self, topic: str) -> bool:
        """Return True if a record waits for others or for an answer. Any thread may call this."""
        return topic in self._due

    def withdraw(self, topic: str, share: Share) -> bool:
        """Take out the record of a caller that gives up; True if it was still here and is not put. For any thread."""
        try:
            self._waiting[topic].remove(share)
        except (KeyError, ValueError):
            return False
        return True

    def take(self, topic: str) -> list[Share]:
        """Take out all waiting records of a topic, in order, to write them now."""
        self._due.pop(topic, None)
        queue, taken = self._waiting.get(topic), []
        try:
            while queue is not None:
                taken.append(queue.popleft())
        except IndexError:
            pass  # A check before `popleft` would not help: the record's caller may take it out in between.
        return taken

    def answered(self, topic: str) -> None:
        """Make a held batch due, because a row of its topic is done."""
        if topic in self._due:
            self._due[topic] = -_NEVER

    def due(self, now: float) -> list[str]:
        """Return the topics with an open batch to write now."""
        return [topic for topic, at in tuple(self._due.items()) if at <= now]

    def deadline(self) -> float:
        """Return the time at which the next open batch is due; infinity if there is none."""
        return min(tuple(self._due.values())) if self._due else _NEVER

    @property
    def topics(self) -> list[str]:
        """Topics that may have an open batch."""
        return list(self._due)


def batches(
    shares: Sequence[Share], records_max: int, bytes_max: int
) -> Iterator[tuple[BatchContents, Sequence[Share]]]:
    """Yield records as batches within these limits, each with its shares; a larger record is a batch of its own.

    Plain records, up to the first with a key or headers, are in batches of their own (docs/explanation/batches.md, B8).
    """
    start, size, plain = 0, 0, True
    for index, share in enumerate(shares):
        its = share.size
        is_plain = its == len(share.body)  # Only a body.
        begins_others = plain and not is_plain
        if begins_others or size + its > bytes_max or index - start >= records_max:
            if index > start:
                yield _batch(shares[start:index])
            start, size = index, 0
        plain = plain and is_plain
        size += its
    if start < len(shares):
        yield _batch(shares[start:])


def _batch(shares: Sequence[Share]) -> tuple[BatchContents, Sequence[Share]]:
    keys, headers = [share.key for share in shares], [share.headers for share in shares]
    bodies = [share.body for share in shares]
    return BatchContents(bodies, keys if any(keys) else (), headers if any(headers) else ()), shares
