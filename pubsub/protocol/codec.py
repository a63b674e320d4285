"""Encoding and decoding of messages (docs/explanation/protocol.md, *Form*; Pires et al., section 3.1).

The header is ASCII with single spaces; `protocol.wire` has its form. An unknown `name=value` is ignored, so that a
newer peer may add fields. An unknown `!name=value` refuses the message, so that a newer peer can insist. A message is
checked completely before it is built, and `decode` raises only `DecodeError`. `encode` trusts its caller: names are
checked when a user gives them (`names.check_topic`, `names.check_id`).

The rules are those of docs/explanation/protocol.md, V1 and V3.
"""

from __future__ import annotations

from typing import Final

from pubsub.base.limits import BODY_BYTES_MAX, HEADER_FIELDS_MAX, HEADER_LENGTH_MAX
from pubsub.errors import DecodeError
from pubsub.protocol.batch import Buffer
from pubsub.protocol.messages import Message
from pubsub.protocol.wire import BY_CLASS, BY_NAME

END: Final = b"\r\n\r\n"


def encode(message: Message) -> tuple[bytes, Buffer]:
    """Encode a message.

    Returns:
        The header with its empty line, and the body, not copied; b"" for none.
    """
    return BY_CLASS[type(message)].encode(message)


def decode(contents: Buffer, body: Buffer | None = None) -> Message:
    """Decode a message.

    Args:
        contents: the header with its empty line, followed by the body if `body` is None.
        body: the body if it came in its own frame.

    Raises:
        DecodeError: the bytes are no message. No other exception is raised.
    """
    raw = bytes(contents[: HEADER_LENGTH_MAX + 1])
    end = raw.find(END)
    if end < 0:
        raise DecodeError(f"no end of the header within {HEADER_LENGTH_MAX} bytes")
    rest = contents[end + len(END) :]
    if body is None:
        body = rest
    elif len(rest):
        raise DecodeError("bytes between the header and the body")
    if len(body) > BODY_BYTES_MAX:
        raise DecodeError(f"body of {len(body)} bytes, above {BODY_BYTES_MAX}")
    try:
        words = raw[:end].decode("ascii").split(" ")
    except UnicodeDecodeError:
        raise DecodeError("header is not ASCII") from None
    if len(words) > HEADER_FIELDS_MAX:
        raise DecodeError(f"header of {len(words)} fields, above {HEADER_FIELDS_MAX}")
    codec = BY_NAME.get(words[0])
    if codec is None:
        raise DecodeError(f"no message is named {words[0][:40]!r}")
    try:
        message: Message = codec.decode(words, body)
    except ValueError as error:
        raise DecodeError(f"{codec.name}: {error}") from None
    return message


def request_route(head: Buffer) -> tuple[str, str, str] | None:
    """Return name, sender and topic (or target) of a message without decoding the rest; None if it lacks one of them.

    A proxy needs only this for nearly every message, so it determines the proxy's cost per message.
    """
    words = bytes(head[: 16 + 64 + 80 + 4]).split(b" ", 3)
    if len(words) < 4:
        return None
    try:
        return words[0].decode("ascii"), words[1].decode("ascii"), words[2].decode("ascii")
    except UnicodeDecodeError:
        return None
