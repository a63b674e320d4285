"""What the core has the shell do: messages to send, and changes to commit first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from pubsub.client.core.chain import Row
from pubsub.client.core.changes import Change
from pubsub.protocol import Message


@dataclass(slots=True)
class Outgoing:
    """A message to send.

    Attributes:
        token: comes back with the answer.
        proxy: index of the proxy.
        message: what; the body of a put whose `row` has none in memory is on the disk.
    """

    token: int
    proxy: int
    message: Message
    row: Row | None = None


@dataclass(slots=True)
class Due:
    """Changes to commit, and what is true once they are."""

    changes: list[Change]
    then: Callable[[], None] = field(default=lambda: None)
