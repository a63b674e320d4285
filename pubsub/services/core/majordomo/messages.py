"""The messages of the Majordomo Protocol, frame by frame: version 0.1 (RFC 7) and 0.2 (RFC 18).

Both versions stand side by side on one socket, told apart by the header frame. What differs between them is in a
*dialect*: what stands before a message, and which byte is which command. 0.1 begins with an empty frame, 0.2 does not;
but programs are in use that put one before 0.2 too, so that is understood, and answered in the same way.

Frames are given without the routing ID that a ROUTER puts before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pubsub.services.core.interface import Frames

SERVICE_BYTES_MAX: Final = 255
"""Bytes of a service's name."""

ADDRESS_BYTES_MAX: Final = 255
"""Bytes of a client's address: those of a routing ID of ZeroMQ."""

MANAGEMENT: Final = b"mmi."
"""What the names of the broker's own services begin with (RFC 8)."""

CLIENT_1: Final = b"MDPC01"
CLIENT_2: Final = b"MDPC02"
WORKER_1: Final = b"MDPW01"
WORKER_2: Final = b"MDPW02"


@dataclass(frozen=True, slots=True)
class ClientDialect:
    """How a client speaks, and is spoken to.

    Attributes:
        version: 1 or 2.
        request, final: what stands before the service's name.
        partial: the same for a part of a reply; None: the version has none.
        body_at: index of the first frame of the body.
    """

    version: int
    request: Frames
    final: Frames
    partial: Frames | None
    body_at: int


@dataclass(frozen=True, slots=True)
class WorkerDialect:
    """How a worker speaks, and is spoken to.

    Attributes:
        version: 1 or 2.
        lead: what stands before the command.
        ready, request, final, heartbeat, disconnect: the commands; `final` is the REPLY of version 0.1.
        partial: b"" where the version has none.
        command_at: index of the command's frame.
        to_worker: what stands before the client's address in a request.
        beat, bye: HEARTBEAT and DISCONNECT, whole.
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
"""By version, as the RFCs have it."""

WORKER_DIALECTS: Final = {1: _worker_dialect(1, (b"", WORKER_1)), 2: _worker_dialect(2, (WORKER_2,))}
"""By version, as the RFCs have it."""

BARE: Final[dict[bytes, ClientDialect | WorkerDialect]] = {
    CLIENT_2: CLIENT_DIALECTS[2],
    WORKER_2: WORKER_DIALECTS[2],
}
"""What speaks who begins with this frame."""

DELIMITED: Final[dict[bytes, ClientDialect | WorkerDialect]] = {
    CLIENT_1: CLIENT_DIALECTS[1],
    WORKER_1: WORKER_DIALECTS[1],
    CLIENT_2: _client_dialect(2, (b"", CLIENT_2)),
    WORKER_2: _worker_dialect(2, (b"", WORKER_2)),
}
"""What speaks who begins with an empty frame and this one."""


def dialect_of(frames: Sequence[bytes]) -> ClientDialect | WorkerDialect | None:
    """Who sent a message to a broker, and in which version; None: it is not of this protocol."""
    if frames[0]:
        return BARE.get(frames[0])
    return DELIMITED.get(frames[1]) if len(frames) > 1 else None


def wrong_with_request(dialect: ClientDialect, frames: Sequence[bytes]) -> str:
    """Why a client's message is not a request; "": it is one."""
    at = dialect.body_at
    if dialect.version == 2 and (len(frames) < at - 1 or frames[at - 2] != dialect.request[-1]):
        return "command"
    if len(frames) < at:
        return "no_service"
    return "no_body" if len(frames) == at else ""


def wrong_with_reply(dialect: WorkerDialect, frames: Sequence[bytes]) -> str:
    """Why what follows a worker's PARTIAL, FINAL or REPLY, or a broker's REQUEST, is none; "": it is one."""
    at = dialect.command_at + 1
    if len(frames) < at + 2 or frames[at + 1]:
        return "no_address"
    if not 0 < len(frames[at]) <= ADDRESS_BYTES_MAX:
        return "address"
    return "no_body" if len(frames) == at + 2 else ""


def is_name(name: bytes) -> bool:
    """Whether a service may be named so: printable, and of 1 to SERVICE_BYTES_MAX bytes (RFC 7, MDP/Client)."""
    if not 0 < len(name) <= SERVICE_BYTES_MAX:
        return False
    try:
        return name.decode().isprintable()
    except UnicodeDecodeError:
        return False


def ready(dialect: WorkerDialect, service: bytes) -> Frames:
    """READY, by which a worker registers for a service."""
    return (*dialect.lead, dialect.ready, service)


def reply(dialect: WorkerDialect, command: bytes, client: bytes, body: Frames) -> Frames:
    """What a worker answers to a client: `command` is the dialect's `partial` or `final`."""
    return (*dialect.lead, command, client, b"", *body)


def request(dialect: ClientDialect, service: bytes, body: Frames) -> Frames:
    """What a client asks for."""
    return (*dialect.request, service, *body)
