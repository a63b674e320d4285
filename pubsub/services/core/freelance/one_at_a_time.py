"""Freelance, model 1: the caller asks one server, and where it hears nothing in time the next (the Guide, chapter 4).

On the wire it is Lazy Pirate. One server is asked as often as the caller has tries. Of several each is asked once, the
one that answered last first: so a server that is down costs its time-out once, and not with each call.
"""

from __future__ import annotations

from collections.abc import Sequence

from pubsub.services.core.interface import Frames, Patience
from pubsub.services.core.lazy import ReqWire
from pubsub.services.core.lockstep import LockstepCaller


class OneAtATime(LockstepCaller):
    """Model 1's caller. A `CallerCore`.

    Args:
        addresses: of the servers.
    """

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__(ReqWire(), addresses)

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call the service. With several servers each is tried once, whatever the patience says of tries."""
        tries = patience.tries if len(self._addresses) == 1 else len(self._addresses)
        super().call(token, service, body, Patience(patience.try_seconds, tries), now)
