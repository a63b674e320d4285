"""How far a standby is, as its primary knows."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pubsub.protocol.standby import ROOT, EntryId


@dataclass(slots=True)
class Progress:
    """What is known of the other member.

    Attributes:
        loop: the highest loop that it has confirmed in this term.
        durable: the last entry that it has on its disk.
        sent: the last entry that was sent to it; None: where it stands is not known.
        asked: the loop of the last ENTRY.
        heard: when it last acknowledged something new, monotonic seconds.
        needs_copy: its store is no beginning of this one, or what it lacks is not in the file any more.
        token, followed: of its last FOLLOW, and when that came; who is copied acknowledges nothing meanwhile.
        below: how many FOLLOWs in a row named less than it had acknowledged.
        under_way: ID and bytes of what was sent and not acknowledged.
    """

    id: str
    heard: float
    loop: int = 0
    durable: EntryId = ROOT
    sent: EntryId | None = None
    asked: int = 0
    needs_copy: bool = False
    full: bool = False
    token: int = 0
    followed: float = float("-inf")
    below: int = 0
    under_way: deque[tuple[EntryId, int]] = field(default_factory=deque)
    under_way_bytes: int = 0

    def go_back(self, entry: EntryId | None) -> None:
        """Have what follows this entry sent again; None: it is to say first where it stands."""
        self.sent = entry
        self.under_way.clear()
        self.under_way_bytes = 0


@dataclass(slots=True)
class Joining:
    """A standby that is required and not in sync yet.

    Attributes:
        since: the loop that it is to confirm first.
        proposed: whether it may have been chosen.
    """

    since: int
    proposed: bool = False
