"""The wire of the Freelance patterns; frames as a DEALER has them.

    model   request                               reply                            source
    1       [""][body…]                           [""][body…]                      REQ and REP; see `lazy`
    2       [""][sequence][body…]                 [""][sequence][body…]            the Guide, chapter 4, *Model Two*
    3       [control][body…], [control][""][body…] [control][body…]                RFC 10, *Request commands*
            ["PING"]                              ["PONG"]                         RFC 10, *Ping commands*

The server returns the sequence, or the control frame of model 3, unchanged. This caller writes a decimal number into it
and uses each number once. So a late reply is never taken for the reply to a later request.

RFC 10 has no empty frame behind the control frame, but some of the Guide's clients send one. It counts as an envelope
if more frames follow. In RFC 10 both sides use ROUTER sockets, so that a caller addresses a server by its endpoint.
This caller has a DEALER for each server instead. The server sees no difference. The caller needs no name that both
sides know, and also reaches a server with another name for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pubsub.errors import DecodeError
from pubsub.services.core.interface import Frames

PING: Final = b"PING"
PONG: Final = b"PONG"

CONTROL_BYTES_MAX: Final = 255
"""Length limit of a sequence or control frame that a server returns."""

_DIGITS_MAX: Final = 19


class Numbered(NamedTuple):
    """A request or reply with its number.

    Attributes:
        envelope: frames before the body that return with the reply.
        control: the sequence, or the control frame.
        body: the other frames, at least one.
    """

    envelope: Frames
    control: bytes
    body: Frames


def encode_number(number: int) -> bytes:
    """Return the sequence or control frame of a request of this caller."""
    return b"%d" % number


def decode_number(control: bytes) -> int | None:
    """Return the number of the request that a reply answers; None if it answers none of this caller."""
    return int(control) if control.isdigit() and len(control) <= _DIGITS_MAX else None


def decode_sequenced(frames: Sequence[bytes]) -> Numbered:
    """Return a request or reply of model 2. Queues on the way may have added addresses before the empty frame.

    Raises:
        DecodeError: the frames are not such a message.
    """
    for index, frame in enumerate(frames):
        if not frame:
            envelope, rest = tuple(frames[: index + 1]), frames[index + 1 :]
            break
    else:
        raise DecodeError("a message of model 2 has an empty frame before its sequence")
    return Numbered(envelope, *_control_and_body(rest))


def decode_controlled(frames: Sequence[bytes]) -> Numbered:
    """Return a request or reply of model 3, with or without the empty frame.

    Raises:
        DecodeError: the frames are not such a message.
    """
    control, body = _control_and_body(frames)
    return Numbered((), control, body[1:] if len(body) > 1 and not body[0] else body)


def _control_and_body(frames: Sequence[bytes]) -> tuple[bytes, Frames]:
    if len(frames) < 2:
        raise DecodeError(f"a request has 2 frames or more, not {len(frames)}")
    if not 0 < len(frames[0]) <= CONTROL_BYTES_MAX:
        raise DecodeError(f"a control frame has 1 to {CONTROL_BYTES_MAX} bytes, not {len(frames[0])}")
    return frames[0], tuple(frames[1:])


def encode_sequenced(control: bytes, body: Frames, envelope: Frames = (b"",)) -> Frames:
    return (*envelope, control, *(body or (b"",)))


def encode_controlled(control: bytes, body: Frames) -> Frames:
    return (control, *(body or (b"",)))
