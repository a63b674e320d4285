"""Define the core's orders to the shell: messages to send, and changes to commit first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pubsub.client.core.chain import Row
from pubsub.client.core.changes import Change
from pubsub.protocol import Message, Put


@dataclass(slots=True)
class Outgoing:
    """A message to send.

    Attributes:
        token: comes back with the answer.
        proxy: index of the proxy.
        message: the message; `complete` adds the bodies that are on the disk only.
        rows: rows of a put: one, or those of a train.
    """

    token: int
    proxy: int
    message: Message
    rows: Sequence[Row] = ()

    def complete(self, load: Callable[[int], bytes]) -> Message:
        """Return the message with all bodies.

        Args:
            load: returns the batch stored under a counter.
        """
        message = self.message
        if isinstance(message, Put) and (message.rows or self.rows[0].body is None):
            batches = [load(row.counter) if row.body is None else row.body for row in self.rows]
            message.body = b"".join((message.body, *batches)) if message.rows else batches[0]
        return message


@dataclass(slots=True)
class Due:
    """Changes to commit, and a function to call after the commit."""

    changes: list[Change]
    then: Callable[[], None] = field(default=lambda: None)
