"""The Titanic Service Protocol (RFC 9): what stands in requests and replies of its services, carried over Majordomo.

    titanic.request   [service][body…]      ->  [200][id]     stored, and will be run
    titanic.reply     [id]                  ->  [200][body…]  · [300] not yet · [400] no such request
    titanic.close     [id]                  ->  [200]

A `titanic.request` may begin with a frame that is a *key*: KEY_LEAD and the key. A second request with the same key is
the first one, and gets its ID; so a request whose answer was lost is asked again without being run twice. The frame
begins with a zero byte, which no name of a service does: whoever does not know of keys sees no difference. Whether keys
are understood is asked by a `titanic.reply` for NO_ID: it is answered with 200 and KEY_LEAD, and elsewhere with 400.
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
"""Only so many bytes of a status say something."""

KEY_LEAD: Final = b"\0titanic.key\0"

KEY_BYTES_MAX: Final = 255
"""Bytes of a key."""

ID_LENGTH: Final = 32

NO_ID: Final = b"0" * ID_LENGTH
"""The ID of no request."""


class Wanted(NamedTuple):
    """What a `titanic.request` asks for.

    Attributes:
        key: by which it is known again; b"": it has none.
        service: to call.
        body: to call it with.
    """

    key: bytes
    service: bytes
    body: Frames


def parse_request(frames: Sequence[bytes]) -> Wanted | None:
    """What a `titanic.request` asks for; None where it is none."""
    key = b""
    if frames and frames[0].startswith(KEY_LEAD):
        key, frames = frames[0][len(KEY_LEAD) :], frames[1:]
        if not 0 < len(key) <= KEY_BYTES_MAX:
            return None
    if len(frames) < 2 or not is_name(frames[0]) or frames[0].startswith((MANAGEMENT, b"titanic.")):
        return None
    return Wanted(key, frames[0], tuple(frames[1:]))


def parse_id(frames: Sequence[bytes]) -> bytes | None:
    """The ID that a request names, in lower case; None where it is none."""
    if len(frames) != 1 or len(frames[0]) != ID_LENGTH:
        return None
    name = frames[0].lower()
    return name if all(byte in b"0123456789abcdef" for byte in name) else None


def keyed(key: bytes, service: str, body: Frames) -> Frames:
    """The frames of a `titanic.request`; b"": without a key."""
    return (*((KEY_LEAD + key,) if key else ()), service.encode(), *(body or (b"",)))


def digest(wanted: Wanted) -> bytes:
    """What tells one request from another under the same key."""
    found = sha256()
    for frame in (wanted.service, *wanted.body):
        found.update(b"%d:" % len(frame))
        found.update(frame)
    return found.digest()


def code(frames: Sequence[bytes]) -> bytes:
    """The status of a reply; what follows the three digits says nothing."""
    return frames[0][:CODE_LENGTH] if frames else b""
