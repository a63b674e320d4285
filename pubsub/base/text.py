"""Text files from people's editors: UTF-8, with or without a byte order mark."""

from __future__ import annotations

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE


def without_mark(content: bytes) -> bytes:
    """Return the content after a byte order mark of UTF-8, which editors of Windows and PowerShell write.

    Raises:
        UnicodeDecodeError: it is UTF-16, which PowerShell's `>` writes; the text names the remedy.
    """
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
        raise UnicodeDecodeError("utf-8", content[:2], 0, 2, "this is UTF-16; save it as UTF-8")
    return content.removeprefix(BOM_UTF8)
