"""What the Freelance patterns say on the wire; frames as a DEALER has them.

    model   request                               reply                            who says so
    1       [""][body…]                           [""][body…]                      REQ and REP; see `lazy`
    2       [""][sequence][body…]                 [""][sequence][body…]            the Guide, chapter 4, *Model Two*
    3       [control][body…], [control][""][body…] [control][body…]                RFC 10, *Request commands*
            ["PING"]                              ["PONG"]                         RFC 10, *Ping commands*

The sequence, and model 3's control frame, come back as they are. This caller writes a decimal number into them, which
it uses once: so a reply that comes late is never taken for that to a later request.

RFC 10 knows no empty frame behind the control frame, and some of the Guide's clients send one. It is taken for an
envelope where more follows. It has both sides use ROUTER sockets, so that a caller addresses a server by its endpoint.
The caller here has a DEALER for each server, which addresses one server just as well, and what the server sees is the
same. It needs no name that both know; so it reaches a server also where that calls itself otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from pubsub.errors import DecodeError
from pubsub.services.core.interface import Frames

PING: Final = b"PING"
PONG: Final = b"PONG"

CONTROL_BYTES_MAX: Final = 255
"""Bytes of a sequence or a control frame that a server gives back."""

_DIGITS_MAX: Final = 19


class Numbered(NamedTuple):
    """A request or a reply that says which it is.

    Attributes:
        envelope: what stands before the body and comes back with the reply.
        control: the sequence, or the control frame.
        body: the rest; at least one frame.
    """

    envelope: Frames
    control: bytes
    body: Frames


def encode_number(number: int) -> bytes:
    """The sequence, or the control frame, of a request of ours."""
    return b"%d" % number


def decode_number(control: bytes) -> int | None:
    """Which request of ours a reply is to; None: of none."""
    return int(control) if control.isdigit() and len(control) <= _DIGITS_MAX else None


def decode_sequenced(frames: Sequence[bytes]) -> Numbered:
    """A request or a reply of model 2. Before the empty frame there may be addresses, as queues between add them.

    Raises:
        DecodeError: it is none.
    """
    for index, frame in enumerate(frames):
        if not frame:
            envelope, rest = tuple(frames[: index + 1]), frames[index + 1 :]
            break
    else:
        raise DecodeError("no empty frame is before the sequence")
    return Numbered(envelope, *_control_and_body(rest))


def decode_controlled(frames: Sequence[bytes]) -> Numbered:
    """A request or a reply of model 3, with or without the empty frame.

    Raises:
        DecodeError: it is none.
    """
    control, body = _control_and_body(frames)
    return Numbered((), control, body[1:] if len(body) > 1 and not body[0] else body)


def _control_and_body(frames: Sequence[bytes]) -> tuple[bytes, Frames]:
    if len(frames) < 2:
        raise DecodeError(f"2 frames or more are a request, not {len(frames)}")
    if not 0 < len(frames[0]) <= CONTROL_BYTES_MAX:
        raise DecodeError(f"what comes back with the reply is 1 to {CONTROL_BYTES_MAX} bytes, not {len(frames[0])}")
    return frames[0], tuple(frames[1:])


def encode_sequenced(control: bytes, body: Frames, envelope: Frames = (b"",)) -> Frames:
    """A request or a reply of model 2."""
    return (*envelope, control, *(body or (b"",)))


def encode_controlled(control: bytes, body: Frames) -> Frames:
    """A request or a reply of model 3."""
    return (control, *(body or (b"",)))
