"""Which requests may read a subscription and acknowledge it: those of one session, or of anybody that names it.

A client's own subscription has the client's ID as its key. Only the client's latest session reads it: a request of an
earlier epoch is refused. A named subscription has its name behind `KEY` as its key, and any process may read it. The
first acknowledgement with the token of a checkpoint binds it to that checkpoint; others are refused from then on.

Both kinds have one number in the store, in a chunk and in an answer, `opening`. A session's is its epoch. The number of
named readers is below the subscription's own until the subscription is read, equal to it once it is, and above it where
a checkpoint is bound. An earlier release takes a number above for "not read yet".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pubsub.base.limits import NUMBER_MAX

KEY: Final = "@"
"""Begins the key of a named subscription: no client's ID does."""


@dataclass(slots=True, frozen=True)
class Session:
    """The latest session of one client.

    Attributes:
        epoch: the highest of the client's epochs that was seen.
    """

    epoch: int

    def opening(self, number: int) -> int:
        """The epoch."""
        return self.epoch

    def admits(self, opening: int, number: int) -> bool:
        """Whether a request of this epoch counts."""
        return opening >= self.epoch


@dataclass(slots=True, frozen=True)
class Readers:
    """Anybody that names the subscription.

    Attributes:
        used: whether a reader that was told of the subscription by this holder has read it.
        checkpoint: the token of its checkpoint, folded; 0: it is bound to none.
    """

    used: bool = False
    checkpoint: int = 0

    @staticmethod
    def bound(token: int, number: int) -> Readers:
        """Those of a subscription with this number that is bound to the checkpoint with this token; 0: to none."""
        room = NUMBER_MAX - number
        return Readers(used=True, checkpoint=1 + token % room if token and room else 0)

    def opening(self, number: int) -> int:
        """The one number that stands for `used` and `checkpoint`."""
        return number + self.checkpoint if self.used else 0

    def admits(self, opening: int, number: int) -> bool:
        """Whether an acknowledgement with this token counts."""
        return not self.checkpoint or self == self.bound(opening, number)


Consumer = Session | Readers


def consumer_of(key: str, number: int, opening: int) -> Consumer:
    """The consumer of a subscription with this key and number, by the number that stands for it."""
    if not key.startswith(KEY):
        return Session(opening)
    return Readers(used=opening >= number, checkpoint=max(0, opening - number))
