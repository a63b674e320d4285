"""The question that ZeroMQ asks about each newcomer, and the answer (RFC 27, ZAP 1.0), as frames and nothing else.

    request   envelope "" version request-id domain address routing-id mechanism credentials…
    reply     envelope "" version request-id status-code status-text user-id metadata

Only ZeroMQ itself can ask: the address is within the process. What it says of the peer, all but the key, was said by
the peer, or by whoever stands between.
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
    """A request, read as far as it could be.

    Attributes:
        envelope: the frames by which the reply finds its way, the empty one included.
        id: to be repeated in the reply.
        domain: of the socket that the peer came to.
        address: where the peer is, as far as ZeroMQ knows.
        mechanism: how it wants to prove who it is: "CURVE", "NULL", "PLAIN".
        key: its public key, b"" where the mechanism is another.
        fault: why the request is none, "" where it is one.
    """

    envelope: tuple[bytes, ...]
    id: bytes = b""
    domain: str = ""
    address: str = ""
    mechanism: str = ""
    key: bytes = b""
    fault: str = ""


def read(frames: Sequence[bytes]) -> Request:
    """The request that these frames are; it never raises, a bad one says its fault."""
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
    """The frames of an answer.

    Args:
        request: what is answered.
        status: OK, REFUSED or FAILED.
        text: why, for a person; it goes to this process's own ZeroMQ only.
        user: with OK, by what the peer's messages are told from others'.
    """
    words = (status, text[:FIELD_BYTES_MAX], user)
    return [*request.envelope, VERSION, request.id, *(word.encode("ascii", "replace") for word in words), b""]
