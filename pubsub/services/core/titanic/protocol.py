"""The Titanic Service Protocol (RFC 9): requests and replies of its services, carried over Majordomo.

    titanic.request   [service][body…]      ->  [200][id]     stored, and will be run
    titanic.reply     [id]                  ->  [200][body…]  · [300] not yet · [400] no such request
    titanic.close     [id]                  ->  [200]

A `titanic.request` may begin with a frame that holds a *key*: KEY_LEAD and the key. A second request with the same key
counts as the first one, and gets its ID. So a request with a lost answer can be repeated without being run twice. The
frame begins with a zero byte, and no name of a service does, so programs without keys see no difference. A
`titanic.reply` for NO_ID asks whether keys are understood: the answer is 200 and KEY_LEAD if they are, 400 if not.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from pubsub.services.core.interface import Frames
from pubsub.services.core.majordomo.messages import MANAGEMENT, is_name

REQUEST: Final = "titanic.request"
REPLY: Final = "titanic.reply"
CLOSE: Final = "titanic.close"

OK: Final = b"200"
PENDING: Final = b"300"
UNKNOWN: Final = b"400"
ERROR: Final = b"500"

CODE_LENGTH: Final = 3
"""Bytes of a status that count."""

KEY_LEAD: Final = b"\0titanic.key\0"

KEY_BYTES_MAX: Final = 255
"""Length limit of a key."""

ID_LENGTH: Final = 32

NO_ID: Final = b"0" * ID_LENGTH
"""An ID that no request has."""


class Wanted(NamedTuple):
    """A `titanic.request`, decoded.

    Attributes:
        key: the key against repeats; b"": none.
        service: name of the service to call.
        body: body of the call.
    """

    key: bytes
    service: bytes
    body: Frames


def parse_request(frames: Sequence[bytes]) -> Wanted | None:
    """Decode a `titanic.request`; None if it is invalid."""
    key = b""
    if frames and frames[0].startswith(KEY_LEAD):
        key, frames = frames[0][len(KEY_LEAD) :], frames[1:]
        if not 0 < len(key) <= KEY_BYTES_MAX:
            return None
    if len(frames) < 2 or not is_name(frames[0]) or frames[0].startswith((MANAGEMENT, b"titanic.")):
        return None
    return Wanted(key, frames[0], tuple(frames[1:]))


def parse_id(frames: Sequence[bytes]) -> bytes | None:
    """Return the ID in a request, in lower case; None if it is invalid."""
    if len(frames) != 1 or len(frames[0]) != ID_LENGTH:
        return None
    name = frames[0].lower()
    return name if all(byte in b"0123456789abcdef" for byte in name) else None


def keyed(key: bytes, service: str, body: Frames) -> Frames:
    """Return the frames of a `titanic.request`; with b"" as key, without a key."""
    return (*((KEY_LEAD + key,) if key else ()), service.encode(), *(body or (b"",)))


def digest(wanted: Wanted) -> bytes:
    """Return a digest that distinguishes requests with the same key."""
    found = sha256()
    for frame in (wanted.service, *wanted.body):
        found.update(b"%d:" % len(frame))
        found.update(frame)
    return found.digest()


def code(frames: Sequence[bytes]) -> bytes:
    """Return the status of a reply, without the text behind its three digits."""
    return frames[0][:CODE_LENGTH] if frames else b""
