"""URLs for display: without passwords and queries, which may have secrets."""

from __future__ import annotations

import logging
import re
from typing import Final

MASK: Final = "***"
"""Replaces a hidden part."""

SCRUBBED_LENGTH_MIN: Final = 3
"""Characters of a part that is hidden in a text. Shorter parts occur in any text."""

_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#]*@)?([^?#]*)(\?[^#]*)?(#.*)?", re.DOTALL)


def masked(url: str) -> str:
    """Return a URL with MASK in place of user, password, query and fragment."""
    found = _URL.fullmatch(url)
    if found is None:
        return url.partition("?")[0] + ("?" + MASK if "?" in url else "")
    scheme, user, place, query, fragment = found.groups()
    return f"{scheme}{MASK + '@' if user else ''}{place}{'?' + MASK if query else ''}{'#' + MASK if fragment else ''}"


def is_masked(url: str) -> bool:
    """Return whether a URL is an output of `masked`, and so not usable."""
    found = _URL.fullmatch(url)
    return found is not None and (found[2] == MASK + "@" or found[4] == "?" + MASK or found[5] == "#" + MASK)


def scrubbed(text: str, url: str) -> str:
    """Return a text with the hidden parts of a URL masked."""
    found = _URL.fullmatch(url)
    if found is None:
        return text
    user = (found[2] or "").removesuffix("@")
    hidden = [url, user, user.partition(":")[2], (found[4] or "")[1:], (found[5] or "")[1:]]
    for part in sorted({part for part in hidden if len(part) >= SCRUBBED_LENGTH_MIN}, key=len, reverse=True):
        text = text.replace(part, masked(url) if part == url else MASK)
    return text


class _Masking(logging.Filter):
    """Masks the URLs in log records; httpx2 writes one for each request."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Mask the record, and let it pass."""
        if isinstance(record.args, tuple):
            record.args = tuple(_shown(part) for part in record.args)
        return True


def _shown(part: object) -> object:
    if isinstance(part, str | int | float | bytes) and not (isinstance(part, str) and "://" in part):
        return part
    text = str(part)
    return masked(text) if "://" in text else part


_MASKING: Final = _Masking()


def mask_logged_urls() -> None:
    """Make httpx2 log no password and no query of a URL, in this process."""
    logging.getLogger("httpx2").addFilter(_MASKING)
