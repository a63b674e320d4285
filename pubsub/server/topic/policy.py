"""How much of a topic is kept, however many subscribers it has.

Retention asks the policy first, then the cursors. A batch that the policy lets go of stays while a cursor needs it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pubsub.base.clock import MICROSECONDS
from pubsub.base.limits import NUMBER_MAX


@dataclass(slots=True, frozen=True)
class Policy:
    """How much of one topic is kept.

    Attributes:
        keep_seconds: age that a batch has at least before it goes.
        history_bytes: bytes that stay of batches that may go, while the topic is not known to have one owner.
    """

    keep_seconds: float
    history_bytes: int

    def lets_go_until(self, stamp: int) -> int:
        """The newest stamp of which batches may go at `stamp` (microseconds since 1970)."""
        return stamp - int(self.keep_seconds * MICROSECONDS)


EVERYTHING: Final = Policy(1e9, NUMBER_MAX)
"""The policy of a topic that no server has taken yet: all of it is kept."""
