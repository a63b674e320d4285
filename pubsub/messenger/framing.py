"""The Messenger's payload: `message_id-source_callback-dest_callback-contents`.

It is three decimal numbers in ASCII, each followed by a hyphen, and then any bytes (docs/messenger.md, *The wire*).
The contents may continue in further ZeroMQ frames, so that a large body is never copied into the payload.
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
    """Built-in callback IDs. The IDs that a process registers begin at FIRST_CALLBACK."""

    NOOP = 0
    ECHO = 1
    ACK = 2


FIRST_CALLBACK: Final = 16


class Prefix(NamedTuple):
    """The numbers before the contents.

    Attributes:
        message_id: rises with each message of one Messenger.
        source: the sender's callback for the answer.
        destination: the receiver's callback that this message answers, or a built-in one.
        length: bytes of the prefix; the contents follow.
    """

    message_id: int
    source: int
    destination: int
    length: int


def pack(message_id: int, source: int, destination: int) -> bytes:
    return b"%d-%d-%d-" % (message_id, source, destination)


def unpack(payload: bytes | memoryview) -> Prefix:
    """Read the prefix of a payload.

    Raises:
        DecodeError: the payload does not begin with three numbers of at most 2^63 - 1, each with a hyphen after it.
    """
    match = _PREFIX.match(payload)
    if match is None:
        raise DecodeError("payload does not begin with three numbers and hyphens")
    message_id, source, destination = map(int, match.groups())
    if max(message_id, source, destination) > NUMBER_MAX:
        raise DecodeError("message ID or callback ID above 2^63-1")
    return Prefix(message_id, source, destination, match.end())
