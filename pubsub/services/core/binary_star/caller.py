"""The client of a Binary Star pair: it asks one server, and where it hears nothing settles and asks the other.

On the wire it is Lazy Pirate (`[""][body…]`), and a passive server says nothing. Before the client turns to the other
server it waits for SETTLE_SECONDS, so that the pair has the time to find out that one of them is gone: a request that
comes earlier would be dropped there too, and the client would come back to where it was (the Guide, chapter 4). A reply
that comes while it waits is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.services.core.interface import Frames, Patience
from pubsub.services.core.lazy import ReqWire
from pubsub.services.core.lockstep import Lane, LockstepCaller

SETTLE_SECONDS: Final = 2.0
"""The time in which it is found out that a server has died; the Guide's."""


class StarCaller(LockstepCaller):
    """The client of a pair. A `CallerCore`.

    Args:
        addresses: of the two servers, the primary first.
        settle: seconds, at least as long as a server waits before it takes over.
    """

    def __init__(self, addresses: Sequence[str], settle: float = SETTLE_SECONDS) -> None:
        super().__init__(ReqWire(), addresses)
        self._settle = settle
        self._settling: dict[str, int] = {}
        """Lanes on which a try is over and the other server is not asked yet, and the tokens of their calls."""

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call the service. What it takes to settle between two tries is added to what the patience says."""
        super().call(token, service, body, patience, now)
        lane = self._busy.get(token)
        call = self._waiting[token] if lane is None else lane.call
        assert call is not None
        call.ends += self._settle * (patience.tries - 1)

    def _try_over(self, lane: Lane, now: float) -> None:
        call = lane.call
        assert call is not None
        last = call.tries >= call.patience.tries or now >= call.ends
        if last or lane.refused or self._settling.get(lane.port) == call.token:
            super()._try_over(lane, now)
            # Others wait at that server too, and would ask it once more each.
            for free in [other for other in self._free if other.address == lane.address]:
                self._free.remove(free)
                self._drop(free)
            return
        self._settling[lane.port] = call.token
        lane.due = min(now + self._settle, call.ends)

    def _drop(self, lane: Lane) -> None:
        self._settling.pop(lane.port, None)
        super()._drop(lane)
