"""The Messenger's payload: `message_id-source_callback-dest_callback-contents`.

Three decimal numbers in ASCII, each followed by a hyphen, then anything (docs/messenger.md, *The wire*). The
contents may go on in further ZeroMQ frames, so that a large body is never copied into the payload.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import Final, NamedTuple

from pubsub.base.limits import NUMBER_MAX
from pubsub.errors import DecodeError

_PREFIX: Final = re.compile(rb"(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})-(0|[1-9][0-9]{0,18})-")
PREFIX_LENGTH_MAX: Final = 3 * 20


class Callback(IntEnum):
    """Callback IDs that every Messenger knows. Those a process registers begin at FIRST_CALLBACK."""

    NOOP = 0
    ECHO = 1
    ACK = 2


FIRST_CALLBACK: Final = 16


class Prefix(NamedTuple):
    """What stands before the contents.

    Attributes:
        message_id: rises with each message of one Messenger.
        source: the sender's callback that is to get the answer.
        destination: the receiver's callback that this message answers, or a built-in one.
        length: of the prefix in bytes; the contents begin there.
    """

    message_id: int
    source: int
    destination: int
    length: int


def pack(message_id: int, source: int, destination: int) -> bytes:
    """The prefix of a payload."""
    return b"%d-%d-%d-" % (message_id, source, destination)


def unpack(payload: bytes | memoryview) -> Prefix:
    """Read the prefix of a payload.

    Raises:
        DecodeError: there are not three numbers of at most 2^63 - 1 with a hyphen after each.
    """
    match = _PREFIX.match(payload)
    if match is None:
        raise DecodeError("payload does not begin with three numbers and hyphens")
    message_id, source, destination = map(int, match.groups())
    if max(message_id, source, destination) > NUMBER_MAX:
        raise DecodeError("message ID or callback ID above 2^63-1")
    return Prefix(message_id, source, destination, match.end())
