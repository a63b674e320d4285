"""The consumer of a subscription: it admits the requests that may read and acknowledge it.

The key of a client's own subscription is the client's ID. Only the client's latest session reads it: a request of an
earlier epoch is rejected. The key of a named subscription is `KEY` and its name, and any process may read it. The first
acknowledgement with the token of a checkpoint binds it to that checkpoint; from then on others are rejected.

In the store each kind is one number, `epoch`, which chunks and answers call `opening`. For a session it is the epoch.
For named readers it is below the subscription's own number until the subscription is read, and equal to it afterwards.
It is above that number when a checkpoint is bound. An earlier release takes a number above for "not read yet".

The rules are those of docs/explanation/spark-exchange.md, K3; docs/explanation/numbers.md, N4 and N5.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from pubsub.base.limits import NUMBER_MAX
from pubsub.protocol.names import is_id, is_topic

KEY: Final = "@"
"""First character of the key of a named subscription; no client ID begins with it."""

_PART: Final = re.compile(r"0|[1-9][0-9]{0,3}")

PATTERN_KEY: Final = "*"
"""First character of the key of an entry that a server makes for a pattern. No client can name it."""


GROUP_KEY: Final = "%"
"""First character of the key of a subscription with the waiting records of a consumer group, or of a part."""


def group_key(group: str, part: int | None = None) -> str:
    """Return the key of the waiting records of a shared group, or of a part of a keyed one."""
    return f"{GROUP_KEY}{group}" if part is None else f"{GROUP_KEY}{group}:{part}"


def group_of(key: str) -> str:
    """Return the group of such a key; "" for another key."""
    return key[1:].partition(":")[0] if key.startswith(GROUP_KEY) else ""


def pattern_key(subscriber: str, pattern: str) -> str:
    """Return the key of a server's entry for a pattern; no ID has a colon."""
    return f"{PATTERN_KEY}{subscriber}:{pattern}"


def is_key(key: str) -> bool:
    """Return whether a text is the key of a subscription: a client's, a named one, a pattern's, or a group's."""
    if key.startswith(PATTERN_KEY):
        subscriber, _, pattern = key.removeprefix(PATTERN_KEY).partition(":")
        return is_id(subscriber) and is_topic(pattern)
    if key.startswith(GROUP_KEY):
        group, colon, part = key[1:].partition(":")
        return is_id(group) and (not colon or _PART.fullmatch(part) is not None)
    return is_id(key.removeprefix(KEY))


@dataclass(slots=True, frozen=True)
class Session:
    """The latest session of one client.

    Attributes:
        epoch: the highest epoch of the client seen so far.
    """

    epoch: int

    def stored_epoch(self, number: int) -> int:
        return self.epoch

    def admits(self, stored_epoch: int, number: int) -> bool:
        """Return True if a request of this epoch counts."""
        return stored_epoch >= self.epoch


@dataclass(slots=True, frozen=True)
class Readers:
    """Any process that names the subscription.

    Attributes:
        used: True if a reader has read the subscription at this holder.
        checkpoint: the token of its checkpoint, folded; 0: it is bound to none.
    """

    used: bool = False
    checkpoint: int = 0

    @staticmethod
    def bound(token: int, number: int) -> Readers:
        """Return the readers of subscription `number`, bound to the checkpoint with this token; 0: to none."""
        room = NUMBER_MAX - number
        return Readers(used=True, checkpoint=1 + token % room if token and room else 0)

    def stored_epoch(self, number: int) -> int:
        """Return the one number that encodes `used` and `checkpoint`."""
        return number + self.checkpoint if self.used else 0

    def admits(self, stored_epoch: int, number: int) -> bool:
        """Return True if an acknowledgement with this token counts."""
        return not self.checkpoint or self == self.bound(stored_epoch, number)


Consumer = Session | Readers


def consumer_of(key: str, number: int, stored_epoch: int) -> Consumer:
    """Return the consumer that `opening` encodes, for a subscription with this key and number."""
    if not key.startswith((KEY, GROUP_KEY)):
        return Session(stored_epoch)
    return Readers(used=stored_epoch >= number, checkpoint=max(0, stored_epoch - number))
