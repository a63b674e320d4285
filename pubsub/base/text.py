"""Text files that people write, as their editors leave them: UTF-8, with a byte order mark in front or without."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE


def without_mark(content: bytes) -> bytes:
    """The content behind a byte order mark of UTF-8, which editors of Windows and PowerShell write.

    Raises:
        UnicodeDecodeError: it is UTF-16, which PowerShell's `>` writes; the text says what to do.
    """
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise UnicodeDecodeError("utf-8", content[:2], 0, 2, "this is UTF-16; save it as UTF-8")
    return content.removeprefix(BOM_UTF8)
