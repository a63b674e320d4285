"""A Majordomo client: how its requests and replies look (RFC 7, RFC 18, MDP/Client).

A reply does not say what it answers, so each connection has one request at a time, and each try a connection of its own
(`lockstep`): what comes late for an earlier try finds nobody.
"""

from __future__ import annotations

from collections.abc import Sequence

from pubsub.services.core.interface import Answered, Event, Frames, PartlyAnswered
from pubsub.services.core.lockstep import LockstepCaller
from pubsub.services.core.majordomo.messages import CLIENT_DIALECTS, request


class MajordomoWire:
    """The wire of MDP/Client.

    Args:
        version: of the protocol, 1 or 2.
    """

    def __init__(self, version: int = 1) -> None:
        self._dialect = CLIENT_DIALECTS[version]

    def request(self, service: str, body: Frames) -> Frames:
        """The frames of a request."""
        return request(self._dialect, service.encode(), body or (b"",))

    def reply(self, token: int, service: str, frames: Sequence[bytes]) -> Event | None:
        """The reply, or a part of it; None where it is none."""
        dialect = self._dialect
        at = dialect.body_at
        if len(frames) <= at or frames[at - 1] != service.encode():
            return None
        lead = tuple(frames[: at - 1])
        if lead == dialect.final:
            return Answered(token, tuple(frames[at:]))
        return PartlyAnswered(token, tuple(frames[at:])) if lead == dialect.partial else None


def majordomo_caller(addresses: Sequence[str], version: int = 1) -> LockstepCaller:
    """The caller of a Majordomo broker; several addresses are tried in turn."""
    return LockstepCaller(MajordomoWire(version), addresses)
