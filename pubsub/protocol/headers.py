"""Headers of a message: names and values that travel next to its key and body (docs/explanation/batches.md, *Batches*).

    for each header: bytes of the name (1 byte) | bytes of the value (2 bytes) | name | value

All numbers are little-endian, and the order is kept. A message without headers has no bytes for them. The client checks
names at a put, and the server checks them again, so that every subscriber can read the headers it receives.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Final

from pubsub.base.limits import MESSAGE_HEADER_NAME_LENGTH_MAX, MESSAGE_HEADERS_BYTES_MAX, MESSAGE_HEADERS_MAX
from pubsub.errors import DecodeError, InvalidName, TooLarge

_LENGTHS: Final = struct.Struct("<BH")
_NAME: Final = re.compile(rf"[!-<>-~]{{1,{MESSAGE_HEADER_NAME_LENGTH_MAX}}}")
_RAW_NAME: Final = re.compile(_NAME.pattern.encode())
_RULE: Final = f"1-{MESSAGE_HEADER_NAME_LENGTH_MAX} printable ASCII characters without space and ="


def encode_headers(headers: Mapping[str, bytes]) -> bytes:
    """Encode headers for a batch; no headers give no bytes.

    Raises:
        InvalidName: a name is not 1-64 printable ASCII characters without space and `=`.
        TooLarge: there are more than MESSAGE_HEADERS_MAX, or they take more than MESSAGE_HEADERS_BYTES_MAX.
    """
    if len(headers) > MESSAGE_HEADERS_MAX:
        raise TooLarge("number of headers of a message", len(headers), MESSAGE_HEADERS_MAX, "MESSAGE_HEADERS_MAX")
    size = sum(_LENGTHS.size + len(name) + len(value) for name, value in headers.items())
    if size > MESSAGE_HEADERS_BYTES_MAX:
        raise TooLarge("headers of a message", size, MESSAGE_HEADERS_BYTES_MAX, "MESSAGE_HEADERS_BYTES_MAX")
    parts: list[bytes] = []
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None:
            raise InvalidName("header name", name, _RULE)
        parts += (_LENGTHS.pack(len(name), len(value)), name.encode("ascii"), value)
    return b"".join(parts)


def decode_headers(block: bytes) -> dict[str, bytes]:
    """Return the headers that `encode_headers` wrote, in their order.

    Raises:
        DecodeError: the bytes are no headers.
    """
    if len(block) > MESSAGE_HEADERS_BYTES_MAX:
        raise DecodeError(f"headers of {len(block)} bytes, above {MESSAGE_HEADERS_BYTES_MAX}")
    found: dict[str, bytes] = {}
    place, end, count = 0, len(block), 0
    while place < end:
        if end - place < _LENGTHS.size:
            raise DecodeError("headers end within a header")
        name_length, value_length = _LENGTHS.unpack_from(block, place)
        begin = place + _LENGTHS.size
        place = begin + name_length + value_length
        name = block[begin : begin + name_length]
        if place > end or _RAW_NAME.fullmatch(name) is None:
            raise DecodeError("headers have an invalid name, or end within a header")
        found[name.decode("ascii")] = block[begin + name_length : place]
        count += 1
    if count > MESSAGE_HEADERS_MAX or count != len(found):
        raise DecodeError(f"{count} headers of {len(found)} names; at most {MESSAGE_HEADERS_MAX}, each name once")
    return found
