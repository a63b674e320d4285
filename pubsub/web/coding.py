"""Content codings of bodies (RFC 9110, 8.4.1): gzip and deflate, decoded in bounded pieces.

A body of a few bytes can decode to gigabytes. The decoder returns at most PIECE_BYTES_MAX at a time, so its caller
counts each piece and stops before memory is used.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any, Final

PIECE_BYTES_MAX: Final = 256 * 1024
"""Bytes of one decoded piece."""

MEMBERS_MAX: Final = 1_000
"""Members of one gzip body (RFC 1952, 2.2). Each costs the memory and time of a new window."""

CODINGS: Final = "gzip, deflate"
"""The supported codings, as a value of `Accept-Encoding` (RFC 9110, 15.5.16)."""


class Corrupt(Exception):
    """A body that does not match its content coding."""


class Decoder:
    """Decoder of one body.

    Args:
        coding: `gzip` or `deflate`.
    """

    def __init__(self, coding: str) -> None:
        self._gzip = coding == "gzip"
        self._stream: Any = zlib.decompressobj(31) if self._gzip else None
        self._begin = b""
        self._members = 1

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yield decoded pieces of at most PIECE_BYTES_MAX.

        Raises:
            Corrupt: the input does not match the coding.
        """
        if self._stream is None:
            piece = self._begin + piece
            if len(piece) < 2:
                self._begin = piece
                return
            self._stream = zlib.decompressobj(_deflate_window(piece))
        while piece or not self._stream.eof:
            if self._stream.eof:
                self._next_member()
            try:
                decoded = self._stream.decompress(piece, PIECE_BYTES_MAX)
            except zlib.error as error:
                raise Corrupt(str(error)) from None
            piece = self._stream.unused_data or self._stream.unconsumed_tail
            if decoded:
                yield decoded
            if not piece and len(decoded) < PIECE_BYTES_MAX:
                return  # After a full piece more output may follow, although all input is read.

    def finish(self) -> None:
        """Check that the body ends where its coding ends.

        Raises:
            Corrupt: it does not.
        """
        if self._stream is None or not self._stream.eof:
            raise Corrupt("it ends too early")

    def _next_member(self) -> None:
        self._members += 1
        if not self._gzip or self._members > MEMBERS_MAX:
            raise Corrupt("bytes follow its end")
        self._stream = zlib.decompressobj(31)


def _deflate_window(begin: bytes) -> int:
    """Return zlib's window. `deflate` means the zlib format (RFC 1950), but some senders omit its header.

    See RFC 9110, 8.4.1.2.
    """
    zlib_format = begin[0] & 0x0F == 8 and int.from_bytes(begin[:2], "big") % 31 == 0
    return 15 if zlib_format else -15


def coding_of(value: str) -> str | None:
    """Return the coding of a `Content-Encoding`: `gzip`, `deflate`, "" for none, None if it is unknown."""
    name = value.strip().lower()
    if name in {"", "identity"}:
        return ""
    if name in {"gzip", "x-gzip"}:
        return "gzip"
    return "deflate" if name == "deflate" else None
