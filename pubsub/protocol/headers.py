"""Headers of a message: a few names with a value each, beside its key and body (docs/architecture.md, *Batches*).

    for each header: bytes of the name (1 byte) | bytes of the value (2 bytes) | name | value

All little-endian, in the order in which they were given. A message without any has no bytes of them. Names are checked
where they are put and by the server that takes them, so that no subscriber is ever handed what it cannot read.
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
    """Headers as they stand in a batch; none are no bytes.

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
    """The headers that `encode_headers` wrote, in their order.

    Raises:
        DecodeError: it did not write this.
    """
    if len(block) > MESSAGE_HEADERS_BYTES_MAX:
        raise DecodeError(f"headers of {len(block)} bytes, above {MESSAGE_HEADERS_BYTES_MAX}")
    found: dict[str, bytes] = {}
    place, end, count = 0, len(block), 0
    while place < end:
        if end - place < _LENGTHS.size:
            raise DecodeError("headers end in the midst of one")
        name_length, value_length = _LENGTHS.unpack_from(block, place)
        begin = place + _LENGTHS.size
        place = begin + name_length + value_length
        name = block[begin : begin + name_length]
        if place > end or _RAW_NAME.fullmatch(name) is None:
            raise DecodeError("headers hold what is no name, or end in the midst of one")
        found[name.decode("ascii")] = block[begin + name_length : place]
        count += 1
    if count > MESSAGE_HEADERS_MAX or count != len(found):
        raise DecodeError(f"{count} headers of {len(found)} names; at most {MESSAGE_HEADERS_MAX}, each name once")
    return found
