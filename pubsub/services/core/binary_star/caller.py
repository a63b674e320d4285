"""The client of a Binary Star pair: it calls one server, and after a pause the other if no reply comes.

The wire is that of Lazy Pirate (`[""][body…]`). A passive server sends nothing. Before the client changes to the other
server it waits SETTLE_SECONDS, so that the pair can notice that one of them is gone. An earlier request would be
dropped there too, and the client would return to the first server (the Guide, chapter 4). A reply that comes during the
pause is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pubsub.services.core.interface import Frames, Patience
from pubsub.services.core.lazy import ReqWire
from pubsub.services.core.lockstep import Lane, LockstepCaller

SETTLE_SECONDS: Final = 2.0
"""Time in which a pair notices that a server has died; the Guide's value."""


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
        """Connections in the pause before the change to the other server, with the tokens of their calls."""

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call the service. The pauses between tries are added to the time that `patience` allows."""
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
            # Without this, each waiting call would try the silent server once more.
            for free in [other for other in self._free if other.address == lane.address]:
                self._free.remove(free)
                self._drop(free)
            return
        self._settling[lane.port] = call.token
        lane.due = min(now + self._settle, call.ends)

    def _drop(self, lane: Lane) -> None:
        self._settling.pop(lane.port, None)
        super()._drop(lane)
