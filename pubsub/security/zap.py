"""ZeroMQ's question about each new connection, and the answer (RFC 27, ZAP 1.0), as plain frames.

    request   envelope "" version request-id domain address routing-id mechanism credentials…
    reply     envelope "" version request-id status-code status-text user-id metadata

Only ZeroMQ itself can ask, because the address is within the process. Its facts about the peer, except for the key, are
claims of the peer or of a process in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

VERSION: Final = b"1.0"
FIELD_BYTES_MAX: Final = 255
CURVE_KEY_BYTES: Final = 32

OK: Final = "200"
REFUSED: Final = "400"
FAILED: Final = "500"


@dataclass(frozen=True, slots=True)
class Request:
    """A request, read as far as possible.

    Attributes:
        envelope: the frames that route the reply, including the empty one.
        id: repeated in the reply.
        domain: of the socket that the peer connects to.
        address: of the peer, as far as ZeroMQ knows it.
        mechanism: the security mechanism of the peer: "CURVE", "NULL", "PLAIN".
        key: the peer's public key, b"" for another mechanism.
        fault: why the request is invalid, "" if it is valid.
    """

    envelope: tuple[bytes, ...]
    id: bytes = b""
    domain: str = ""
    address: str = ""
    mechanism: str = ""
    key: bytes = b""
    fault: str = ""


def read(frames: Sequence[bytes]) -> Request:
    """Read a request from frames; it never raises, and an invalid one has a `fault`."""
    try:
        start = frames.index(b"") + 1
    except ValueError:
        return Request((*frames[:1], b""), fault="no delimiter")
    envelope, rest = tuple(frames[:start]), frames[start:]
    request_id = rest[1] if len(rest) > 1 and len(rest[1]) <= FIELD_BYTES_MAX else b""
    if len(rest) < 6:
        return Request(envelope, request_id, fault="too few frames")
    if rest[0] != VERSION:
        return Request(envelope, request_id, fault="not version 1.0")
    if any(len(frame) > FIELD_BYTES_MAX for frame in rest[:6]):
        return Request(envelope, request_id, fault="a field of more than 255 bytes")
    domain, address, mechanism = (rest[index].decode("ascii", "replace") for index in (2, 3, 5))
    key, fault = b"", ""
    if mechanism == "CURVE":
        if len(rest) == 7 and len(rest[6]) == CURVE_KEY_BYTES:
            key = bytes(rest[6])
        else:
            fault = "CURVE without one key of 32 bytes"
    return Request(envelope, request_id, domain, address, mechanism, key, fault)


def reply(request: Request, status: str, text: str = "", user: str = "") -> list[bytes]:
    """Return the frames of an answer.

    Args:
        status: OK, REFUSED or FAILED.
        text: the reason, which is passed only to this process's own ZeroMQ.
        user: with OK, the User-Id of the peer's messages.
    """
    words = (status, text[:FIELD_BYTES_MAX], user)
    return [*request.envelope, VERSION, request.id, *(word.encode("ascii", "replace") for word in words), b""]
