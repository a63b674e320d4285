"""The encoding of a Majordomo client (RFC 7, RFC 18, MDP/Client).

A reply names no request. So each connection has one request at a time, and each try has a connection of its own
(`lockstep`). A late reply to an earlier try is dropped with its connection.
"""

from __future__ import annotations

from collections.abc import Sequence

from pubsub.services.core.interface import Answered, Event, Frames, PartlyAnswered
from pubsub.services.core.lockstep import LockstepCaller
from pubsub.services.core.majordomo.messages import CLIENT_DIALECTS, request


class MajordomoWire:
    """The wire of MDP/Client.

    Args:
        version: version of the protocol, 1 or 2.
    """

    def __init__(self, version: int = 1) -> None:
        self._dialect = CLIENT_DIALECTS[version]

    def request(self, service: str, body: Frames) -> Frames:
        return request(self._dialect, service.encode(), body or (b"",))

    def reply(self, token: int, service: str, frames: Sequence[bytes]) -> Event | None:
        """Return the reply, or a part of it; None if the frames are no reply."""
        dialect = self._dialect
        at = dialect.body_at
        if len(frames) <= at or frames[at - 1] != service.encode():
            return None
        lead = tuple(frames[: at - 1])
        if lead == dialect.final:
            return Answered(token, tuple(frames[at:]))
        return PartlyAnswered(token, tuple(frames[at:])) if lead == dialect.partial else None


def majordomo_caller(addresses: Sequence[str], version: int = 1) -> LockstepCaller:
    """Return the caller of a Majordomo broker. Several addresses are tried in turn."""
    return LockstepCaller(MajordomoWire(version), addresses)
