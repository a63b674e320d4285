"""The messages of the Majordomo Protocol, frame by frame: version 0.1 (RFC 7) and 0.2 (RFC 18).

Both versions share one socket; the header frame shows the version. A *dialect* holds the differences: the frames before
a message, and the byte of each command. 0.1 begins with an empty frame, 0.2 does not. Some programs put an empty frame
before 0.2 too. They are accepted, and get their replies in the same form.

The frames here do not contain the routing ID that a ROUTER puts first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.services.core.interface import Frames

SERVICE_BYTES_MAX: Final = 255
"""Length limit of a service's name."""

ADDRESS_BYTES_MAX: Final = 255
"""Length limit of a client's address, which is a routing ID of ZeroMQ."""

MANAGEMENT: Final = b"mmi."
"""Prefix of the broker's own services (RFC 8)."""

CLIENT_1: Final = b"MDPC01"
CLIENT_2: Final = b"MDPC02"
WORKER_1: Final = b"MDPW01"
WORKER_2: Final = b"MDPW02"


@dataclass(frozen=True, slots=True)
class ClientDialect:
    """The frames of messages from and to a client.

    Attributes:
        version: 1 or 2.
        request, final: the frames before the service's name.
        partial: the same for a part of a reply; None: the version has no parts.
        body_at: index of the first frame of the body.
    """

    version: int
    request: Frames
    final: Frames
    partial: Frames | None
    body_at: int


@dataclass(frozen=True, slots=True)
class WorkerDialect:
    """The frames of messages from and to a worker.

    Attributes:
        version: 1 or 2.
        lead: the frames before the command.
        ready, request, final, heartbeat, disconnect: the commands; `final` is REPLY in version 0.1.
        partial: the command of a part of a reply; b"": the version has no parts.
        command_at: index of the command's frame.
        to_worker: the frames before the client's address in a request.
        beat, bye: complete HEARTBEAT and DISCONNECT messages.
    """

    version: int
    lead: Frames
    ready: bytes
    request: bytes
    partial: bytes
    final: bytes
    heartbeat: bytes
    disconnect: bytes
    command_at: int
    to_worker: Frames
    beat: Frames
    bye: Frames


def _client_dialect(version: int, lead: Frames) -> ClientDialect:
    if version == 1:
        return ClientDialect(1, lead, lead, None, len(lead) + 1)
    return ClientDialect(2, (*lead, b"\x01"), (*lead, b"\x03"), (*lead, b"\x02"), len(lead) + 2)


def _worker_dialect(version: int, lead: Frames) -> WorkerDialect:
    partial, *last = (b"", b"\x03", b"\x04", b"\x05") if version == 1 else (b"\x03", b"\x04", b"\x05", b"\x06")
    final, heartbeat, disconnect = last
    return WorkerDialect(
        version,
        lead,
        b"\x01",
        b"\x02",
        partial,
        final,
        heartbeat,
        disconnect,
        command_at=len(lead),
        to_worker=(*lead, b"\x02"),
        beat=(*lead, heartbeat),
        bye=(*lead, disconnect),
    )


CLIENT_DIALECTS: Final = {1: _client_dialect(1, (b"", CLIENT_1)), 2: _client_dialect(2, (CLIENT_2,))}
"""By version, as in the RFCs."""

WORKER_DIALECTS: Final = {1: _worker_dialect(1, (b"", WORKER_1)), 2: _worker_dialect(2, (WORKER_2,))}
"""By version, as in the RFCs."""

BARE: Final[dict[bytes, ClientDialect | WorkerDialect]] = {
    CLIENT_2: CLIENT_DIALECTS[2],
    WORKER_2: WORKER_DIALECTS[2],
}
"""First frame of a message -> its dialect."""

DELIMITED: Final[dict[bytes, ClientDialect | WorkerDialect]] = {
    CLIENT_1: CLIENT_DIALECTS[1],
    WORKER_1: WORKER_DIALECTS[1],
    CLIENT_2: _client_dialect(2, (b"", CLIENT_2)),
    WORKER_2: _worker_dialect(2, (b"", WORKER_2)),
}
"""Second frame of a message that begins with an empty frame -> its dialect."""


def dialect_of(frames: Sequence[bytes]) -> ClientDialect | WorkerDialect | None:
    """Return the dialect of a message to a broker; None if the message is not of this protocol."""
    if frames[0]:
        return BARE.get(frames[0])
    return DELIMITED.get(frames[1]) if len(frames) > 1 else None


def wrong_with_request(dialect: ClientDialect, frames: Sequence[bytes]) -> str:
    """Return why a client's message is not a request; "": it is one."""
    at = dialect.body_at
    if dialect.version == 2 and (len(frames) < at - 1 or frames[at - 2] != dialect.request[-1]):
        return "command"
    if len(frames) < at:
        return "no_service"
    return "no_body" if len(frames) == at else ""


def wrong_with_reply(dialect: WorkerDialect, frames: Sequence[bytes]) -> str:
    """Return why the frames of a worker's PARTIAL, FINAL or REPLY, or a broker's REQUEST, are invalid; "": valid."""
    at = dialect.command_at + 1
    if len(frames) < at + 2 or frames[at + 1]:
        return "no_address"
    if not 0 < len(frames[at]) <= ADDRESS_BYTES_MAX:
        return "address"
    return "no_body" if len(frames) == at + 2 else ""


def is_name(name: bytes) -> bool:
    """Whether the name of a service is valid: printable, and 1 to SERVICE_BYTES_MAX bytes (RFC 7, MDP/Client)."""
    if not 0 < len(name) <= SERVICE_BYTES_MAX:
        return False
    try:
        return name.decode().isprintable()
    except UnicodeDecodeError:
        return False


def ready(dialect: WorkerDialect, service: bytes) -> Frames:
    """READY, the message that registers a worker for a service."""
    return (*dialect.lead, dialect.ready, service)


def reply(dialect: WorkerDialect, command: bytes, client: bytes, body: Frames) -> Frames:
    """A reply of a worker to a client; `command` is the dialect's `partial` or `final`."""
    return (*dialect.lead, command, client, b"", *body)


def request(dialect: ClientDialect, service: bytes, body: Frames) -> Frames:
    """A request of a client."""
    return (*dialect.request, service, *body)
