"""The progress of a standby, as its primary knows it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from pubsub.protocol.standby import ROOT, EntryId


@dataclass(slots=True)
class Progress:
    """The primary's knowledge of the other member.

    Attributes:
        loop: the highest loop that the standby has confirmed in this term.
        durable: the last entry on its disk.
        sent: the last entry sent to it; None if its end is not known.
        asked: the loop of the last ENTRY.
        received_at: monotonic seconds of its last new acknowledgement.
        needs_copy: True if its store is not a prefix of this one, or if the stream file no longer has the entries that
            it lacks.
        token, followed: token and time of its last FOLLOW. A member that receives a copy sends no ACK meanwhile.
        below: number of FOLLOWs in a row with an end below its last acknowledgement.
        under_way: ID and bytes of each entry that was sent and is not acknowledged.
    """

    id: str
    received_at: float
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
        """Send all entries after `entry` again. With None, wait until the standby reports its end."""
        self.sent = entry
        self.under_way.clear()
        self.under_way_bytes = 0


@dataclass(slots=True)
class CatchUp:
    """A standby that the primary waits for and that is not in sync yet.

    Attributes:
        since: the loop that it must confirm first.
        proposed: True if the in-sync set with this standby may have been chosen.
    """

    since: int
    proposed: bool = False
