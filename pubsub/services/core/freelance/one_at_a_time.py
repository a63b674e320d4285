"""Freelance, model 1: the caller asks one server, and the next one if no reply comes in time (the Guide, chapter 4).

The wire is that of Lazy Pirate. A single server is asked as often as the caller has tries. Of several servers each is
asked once, the one with the last reply first. So a dead server costs its time-out once, and not with each call.
"""

from __future__ import annotations

from collections.abc import Sequence

from pubsub.services.core.interface import Frames, Patience
from pubsub.services.core.lazy import ReqWire
from pubsub.services.core.lockstep import LockstepCaller


class OneAtATime(LockstepCaller):
    """The caller of model 1. A `CallerCore`."""

    def __init__(self, addresses: Sequence[str]) -> None:
        super().__init__(ReqWire(), addresses)

    def call(self, token: int, service: str, body: Frames, patience: Patience, now: float) -> None:
        """Call the service. With several servers each is tried once, whichever tries `patience` allows."""
        tries = patience.tries if len(self._addresses) == 1 else len(self._addresses)
        super().call(token, service, body, Patience(patience.try_seconds, tries), now)
