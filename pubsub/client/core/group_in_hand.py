"""The records of a group that handlers have in hand, and the states of their claims.

A handler may begin a record that is only offered. Before its effect can commit, the record must be claimed: the server
must have answered that this member holds it (docs/explanation/groups.md, GR1). The states of a record in hand, and
the next state after an event:

    state      asks     held      refused   absent
    OFFERED    ASKING   CLAIMED   -         OFFERED   the handler runs; an offer that ended decides nothing yet
    ASKING     ASKING   CLAIMED   LOST      ASKING    the handler has to write, and waits for the claim
    CLAIMED    CLAIMED  CLAIMED   -         LOST      its effect may commit
    LOST       LOST     LOST      LOST      LOST      its effect is rolled back

asks: its handler needs the claim. held: the answer to the last message shows it as held. refused: the answered message
asked for it, and the answer does not show it as held. absent: the answer does not show it as held, and the message did
not ask for it. A missing entry cannot happen.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from pubsub.client.core.message import RunSlice

OFFERED: Final = "offered"
ASKING: Final = "asking"
CLAIMED: Final = "claimed"
LOST: Final = "lost"

ASKS: Final = "asks"
HELD: Final = "held"
REFUSED: Final = "refused"
ABSENT: Final = "absent"

NEXT: Final[dict[tuple[str, str], str]] = {
    (OFFERED, ASKS): ASKING,
    (OFFERED, HELD): CLAIMED,
    (OFFERED, ABSENT): OFFERED,
    (ASKING, ASKS): ASKING,
    (ASKING, HELD): CLAIMED,
    (ASKING, REFUSED): LOST,
    (ASKING, ABSENT): ASKING,
    (CLAIMED, ASKS): CLAIMED,
    (CLAIMED, HELD): CLAIMED,
    (CLAIMED, ABSENT): LOST,
    (LOST, ASKS): LOST,
    (LOST, HELD): LOST,
    (LOST, REFUSED): LOST,
    (LOST, ABSENT): LOST,
}


@dataclass(slots=True, eq=False)
class RecordInHand:
    """A record that a handler has.

    Attributes:
        log, offset: its position.
        low, high: the offsets that are told as done with it: gaps before and behind it have no record.
        part: in a keyed group, its part.
        piece: the record.
        attempts: number of this attempt, from 1, over all members.
        state: of its claim.
        began: time of its beginning on the monotonic clock.
        over: True once its handler has ended, and its outcome is known.
    """

    log: str
    offset: int
    low: int
    high: int
    part: int | None
    piece: RunSlice
    attempts: int
    state: str
    began: float = 0.0
    over: bool = field(default=False)

    def event(self, event: str) -> None:
        """Go to the next state."""
        self.state = NEXT[self.state, event]
